"""apply(snapshot, plan): the next snapshot, as a pure function."""

from __future__ import annotations

from trencadis.models.jobs import Job
from trencadis.models.plan import Plan
from trencadis.models.snapshot import Snapshot


class PlanMismatchError(ValueError):
    """The plan was made for another snapshot, or names what this one does not have."""


def apply(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot right after the plan's actions.

    Raises PlanMismatchError if the plan's fingerprint is not this snapshot's. Says nothing about
    whether the plan keeps the rules: `trencadis.solver.verify` does.
    """
    if plan.snapshot != snapshot.fingerprint():
        raise PlanMismatchError(
            "the plan was made for another snapshot: its fingerprint is "
            f"{plan.snapshot[:12]}, this snapshot's is {snapshot.fingerprint()[:12]}"
        )
    unsupported = plan.preempts or plan.resizes or plan.moves or plan.reconfigures or plan.reserves
    if unsupported:
        raise PlanMismatchError("the plan has actions that this version does not carry out")
    starts = {start.job: start for start in plan.starts}
    jobs: list[Job] = []
    for job in snapshot.jobs:
        start = starts.pop(job.name, None)
        if start is None:
            jobs.append(job)
            continue
        jobs.append(
            job.model_copy(
                update={"state": "running", "start": start.at, "allocation": start.allocation}
            )
        )
    if starts:
        raise PlanMismatchError(f"the plan starts unknown jobs: {', '.join(sorted(starts)[:5])}")
    holds = tuple(hold for hold in snapshot.holds if hold.job not in {s.job for s in plan.starts})
    return snapshot.model_copy(update={"jobs": tuple(jobs), "holds": holds})
