"""Small clusters on which it is plain who has to stop, and what a wrong plan would say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trencadis.models import (
    Fabric,
    FabricLevel,
    GpuGroup,
    Job,
    Node,
    NvLink,
    Plan,
    Policy,
    Queue,
    Quota,
    Request,
    Snapshot,
    TaskAllocation,
    Topology,
)
from trencadis.models.apply import apply
from trencadis.models.jobs import Checkpoint
from trencadis.models.policy import Budget, BudgetUse, Preemption
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

NOW = datetime(2026, 1, 15, 9, tzinfo=UTC)
QUICK = Options(time_limit_s=10, workers=1)
Q = (Queue(name="q"),)


def ago(**spans: float) -> datetime:
    return NOW - timedelta(**spans)


def node(name: str, gpus: int = 8, fabric: tuple[str, ...] = ()) -> Node:
    return Node(
        name=name,
        gpus=(GpuGroup(model="h100", count=gpus, memory_mib=80_000),),
        cpu_milli=1_000_000,
        memory_mib=1_000_000,
        nvlink=NvLink(kind="nvswitch"),
        fabric=fabric,
    )


def running(name: str, *places: tuple[str, range], priority: str = "low", **more: Any) -> Job:
    more.setdefault("start", ago(hours=2))
    return Job(
        name=name,
        queue=more.pop("queue", "q"),
        priority=priority,
        submit=ago(hours=2),
        tasks=len(places),
        request=Request(gpus=len(places[0][1])),
        state="running",
        allocation=tuple(TaskAllocation(node=n, gpus=tuple(gpus)) for n, gpus in places),
        **more,
    )


def waiting(name: str, gpus: int, tasks: int = 1, priority: str = "high", **more: Any) -> Job:
    queue = more.pop("queue", "q")
    request = Request(gpus=gpus)
    fields = {"queue": queue, "priority": priority, "submit": ago(minutes=1), **more}
    return Job(name=name, tasks=tasks, request=request, **fields)


def snapshot(*parts: Node | Job, queues: tuple[Queue, ...] = Q, **more: Any) -> Snapshot:
    return Snapshot(
        now=NOW,
        nodes=tuple(part for part in parts if isinstance(part, Node)),
        jobs=tuple(part for part in parts if isinstance(part, Job)),
        queues=queues,
        **more,
    )


def victims(plan: Plan) -> list[str]:
    return [stop.job for stop in plan.preempts]


def started(plan: Plan) -> list[str]:
    return [start.job for start in plan.starts]


def busy_nodes() -> list[Node | Job]:
    """Four nodes with six high and two low jobs each."""
    parts: list[Node | Job] = []
    for i in range(4):
        parts.append(node(f"n{i}"))
        for gpu in range(8):
            tier = "high" if gpu < 6 else "low"
            parts.append(running(f"{tier}{i}{gpu}", (f"n{i}", range(gpu, gpu + 1)), priority=tier))
    return parts


def test_nobody_stops_in_vain() -> None:
    plan = solve(snapshot(*busy_nodes(), waiting("p1", 8), waiting("p2", 1)), QUICK)
    assert started(plan) == ["p2"]
    assert len(victims(plan)) == 1
    assert victims(plan)[0].startswith("low")
    assert victims(solve(snapshot(*busy_nodes(), waiting("p1", 8)), QUICK)) == []


def test_room_is_made_inside_the_required_domain() -> None:
    nodes = [node(f"n{i}", fabric=("AB"[i // 2],)) for i in range(4)]
    low = running("low", ("n1", range(8)), ("n2", range(8)))
    leaf = Topology(level="leaf", mode="required")
    plan = solve(
        snapshot(
            *nodes,
            low,
            waiting("gang", 8, 2, topology=leaf),
            fabric=Fabric(levels=(FabricLevel(name="leaf"),)),
        ),
        QUICK,
    )
    used = {task.node for task in plan.starts[0].allocation}
    assert victims(plan) == ["low"]
    assert used in ({"n0", "n1"}, {"n2", "n3"})


def test_a_guarantee_is_reclaimed_once_and_then_all_is_quiet() -> None:
    now = snapshot(
        node("n0"),
        running("p1", ("n0", range(4)), priority="normal", queue="q1"),
        running("p2", ("n0", range(4, 5)), priority="normal", queue="q2"),
        waiting("p3", 4, priority="normal", queue="q2"),
        queues=(
            Queue(name="q1", guarantee=Quota(gpus=3)),
            Queue(name="q2", guarantee=Quota(gpus=5)),
        ),
    )
    plan = solve(now, QUICK)
    assert victims(plan) == ["p1"]
    assert plan.starts[0].waits_for == ("p1",)
    assert plan.starts[0].at == plan.preempts[0].gpus_free_at == NOW + timedelta(seconds=300)
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
    later = draining.model_copy(update={"jobs": gone, "now": NOW + timedelta(seconds=301)})
    second = solve(later, QUICK)
    assert started(second) == ["p3"]
    assert not second.preempts
    third = solve(apply(later, second), QUICK)
    assert not third.starts
    assert not third.preempts


def test_victims_are_planned_together() -> None:
    low = [running(name, ("n0", range(4 * i, 4 * i + 4))) for i, name in enumerate("xyz")]
    plan = solve(snapshot(node("n0", 12), *low, waiting("a", 8), waiting("b", 8)), QUICK)
    assert len(victims(plan)) == 2
    assert len(started(plan)) == 1


def three_victims() -> list[Node | Job]:
    return [
        *(node(f"n{i}") for i in range(3)),
        running("v1", ("n0", range(8)), checkpoint=Checkpoint(last=ago(minutes=55))),
        running("v2", ("n1", range(8)), checkpoint=Checkpoint(last=ago(minutes=2))),
        running("v3", ("n2", range(8)), start=ago(minutes=10)),
    ]


def test_the_cheapest_loss_goes() -> None:
    policy = Policy(preemption=Preemption(min_runtime_seconds=60))
    plan = solve(snapshot(*three_victims(), waiting("new", 8), policy=policy), QUICK)
    assert victims(plan) == ["v2"]
    # Two minutes of work, five of grace, five to restart, on eight GPUs.
    assert plan.preempts[0].lost_gpu_seconds == 8 * (120 + 300 + 300)


@pytest.mark.parametrize(
    "change",
    [
        {"preemptible": False},
        {"requeueable": False},
        {"min_replicas": 1},
        {"start": ago(minutes=5)},
        {"preempted": 2, "preempted_at": ago(hours=3)},
        {"priority": "high"},
    ],
)
def test_who_may_not_stop_goes_on(change: dict[str, Any]) -> None:
    job = running("only", ("n0", range(8))).model_copy(update=change)
    assert not solve(snapshot(node("n0"), job, waiting("new", 8)), QUICK).preempts


def test_budgets_hold() -> None:
    low = [running(f"low{i}", ("n0", range(i, i + 1))) for i in range(8)]
    want = [waiting(f"new{i}", 1) for i in range(8)]
    for budget, use, most in (
        (Budget(jobs=3, jobs_milli_of_running=0), BudgetUse(), 3),
        (Budget(jobs=3, jobs_milli_of_running=1_000), BudgetUse(preempted_jobs_last_day=1), 2),
        (Budget(jobs=1, jobs_milli_of_running=1_000, jobs_per_day_milli=1_000), BudgetUse(), 8),
    ):
        policy = Policy(preemption=Preemption(budget=budget))
        plan = solve(snapshot(node("n0"), *low, *want, policy=policy, budget_use=use), QUICK)
        assert len(victims(plan)) == most


def good() -> tuple[Snapshot, Plan]:
    policy = Policy(preemption=Preemption(min_runtime_seconds=60))
    now = snapshot(*three_victims(), waiting("new", 8), policy=policy)
    return now, solve(now, QUICK)


@pytest.mark.parametrize(
    ("rule", "preempt", "start"),
    [
        ("preempts", {"lost_gpu_seconds": 1}, {}),
        ("preempts", {"gpus_free_at": NOW}, {}),
        ("preempts", {"makes_room_for": ()}, {}),
        ("preempts", {"job": "nobody"}, {}),
        ("now", {}, {"at": NOW}),
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
    idle = now.model_copy(update={"nodes": (*now.nodes, node("n9"))})
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
