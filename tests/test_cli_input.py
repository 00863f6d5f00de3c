"""Bad input in every command that reads any: one line per fault, exit 65, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import job, node, plan_of, snapshot
from command import Program
from fake_solver import FakeSolver

SNAP = snapshot(node("n1"), job("p"))
NOW = '"now": "2026-01-05T12:00:00Z"'

BAD = {
    "empty": b"",
    "blank": b" \n",
    "truncated": SNAP.model_dump_json().encode()[:-20],
    "malformed": b"{now}",
    "not UTF-8": b'{"now": "\xff\xfe"}',
    "UTF-16": '{"now": 1}'.encode("utf-16"),
    "binary": bytes(range(256)),
    "list": b"[]",
    "null": b"null",
    "text": b'"snapshot"',
    "number": b"1e400",
    "deep": b'{"a":' * 50_000,
    "NaN": b'{"now": NaN}',
    "infinite": b'{"now": -Infinity}',
    "huge": b'{"now": 1' + b"0" * 5_000 + b"}",
    "unknown field": b'{"snow": 1}',
    "field twice": f"{{{NOW}, {NOW}}}".encode(),
}

COMMANDS = {
    "solve": ("solve", "bad.json", "-o", "out.json"),
    "solve --policy": ("solve", "good.json", "--policy", "bad.json", "-o", "out.json"),
    "solve --policy toml": ("solve", "good.json", "--policy", "bad.toml", "-o", "out.json"),
    "verify snapshot": ("verify", "bad.json", "plan.json"),
    "verify plan": ("verify", "good.json", "bad.json"),
    "apply snapshot": ("apply", "bad.json", "plan.json", "-o", "out.json"),
    "apply plan": ("apply", "good.json", "bad.json", "-o", "out.json"),
    "show": ("show", "bad.json"),
}


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    made = Program(monkeypatch, tmp_path)
    Path("good.json").write_text(SNAP.model_dump_json())
    Path("plan.json").write_text(plan_of(SNAP).model_dump_json())
    FakeSolver(monkeypatch)
    return made


def refused(program: Program, *arguments: str) -> list[str]:
    """The lines on stderr of a command that must do nothing."""
    before = program.files()
    done = program(*arguments)
    assert done.code == 65, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert program.files() == before
    lines = done.err.splitlines()
    assert "invalid input" in lines[0]
    assert len(lines) <= 22
    assert all(line.startswith(("$", "... and")) for line in lines[1:])
    assert all(len(line) < 300 for line in lines)
    return lines


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", BAD)
def test_bad_content(program: Program, command: str, case: str) -> None:
    Path("bad.json").write_bytes(BAD[case])
    toml = "toml" in command
    Path("bad.toml").write_bytes(BAD[case])
    lines = refused(program, *COMMANDS[command])
    assert lines[0].startswith(f"trencadis: bad.{'toml' if toml else 'json'}: invalid input, ")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", ["missing", "directory"])
def test_no_content(program: Program, command: str, case: str) -> None:
    if case == "directory":
        Path("bad.json").mkdir()
        Path("bad.toml").mkdir()
    (line,) = refused(program, *COMMANDS[command])[1:]
    assert line.startswith("$: can't read bad.")
    assert {"missing": "there is no such file", "directory": "is a directory"}[case] in line


def test_at_most_twenty_lines_then_a_count(program: Program) -> None:
    snap = snapshot(node("n1"), [job(f"j{i}", priority="urgent") for i in range(30)])
    Path("bad.json").write_text(snap.model_dump_json())
    lines = refused(program, "show", "bad.json")
    assert lines[0] == "trencadis: bad.json: invalid input, 30 faults; nothing was done"
    assert len(lines) == 22
    assert lines[1].startswith("$.jobs[0].priority: job j0 has priority urgent")
    assert lines[-1] == "... and 10 more faults"


def test_faults_of_the_policy_are_not_blamed_on_the_snapshot(program: Program) -> None:
    Path("bad.json").write_text('{"tiers": [{"name": "x"}]}')
    lines = refused(program, "solve", "good.json", "--policy", "bad.json")
    assert lines[1] == "$: default_tier 'normal' is not one of the tiers ['x']"


def test_an_output_that_was_there_survives_bad_input(program: Program) -> None:
    Path("out.json").write_text("precious")
    Path("bad.json").write_text("{")
    refused(program, "solve", "bad.json", "-o", "out.json")
    assert Path("out.json").read_text() == "precious"
