"""`trencadis diff`: what it tells of two plans, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import build
import pytest
from tests.command import Program

from trencadis.models import Plan

SNAPSHOT = build.snapshot(build.node("n1", 4), build.job("a", 1), build.job("b", 1))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def write(name: str, *starts: object) -> str:
    plan: Plan = build.plan_of(SNAPSHOT, *starts)
    Path(name).write_text(plan.model_dump_json())
    return name


def test_equal_plans_do_the_same(program: Program) -> None:
    one = write("one.json", build.start("a", build.at("n1", 0)))
    told = program("diff", one, one, "--exit-code")
    assert (told.code, told.out.strip()) == (0, "Both plans do the same.")


def test_what_differs_is_listed_and_exits_with_one_if_asked(program: Program) -> None:
    starts = [build.start(name, build.at("n1", gpu)) for gpu, name in enumerate("ab")]
    one = write("one.json", *starts)
    other = write("other.json", build.start("a", build.at("n1", 2)))
    told = program("diff", one, other, "--json", "--exit-code")
    assert told.code == 1
    found = json.loads(told.out)["differences"]
    assert [(entry["action"], entry["of"]) for entry in found] == [("start", "a"), ("start", "b")]
    assert found[0]["first"]["where"] == "n1:0"
    assert found[0]["second"]["where"] == "n1:2"
    assert found[1]["second"] is None
    shown = program("diff", one, other)
    assert shown.code == 0
    assert "n1:2" in shown.out


def test_bad_plans_are_told_apart(program: Program) -> None:
    one = write("one.json")
    Path("bad.json").write_text("{")
    told = program("diff", one, "bad.json")
    assert told.code == 65
    assert told.err.startswith("trencadis: bad.json: invalid input, 1 fault")
    assert program("diff", "-", "-").code == 2
