"""A failing round as one file, and the same round again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import INSTANCES, Program
from live_fake import Fake, Work, context

from trencadis.adapters.live.loop import Loop
from trencadis.adapters.live.repro import write_repro
from trencadis.models import Plan, Snapshot, load_snapshot
from trencadis.solver.round import Options, solve

TEAM = INSTANCES / "team_node.json"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def test_a_round_that_fails_is_saved_and_solved_again(program: Program, tmp_path: Path) -> None:
    def fail(snapshot: Snapshot) -> Plan:
        raise RuntimeError(f"{len(snapshot.jobs)} jobs are too many")

    live = context(Fake({"a": Work(1), "b": Work(2)}), tmp_path / "state")
    options: dict[str, object] = {"deterministic": True, "seed": 5}
    assert Loop(live, fail, options=options, repro_dir=tmp_path).round() is False
    assert live.store.get("beat") is None
    (file,) = tmp_path.glob("trencadis-round-*.json")
    assert "2 jobs are too many" in json.loads(file.read_text())["error"]
    done = program("solve", "--repro", file, "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert {start["job"] for start in plan["starts"]} == {"a", "b"}
    assert plan["made"]["seed"] == 5
    assert plan["made"]["deterministic"] is True


def test_the_file_of_an_internal_error_is_solved_again(program: Program, tmp_path: Path) -> None:
    text = TEAM.read_text()
    error = {
        "arguments": ["solve", "c.json", "--seed", "3", "--deterministic"],
        "input": {"c.json": text},
    }
    (tmp_path / "e.json").write_text(json.dumps(error))
    done = program("solve", "--repro", "e.json", "--json")
    assert done.code == 0, done.err
    again = solve(load_snapshot(text)[0], Options(deterministic=True, seed=3))
    assert Plan.model_validate_json(done.out) == again


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '{"kind": "trencadis-round", "options": {"x": 1}}',
     '{"kind": "trencadis-round", "snapshot": {}}',
     '{"arguments": ["solve", "a"], "input": {}}', '{"arguments": ["show"], "input": {}}'],
)  # fmt: skip
def test_other_files_are_faults(program: Program, content: str) -> None:
    (program.directory / "f.json").write_text(content)
    done = program("solve", "--repro", "f.json")
    assert done.code == 65
    assert "Traceback" not in done.err


def test_one_of_the_two_is_needed(program: Program) -> None:
    assert program("solve").code == 2
    assert program("solve", TEAM, "--repro", "x").code == 2


def test_what_is_written_is_read(tmp_path: Path) -> None:
    snapshot, _ = load_snapshot(TEAM.read_text())
    file = write_repro(tmp_path, snapshot, {}, ValueError("x"))
    assert load_snapshot(json.dumps(json.loads(file.read_text())["snapshot"]))[0] == snapshot
