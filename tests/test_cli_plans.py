"""verify, apply and show: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import (
    at,
    hold,
    job,
    node,
    queue,
    running,
    snapshot,
    somewhere,
)
from command import Program
from fake_solver import PLAN, SNAP, TEXT

from trencadis.models import Snapshot, apply, load_snapshot
from trencadis.solver.verify.verdict import Verdict, Violation


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


@pytest.fixture
def files(program: Program) -> Program:
    """A program in a directory with a snapshot and its plan."""
    Path("snap.json").write_text(TEXT)
    Path("plan.json").write_text(PLAN.model_dump_json())
    return program


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """What the verifier will say: tests put a verdict in."""
    said: list[Verdict] = []
    monkeypatch.setattr("trencadis.solver.verify.verify", lambda _s, _p: said[0], raising=False)
    return said


def test_verify_says_that_a_plan_keeps_the_rules(files: Program, verdicts: list[Verdict]) -> None:
    verdicts.append(Verdict((), {"tier:high": 5}))
    done = files("verify", "snap.json", "plan.json")
    assert done.code == 0
    assert "The plan keeps every rule." in done.out
    assert done.err == ""
    done = files("verify", "snap.json", "plan.json", "--json")
    assert json.loads(done.out) == {"ok": True, "violations": [], "stages": {"tier:high": 5}}


def test_a_plan_that_breaks_a_rule_is_3(files: Program, verdicts: list[Verdict]) -> None:
    verdicts.append(Verdict((Violation("gang", "job a has 1 of 2 tasks"),)))
    done = files("verify", "snap.json", "-", stdin=PLAN.model_dump_json())
    assert done.code == 3
    assert "gang: job a has 1 of 2 tasks" in done.out
    done = files("verify", "snap.json", "plan.json", "--json")
    assert done.code == 3
    assert json.loads(done.out)["violations"] == [
        {"rule": "gang", "message": "job a has 1 of 2 tasks"}
    ]


def test_apply_prints_the_next_snapshot(files: Program) -> None:
    done = files("apply", "snap.json", "plan.json")
    assert done.code == 0
    following, _ = load_snapshot(done.out)
    assert following == apply(SNAP, PLAN)
    assert following.jobs[0].state == "running"
    assert '"schema_version": 1' in done.out


def test_apply_writes_the_next_snapshot(files: Program) -> None:
    done = files("apply", "snap.json", "plan.json", "-o", "next.json")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert load_snapshot(Path("next.json").read_bytes())[0] == apply(SNAP, PLAN)
    done = files("apply", "snap.json", "plan.json", "-o", "next.json", "--json")
    assert done.out == Path("next.json").read_text()


def test_a_plan_for_another_snapshot_is_not_applied(files: Program) -> None:
    Path("plan.json").write_text(PLAN.model_copy(update={"snapshot": "0" * 64}).model_dump_json())
    done = files("apply", "snap.json", "plan.json", "-o", "next.json")
    assert done.code == 65
    assert "plan.json" in done.err
    assert "$: the plan was made for another snapshot" in done.err
    assert not Path("next.json").exists()


# show


def test_show_draws_the_cluster(program: Program) -> None:
    snap = snapshot(
        node("n1", 8, unhealthy=(7,), fabric=("l1",), cpu_milli=64_000, memory_mib=2**20),
        node("n2", 4, fabric=("l1",), cordoned=True, mig=(3,)),
        node("n3", 4, down=True, fabric=("l2",)),
        queue("red", guarantee=6),
        queue("blue", limit=2),
        job("waits", 4, queue="red"),
        running("r", at("n1", 0, 1), queue="red", cpu_milli=4_000),
        running("s", somewhere("n2"), gpus=2, queue="blue"),
        hold("waits", at("n1", 2, 3, 4, 5)),
        levels=("leaf",),
    )
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "■■▣▣▣▣□×" in done.out
    assert "■■" in done.out
    assert "(by count)" in done.out
    assert "cordoned" in done.out
    assert "3 nodes (1 down)" in done.out
    assert "4 below its guarantee" in done.out
    assert "\x1b" not in done.out
    told = json.loads(program("show", "-", "--json", stdin=snap.model_dump_json()).out)
    assert told["gpus"]["held"] == 4
    assert told["gpus"]["broken"] == 1
    (n1,) = [entry for entry in told["nodes"] if entry["name"] == "n1"]
    assert n1["gpus"] == ["used"] * 2 + ["held"] * 4 + ["idle", "broken"]
    assert n1["free_cpu_milli"] == 60_000
    assert {queue["name"]: queue["used_milli"] for queue in told["queues"]} == {
        "red": 2_000,
        "blue": 2_000,
    }


@pytest.mark.parametrize("snap", [snapshot(), snapshot(job("p", 0)), snapshot(node("n", 0))])
def test_show_draws_next_to_nothing(program: Program, snap: Snapshot) -> None:
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "No GPUs" in done.out


def test_show_folds_a_thousand_nodes(program: Program) -> None:
    machines = [
        node(f"n{i}", 8, fabric=(f"s{i // 100}", f"l{i // 10}"), down=i == 5) for i in range(1_000)
    ]
    tasks = [running(f"r{i}", at(f"n{i}", *range(i % 9))) for i in range(1_000) if i % 9 and i != 5]
    snap = snapshot(machines, tasks, levels=("spine", "leaf"))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert len(done.out.splitlines()) < 80
    assert "1,000 nodes (1 down)" in done.out
    assert "8,000 GPUs" in done.out


def test_show_names_cannot_steer_the_terminal(program: Program) -> None:
    snap = snapshot(node("a[red]b", 1), node("\x9b31mx", 1), job("[bold]j"))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert "a[red]b" in done.out
    assert "\x9b" not in done.out
    assert "?31mx" in done.out
