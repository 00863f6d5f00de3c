"""Small clusters on which it is plain who has to stop, and what a wrong plan would say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import build as b
import pytest

from trencadis.models import Job, Node, Plan, Policy, Snapshot
from trencadis.models.apply import apply
from trencadis.models.jobs import Checkpoint
from trencadis.models.policy import Budget, BudgetUse, Preemption
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

QUICK = Options(time_limit_s=10, workers=1)
HOUR = 3_600


def running(name: str, node: str, gpus: range, **more: Any) -> Job:
    """A job of the lowest tier that has run for two hours."""
    fields = {"priority": "low", "ran": 2 * HOUR, "waited": 2 * HOUR, **more}
    return b.running(name, b.at(node, *gpus), **fields)


def waiting(name: str, gpus: int, tasks: int = 1, **more: Any) -> Job:
    """A job of the highest tier that has waited for a minute."""
    return b.job(name, gpus, tasks, **{"priority": "high", "waited": 60, **more})


def victims(plan: Plan) -> list[str]:
    return [stop.job for stop in plan.preempts]


def started(plan: Plan) -> list[str]:
    return [start.job for start in plan.starts]


def busy_nodes() -> list[Node | Job]:
    """Four nodes with six high and two low jobs each."""
    parts: list[Node | Job] = []
    for i in range(4):
        parts.append(b.node(f"n{i}"))
        for gpu in range(8):
            tier = "high" if gpu < 6 else "low"
            parts.append(running(f"{tier}{i}{gpu}", f"n{i}", range(gpu, gpu + 1), priority=tier))
    return parts


def test_nobody_stops_in_vain() -> None:
    plan = solve(b.snapshot(busy_nodes(), waiting("p1", 8), waiting("p2", 1)), QUICK)
    assert started(plan) == ["p2"]
    assert len(victims(plan)) == 1
    assert victims(plan)[0].startswith("low")
    assert victims(solve(b.snapshot(busy_nodes(), waiting("p1", 8)), QUICK)) == []


def test_room_is_made_inside_the_required_domain() -> None:
    nodes = [b.node(f"n{i}", fabric=("AB"[i // 2],)) for i in range(4)]
    places = (b.at("n1", *range(8)), b.at("n2", *range(8)))
    low = b.running("low", *places, priority="low", ran=2 * HOUR)
    gang = waiting("gang", 8, 2, required="leaf")
    plan = solve(b.snapshot(nodes, low, gang, levels=("leaf",)), QUICK)
    used = {task.node for task in plan.starts[0].allocation}
    assert victims(plan) == ["low"]
    assert used in ({"n0", "n1"}, {"n2", "n3"})


def test_a_guarantee_is_reclaimed_once_and_then_all_is_quiet() -> None:
    now = b.snapshot(
        b.node("n0"),
        b.queue("q1", guarantee=3),
        b.queue("q2", guarantee=5),
        running("p1", "n0", range(4), priority="normal", queue="q1"),
        running("p2", "n0", range(4, 5), priority="normal", queue="q2"),
        waiting("p3", 4, priority="normal", queue="q2"),
    )
    plan = solve(now, QUICK)
    assert victims(plan) == ["p1"]
    assert plan.starts[0].waits_for == ("p1",)
    assert plan.starts[0].at == plan.preempts[0].gpus_free_at == b.NOW + timedelta(seconds=300)
    draining = apply(now, plan)
    assert draining.holds[0].job == "p3"
    quiet = solve(draining, QUICK)
    assert not quiet.preempts
    assert not quiet.starts
    gone = tuple(
        job.model_copy(update={"state": "pending", "allocation": (), "start": None})
        if job.name == "p1"
        else job
        for job in draining.jobs
    )
    later = draining.model_copy(update={"jobs": gone, "now": b.NOW + timedelta(seconds=301)})
    second = solve(later, QUICK)
    assert started(second) == ["p3"]
    assert not second.preempts
    third = solve(apply(later, second), QUICK)
    assert not third.starts
    assert not third.preempts


@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_guarantee_reclaims_from_no_more_jobs_than_its_budget_has(most: int) -> None:
    now = b.snapshot(
        b.node("n0"),
        b.queue("owed", guarantee=8),
        b.queue("over"),
        [
            running(name, "n0", range(4 * i, 4 * i + 4), priority="normal", queue="over")
            for i, name in enumerate(("v0", "v1"))
        ],
        [waiting(name, 4, priority="normal", queue="owed") for name in ("p0", "p1")],
        preemption=Preemption(budget=Budget(jobs=5, reclaim_jobs=most)),
    )
    plan = solve(now, QUICK)
    assert len(victims(plan)) == len(started(plan)) == most
    assert plan.proof.stages[0].bound == plan.proof.stages[0].objective == 8_000 - 4_000 * most
    less = now.policy.preemption.budget.model_copy(update={"reclaim_jobs": max(0, most - 1)})
    rules = now.policy.preemption.model_copy(update={"budget": less})
    policy = now.policy.model_copy(update={"preemption": rules})
    stricter = now.model_copy(update={"policy": policy})
    told = plan.model_copy(update={"snapshot": stricter.fingerprint()})
    broken = {violation.rule for violation in verify(stricter, told).violations}
    assert broken == ({"budget"} if most else set())


def test_victims_are_planned_together() -> None:
    low = [running(name, "n0", range(4 * i, 4 * i + 4)) for i, name in enumerate("xyz")]
    plan = solve(b.snapshot(b.node("n0", 12), low, waiting("a", 8), waiting("b", 8)), QUICK)
    assert len(victims(plan)) == 2
    assert len(started(plan)) == 1


def three_victims() -> list[Node | Job]:
    return [
        *b.nodes(3, first=0),
        running("v1", "n0", range(8), checkpoint=Checkpoint(last=b.ago(55 * 60))),
        running("v2", "n1", range(8), checkpoint=Checkpoint(last=b.ago(2 * 60))),
        running("v3", "n2", range(8), ran=10 * 60),
    ]


def test_the_cheapest_loss_goes() -> None:
    policy = Policy(preemption=Preemption(min_runtime_seconds=60))
    plan = solve(b.snapshot(three_victims(), waiting("new", 8), policy=policy), QUICK)
    assert victims(plan) == ["v2"]
    # Two minutes of work, five of grace, five to restart, on eight GPUs.
    assert plan.preempts[0].lost_gpu_seconds == 8 * (120 + 300 + 300)


@pytest.mark.parametrize(
    "change",
    [
        {"preemptible": False},
        {"requeueable": False},
        {"min_replicas": 1},
        {"start": b.ago(5 * 60)},
        {"preempted": 2, "preempted_at": b.ago(3 * HOUR)},
        {"priority": "high"},
    ],
)
def test_who_may_not_stop_goes_on(change: dict[str, Any]) -> None:
    job = running("only", "n0", range(8)).model_copy(update=change)
    assert not solve(b.snapshot(b.node("n0"), job, waiting("new", 8)), QUICK).preempts


def test_budgets_hold() -> None:
    low = [running(f"low{i}", "n0", range(i, i + 1)) for i in range(8)]
    want = [waiting(f"new{i}", 1) for i in range(8)]
    for budget, use, most in (
        (Budget(jobs=3, jobs_milli_of_running=0), BudgetUse(), 3),
        (Budget(jobs=3, jobs_milli_of_running=1_000), BudgetUse(preempted_jobs_last_day=1), 2),
        (Budget(jobs=1, jobs_milli_of_running=1_000, jobs_per_day_milli=1_000), BudgetUse(), 8),
    ):
        policy = Policy(preemption=Preemption(budget=budget))
        contested = b.snapshot(b.node("n0"), low, want, policy=policy)
        plan = solve(contested.model_copy(update={"budget_use": use}), QUICK)
        assert len(victims(plan)) == most


def good() -> tuple[Snapshot, Plan]:
    policy = Policy(preemption=Preemption(min_runtime_seconds=60))
    now = b.snapshot(three_victims(), waiting("new", 8), policy=policy)
    return now, solve(now, QUICK)


@pytest.mark.parametrize(
    ("rule", "preempt", "start"),
    [
        ("preempts", {"lost_gpu_seconds": 1}, {}),
        ("preempts", {"gpus_free_at": b.NOW}, {}),
        ("preempts", {"makes_room_for": ()}, {}),
        ("preempts", {"job": "nobody"}, {}),
        ("now", {}, {"at": b.NOW}),
        ("preempts", {}, {"waits_for": ()}),
    ],
)
def test_the_verifier_catches_it(
    rule: str, preempt: dict[str, Any], start: dict[str, Any]
) -> None:
    now, plan = good()
    broken = plan.model_copy(
        update={
            "preempts": tuple(p.model_copy(update=preempt) for p in plan.preempts),
            "starts": tuple(s.model_copy(update=start) for s in plan.starts),
        }
    )
    assert rule in {violation.rule for violation in verify(now, broken).violations}


def test_the_verifier_catches_a_victim_without_need() -> None:
    now, plan = good()
    idle = now.model_copy(update={"nodes": (*now.nodes, b.node("n9"))})
    forged = plan.model_copy(update={"snapshot": idle.fingerprint()})
    assert "reprieve" in {violation.rule for violation in verify(idle, forged).violations}


def test_the_verifier_catches_a_victim_of_the_same_tier() -> None:
    now, plan = good()
    jobs = tuple(
        job.model_copy(update={"priority": "high"}) if job.name == "v2" else job for job in now.jobs
    )
    same = now.model_copy(update={"jobs": jobs})
    forged = plan.model_copy(update={"snapshot": same.fingerprint()})
    assert "victims" in {violation.rule for violation in verify(same, forged).violations}


def test_who_was_kept_from_a_reprieve_by_a_start_that_another_took_is_asked_again() -> None:
    """Once "high" goes on, "wide" must wait, and the guarantee is met without "mid" stopping."""
    day = 24 * HOUR
    snap = b.snapshot(
        b.node("n1", 8),
        b.node("n2", 8),
        b.queue("one"), b.queue("two"), b.queue("owed", guarantee=8),
        running("high", "n2", range(4), queue="one", priority="high", ran=HOUR),
        running("mid", "n2", range(4, 5), queue="one", priority="normal", waited=50 * day),
        b.job("wide", 8, queue="two", priority="high", waited=60),
        b.job("due1", 8, queue="owed", priority="normal", waited=8 * day),
        b.job("due2", 8, queue="owed", priority="normal", waited=7 * day),
        b.job("small", 4, queue="two", priority="normal", waited=60),
        promote_after_seconds=None,
    )  # fmt: skip
    plan = solve(snap, QUICK)
    assert victims(plan) == []
    assert "due1" in started(plan) or "due2" in started(plan)


def test_a_start_that_meets_a_guarantee_is_not_given_up_for_others_without_need() -> None:
    """"due" has two idle GPUs, "first" the third and that of "low"; "second" waits."""
    jobs = [
        b.job("due", 1, 2, queue="owed", priority="normal", waited=600),
        b.job("first", 1, 2, queue="two", priority="high", waited=600),
        b.job("second", 1, 2, queue="two", priority="high", waited=600),
    ]
    snap = b.snapshot(
        b.node("n1", 1), b.node("n2", 1), b.node("n3", 2),
        b.queue("two"), b.queue("owed", guarantee=2),
        running("low", "n1", range(1), queue="two"),
        *jobs,
        preemption=Preemption(budget=Budget(jobs=1, jobs_milli_of_running=1_000, reclaim_jobs=0,
                                            gpus_per_hour_milli=1_000)),
    )  # fmt: skip
    plan = solve(snap, QUICK)
    assert "due" in started(plan)
    assert len(started(plan)) == 2


def test_victims_are_those_that_leave_no_guarantee_short() -> None:
    """The cheapest three that `e` could stop are all of `loses` and one of `gains`; then `loses`
    would be short. One of `other` goes instead."""
    hosts = [b.node(f"n{i}", 1) for i in range(8)]
    parts = [
        running(name, f"n{i}", range(1), queue=queue, priority=tier)
        for i, (name, queue, tier) in enumerate(
            (
                ("a", "loses", "normal"), ("b", "loses", "normal"), ("c", "gains", "normal"),
                ("o", "other", "normal"), ("h1", "other", "high"), ("h2", "other", "high"),
                ("h3", "other", "high"),
            )
        )
    ]  # fmt: skip
    snap = b.snapshot(
        hosts,
        b.queue("gains", guarantee=1),
        b.queue("loses", guarantee=1),
        parts,
        b.job("d", 1, queue="loses", priority="normal", waited=25 * HOUR),
        b.job("e", 1, 4, queue="gains", priority="high", waited=600),
        promote_after_seconds=10**9,
    )
    plan = solve(snap, QUICK)
    assert started(plan) == ["e"]
    assert "o" in {stop.job for stop in plan.preempts}
    assert plan.proof.stages[0].objective == 0
