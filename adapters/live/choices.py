"""Whether what is sent fits a node whose owner chooses the GPUs, whichever it chooses.

The plan has one way in which all fits. The owner may take another, and spread shares so that the
last one finds no GPU with enough left. So of what a plan starts there only as much is sent at once
as fits in any case; the rest is decided anew when the GPUs of what was sent are known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.models.base import GPU_MILLI
from trencadis.models.reckoned import chooses


@dataclass(slots=True)
class _Node:
    left: dict[int, int]
    """Milli-GPU that nobody has, by GPU."""
    whole: int = 0
    """GPUs of tasks whose place isn't known yet."""
    shares: Counter[int] = field(default_factory=Counter)
    """Likewise shares, by their milli-GPU."""


class Choices:
    """The nodes of a snapshot on which GPUs are shared and chosen by others."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = {
            node.name: _Node(dict.fromkeys(node.healthy_gpus(), GPU_MILLI))
            for node in snapshot.nodes
            if chooses(node)
        }
        jobs = {job.name: job for job in snapshot.jobs}
        there = [(job, task) for job in jobs.values() if job.on_nodes for task in job.allocation]
        there += [
            (jobs[hold.job], task)
            for hold in snapshot.delayed
            if hold.job in jobs
            for task in hold.allocation
        ]
        for job, task in there:
            self._enter(job, task)

    def _enter(self, job: Job, task: TaskAllocation) -> None:
        node = self._nodes.get(task.node)
        if node is None:
            return
        share = job.request.share
        if task.gpus is not None:
            part = GPU_MILLI if share is None else share.gpu_milli
            for gpu in task.gpus:
                node.left[gpu] = max(0, node.left.get(gpu, 0) - part)
        elif share is not None:
            node.shares[share.gpu_milli] += 1
        else:
            node.whole += job.request.gpus

    def take(self, job: Job, tasks: Iterable[TaskAllocation]) -> str | None:
        """Why they can't be sure of their GPUs; None if they can, and then they are taken."""
        asked = list(tasks)
        share = job.request.share
        for name, number in Counter(task.node for task in asked).items():
            node = self._nodes.get(name)
            if node is None or not (share or job.request.gpus):
                continue
            more = Counter({share.gpu_milli: number}) if share else Counter[int]()
            whole = node.whole + (0 if share else job.request.gpus * number)
            if not _sure(node.left.values(), whole, node.shares + more):
                return (
                    f"the GPUs of node {name} are chosen there: whether it still fits is known"
                    " when those before it have theirs"
                )
        for task in asked:
            self._enter(job, task.model_copy(update={"gpus": None}))
        return None


def _sure(left: Iterable[int], whole: int, shares: Counter[int]) -> bool:
    """Whether all fit in any order, on whatever GPU with room each is put."""
    room = sorted(left, reverse=True)
    idle = sum(milli == GPU_MILLI for milli in room)
    if whole and idle < whole + shares.total():
        return False  # each share may open a GPU of its own
    total = sum(milli * number for milli, number in shares.items())
    unit = math.gcd(*shares)
    for milli in shares:
        # Everyone else may leave each GPU just too little for this one.
        blocked = sum(max(0, free // unit * unit - milli + unit) for free in room[whole:])
        if total - milli >= blocked:
            return False
    return True
