"""Reservations: the heaviest waiting job gets nodes and a time, and backfill doesn't delay it."""

from __future__ import annotations

from datetime import datetime, timedelta

import build as b
import pytest

from trencadis.models import Plan, Snapshot, Window, apply
from trencadis.models.plan import Reserve
from trencadis.solver.explain.explain import explain
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

HOUR = 3_600


def case_10() -> Snapshot:
    """Two nodes of 8. A and B run until t+60 min, 4 GPUs are idle; BIG wants both nodes."""
    return b.snapshot(
        b.nodes(2, 8),
        b.running("A", b.at("n1", *range(8)), ran=60, runtime_seconds=HOUR + 60),
        b.running("B", b.at("n2", *range(4)), ran=60, runtime_seconds=HOUR + 60),
        b.job("BIG", 8, 2, waited=3, runtime_seconds=HOUR),
        b.job("S1", 4, waited=2, runtime_seconds=1_800),
        b.job("S2", 4, waited=1, runtime_seconds=7_200),
    )


def after(seconds: int) -> datetime:
    return b.NOW + timedelta(seconds=seconds)


def where(entry: Reserve) -> list[str]:
    return [task.node for task in entry.allocation]


def test_case_10_reservation_and_backfill() -> None:
    snap = case_10()
    plan = solve(snap)
    (big,) = plan.reserves
    assert (big.job, big.at, where(big)) == ("BIG", after(HOUR), ["n1", "n2"])
    assert [start.job for start in plan.starts] == ["S1"]
    codes = {entry.job: entry.code for entry in plan.pending}
    assert codes["S2"] == "reservation"
    assert plan.proof.status == "OPTIMAL"


def test_without_the_short_job_the_long_one_still_waits() -> None:
    snap = case_10()
    snap = snap.model_copy(update={"jobs": tuple(j for j in snap.jobs if j.name != "S1")})
    plan = solve(snap)
    assert not plan.starts
    assert [entry.job for entry in plan.reserves] == ["BIG"]
    (why,) = [entry for entry in plan.pending if entry.job == "S2"]
    assert why.code == "reservation"
    assert "would delay BIG" in why.sentence
    assert why.evidence["at"] == after(HOUR).isoformat()
    report = explain(snap, plan, ["S2", "BIG"])
    print(report)
    assert report.jobs[0].code == "reservation"
    assert plan.proof.status == "OPTIMAL"
