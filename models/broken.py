"""Running gangs that lost tasks, and what such a gang lacks, as a job that waits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from trencadis.models.base import Name, Names, Positive
from trencadis.models.jobs import Hold, Job, TaskAllocation
from trencadis.models.plan import Repair, Start
from trencadis.models.snapshot import Snapshot

LONGEST = 240
"""Longer names are shortened, so that they stay names with something at their end."""

Breakage = Mapping[str, frozenset[int] | None]
"""What is broken, by node: the indices of its unhealthy GPUs; None where the node is down."""


class Missing(Job):
    """The tasks that a broken gang lacks. Never part of a snapshot: a round makes them of it."""

    gang: Name
    """The running job that lacks them."""
    gang_tasks: Positive
    """How many tasks the whole gang has."""
    beside: Names
    """The nodes on which the others still run."""

    @property
    def gang_size(self) -> int:
        """Tasks of the whole gang."""
        return self.gang_tasks

    @property
    def rest_on(self) -> tuple[Name, ...]:
        """The nodes on which the others still run."""
        return self.beside


def missing_name(gang: str) -> str:
    """The name of what a gang lacks, for the time of a round."""
    if len(gang) > LONGEST:
        gang = f"{gang[: LONGEST - 33]}+{hashlib.sha256(gang.encode()).hexdigest()[:32]}"
    return f"{gang}+repair"


def breakage(snapshot: Snapshot) -> Breakage:
    """What is broken in a snapshot."""
    found: dict[str, frozenset[int] | None] = {}
    for node in snapshot.nodes:
        if node.down:
            found[node.name] = None
        elif any(group.unhealthy for group in node.gpus):
            found[node.name] = frozenset(gpu for group in node.gpus for gpu in group.unhealthy)
    return found


def standing(job: Job, broken: Breakage) -> tuple[TaskAllocation, ...]:
    """The tasks of a job on nodes that still run: on nodes that are up, on healthy GPUs."""
    return tuple(task for task in job.allocation if not _lost(task, broken))


def _lost(task: TaskAllocation, broken: Breakage) -> bool:
    if task.node not in broken:
        return False
    gpus = broken[task.node]
    return gpus is None or not gpus.isdisjoint(task.gpus or ())


def is_broken(job: Job, left: tuple[TaskAllocation, ...]) -> bool:
    """Whether a job is a gang that runs with too few tasks; `left`: those that still run."""
    return job.state == "running" and 0 < len(left) < job.minimum


def lost_tasks(snapshot: Snapshot) -> dict[str, int]:
    """How many tasks each broken gang lacks, by name."""
    broken = breakage(snapshot)
    found = {}
    for job in snapshot.jobs:
        if job.state == "running":
            left = standing(job, broken)
            if is_broken(job, left):
                found[job.name] = job.minimum - len(left)
    return found


def useful_holds(snapshot: Snapshot) -> tuple[Hold, ...]:
    """The holds without those for running jobs, unless they are for just what a gang lacks."""
    running = {hold.job for hold in snapshot.delayed} & {
        job.name for job in snapshot.jobs if job.state == "running"
    }
    if not running:
        return snapshot.holds
    lost = lost_tasks(snapshot)
    return tuple(
        hold
        for hold in snapshot.holds
        if hold.job not in running or lost.get(hold.job) == len(hold.allocation)
    )


def as_start(repair: Repair) -> Start:
    """A repair as the start of what its gang lacks."""
    return Start(
        job=missing_name(repair.job),
        at=repair.at,
        allocation=repair.add,
        level=repair.level,
        domain=repair.domain,
        waiting_saved=repair.waiting_saved,
        spread_cost=repair.spread_cost,
        waits_for=repair.waits_for,
    )
