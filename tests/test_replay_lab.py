"""The comparison of replays: intervals, the kept figures, the section of the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replay_lab import runs
from replay_lab.cases import FILES, Case, cases
from replay_lab.page import BEGIN, END, inserted
from replay_lab.paired import STUDENT_T, difference


def test_a_paired_difference_worked_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, half of the interval 4.303 / sqrt(3)."""
    found = difference([2, 4, 6], [1, 2, 3])
    assert found.mean == 2
    assert found.half == pytest.approx(4.303 / 3**0.5)
    assert not found.sure
    assert difference([10, 11, 12, 11], [0, 0, 0, 0]).sure


def test_quantiles_fall_towards_the_normal_one() -> None:
    values = list(STUDENT_T.values())
    assert values == sorted(values, reverse=True)
    assert values[-1] > 1.96


def test_the_section_replaces_itself() -> None:
    once = inserted("# Results\n\nold\n", "new\n")
    assert once == f"# Results\n\nold\n\n{BEGIN}\nnew\n{END}\n"
    assert inserted(once + "\n## After\n", "newer\n") == (
        f"# Results\n\nold\n\n{BEGIN}\nnewer\n{END}\n\n## After\n"
    )


def test_each_case_has_a_file_of_its_own() -> None:
    names = [case.name for case in cases()]
    assert len(names) == len(set(names))
    assert {case.trace for case in cases()} == {*FILES, "mixed"}


def test_figures_are_kept_and_replayed_only_for_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Case] = []

    def pretended(case: Case, data: Path) -> runs.Row:  # noqa: ARG001
        ran.append(case)
        if case.window == 2:
            raise ValueError("broken")
        return {"window": case.window}

    monkeypatch.setattr(runs, "run", pretended)
    monkeypatch.setattr(runs, "code_key", lambda: "one")
    some = [Case("muri", 0.9, window, "fifo") for window in range(3)]
    with pytest.raises(RuntimeError, match="broken"):
        runs.run_all(some, tmp_path, tmp_path, 1)
    assert ran == some  # the failed one loses no other
    rows = runs.run_all(some[:2], tmp_path, tmp_path, 1)
    assert [row["window"] for row in rows.values()] == [0, 1]
    assert len(ran) == 3
    (tmp_path / f"{some[0].name}.json").write_text("{")  # cut off
    monkeypatch.setattr(runs, "code_key", lambda: "one")
    runs.run_all(some[:2], tmp_path, tmp_path, 1)
    assert len(ran) == 4
    kept = json.loads((tmp_path / f"{some[1].name}.json").read_text())
    assert kept == {"code": "one", "row": {"window": 1}}
    monkeypatch.setattr(runs, "code_key", lambda: "two")
    runs.run_all(some[:2], tmp_path, tmp_path, 1)
    assert len(ran) == 6
