"""Why a job takes no part in the round: what it comes after, its time, its group, its kind."""

from __future__ import annotations

from trencadis.models import Job
from trencadis.models.explanation import Reason
from trencadis.models.units import asks_for_mig
from trencadis.solver.explain.said import Said, names, when
from trencadis.solver.explain.scene import Scene


def not_eligible(scene: Scene, job: Job) -> Said:
    """The first rule that keeps it out."""
    snapshot = scene.snapshot
    present = {other.name for other in snapshot.jobs}
    waiting_for = [name for name in job.after if name in present]
    if waiting_for:
        return Said(
            Reason.DEPENDENCY,
            f"waits for {names(waiting_for)} to end",
            {"jobs": ", ".join(waiting_for)},
        )
    if job.not_before is not None and job.not_before > snapshot.now:
        left = int((job.not_before - snapshot.now).total_seconds())
        return Said(
            Reason.NOT_BEFORE,
            f"may not start before {when(job.not_before)}",
            {"not_before": job.not_before.isoformat(), "seconds_left": left},
        )
    own = [hold for hold in snapshot.holds if hold.job == job.name]
    if own:
        at = min(hold.at for hold in own)
        return Said(
            Reason.HELD_GPUS,
            f"has GPUs on hold from {when(at)} on and starts when they are free",
            {"at": at.isoformat(), "tasks_held": sum(len(hold.allocation) for hold in own)},
        )
    if asks_for_mig(job.request) or job.request.share is not None:
        return Said(
            Reason.KIND_OF_GPU,
            "asks for a MIG slice or a share; this version places whole GPUs",
        )
    blockers = sorted(
        other.name
        for other in snapshot.jobs
        if other.group == job.group
        and other.state in ("pending", "held")
        and other.name not in scene.facts.values.eligible
    )
    return Said(
        Reason.GROUP,
        f"starts together with group {job.group}, of which {names(blockers)} can't start yet",
        {"group": str(job.group), "waits_for": ", ".join(blockers)},
    )
