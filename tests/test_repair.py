"""Repairs: a running gang that lost tasks gets them back before new jobs of equal weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import build as b
import oracle
import pytest
import strategies
from exact import EXACT, assert_exact
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_preempt import QUICK, after_grace, contested

from trencadis.models import Job, Plan, Repair, Snapshot, TaskAllocation, apply
from trencadis.models.broken import lost_tasks, missing_name
from trencadis.models.check import check
from trencadis.models.plan import Preempt
from trencadis.solver.explain.explain import explain
from trencadis.solver.migrate.defrag import defrag
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

HOUR = 3_600
ALL = range(8)


def case(*parts: object, **gang: Any) -> Snapshot:
    """A gang of two tasks on n1 and on n2, which is down; n3 in another leaf and n4 are idle."""
    fields = {"ran": 2 * HOUR, "waited": 2 * HOUR, "tasks": 2, "gpus": 8, **gang}
    return b.snapshot(
        b.node("n1", 8, fabric=("l1",)),
        b.node("n2", 8, fabric=("l1",), down=True),
        b.node("n3", 8, fabric=("l2",)),
        b.node("n4", 8, fabric=("l1",)),
        b.running("gang", b.at("n1", *ALL), b.at("n2", *ALL), **fields),
        *parts,
        levels=("leaf",),
    )


def repaired(snapshot: Snapshot) -> tuple[Plan, dict[str, list[str]]]:
    """The plan, and on which nodes the new tasks of each gang are."""
    plan = solve(snapshot)
    check(apply(snapshot, plan))
    return plan, {entry.job: [task.node for task in entry.add] for entry in plan.repairs}


def on(snapshot: Snapshot, name: str = "gang") -> list[str]:
    (job,) = (job for job in snapshot.jobs if job.name == name)
    return [task.node for task in job.allocation]


def test_the_lost_task_is_replaced_near_the_rest_and_before_new_jobs() -> None:
    snap = case(b.job("x", 8, waited=2 * HOUR), b.job("y", 8, waited=2 * HOUR))
    plan, nodes = repaired(snap)
    assert nodes == {"gang": ["n4"]}
    (repair,) = plan.repairs
    assert [task.node for task in repair.replaces] == ["n2"]
    assert (repair.level, repair.domain) == ("leaf", "l1")
    assert [start.job for start in plan.starts] == ["x"]
    assert plan.proof.status == "OPTIMAL"
    assert on(apply(snap, plan)) == ["n1", "n4"]
    assert "job gang lost 1 of its 2 tasks" in plan.warnings


def test_once_repaired_nothing_changes() -> None:
    snap = case()
    after = apply(snap, solve(snap))
    again = solve(after)
    assert not again.repairs
    assert not lost_tasks(after)


def test_a_snapshot_may_list_too_few_tasks_instead() -> None:
    snap = b.snapshot(
        b.nodes(3, 8),
        b.running("gang", b.at("n1", *ALL), tasks=2, ran=HOUR),
        b.job("x", 8, 2),
    )
    plan, nodes = repaired(snap)
    assert list(nodes) == ["gang"]
    assert not plan.repairs[0].replaces
    assert not plan.starts


def test_a_task_on_an_unhealthy_gpu_is_lost() -> None:
    snap = b.snapshot(
        b.node("n1", 8, unhealthy=[3]),
        b.nodes(2, 8, first=2),
        b.running("gang", b.at("n1", *ALL), b.at("n2", *ALL)),
    )
    _, nodes = repaired(snap)
    assert nodes == {"gang": ["n3"]}


def test_a_job_of_which_nothing_is_left_is_no_broken_gang() -> None:
    snap = b.snapshot(
        b.node("n1", 8, down=True), b.node("n2", 8), b.running("gang", b.at("n1", *ALL))
    )
    plan, nodes = repaired(snap)
    assert not nodes
    assert not plan.pending


def test_a_required_level_binds_the_new_tasks() -> None:
    snap = case(b.running("busy", b.at("n4", *ALL)), required="leaf")
    plan, nodes = repaired(snap)
    assert not nodes
    (waits,) = plan.pending
    assert waits.job == "gang"
    assert waits.sentence.startswith("lost 1 of its 2 tasks, and their repair waits: ")


def test_who_wants_the_leaf_only_may_be_repaired_elsewhere() -> None:
    snap = case(b.running("busy", b.at("n4", *ALL)), preferred="leaf")
    plan, nodes = repaired(snap)
    assert nodes == {"gang": ["n3"]}
    assert plan.repairs[0].level == "cluster"
    assert plan.repairs[0].spread_cost > 0


def test_a_repair_waits_for_a_victim_and_keeps_its_place() -> None:
    snap = case(
        b.running("low", b.at("n4", *ALL), ran=2 * HOUR, priority="low"),
        b.job("new", 8, priority="low"),
        required="leaf",
    )
    plan, nodes = repaired(snap)
    assert nodes == {"gang": ["n4"]}
    assert plan.repairs[0].waits_for == ("low",)
    assert [(stop.job, stop.makes_room_for) for stop in plan.preempts] == [("low", ("gang",))]
    draining = apply(snap, plan)
    (hold,) = draining.holds
    assert (hold.job, hold.at) == ("gang", plan.repairs[0].at)
    assert on(draining) == ["n1", "n2"]
    waiting = solve(draining)
    assert not waiting.repairs
    assert [entry.code for entry in waiting.pending if entry.job == "gang"] == ["held-gpus"]
    left = tuple(
        job.model_copy(update={"state": "pending", "allocation": (), "start": None})
        if job.name == "low"
        else job
        for job in draining.jobs
    )
    later = draining.model_copy(update={"jobs": left, "now": hold.at})
    end = apply(later, solve(later))
    assert on(end) == ["n1", "n4"]
    assert not end.holds


def test_a_hold_for_a_gang_that_lost_more_is_given_up() -> None:
    snap = b.snapshot(
        b.nodes(3, 8),
        b.running("gang", b.at("n1", *ALL), tasks=3),
        b.hold("gang", b.at("n2", *ALL)),
    )
    plan, nodes = repaired(snap)
    assert nodes == {"gang": ["n2", "n3"]}
    assert not apply(snap, plan).holds


def test_a_gang_that_nothing_repairs_may_be_stopped_for_a_higher_job() -> None:
    snap = case(
        b.running("busy", b.at("n4", *ALL), priority="high"),
        b.running("other", b.at("n3", *ALL), priority="high"),
        b.job("high", 8, priority="high"),
        required="leaf",
    )
    plan, nodes = repaired(snap)
    assert not nodes
    assert [stop.job for stop in plan.preempts] == ["gang"]
    assert [start.job for start in plan.starts] == ["high"]
    assert not plan.pending


def test_at_most_so_many_tasks_on_a_node_counts_those_that_are_left() -> None:
    def snap(most: int) -> Snapshot:
        return b.snapshot(
            b.nodes(2, 8),
            b.running("gang", b.at("n1", 0), b.at("n1", 1), tasks=3, max_tasks_per_node=most),
        )

    assert repaired(snap(2))[1] == {"gang": ["n2"]}
    assert repaired(snap(3))[1] == {"gang": ["n1"]}


def test_limits_of_jobs_count_a_gang_once_and_its_gpus_all() -> None:
    def snap(limit: b.Limits) -> Snapshot:
        return b.snapshot(
            b.nodes(2, 8),
            b.queue("q").model_copy(update={"limit": limit}),
            b.running("gang", b.at("n1", *ALL), tasks=2, queue="q"),
        )

    assert repaired(snap(b.Limits(jobs=1)))[1]
    assert repaired(snap(b.Limits(quota=b.Quota(gpus=16))))[1]
    plan, nodes = repaired(snap(b.Limits(quota=b.Quota(gpus=15))))
    assert not nodes
    assert plan.pending[0].job == "gang"


def test_no_order_of_a_queue_holds_a_repair_back_nor_does_it_hold_back_others() -> None:
    queue = b.queue("q").model_copy(update={"order": "strict_fifo"})
    gang = b.running("gang", b.at("n1", *ALL), tasks=2, queue="q", waited=0)
    before = b.job("before", 8, 2, queue="q", waited=HOUR)
    assert repaired(b.snapshot(b.nodes(2, 8), queue, gang, before))[1] == {"gang": ["n2"]}
    full = b.snapshot(
        b.nodes(2, 8),
        queue,
        gang,
        b.running("o", b.at("n2", *range(4)), queue="q"),
        b.job("small", 4, queue="q"),
    )
    plan, nodes = repaired(full)
    assert not nodes
    assert [start.job for start in plan.starts] == ["small"]


def test_the_policy_may_turn_repairs_off() -> None:
    snap = case()
    off = snap.model_copy(update={"policy": snap.policy.model_copy(update={"repairs": False})})
    plan, nodes = repaired(off)
    assert not nodes
    assert not plan.pending


def test_a_job_may_have_the_name_of_a_repair() -> None:
    snap = case(b.job(missing_name("gang"), 8))
    plan, nodes = repaired(snap)
    assert not nodes
    assert [start.job for start in plan.starts] == [missing_name("gang")]


def test_the_longest_names_work() -> None:
    name = "g" * 253
    snap = b.snapshot(
        b.nodes(2, 8), b.running(name, b.at("n1", *ALL), tasks=2), b.job(name[:-1], 1)
    )
    assert list(repaired(snap)[1]) == [name]
    assert missing_name(name) != missing_name(name[:-1])


# corruptions

SNAPSHOT = case(
    b.running("busy", b.at("n3", 0), gpus=1),
    b.job("x", 4, waited=HOUR),
    required="leaf",
    max_tasks_per_node=1,
)
PLAN = solve(SNAPSHOT)


def changed(**fields: object) -> Plan:
    (repair,) = PLAN.repairs
    return PLAN.model_copy(update={"repairs": (repair.model_copy(update=fields),)})


def twice() -> Plan:
    return PLAN.model_copy(update={"repairs": PLAN.repairs * 2})


def not_at_all() -> Plan:
    return PLAN.model_copy(update={"repairs": ()})


def as_a_start() -> Plan:
    (repair,) = PLAN.repairs
    start = b.start(missing_name("gang"), *repair.add)
    return PLAN.model_copy(update={"repairs": (), "starts": (*PLAN.starts, start)})


FAULTS: dict[str, tuple[Callable[[], Plan], str]] = {
    "another leaf": (lambda: changed(add=(b.at("n3", *ALL),)), "admission"),
    "beside the rest": (lambda: changed(add=(b.at("n1", *ALL),)), "admission"),
    "a node that is down": (lambda: changed(add=(b.at("n2", *ALL),)), "admission"),
    "too few GPUs": (lambda: changed(add=(b.at("n4", 0),)), "indices"),
    "too many tasks": (lambda: changed(add=(b.at("n4", *ALL), b.at("n3", *ALL))), "gang"),
    "no task": (lambda: changed(add=()), "gang"),
    "nothing replaced": (lambda: changed(replaces=()), "repairs"),
    "another replaced": (lambda: changed(replaces=(b.at("n1", *ALL),)), "repairs"),
    "later": (lambda: changed(at=b.ago(-60)), "now"),
    "a job that is whole": (lambda: changed(job="busy"), "repairs"),
    "a job that isn't there": (lambda: changed(job="nobody"), "repairs"),
    "another level": (lambda: changed(level="node"), "claims"),
    "another domain": (lambda: changed(domain="l2"), "claims"),
    "less saved": (lambda: changed(waiting_saved=1), "claims"),
    "dearer": (lambda: changed(spread_cost=PLAN.repairs[0].spread_cost + 1), "claims"),
    "for nobody": (lambda: changed(waits_for=("busy",)), "preempts"),
    "twice": (twice, "repairs"),
    "not at all": (not_at_all, "work-conserving"),
    "as a start": (as_a_start, "jobs"),
}


def test_as_it_is() -> None:
    assert not verify(SNAPSHOT, PLAN).violations
    assert len(PLAN.repairs) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_corrupted(fault: str) -> None:
    make, rule = FAULTS[fault]
    assert rule in {violation.rule for violation in verify(SNAPSHOT, make()).violations}


def test_nobody_is_repaired_and_stopped() -> None:
    snap = case(b.job("high", 8, priority="high"), b.running("busy", b.at("n3", *ALL)))
    plan = solve(snap)
    made_up = plan.model_copy(
        update={
            "repairs": (Repair(job="gang", at=plan.now, add=(b.at("n4", *ALL),)),),
            "preempts": (
                Preempt(
                    job="gang", at=plan.now, gpus_free_at=plan.now, makes_room_for=("high",)
                ),
            ),
        }
    )
    assert "repairs" in {violation.rule for violation in verify(snap, made_up).violations}


# brute force


@st.composite
def broken(draw: st.DrawFn, family: str) -> Snapshot:
    """A drawn snapshot of which running jobs have lost tasks."""
    snap = draw(FAMILIES[family]())
    jobs: list[Job] = []
    for job in snap.jobs:
        lost = draw(st.integers(0, 2)) if job.state == "running" and job.allocation else 0
        if lost and not job.request.mig:
            # Of shares and most tasks a node together no bound is exact.
            caps = [None, None, 1, 2] if job.request.share is None else [None]
            cap = draw(st.sampled_from(caps))
            wish = draw(st.booleans())
            job = job.model_copy(  # noqa: PLW2901
                update={
                    "tasks": len(job.allocation) + lost,
                    "min_tasks": None,
                    "max_tasks_per_node": cap or job.max_tasks_per_node,
                    "topology": job.topology if wish else None,
                }
            )
        jobs.append(job)
    found = snap.model_copy(update={"jobs": tuple(jobs)})
    assume(lost_tasks(found))
    return found


FAMILIES = {
    "queues": strategies.snapshots_queues,
    "topology": strategies.snapshots_topology,
    "nodes": strategies.snapshots_nodes,
    "all": strategies.snapshots_all,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_brute_force_agrees(family: str) -> None:
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(broken(family))
    def agree(snapshot: Snapshot) -> None:
        try:
            best = oracle.lexicographic_optimum(snapshot)
        except oracle.TooLarge:
            assume(False)
            raise
        plan = solve(snapshot, EXACT)
        assert_exact(snapshot, plan, best)
        check(apply(snapshot, plan))

    agree()


def test_who_still_runs_stays_where_it_is() -> None:
    snap = case(b.running("o", b.at("n3", 0), gpus=1))
    after = apply(snap, solve(snap))
    (gang,) = (job for job in after.jobs if job.name == "gang")
    assert TaskAllocation(node="n1", gpus=tuple(ALL)) in gang.allocation


def test_explain_tells_of_repairs_and_of_gangs_that_wait_for_one() -> None:
    snap = case()
    (said,) = explain(snap, solve(snap), ["gang"]).jobs
    assert said.sentence.endswith("; gets 1 task back, on n4")
    full = case(b.running("busy", b.at("n4", *ALL)), required="leaf")
    plan = solve(full)
    (said,) = explain(full, plan, ["gang"]).jobs
    assert said.code == plan.pending[0].code
    assert plan.pending[0].sentence in said.sentence
    report = explain(full, plan, everyone=True)
    assert [group.jobs for group in report.groups] == [("gang",)]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(contested(), st.data())
def test_repairs_and_victims_keep_the_rules(snapshot: Snapshot, data: st.DataObject) -> None:
    jobs = tuple(
        job.model_copy(update={"tasks": len(job.allocation) + 1, "min_tasks": None})
        if job.state == "running" and job.allocation and data.draw(st.booleans())
        else job
        for job in snapshot.jobs
    )
    snapshot = snapshot.model_copy(update={"jobs": jobs})
    plan = solve(snapshot, QUICK)  # verifies
    explain(snapshot, plan, everyone=True)
    after = apply(snapshot, plan)
    check(after)
    later = after_grace(after)
    check(apply(later, solve(later, QUICK)))
    budget = snapshot.policy.preemption.budget.model_copy(update={"moves": 3})
    preemption = snapshot.policy.preemption.model_copy(update={"budget": budget})
    policy = snapshot.policy.model_copy(update={"preemption": preemption})
    defrag(snapshot.model_copy(update={"policy": policy}))  # verifies
