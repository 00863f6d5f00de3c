"""Whether a round can come to anything, told without solving it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trencadis.whatif.books import leaf_queues
from trencadis.whatif.decisions import View
from trencadis.whatif.policies.elastic import pays_to_grow
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.runs import JobRun


@dataclass(frozen=True, slots=True)
class Outlook:
    """What may come of a round; it errs on the side of solving."""

    worth_solving: bool
    wake: int | None = None
    """When a job that is now too young to be stopped may be, if somebody waits for that."""

    @classmethod
    def of(cls, view: View) -> Outlook:
        """Whether a waiting job fits, could have a victim, or a running one can grow."""
        old, wake = _victims(view) if view.pending else (False, None)
        return cls(old or _fits(view) or _grows(view), wake)


def tier_now(run: JobRun, view: View) -> int:
    """Index of the job's tier after promotion (docs/problem.md, 2)."""
    every = view.snapshot.policy.promote_after_seconds
    lifted = (view.now - run.submit) // every if every else 0
    return max(0, run.tier - lifted)


def _fits(view: View) -> bool:
    """Whether some waiting job fits on what is idle."""
    draft, ranking = view.draft(), BestFit()
    return any(draft.fit(run, ranking) is not None for run in view.pending)


def _grows(view: View) -> bool:
    """Whether there are idle GPUs, and a running job that would gain from more tasks."""
    if not view.snapshot.policy.elastic_milli or not view.state.idle_milli():
        return False
    smaller = (run for run in view.running if len(run.allocation) < run.job.tasks)
    return any(pays_to_grow(run, view) for run in smaller)


def _victims(view: View) -> tuple[bool, int | None]:
    """Whether somebody could be stopped or shrunk for somebody; when the next one could."""
    rules = view.snapshot.policy.preemption
    if rules.mode not in ("graceful", "immediate"):
        return False, None
    top = min(tier_now(run, view) for run in view.pending)
    short = _short_queues(view, view.pending)
    wake: int | None = None
    for run in view.running:
        job, tier = run.job, tier_now(run, view)
        reclaimed = bool(short - {job.queue})
        spare = len(run.allocation) > max(job.minimum, job.min_replicas)
        if spare and job.preemptible and (tier >= top or reclaimed):
            return True, None
        if not (job.preemptible and job.requeueable) or job.min_replicas:
            continue
        if tier <= top and not reclaimed:
            continue
        ripe = run.began + rules.min_runtime_seconds
        if ripe <= view.now:
            return True, None
        wake = ripe if wake is None else min(wake, ripe)
    return False, wake


def _short_queues(view: View, pending: Sequence[JobRun]) -> set[str]:
    """Queues with a guarantee that they don't use up though they have jobs waiting."""
    waiting = {name for run in pending for name in view.books.chain(run.job.queue)}
    leaves = {queue.name for queue in leaf_queues(view.snapshot)}
    return {
        queue.name
        for queue in view.snapshot.queues
        if queue.name in waiting & leaves
        and view.books.in_use(queue.name) < (queue.guarantee.total_milli() or 0)
    }
