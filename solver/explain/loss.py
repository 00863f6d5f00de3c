"""What is lost when a running job is stopped, in GPU-seconds, and who may be stopped for whom."""

from __future__ import annotations

from trencadis.models import Job, Snapshot
from trencadis.solver.preempt import victims
from trencadis.solver.preempt.victims import elapsed, gpus_of, restart
from trencadis.solver.worth import tier_of


def unsaved(snapshot: Snapshot, job: Job) -> int:
    """Seconds of work since its last checkpoint; half an interval where only that is known."""
    interval = snapshot.policy.preemption.checkpoint_interval_seconds
    return victims.unsaved(snapshot, job, elapsed(snapshot, job), interval)


def loss(snapshot: Snapshot, job: Job) -> int:
    """Work done again and the restart, GPU-seconds; a job without GPUs counts as a tenth of one."""
    lost = unsaved(snapshot, job) + restart(snapshot, job)
    return lost * max(1, 10 * gpus_of(job)) // 10 + 1


def may_be_stopped(snapshot: Snapshot, victim: Job, job: Job) -> bool:
    """Whether a scheduler may stop it: preemptible, of a lower tier, and has run long enough."""
    return (
        victim.preemptible
        and tier_of(snapshot, victim) > tier_of(snapshot, job)
        and elapsed(snapshot, victim) >= snapshot.policy.preemption.min_runtime_seconds
    )
