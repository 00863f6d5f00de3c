"""How large the preemption budget would have to be for the next round to stop others for a job."""

from __future__ import annotations

from trencadis.models.explanation import Raise, Remedy
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import with_raises
from trencadis.solver.explain.grouped import MOST_NODES, too_large
from trencadis.solver.explain.raises import raise_text


def larger_budget(case: Case) -> Remedy | str:
    """The least `budget.jobs`, from which the allowances of hours and days follow; or why none.

    Each size is tried by a round in which nobody else waits.
    """
    if too_large(case):
        return f"a larger preemption budget is worked out up to {MOST_NODES} nodes"
    snapshot = case.snapshot
    if case.alone.starts_by_preemption(snapshot, case.unit):
        return "no larger budget is needed: the next round may stop as many jobs again"
    used, current = snapshot.budget_use, snapshot.policy.preemption.budget.jobs
    running = sum(1 for job in snapshot.jobs if job.state == "running")

    def larger(jobs: int) -> Raise:
        return Raise(
            owner="budget", name="preemption", what="jobs", current=current, needed=jobs
        )

    def enough(jobs: int) -> bool:
        changed = with_raises(snapshot, (larger(jobs),))
        return case.alone.starts_by_preemption(changed, case.unit)

    low = current + 1
    high = low + running + used.preempted_jobs_last_day + used.preempted_gpus_last_hour
    if not enough(high):
        return "with any budget the next round would not stop others for it"
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    least = larger(low)
    return Remedy(kind="limit", sentence=f"raise {raise_text(least)}", raises=(least,))
