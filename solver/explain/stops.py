"""The remedy that stops jobs: whom, in scopes that widen step by step, and what that loses."""

from __future__ import annotations

from collections.abc import Callable

from trencadis.models import Job
from trencadis.models.explanation import Remedy
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.grouped import GroupStopper
from trencadis.solver.explain.loss import loss, may_be_stopped, milli_of, unsaved
from trencadis.solver.explain.raises import beside
from trencadis.solver.explain.said import gpus, names
from trencadis.solver.explain.stop import Stopper, Victims
from trencadis.solver.preempt.victims import gpus_of


def stop(case: Case) -> Remedy | str:
    """Those that a scheduler may stop for it; else any that are preemptible; else any at all.

    What the plan starts only now is left alone as long as others will do.
    """
    snapshot, job = case.base, case.job
    running = [other for other in snapshot.jobs if other.state == "running"]
    now, sizes = case.starting, case.place.rates.sizes
    scopes: tuple[tuple[str, Callable[[Job], bool]], ...] = (
        ("of lower tiers", lambda v: v.name not in now and may_be_stopped(snapshot, v, job)),
        ("preemptible, but not of lower tiers", lambda v: v.name not in now and v.preemptible),
        ("not all preemptible", lambda v: v.name not in now),
        ("with what starts now held back", lambda v: v.preemptible or v.name in now),
    )
    stopper: Stopper | GroupStopper = GroupStopper(case)
    if case.single:
        stopper = Stopper(snapshot, case.place, parts=case.reads_parts)
    before = -1
    for scope, allowed in scopes:
        costs = {other.name: loss(snapshot, other, sizes) for other in running if allowed(other)}
        if len(costs) == before:
            continue
        before = len(costs)
        if not stopper.fits(job, list(costs), case.models):
            continue
        victims = stopper.cheapest(job, case.models, costs)
        if victims is not None:
            return _stop_remedy(case, victims, scope)
    return f"not even with all running jobs stopped{case.aside}"


def _lost(gpu_seconds: int) -> str:
    if not gpu_seconds:
        return "no work lost"
    if gpu_seconds < 2 * 3_600:
        return f"{-(-gpu_seconds // 60):,} GPU-min of work lost"
    return f"{gpu_seconds / 3_600:,.1f} GPU-h of work lost"


def _stop_remedy(case: Case, victims: Victims, scope: str) -> Remedy:
    jobs = {job.name: job for job in case.base.jobs}
    stopped = [jobs[name] for name in victims.names]
    milli = {job.name: milli_of(job, case.place.rates.sizes) for job in stopped}
    lost = sum(milli[job.name] * unsaved(case.base, job) for job in stopped) // 1_000
    text = (
        f"stop {names(victims.names)} ({scope}; {gpus(sum(milli.values()))}, "
        f"{_lost(lost)}){beside(case.raises)}"
    )
    return Remedy(
        kind="stop",
        sentence=text,
        stop=victims.names,
        cost={
            "jobs": len(stopped),
            "gpus": sum(gpus_of(job) for job in stopped),
            "gpu_milli": sum(milli.values()),
            "lost_gpu_seconds": lost,
        },
        cheapest=victims.cheapest,
        raises=case.raises,
    )
