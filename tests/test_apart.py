"""Replicas kept apart: at most so many tasks of a job in one domain of the fabric."""

from __future__ import annotations

from collections import Counter
from typing import Any

import build as b
import oracle
import pytest
import strategies
from exact import EXACT, assert_exact
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from oracle.growth import least_growth
from test_preempt import QUICK, after_grace, contested

from trencadis.models import (
    DomainCap,
    InvalidInputError,
    Plan,
    Segments,
    Snapshot,
    TaskAllocation,
    apply,
)
from trencadis.models.check import check
from trencadis.solver.explain.explain import explain
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]
ALL = range(8)


def apart(tasks: int, level: str = "rack") -> dict[str, Any]:
    return {"max_tasks_per_domain": DomainCap(level=level, tasks=tasks), "communicates": False}


def racks(*parts: Any, number: int = 3, **fields: Any) -> Snapshot:
    """Racks of two nodes of 8 GPUs."""
    return b.snapshot(
        *(b.node(f"n{i}", 8, fabric=(f"r{i // 2}",)) for i in range(2 * number)),
        *parts,
        levels=("rack",),
        **fields,
    )


def by_rack(plan: Plan, job: str) -> list[int]:
    """Tasks in each rack, the most first."""
    (start,) = (start for start in plan.starts if start.job == job)
    counts = Counter(int(task.node[1:]) // 2 for task in start.allocation)
    return sorted(counts.values(), reverse=True)


def test_replicas_are_spread() -> None:
    plan = solve(racks(b.job("s", 1, 3, **apart(1))))
    assert by_rack(plan, "s") == [1, 1, 1]
    plan = solve(racks(b.job("s", 1, 5, **apart(2))))
    assert by_rack(plan, "s") == [2, 2, 1]
    assert plan.proof.status == "OPTIMAL"


def test_more_than_the_racks_may_have_never_start() -> None:
    snap = racks(b.job("s", 1, 4, **apart(1)))
    plan = solve(snap)
    assert not plan.starts
    (waits,) = plan.pending
    assert "at most 1 task in one rack" in waits.sentence
    (said,) = explain(snap, plan, ["s"]).jobs
    assert any("at most 1 task in one rack" in remedy.sentence for remedy in said.remedies)


def test_a_full_rack_makes_it_wait() -> None:
    full = [b.running(f"r{i}", b.at(f"n{i}", *ALL), priority="high") for i in (0, 1)]
    plan = solve(racks(b.job("s", 1, 3, **apart(1)), *full))
    (waits,) = plan.pending
    assert waits.code == "topology"
    assert "32 slots are idle" in waits.sentence


def test_several_services_alike_find_places_together() -> None:
    """Two of two replicas in three racks with 2, 1 and 1 GPUs."""
    snap = b.snapshot(
        b.node("n0", 2, fabric=("r0",)), b.node("n1", 1, fabric=("r1",)),
        b.node("n2", 1, fabric=("r2",)), *b.jobs(2, "s", 1, 2, **apart(1)), levels=("rack",),
    )
    plan = solve(snap)
    assert len(plan.starts) == 2
    assert plan.proof.status == "OPTIMAL"


def test_tasks_without_gpus_are_spread_as_well() -> None:
    snap = b.snapshot(
        *(b.node(f"n{i}", 0, cpu_milli=4_000, fabric=(f"r{i // 2}",)) for i in range(6)),
        b.job("s", 0, 5, cpu_milli=1_000, **apart(2)),
        levels=("rack",),
    )
    assert by_rack(solve(snap), "s") == [2, 2, 1]


def test_a_service_grows_apart() -> None:
    plan = solve(racks(b.job("s", 1, 9, min_tasks=2, **apart(2))))
    assert by_rack(plan, "s") == [2, 2, 2]
    running = b.running("s", b.at("n0", 0), b.at("n1", 0), tasks=9, min_tasks=1, **apart(2))
    (resize,) = solve(racks(running)).resizes
    assert Counter(int(task.node[1:]) // 2 for task in resize.add) == {1: 2, 2: 2}


def test_a_repair_keeps_off_racks_that_have_enough() -> None:
    gang = b.running("s", b.at("n0", 0), b.at("n2", 0), tasks=3, **apart(1))
    (repair,) = solve(racks(gang)).repairs
    assert {task.node for task in repair.add} <= {"n4", "n5"}
    assert not solve(racks(gang, number=2)).repairs


def test_victims_make_room_apart() -> None:
    """Both racks are full; each has to take one replica."""
    low = [b.running(f"v{i}", b.at(f"n{i}", *ALL), priority="low", ran=7_200) for i in range(4)]
    snap = racks(b.job("s", 8, 2, priority="high", **apart(1)), *low, number=2)
    plan = solve(snap)
    assert by_rack(plan, "s") == [1, 1]
    assert len(plan.preempts) == 2


def test_nodes_without_a_rack_are_racks_of_their_own() -> None:
    snap = b.snapshot(*b.nodes(3, 8), b.job("s", 1, 3, **apart(1)), levels=("rack",))
    (start,) = solve(snap).starts
    assert len({task.node for task in start.allocation}) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (apart(1, "row"), "job s names level row; the levels are rack, node"),
        (apart(1, "node"), "Maybe with max_tasks_per_node"),
        (apart(1) | {"segments": Segments(tasks=1, level="rack")}, "has segments"),
    ],
)
def test_faults(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        solve(racks(b.job("s", 1, 2, **fields)))


def test_the_verifier_counts_tasks_by_rack() -> None:
    snap = racks(b.job("s", 1, 3, **apart(1)))
    plan = solve(snap)
    (start,) = plan.starts
    tasks = tuple(TaskAllocation(node=f"n{i}", gpus=(0,)) for i in (0, 1, 2))
    wrong = plan.model_copy(update={"starts": (start.model_copy(update={"allocation": tasks}),)})
    assert {v.rule for v in verify(snap, wrong).violations} == {"topology"}


def test_the_verifier_counts_further_tasks() -> None:
    snap = racks(b.running("s", b.at("n0", 0), tasks=2, min_tasks=1, **apart(1)))
    plan = solve(snap)
    (resize,) = plan.resizes
    add = (TaskAllocation(node="n1", gpus=(0,)),)
    wrong = plan.model_copy(update={"resizes": (resize.model_copy(update={"add": add}),)})
    assert "growth" in {v.rule for v in verify(snap, wrong).violations}


def test_the_verifier_sees_who_could_start_apart() -> None:
    snap = racks(b.job("s", 1, 3, **apart(1)))
    plan = solve(snap)
    idle = plan.model_copy(update={"starts": (), "pending": (b.pending("s"),)})
    assert "work-conserving" in {v.rule for v in verify(snap, idle).violations}


@st.composite
def kept_apart(draw: st.DrawFn, snapshots: st.SearchStrategy[Snapshot]) -> Snapshot:
    snap = draw(snapshots)
    assume(snap.fabric.levels)
    jobs = []
    for job in snap.jobs:
        if job.tasks > 1 and job.segments is None and draw(st.integers(0, 3)):
            level = draw(st.sampled_from([entry.name for entry in snap.fabric.levels]))
            cap = DomainCap(level=level, tasks=draw(st.integers(1, 2)))
            job = job.model_copy(update={"max_tasks_per_domain": cap})  # noqa: PLW2901
        jobs.append(job)
    found = snap.model_copy(update={"jobs": tuple(jobs)})
    assume(any(job.max_tasks_per_domain and job.state == "pending" for job in found.jobs))
    return found


@pytest.mark.parametrize("family", ["topology", "all"])
def test_brute_force_agrees(family: str) -> None:
    drawn = {
        "topology": strategies.snapshots_topology(),
        "all": strategies.snapshots_all(),
    }[family]

    @settings(max_examples=120, deadline=None, suppress_health_check=QUIET)
    @given(kept_apart(drawn))
    def agree(snapshot: Snapshot) -> None:
        try:
            best = oracle.lexicographic_optimum(snapshot)
        except oracle.TooLarge:
            assume(False)
            raise
        plan = solve(snapshot, EXACT)
        assert_exact(snapshot, plan, best)
        known = least_growth(snapshot, plan)
        if plan.proof.growth is not None and known is not None:
            assert plan.proof.growth.objective == known[0]
        check(apply(snapshot, plan))

    agree()


@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
@given(kept_apart(contested()))
def test_apart_beside_victims(snapshot: Snapshot) -> None:
    plan = solve(snapshot, QUICK)  # verifies
    explain(snapshot, plan, everyone=True)
    after = after_grace(apply(snapshot, plan))
    check(apply(after, solve(after, QUICK)))
