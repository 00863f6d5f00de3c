"""What is lost when a running job is stopped, in GPU-seconds, and who may be stopped for whom."""

from __future__ import annotations

from trencadis.models import Job, Snapshot
from trencadis.models.units import Sizes
from trencadis.solver.preempt import victims
from trencadis.solver.preempt.victims import elapsed, restart
from trencadis.solver.worth import tier_of


def unsaved(snapshot: Snapshot, job: Job) -> int:
    """Seconds of work since its last checkpoint; half an interval where only that is known."""
    interval = snapshot.policy.preemption.checkpoint_interval_seconds
    return victims.unsaved(snapshot, job, elapsed(snapshot, job), interval)


def loss(snapshot: Snapshot, job: Job, sizes: Sizes) -> int:
    """Work done again and the restart, GPU-seconds; a job counts as a tenth of a GPU at least."""
    lost = unsaved(snapshot, job) + restart(snapshot, job)
    return lost * max(100, milli_of(job, sizes)) // 1_000 + 1


def milli_of(job: Job, sizes: Sizes) -> int:
    """Milli-GPU that it has; slices count by their fraction."""
    return sizes.job(job) * 1_000 // sizes.unit


def may_be_stopped(snapshot: Snapshot, victim: Job, job: Job) -> bool:
    """Whether a scheduler may stop it: preemptible, of a lower tier, and has run long enough."""
    return (
        victim.preemptible
        and tier_of(snapshot, victim) > tier_of(snapshot, job)
        and elapsed(snapshot, victim) >= snapshot.policy.preemption.min_runtime_seconds
    )
