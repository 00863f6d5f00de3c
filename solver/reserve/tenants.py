"""Who will be on the nodes, and until when, once a round's starts have come and victims gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from trencadis.models.base import seconds
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.preempt.timing import delay_of, waits_for
from trencadis.solver.reserve.estimates import Estimates
from trencadis.solver.reserve.forecast import Tenant
from trencadis.solver.score import Placement


def tenants(
    read: Facts,
    exchange: Exchange,
    placements: Mapping[str, Placement],
    counted: Collection[str],
    estimates: Estimates,
) -> Iterator[Tenant]:
    """What runs on, drains or leaves, what is held, and of the starts those `counted`."""
    snapshot, now = read.snapshot, estimates.now
    gone = exchange.victims
    shrunk = {name: [v.task for v in parts] for name, parts in exchange.shrunk().items()}
    jobs = {job.name: job for job in snapshot.jobs}
    for job in snapshot.jobs:
        if not job.on_nodes:
            continue
        victim = gone.get(job.name)
        end = estimates.end(job) if victim is None else now + victim.grace
        leaving = Counter(shrunk.get(job.name, ()))
        for task in job.allocation:
            if leaving[task]:
                leaving[task] -= 1
            elif end is None or end > now:
                yield end, job, task
    for hold in snapshot.delayed:
        job, start = jobs[hold.job], max(now, seconds(hold.at))
        for task in hold.allocation:
            yield estimates.end_from(job, start), job, task
    waiting = waits_for(read, exchange, placements)
    for name in sorted(counted):
        placed = placements[name]
        start = now + delay_of(waiting.get(name, ()), gone)
        for task in placed.tasks:
            yield estimates.end_from(placed.job, start), placed.job, task
