"""Maintenance windows: nothing runs into one, nothing starts inside one, after it all is open."""

from __future__ import annotations

from datetime import timedelta

import build as b
import pytest

from trencadis.models import Node, Snapshot, Window
from trencadis.solver.explain.explain import explain
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

WINDOW = Window(start=b.ago(-3_600), end=b.ago(-7_200))


def out(name: str, **fields: object) -> Node:
    """A node of 8 GPUs that is out from one hour after NOW to two."""
    return b.node(name, 8, maintenance=(WINDOW,), **fields)


def later(snapshot: Snapshot, seconds: int) -> Snapshot:
    return snapshot.model_copy(update={"now": b.NOW + timedelta(seconds=seconds)})


@pytest.mark.parametrize(
    ("after", "starts"),
    [
        (0, ["hour"]),
        (1, []),
        (3_600, []),
        (7_199, []),
        (7_200, ["day", "hour", "open"]),
    ],
)
def test_what_would_run_into_the_window_waits(after: int, starts: list[str]) -> None:
    snap = later(
        b.snapshot(
            out("n1"),
            b.job("hour", 2, runtime_seconds=3_600),
            b.job("day", 2, runtime_seconds=86_400),
            b.job("open", 2),
        ),
        after,
    )
    plan = solve(snap)
    assert [start.job for start in plan.starts] == starts
    for entry in plan.pending:
        assert entry.code == "window", entry


def test_a_job_goes_where_no_window_is_in_its_way() -> None:
    snap = b.snapshot(out("n1"), b.node("n2", 8), b.job("day", 8, runtime_seconds=86_400))
    (start,) = solve(snap).starts
    assert {task.node for task in start.allocation} == {"n2"}
    (wrong,) = b.plan_of(snap, b.start("day", b.at("n1", *range(8)))).starts
    moved = solve(snap).model_copy(update={"starts": (wrong,)})
    rules = {violation.rule for violation in verify(snap, moved).violations}
    assert "admission" in rules


def test_explain_names_the_window() -> None:
    snap = b.snapshot(out("n1"), b.job("day", 8, runtime_seconds=86_400))
    (found,) = explain(snap, solve(snap), ["day"]).jobs
    assert found.code == "window"
    assert "nodes are taken away" in found.sentence


def test_growth_keeps_out_of_a_window() -> None:
    """A running elastic job that would be on the node in the window gets no task there."""
    snap = b.snapshot(
        out("n1"),
        b.node("n2", 2),
        b.running("e", b.at("n2", 0), ran=60, tasks=4, min_tasks=1, communicates=False),
    )
    (resize,) = solve(snap).resizes
    assert [task.node for task in resize.add] == ["n2"]


def test_a_window_ends_after_it_starts() -> None:
    with pytest.raises(ValueError, match="ends after its start"):
        Window(start=b.NOW, end=b.NOW)
