"""What "right" means on a snapshot that the brute force can price: its optimum, proven."""

from __future__ import annotations

import oracle

from trencadis.models import Plan, Snapshot, Status
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

EXACT = Options(time_limit_s=60, gap=0.0, workers=1)
"""To the end, however long it takes."""


def objectives(plan: Plan) -> dict[str, int]:
    """The objective of each stage, in order."""
    return {stage.name: stage.objective for stage in plan.proof.stages}


def bounds(plan: Plan) -> dict[str, int]:
    """The bound of each stage, in order."""
    return {stage.name: stage.bound for stage in plan.proof.stages}


def assert_exact(snapshot: Snapshot, plan: Plan, best: dict[str, int]) -> None:
    """The plan is valid, reaches the optimum in each stage, and proves it.

    `best`: without reservations; where the plan has some, the best that respects them counts.
    """
    if plan.reserves or len(snapshot.delayed) < len(snapshot.holds):
        best = oracle.lexicographic_optimum(snapshot, plan)
    assert objectives(plan) == best
    assert bounds(plan) == best
    assert plan.proof.status is Status.OPTIMAL
    assert verify(snapshot, plan).violations == ()


def solve_exactly(snapshot: Snapshot, options: Options = EXACT) -> Plan:
    """Solves, and asserts that brute force agrees."""
    plan = solve(snapshot, options)
    assert_exact(snapshot, plan, oracle.lexicographic_optimum(snapshot))
    return plan
