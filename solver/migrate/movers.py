"""Which running jobs may be moved, and what a move costs (docs/problem.md, 10)."""

from __future__ import annotations

from dataclasses import dataclass

from trencadis.models import Job, Snapshot
from trencadis.models.broken import lost_tasks
from trencadis.solver.capacity import running_model, vector
from trencadis.solver.preempt.victims import gpus_of, may_stop, seconds_lost


@dataclass(frozen=True, slots=True)
class Mover:
    """A running job, all on one node, that may be checkpointed and restarted on another."""

    job: Job
    node: str
    model: str | None
    gpus: int
    need: tuple[int, ...]
    """CPU, memory and named resources of all its tasks."""
    cost: int
    """GPU-seconds that its GPUs are idle, or do again what was not saved."""

    @property
    def name(self) -> str:
        """What tells it from other movers."""
        return self.job.name

    @property
    def home(self) -> str:
        """Where it is among others that may be sent away together."""
        return self.node


def movers(snapshot: Snapshot, resources: tuple[str, ...]) -> dict[str, Mover]:
    """The jobs that the rules and this version let move, by name."""
    if snapshot.policy.preemption.mode not in ("graceful", "immediate"):
        return {}
    nodes = {node.name: node for node in snapshot.nodes}
    # Where a broken gang gets its tasks back depends on where the others are: they stay.
    broken = lost_tasks(snapshot) if snapshot.policy.repairs else {}
    found = {}
    for job in snapshot.jobs:
        if job.name in broken:
            continue
        if job.state != "running" or not job.allocation or not may_stop(snapshot, job):
            continue
        where = {task.node for task in job.allocation}
        unknown = any(task.gpus is None for task in job.allocation) and job.request.gpus
        if len(where) > 1 or unknown or job.exclusive or job.nvlink_required:
            continue
        gpus = gpus_of(job)
        found[job.name] = Mover(
            job,
            where.pop(),
            running_model(job, nodes),
            gpus,
            tuple(len(job.allocation) * amount for amount in vector(job, resources)),
            seconds_lost(snapshot, job) * gpus,
        )
    return found


def moves_left(snapshot: Snapshot) -> int:
    """How many jobs a plan may still move."""
    budget = snapshot.policy.preemption.budget.moves
    return max(0, budget - snapshot.budget_use.moves_last_hour)
