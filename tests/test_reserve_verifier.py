"""The verifier on corrupted reservations: each rule catches what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import build as b
import pytest
from test_reserve import HOUR, case_10

from trencadis.models import Plan, TaskAllocation
from trencadis.models.plan import Reserve
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

SNAPSHOT = case_10()
PLAN = solve(SNAPSHOT)


def changed(**fields: object) -> Plan:
    """The plan with another reservation for BIG."""
    (big,) = PLAN.reserves
    return PLAN.model_copy(update={"reserves": (big.model_copy(update=fields),)})


def with_start(job: str, node: str, *gpus: int) -> Plan:
    start = b.start(job, TaskAllocation(node=node, gpus=gpus))
    waits = tuple(entry for entry in PLAN.pending if entry.job != job)
    return PLAN.model_copy(update={"starts": (start,), "pending": waits})


def both(*nodes: str) -> tuple[TaskAllocation, ...]:
    return tuple(TaskAllocation(node=node) for node in nodes)


FAULTS: dict[str, tuple[Callable[[], Plan], str, str]] = {
    "too early": (
        lambda: changed(at=b.NOW + timedelta(seconds=HOUR // 2)), "reserves", "does not fit"
    ),
    "now": (lambda: changed(at=b.NOW), "reserves", "not later than now"),
    "too late": (
        lambda: changed(at=b.NOW + timedelta(seconds=HOUR + 60)), "reserves", "before"
    ),
    "one node twice": (lambda: changed(allocation=both("n1", "n1")), "reserves", "does not fit"),
    "a task short": (lambda: changed(allocation=both("n1")), "reserves", "1 tasks"),
    "a node that isn't there": (
        lambda: changed(allocation=both("n1", "n9")), "reserves", "no node n9"
    ),
    "indices": (
        lambda: changed(
            allocation=(b.at("n1", *range(8)), b.at("n2", *range(8)))
        ), "reserves", "too early to name"
    ),
    "of a job that starts": (lambda: changed(job="S1"), "reserves", "not one that waits"),
    "more than the policy allows": (
        lambda: PLAN.model_copy(
            update={"reserves": (*PLAN.reserves, Reserve(
                job="S2", at=b.NOW + timedelta(seconds=2 * HOUR), allocation=both("n1")
            ))}
        ), "reserves", "for 2 jobs"
    ),
    "in its way": (lambda: with_start("S2", "n2", 4, 5, 6, 7), "backfill", "would delay job BIG"),
}


def test_as_it_is() -> None:
    assert verify(SNAPSHOT, PLAN).violations == ()


@pytest.mark.parametrize("fault", FAULTS)
def test_corrupted(fault: str) -> None:
    make, rule, words = FAULTS[fault]
    found = verify(SNAPSHOT, make()).violations
    assert any(v.rule == rule and words in str(v) for v in found), found
