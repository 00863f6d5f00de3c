"""`trencadis replay`: what it prints, writes, resumes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import node, queue, snapshot
from command import Program
from replay_world import cluster, entry, trace

from trencadis.whatif.engine import ReplayOptions
from trencadis.whatif.measures import Measures
from trencadis.whatif.replay import Replayed, Setting, replay
from trencadis.whatif.statistics import jain, quantile, spread

JOBS = "submit,seconds,gpus,priority,user\n" + "".join(
    f"{i * 40},{200 + 70 * (i % 5)},{1 + i % 4},{('high', 'normal', 'low')[i % 3]},u{i % 3}\n"
    for i in range(40)
)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    (tmp_path / "jobs.csv").write_text(JOBS)
    return Program(monkeypatch, tmp_path)


def test_policies_side_by_side(program: Program) -> None:
    done = program(
        "replay", "jobs.csv", "--cluster", "2xh100-8", "--policy", "all", "--json",
        "--processes", "1", "--round", "10s", "--load", "0.9",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["gpus"] == 16
    assert found["offered_load"] == pytest.approx(0.9, rel=0.01)
    assert len(found["policies"]) == 8
    for entry_ in found["policies"]:
        hours = entry_["gpu_hours"]
        assert sum(v for k, v in hours.items() if k != "capacity") == pytest.approx(
            hours["capacity"]
        )
        assert entry_["jobs"]["done"] == 40
        assert entry_["cost"] == pytest.approx(hours["capacity"] * (25.92 + 2.0) / 8)


def test_processes_change_nothing(program: Program) -> None:
    arguments = ("replay", "jobs.csv", "--cluster", "1xgpu-4", "--policy", "fifo", "--policy",
                 "volcano+kill", "--json")  # fmt: skip
    one, two = (program(*arguments, "--processes", n) for n in ("1", "2"))
    assert one.code == two.code == 0, two.err
    assert one.out == two.out


def test_tables_name_policies_and_figures(program: Program) -> None:
    done = program("replay", "jobs.csv", "--cluster", "1xgpu-4", "--policy", "backfill")
    assert done.code == 0, done.err
    assert done.out.startswith("jobs: 40 jobs on 4 GPUs (1 node), offered load")
    assert "backfill" in done.out
    assert "p95" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--cluster", "8xgpu"), 65, "no kind of node 'gpu'"),
        (("--cluster", "many"), 65, "'many' is no number of nodes and kind"),
        (("--cluster", "1xgpu-4", "--policy", "magic"), 65, "no policy 'magic'"),
        (("--cluster", "1xgpu-4", "--policy", "fifo+less"), 65, "no switch 'less'"),
        (("--cluster", "1xgpu-4", "--fabric", "string"), 65, "no fabric 'string'"),
        (("--cluster", "1xgpu-4", "--window", "5d..1d"), 2, "ends before it begins"),
        (("--cluster", "1xgpu-4", "--window", "50d..51d"), 65, "no job of the trace arrives then"),
        (("--cluster", "1xgpu-4", "--round", "soon"), 2, "is no time"),
        (("--cluster", "1xgpu-4", "--resume"), 2, "--resume needs --out"),
        (("--cluster", "1xgpu-4", "--load", "1", "--scale-load", "2"), 2, "not both"),
        (("--cluster", "gone.json"), 65, "there is no such file"),
        (("--cluster", "1xgpu-4", "--timezone", "UTC", "--format", "magic"), 65, "no form"),
    ],
)
def test_refusals(program: Program, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = program("replay", "jobs.csv", *arguments)
    assert done.code == code, done.err
    assert said in " ".join(done.err.replace("│", " ").split())
    assert "Traceback" not in done.err


def test_what_a_replay_cant_do_is_a_fault(program: Program) -> None:
    place = snapshot(node("n1", 4), queue("main", order="strict_fifo"))
    (program.directory / "c.json").write_text(place.model_dump_json())
    done = program("replay", "jobs.csv", "--cluster", "c.json")
    assert done.code == 65
    assert "doesn't keep strict_fifo yet" in done.err


def test_results_are_written_and_a_cut_off_replay_goes_on(program: Program) -> None:
    arguments = ("replay", "jobs.csv", "--cluster", "1xgpu-4", "--policy", "priority",
                 "--policy", "trencadis", "--out", "out", "--processes", "1", "--json")  # fmt: skip
    whole = program(*arguments)
    assert whole.code == 0, whole.err
    out = program.directory / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {name.partition(".")[2] for name in before} == {
        "decisions.jsonl", "jobs.csv", "key.json", "measures.json", "rounds.csv",
    }  # fmt: skip
    for name in ("priority", "trencadis"):
        log = out / f"{name}.decisions.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:9])
    again = program(*arguments, "--resume")
    assert again.code == 0, again.err
    assert again.out == whole.out
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    other = program(*arguments, "--resume", "--seed", "5")
    assert other.code == 65
    assert "of another trace, cluster, policy or option" in other.err


def measured(*jobs: object, spec: str = "fifo", **fields: object) -> Replayed:
    place = fields.pop("place", None) or cluster(**fields)  # type: ignore[arg-type]
    setting = Setting(ReplayOptions(round_seconds=1), price_per_gpu_hour=2.0)
    return replay(trace(*jobs), place, spec, setting)  # type: ignore[arg-type]


def test_measures_of_a_case_worked_by_hand() -> None:
    """4 GPUs for 150 s are 600 GPU-s; a uses 300 of them, b 200, 100 idle while b waits."""
    m: Measures = measured(entry("a", 0, 100, 3), entry("b", 10, 50, 4)).measures
    assert m.makespan_seconds == 150
    assert m.gpu_hours.capacity == pytest.approx(600 / 3_600)
    assert m.allocation == m.utilization == pytest.approx(500 / 600)
    assert m.wait.mean == 45
    assert m.wait.weighted_mean == pytest.approx(90 * 4 / 7)
    assert m.completion.mean == (100 + 140) / 2
    assert m.cost == pytest.approx(600 / 3_600 * 2)
    assert m.cost_per_useful_gpu_hour == pytest.approx(2 * 600 / 500)
    assert m.preemption_ratio == 0
    assert m.wait_by["size"].keys() == {"medium"}
    # One idle GPU for 100 s: a's kind can't use it, nor can b's.
    assert m.fragmentation == 1.0


def test_a_guarantee_that_idle_gpus_could_have_kept() -> None:
    """FIFO leaves 3 GPUs idle for 1,000 s behind a head; red waits with a guarantee of 2."""
    place = snapshot(
        node("n1", 4, nvswitch=True),
        queue("red", guarantee=2),
        queue("blue"),
        preemption={"grace_seconds": 99},
    )
    m = measured(
        entry("run", 0, 1_000, 1, queue="blue"),
        entry("head", 0, 10, 4, queue="blue"),
        entry("mine", 0, 10, 2, queue="red"),
        place=place,
    ).measures
    short = m.shortfall_gpu_hours["red"]
    assert short["total"] == pytest.approx(2 * 1_010 / 3_600)
    # The grace is 99 s and a round of one second. The head may be stopped only after half an hour.
    assert short["beyond_grace"] == pytest.approx(2 * 910 / 3_600)
    assert short["unavoidable"] == pytest.approx(2 * 10 / 3_600)
    kept = measured(
        entry("run", 0, 1_000, 1, queue="blue"),
        entry("head", 0, 10, 4, queue="blue"),
        entry("mine", 0, 10, 2, queue="red"),
        place=place,
        spec="volcano",
    ).measures
    assert kept.shortfall_gpu_hours["red"]["total"] == 0


def test_advice_names_the_head_that_blocks() -> None:
    said = measured(entry("a", 0, 1_000, 1), entry("b", 0, 10, 4), entry("c", 0, 900, 3)).advice
    assert any("idle while jobs waited" in sentence for sentence in said)


def test_statistics() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == 2
    assert quantile([1, 2, 3, 4], 0.95) == 4
    assert quantile(list(range(1, 101)), 0.95) == 95
    assert jain([1, 1, 1]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert spread([]).count == 0
    assert spread([1, 3], [3, 1]).weighted_mean == 1.5
