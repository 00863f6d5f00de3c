"""A full cluster whose lender has everything, and a queue that wants its guarantee back."""

from __future__ import annotations

from datetime import timedelta

from trencadis.instances.workload import NOW
from trencadis.models import (
    GpuGroup,
    Job,
    Node,
    NvLink,
    Policy,
    Queue,
    Quota,
    Request,
    Snapshot,
    TaskAllocation,
)
from trencadis.models.policy import Budget, Preemption

GPUS_PER_NODE = 8


def reclaim(nodes: int = 500, pending: int = 4_000) -> Snapshot:
    """One-GPU jobs of queue `lender` on every GPU, one-GPU jobs of queue `owner` waiting.

    Each queue is guaranteed half of the GPUs, and budgets let the owner have its half at once.
    """
    if nodes < 0 or pending < 0:
        raise ValueError(f"nodes and pending are 0 or more (got {nodes} and {pending})")
    gpus = nodes * GPUS_PER_NODE
    budget = Budget(
        jobs=gpus,
        jobs_milli_of_running=1_000,
        jobs_per_day_milli=1_000,
        gpus_per_hour_milli=1_000,
        reclaim_jobs=gpus,
    )
    names = [f"node-{index:05d}" for index in range(nodes)]
    running = tuple(
        Job(
            name=f"lent-{index:06d}",
            queue="lender",
            submit=NOW - timedelta(hours=3),
            request=Request(gpus=1),
            state="running",
            start=NOW - timedelta(hours=2, seconds=index % 600),
            allocation=(
                TaskAllocation(
                    node=names[index // GPUS_PER_NODE], gpus=(index % GPUS_PER_NODE,)
                ),
            ),
        )
        for index in range(gpus)
    )
    waiting = tuple(
        Job(
            name=f"owed-{index:06d}",
            queue="owner",
            submit=NOW - timedelta(seconds=60 + index % 1_800),
            request=Request(gpus=1),
        )
        for index in range(pending)
    )
    return Snapshot(
        now=NOW,
        nodes=tuple(
            Node(
                name=name,
                gpus=(GpuGroup(model="h100", count=GPUS_PER_NODE),),
                nvlink=NvLink(kind="nvswitch"),
            )
            for name in names
        ),
        queues=(
            Queue(name="lender", guarantee=Quota(gpus=gpus // 2)),
            Queue(name="owner", guarantee=Quota(gpus=gpus // 2)),
        ),
        jobs=(*running, *waiting),
        policy=Policy(preemption=Preemption(budget=budget)),
    )
