"""The commands `explain` and `doctor`: tables, JSON, hidden names, wrong names."""

from __future__ import annotations

import json
from pathlib import Path

import build as b
import pytest
from command import Program

from trencadis.models.explanation import Report
from trencadis.models.health import Health
from trencadis.models.hidden import hidden
from trencadis.solver.explain.doctor import doctor
from trencadis.solver.round import Options, solve

SNAP = b.snapshot(
    b.node("n1", 8, cpu_milli=64_000, fabric=("a",)),
    b.node("n2", 8, cpu_milli=64_000, fabric=("b",)),
    b.node("n3", 4, cordoned=True, fabric=("b",)),
    b.queue("red", guarantee=8),
    b.queue("blue", guarantee=2),
    b.running("secret-1", b.at("n1", 0, 1, 2, 3), queue="blue", ran=7_200, runtime_seconds=9_000),
    b.running("secret-2", b.at("n2", 0, 1), queue="blue", ran=60, cpu_milli=64_000),
    b.job("big", 8, queue="red", waited=3_600),
    b.job("huge", 64, queue="red"),
    b.job("fits", 2, queue="red"),
    b.job("secret-3", 8, 2, queue="blue"),
    levels=("leaf",),
)
OPTIONS = Options(time_limit_s=5.0, workers=1, deterministic=True)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    made = Program(monkeypatch, tmp_path)
    Path("snap.json").write_text(SNAP.model_dump_json())
    Path("plan.json").write_text(solve(SNAP, OPTIONS).model_dump_json())
    return made


def test_explain_prints_the_reason_and_what_would_help(program: Program) -> None:
    done = program("explain", "snap.json", "big", "--plan", "plan.json")
    assert done.code == 0
    assert "job huge asks for 64 GPUs" in done.err
    assert "big (queue red) waits: " in done.out
    assert "What would help" in done.out
    assert "Start: best" in done.out


def test_explain_solves_a_round_where_no_plan_is_given(program: Program) -> None:
    done = program("explain", "snap.json", "huge", "--json")
    assert done.code == 0
    report = Report.model_validate_json(done.out)
    assert report.snapshot == SNAP.fingerprint()
    (answer,) = report.jobs
    assert (answer.job, answer.code) == ("huge", "never-fits")


def test_all_is_grouped_and_each_job_has_one_reason(program: Program) -> None:
    done = program("explain", "snap.json", "--all", "--plan", "plan.json", "--json")
    report = Report.model_validate_json(done.out)
    named = [name for group in report.groups for name in group.jobs]
    assert sorted(named) == ["big", "huge", "secret-3"]
    assert report.jobs == ()
    wanted = program(
        "explain", "snap.json", "--all", "--remedies", "--plan", "plan.json", "--json"
    )
    helped = Report.model_validate_json(wanted.out)
    assert [entry.job for entry in helped.jobs] == [group.jobs[0] for group in helped.groups]
    assert "Why 3 jobs wait" in program("explain", "snap.json", "--all").out


def test_start_says_why_there(program: Program) -> None:
    done = program("explain", "snap.json", "--start", "fits")
    assert done.code == 0
    assert "fits (queue red) starts: starts" in done.out


@pytest.mark.parametrize("flags", [("big",), ("--all",), ("--all", "--remedies")])
def test_a_viewer_sees_no_names_of_others(program: Program, flags: tuple[str, ...]) -> None:
    for json_too in ((), ("--json",)):
        done = program("explain", "snap.json", *flags, "--viewer", "red", *json_too)
        assert done.code == 0, done.err
        assert "secret" not in done.out + done.err
        assert "big" in done.out
    assert "secret" in program("explain", "snap.json", "--all").out


def test_hiding_changes_names_alone() -> None:
    snap, plan = hidden(SNAP, solve(SNAP, OPTIONS), "red")
    assert "secret" not in snap.model_dump_json()
    assert "secret" not in plan.model_dump_json()
    assert plan.snapshot == snap.fingerprint()
    assert [job.queue for job in snap.jobs] == [job.queue for job in SNAP.jobs]
    assert len({job.name for job in snap.jobs}) == len(SNAP.jobs)
    with pytest.raises(KeyError):
        hidden(SNAP, plan, "green")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bigg",), "there is no job 'bigg' in the snapshot. Maybe big?"),
        ((), "give either JOBs or --all"),
        (("big", "--all"), "give either JOBs or --all"),
        (("big", "--viewer", "rde"), "there is no queue 'rde' in the snapshot. Maybe red?"),
        (("secret-3", "--viewer", "red"), "job 'secret-3' is not in queue red"),
        (("secret", "--viewer", "red"), "job 'secret' is not in queue red"),
    ],
)
def test_wrong_names_are_wrong_usage(
    program: Program, words: tuple[str, ...], message: str
) -> None:
    done = program("explain", "snap.json", *words, "--plan", "plan.json")
    assert done.code == 2
    assert done.out == ""
    # Typer draws a frame around it, and breaks lines where it likes.
    said = " ".join(done.err.replace("│", " ").split())
    assert message in said


def test_another_snapshots_plan_is_invalid_input(program: Program) -> None:
    other = b.snapshot(b.node("n", 8), b.job("big", 8))
    Path("other.json").write_text(solve(other, OPTIONS).model_dump_json())
    done = program("explain", "snap.json", "big", "--plan", "other.json")
    assert done.code == 65
    assert "made for another snapshot" in done.err
    assert "Traceback" not in done.err


def test_equal_input_gives_equal_bytes(program: Program) -> None:
    command = ("explain", "snap.json", "--all", "--remedies", "--plan", "plan.json", "--json")
    assert program(*command).out == program(*command).out


def test_doctor_answers_the_questions_of_a_person_on_call(program: Program) -> None:
    done = program("doctor", "snap.json", "--json")
    assert done.code == 0
    health = Health.model_validate_json(done.out)
    assert (health.gpus, health.allocated, health.idle) == (20, 6, 10)
    assert health.verdict == "fragmented"
    node, leaf, cluster = health.slots
    assert (node.level, leaf.level, cluster.level) == ("node", "leaf", "cluster")
    # n1 has 4 idle, n2 has 6.
    assert node.slots == {1: 10, 2: 5, 4: 2}
    assert cluster.slots == {1: 10, 2: 5, 4: 2, 8: 1}
    assert [(entry.node, entry.gpus, entry.why) for entry in health.stranded] == [
        ("n3", 4, "cordoned")
    ]
    states = {entry.queue: (entry.state, entry.seconds) for entry in health.queues}
    # blue passed its guarantee of 2 when secret-1 took 4, two hours ago.
    assert states == {"red": ("below", 3_600), "blue": ("above", 7_200)}
    assert {entry.job for entry in health.never} == {"huge"}
    assert [(entry.job, entry.lost_gpu_seconds) for entry in health.unsaved] == [
        ("secret-1", 4 * 7_200),
        ("secret-2", 2 * 60),
    ]
    assert health.fit_now == 1
    assert "FRAGMENTED" in program("doctor", "snap.json").out
    assert json.loads(done.out)["active"] is None


def test_doctor_on_full_empty_and_stranded_clusters() -> None:
    eight = tuple(range(8))
    full = b.snapshot(b.node("n", 8), b.running("r", b.at("n", *eight)), b.job("j"))
    assert doctor(full).verdict == "full"
    assert doctor(b.snapshot()).verdict == "empty"
    assert doctor(b.snapshot(b.node("n", 8), b.job("j"))).verdict == "room"
    # Six idle GPUs, CPU for one task of two: four are stranded.
    short = b.snapshot(
        b.node("n", 8, cpu_milli=16_000),
        b.running("r", b.at("n", 0, 1), cpu_milli=8_000),
        b.job("j", 2, cpu_milli=8_000),
    )
    (stranded,) = doctor(short).stranded
    assert (stranded.gpus, stranded.why) == (4, "cpu")
