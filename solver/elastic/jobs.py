"""Which elastic jobs may grow, how far, and what each further task is worth (problem.md, 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.models.units import asks_for_mig
from trencadis.solver.capacity import vector
from trencadis.solver.fabric import preferred_depth, required_depth
from trencadis.solver.model.problem import Facts
from trencadis.solver.worth import size_of, tier_of


def elastic(job: Job) -> bool:
    """Whether the number of its tasks may change."""
    whole = not asks_for_mig(job.request) and job.request.share is None
    return job.tasks > job.minimum and whole and not (job.segments or job.exclusive)


def fraction(snapshot: Snapshot, job: Job, number: int) -> int:
    """Worth of the `number`-th task beyond the minimum to one of the minimum, thousandths."""
    return snapshot.policy.elastic_milli * job.minimum // (job.minimum + number)


def worth(read: Facts, job: Job, number: int) -> int:
    """The same in weighted GPU-seconds. Tiers weigh here what they weigh in one sum."""
    policy, rates = read.snapshot.policy, read.values.rates
    weight = policy.tiers[tier_of(read.snapshot, job)].weight * job.weight_milli
    size = size_of(job, 1, rates, read.capacity)
    part = fraction(read.snapshot, job, number)
    return weight * size * policy.horizon_seconds * part // (1_000 * 1_000 * rates.unit)


def missing(read: Facts, has: Mapping[str, int]) -> int | None:
    """What the tasks are worth that elastic jobs, eligible or running, do not have.

    `has`: tasks beyond the minimum, by job. None where there is no such job, or none may grow.
    """
    if not read.snapshot.policy.elastic_milli:
        return None
    jobs = [
        job
        for job in read.snapshot.jobs
        if elastic(job)
        and (job.name in read.values.eligible or (job.state == "running" and job.allocation))
    ]
    if not jobs:
        return None
    return sum(
        worth(read, job, number)
        for job in jobs
        for number in range(has.get(job.name, 0) + 1, job.tasks - job.minimum + 1)
    )


@dataclass(frozen=True, slots=True)
class Grower:
    """A job that may have more tasks."""

    job: Job
    model: str | None
    gpus: int
    need: tuple[int, ...]
    """CPU, memory and named resources of a task."""
    units: int
    """Quota units of a task."""
    has: tuple[TaskAllocation, ...]
    values: tuple[int, ...]
    """What each further task is worth, never increasing."""
    reach: int
    """Depth of the domain that further tasks stay in."""
    domain: tuple[str, ...]
    """The nodes of that domain have paths that begin so; at depth D + 1 the node's name."""


def grower(
    read: Facts, job: Job, has: Iterable[TaskAllocation], model: str | None
) -> Grower | None:
    """The job as one that may grow, with the tasks that it has; None if it may not."""
    tasks = tuple(has)
    further = len(tasks) - job.minimum
    if not elastic(job) or (job.request.gpus and model is None):
        return None
    fabric = read.fabric
    depth = fabric.common_depth(task.node for task in tasks)
    reach = _reach(read, job, len(tasks), depth)
    if reach > depth:
        return None
    node = tasks[0].node
    return Grower(
        job=job,
        model=model,
        gpus=job.request.gpus,
        need=vector(job, read.capacity.resources),
        units=read.values.rates.sizes.task(job.request),
        has=tasks,
        values=tuple(
            worth(read, job, number) for number in range(further + 1, job.tasks - job.minimum + 1)
        ),
        reach=reach,
        domain=(node,) if reach > fabric.depth else fabric.path[node][:reach],
    )


def _reach(read: Facts, job: Job, has: int, depth: int) -> int:
    snapshot, fabric = read.snapshot, read.fabric
    # With a second task a job is one of several tasks, whatever its minimum is.
    several = job.model_copy(update={"min_tasks": None})
    least = required_depth(snapshot, several, fabric)
    least = max(least, min(depth, preferred_depth(snapshot, job, fabric)))
    if not job.communicates:
        return least
    if depth <= fabric.depth:
        return max(least, depth)
    # Off its node if the first task there gains more than the others lose by its distance.
    lost = read.values.rates.level_slowdown[fabric.depth]
    gain = fraction(snapshot, job, has - job.minimum + 1) * (1_000 - lost)
    return max(least, fabric.depth if has * lost * 1_000 <= gain else depth)
