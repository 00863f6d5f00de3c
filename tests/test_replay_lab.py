"""The comparison of replays: intervals, the kept figures, the section of the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replay_lab import cases as lab
from replay_lab import runs
from replay_lab.cases import FILES, Case, cases, cluster, jobs
from replay_lab.page import BEGIN, END, MEASURES, inserted, page
from replay_lab.paired import STUDENT_T, difference
from replay_lab.slices import VARIANTS, Left
from replay_world import entry, trace

from trencadis.models import Policy


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
    assert {case.trace for case in cases()} == {*FILES, *lab.MADE}


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
    found, failed = runs.run_all(some, tmp_path, tmp_path, 1)
    assert list(found) == some[:2]
    assert failed == {some[2]: "ValueError: broken"}
    assert ran == some  # the failed one loses no other
    rows, _ = runs.run_all(some[:2], tmp_path, tmp_path, 1)
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


def pretended_rows(ours: float) -> dict[Case, runs.Row]:
    """Every figure 0.5, but those of `trencadis`."""
    keys = ("p95_h", "weighted_h", "effective", "fragmentation", "violated_gpu_h", "preempted",
            "short_gpu_h", "mean_h", "useful", "gang_wait", "lost_a_stop_s")  # fmt: skip
    return {
        case: {
            **dict.fromkeys(keys, ours if case.policy == "trencadis" else 0.5),
            "unfinished": 0,
        }
        for case in cases()
    }


def test_the_page_explains_each_pair_in_which_a_baseline_is_ahead() -> None:
    rounds = [
        Left(name, window, variant, 64, 50, 40, 4.0, 2.0, 14.0)
        for name in FILES
        for window in range(5)
        for variant in VARIANTS
    ]
    text = page(pretended_rows(0.6), {"muri": [], "philly": []}, rounds)
    for measure in MEASURES:
        lost = 0 if measure.more_is_better else 2 * 2 * 7
        why = f": {measure.why}" if lost else ""
        assert f"- **{measure.title}** ({lost}, {lost} sure){why}." in text
    assert "| `trencadis, defaults` |" in text
    assert "neither 25.0%, 80% of the jobs start" in text
    assert "+0%" in text  # gangs: as good without
    assert "nan" not in text


def test_a_replay_that_failed_is_named_and_left_out_of_means() -> None:
    rows = pretended_rows(0.6)
    lost = Case("mixed-muri", 1.1, 4, "trencadis+no-elastic")
    del rows[lost]
    text = page(rows, {"muri": [], "philly": []}, [
        Left(name, 0, variant, 64, 50, 40, 4.0, 2.0, 14.0)
        for name in FILES
        for variant in VARIANTS
    ], (lost,))  # fmt: skip
    assert f"1 ended with an internal error, as the verifier refused a plan: `{lost.name}`" in text
    assert "nan" not in text


def test_both_sets_of_rules_are_replayed_on_the_same_nodes() -> None:
    assert cluster("muri").policy.short_first_seconds
    assert cluster("muri", "defaults").policy == Policy()
    assert cluster("gangs").nodes == cluster("muri").nodes == cluster("mixed-muri").nodes
    assert len(cluster("mixed").nodes) == 14


def test_gangs_are_the_same_jobs_as_tasks_of_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trace(*(entry(f"j{i}", 600 * i, 3_600, (1, 4, 16)[i % 3]) for i in range(15)))
    monkeypatch.setattr(lab, "_whole", lambda name, data: whole)  # noqa: ARG005
    place = cluster("gangs")
    apart = jobs(Case("gangs", 1.1, 0, "fifo"), place, Path())
    usual = jobs(Case("muri", 1.1, 0, "fifo"), place, Path())
    assert [e.job.tasks for e in apart.jobs] == [1, 4, 16]
    assert [e.job.request.gpus for e in apart.jobs] == [1, 1, 1]
    assert [(e.job.submit, e.gpu_milli, e.seconds) for e in apart.jobs] == [
        (e.job.submit, e.gpu_milli, e.seconds) for e in usual.jobs
    ]
