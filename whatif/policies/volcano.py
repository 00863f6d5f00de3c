"""Volcano's actions, greedily: allocate by queue share, then preempt within a queue, then reclaim.

Plugins taken as read: gang, priority, proportion, binpack (volcano.sh, scheduler documentation).
A queue's deserved share is its guarantee and its part of the rest by weight, at most its demand.
Other than Volcano's own allocate, queues above their share come last, not never: better for it.
"""

from __future__ import annotations

from fractions import Fraction

from trencadis.solver.entitlement import fill
from trencadis.whatif.books import leaf_queues
from trencadis.whatif.decisions import Decision, Draft, View
from trencadis.whatif.policies.elastic import grow, shrink_for
from trencadis.whatif.policies.order import by_priority
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.policies.victims import cheapest_first, make_room, preemptible
from trencadis.whatif.runs import JobRun


class Volcano:
    """Gang, priority, proportional queues with guarantees, reclaim."""

    name = "volcano"

    def decide(self, view: View) -> Decision:
        """Allocate, preempt, reclaim; what stays idle goes to elastic jobs."""
        draft, ranking = view.draft(), BestFit()
        deserved = _deserved(view)
        waiting = self._allocate(view, draft, deserved, ranking)
        # Queue and tier as well: whom a job may stop depends on them.
        hopeless: set[tuple[int, str, int]] = set()
        for run in waiting:
            key = (run.shape, run.job.queue, run.tier)
            if key in hopeless or draft.limited(run):
                continue
            if not self._make_room(view, draft, run, deserved, ranking):
                hopeless.add(key)
        if not draft.preempts:
            grow(draft, ranking)
        return draft.decision()

    def _allocate(
        self, view: View, draft: Draft, deserved: dict[str, Fraction], ranking: BestFit
    ) -> list[JobRun]:
        """Always the queue with the least part of its share in use; returns who doesn't fit."""
        queues: dict[str, list[JobRun]] = {}
        for run in reversed(by_priority(view.pending)):
            queues.setdefault(run.job.queue, []).append(run)
        waiting = []
        while queues:
            name = min(queues, key=lambda queue: (_share(draft, deserved, queue), queue))
            run = queues[name].pop()
            if not queues[name]:
                del queues[name]
            if not draft.try_start(run, ranking):
                waiting.append(run)
        return waiting

    def _make_room(
        self,
        view: View,
        draft: Draft,
        run: JobRun,
        deserved: dict[str, Fraction],
        ranking: BestFit,
    ) -> bool:
        own = run.job.queue
        running = preemptible(view, draft)
        lower = [v for v in running if v.job.queue == own and v.tier > run.tier]
        if shrink_for(draft, run, lower, ranking):
            return True
        room = make_room(draft, run, cheapest_first(view, lower), ranking) if lower else None
        if room is None and draft.books.in_use(own) + run.asks_milli <= deserved[own]:
            others = [
                v
                for v in running
                if v.job.queue != own and draft.books.in_use(v.job.queue) > deserved[v.job.queue]
            ]
            if not others:
                return False

            def above(victims: list[JobRun]) -> bool:
                """No queue is pushed below what it deserves."""
                left = {v.job.queue: draft.books.in_use(v.job.queue) for v in victims}
                for victim in victims:
                    left[victim.job.queue] -= victim.milli
                return all(amount >= deserved[queue] for queue, amount in left.items())

            room = make_room(draft, run, cheapest_first(view, others), ranking, above)
        if room is None:
            return False
        draft.replace(run, *room)
        return True


def _share(draft: Draft, deserved: dict[str, Fraction], queue: str) -> Fraction:
    due = deserved[queue]
    used = Fraction(draft.books.in_use(queue))
    return used / due if due else used + 1_000_000_000


def _deserved(view: View) -> dict[str, Fraction]:
    """Milli-GPUs by leaf queue: guarantees first, the rest by weight, at most the demand."""
    leaves = leaf_queues(view.snapshot)
    demand = {queue.name: view.books.in_use(queue.name) for queue in leaves}
    for run in view.pending:
        demand[run.job.queue] += run.asks_milli
    caps = []
    for queue in leaves:
        limit, wanted = queue.limit.quota.total_milli(), demand[queue.name]
        caps.append(Fraction(wanted if limit is None else min(limit, wanted)))
    total = Fraction(view.state.healthy * 1_000)
    sure = [
        min(Fraction(queue.guarantee.total_milli() or 0), cap)
        for queue, cap in zip(leaves, caps, strict=True)
    ]
    weights = [Fraction(queue.weight) for queue in leaves]
    base = fill(total, [max(part, Fraction(1, 1_000)) for part in sure], sure)
    rest = [cap - part for cap, part in zip(caps, base, strict=True)]
    more = fill(max(Fraction(0), total - sum(base)), weights, rest)
    return {queue.name: b + m for queue, b, m in zip(leaves, base, more, strict=True)}
