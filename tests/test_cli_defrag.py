"""`trencadis defrag`: what it writes, says and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.command import Program
from tests.test_defrag import fewest

from trencadis.models import load_plan

EXAMPLE = Path(__file__).parent.parent / "instances" / "four_h100.json"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def test_it_says_what_each_move_buys(program: Program) -> None:
    Path("snapshot.json").write_text(fewest().model_dump_json())
    shown = program("defrag", "snapshot.json", "-o", "plan.json")
    assert shown.code == 0
    plan = load_plan(Path("plan.json").read_text())
    assert plan.purpose == "defrag"
    for move in plan.moves:
        assert move.job in shown.out
    assert "lets in" in shown.out
    assert program("verify", "snapshot.json", "plan.json").code == 0
    assert program("apply", "snapshot.json", "plan.json").code == 0


def test_without_a_budget_it_says_so(program: Program) -> None:
    shown = program("defrag", str(EXAMPLE), "--json")
    assert shown.code == 0
    assert load_plan(shown.out).moves == ()
    assert "budget.moves is 0" in shown.err


def test_it_is_no_plan_to_explain(program: Program) -> None:
    Path("snapshot.json").write_text(fewest().model_dump_json())
    assert program("defrag", "snapshot.json", "-o", "plan.json").code == 0
    shown = program("explain", "snapshot.json", "--all", "--plan", "plan.json")
    assert shown.code == 65
    assert "only moves running jobs" in shown.err
