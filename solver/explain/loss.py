"""What is lost when a running job is stopped, in GPU-seconds, and who may be stopped for whom."""

from __future__ import annotations

from trencadis.models import Job, Snapshot
from trencadis.models.base import seconds
from trencadis.solver.worth import tier_of


def ran(snapshot: Snapshot, job: Job) -> int:
    """Seconds since it started."""
    return 0 if job.start is None else max(0, seconds(snapshot.now) - seconds(job.start))


def unsaved(snapshot: Snapshot, job: Job) -> int:
    """Seconds of work since its last checkpoint; half an interval where only that is known."""
    done = ran(snapshot, job)
    saved = job.checkpoint
    if saved is None:
        return done
    if saved.on_signal:
        return 0
    if saved.last is not None:
        return min(done, max(0, seconds(snapshot.now) - seconds(saved.last)))
    interval = saved.interval_seconds or snapshot.policy.preemption.checkpoint_interval_seconds
    return min(done, interval // 2)


def gpus_of(job: Job) -> int:
    """Whole GPUs that it occupies."""
    return len(job.allocation) * job.request.gpus


def loss(snapshot: Snapshot, job: Job) -> int:
    """Work done again and the restart, GPU-seconds; a job without GPUs counts as a tenth of one."""
    preemption = snapshot.policy.preemption
    nodes = {task.node for task in job.allocation}
    restart = preemption.restart_seconds
    if len(nodes) > 1:
        restart = preemption.restart_seconds_multi_node
    return (unsaved(snapshot, job) + restart) * max(1, 10 * gpus_of(job)) // 10 + 1


def may_be_stopped(snapshot: Snapshot, victim: Job, job: Job) -> bool:
    """Whether a scheduler may stop it: preemptible, of a lower tier, and has run long enough."""
    return (
        victim.preemptible
        and tier_of(snapshot, victim) > tier_of(snapshot, job)
        and ran(snapshot, victim) >= snapshot.policy.preemption.min_runtime_seconds
    )
