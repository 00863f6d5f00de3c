"""apply() refuses plans whose actions don't go with the states of their jobs."""

from __future__ import annotations

import build
import pytest

from trencadis.models import Snapshot, apply
from trencadis.models.apply import PlanMismatchError
from trencadis.models.plan import Preempt
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

TWO = build.snapshot(
    build.node("n1", 4), build.running("r", build.at("n1", 0)), build.job("p", 1), build.job("q", 1)
)


def test_starts_of_what_runs_already_are_refused() -> None:
    plan = build.plan_of(TWO, build.start("r", build.at("n1", 1)))
    with pytest.raises(PlanMismatchError, match=r"r$"):
        apply(TWO, plan)


def test_the_same_start_twice_is_refused() -> None:
    twice = (build.start("p", build.at("n1", 1)), build.start("p", build.at("n1", 2)))
    with pytest.raises(PlanMismatchError, match="twice"):
        apply(TWO, build.plan_of(TWO, *twice))


def test_what_does_not_run_is_not_stopped() -> None:
    stop = Preempt(job="q", at=build.NOW, gpus_free_at=build.NOW)
    plan = build.plan_of(TWO).model_copy(update={"preempts": (stop,)})
    with pytest.raises(PlanMismatchError, match=r"q$"):
        apply(TWO, plan)


@pytest.mark.parametrize(
    "kept",
    [(build.at("n1", 1, 0),), (build.at("n2", 0), build.at("n1", 0))],
    ids=["GPUs", "tasks"],
)
def test_a_hold_in_any_order_is_begun_verified_and_applied(
    kept: tuple[build.TaskAllocation, ...],
) -> None:
    job = build.job("x", len(kept[0].gpus or ()), tasks=len(kept))
    nodes = build.node("n2", 2), build.node("n1", 2)
    snapshot: Snapshot = build.snapshot(*nodes, job, build.hold("x", *kept, at=build.NOW))
    plan = solve(snapshot)
    assert [start.job for start in plan.starts] == ["x"]
    assert verify(snapshot, plan).violations == ()
    assert [after.state for after in apply(snapshot, plan).jobs] == ["running"]
