"""Why a job takes no part in the round: what it comes after, its time, its group, its kind."""

from __future__ import annotations

from trencadis.models import Job
from trencadis.models.explanation import Reason
from trencadis.solver.explain.said import Said, names, when
from trencadis.solver.explain.scene import Scene
from trencadis.solver.worth import talks_across_slices


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
    own = [hold for hold in snapshot.delayed if hold.job == job.name]
    if own:
        at = min(hold.at for hold in own)
        return Said(
            Reason.HELD_GPUS,
            f"has GPUs on hold from {when(at)} on and starts when they are free",
            {"at": at.isoformat(), "tasks_held": sum(len(hold.allocation) for hold in own)},
        )
    if talks_across_slices(job):
        return Said(
            Reason.SLICES_TALK,
            f"its {job.minimum} tasks communicate, but neither NVLink nor peer-to-peer copies join "
            "MIG slices. Maybe set communicates to false, or ask for whole GPUs.",
            {"tasks": job.minimum},
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
