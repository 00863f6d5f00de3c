"""Entitlements of queues, and the share factor of each eligible job (§6)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from oracle.costs import total_units
from oracle.facts import Facts, instant
from trencadis.models import Missing, Queue


def fill(amount: Fraction, weights: Sequence[Fraction], caps: Sequence[Fraction]) -> list[Fraction]:
    """Weighted water-filling: raise all in proportion until each is at its cap or all is used."""
    given = [Fraction(0)] * len(weights)
    rising = [i for i in range(len(weights)) if weights[i] > 0 and caps[i] > 0]
    while rising and amount > 0:
        speed = sum(weights[i] for i in rising)
        first_full = min((caps[i] - given[i]) / weights[i] for i in rising)
        time = min(first_full, amount / speed)
        for i in rising:
            given[i] += weights[i] * time
        amount -= speed * time
        rising = [i for i in rising if given[i] < caps[i]]
    return given


def queue_demand(facts: Facts, queue: Queue) -> int:
    children = facts.children(queue)
    if children:
        wanted = sum(queue_demand(facts, child) for child in children)
    else:
        jobs = [*facts.on_nodes, *facts.eligible]
        wanted = sum(facts.units(job) for job in jobs if job.queue == queue.name)
    most = total_units(facts, queue.limit.quota)
    return wanted if most is None else min(wanted, most)


def past_usage(facts: Facts, queue: Queue) -> int:
    """`past_usage_gpu_hours` of the whole subtree."""
    below = sum(past_usage(facts, child) for child in facts.children(queue))
    return queue.past_usage_gpu_hours + below


def entitlements(facts: Facts) -> dict[str, Fraction]:
    """Entitlement of every queue, in units, not rounded."""
    roots = [queue for queue in facts.snapshot.queues if queue.parent is None]
    found: dict[str, Fraction] = {}
    _share_out(facts, Fraction(facts.G * facts.U), roots, found)
    return found


def _share_out(
    facts: Facts, amount: Fraction, siblings: Sequence[Queue], found: dict[str, Fraction]
) -> None:
    for queue in siblings:
        found[queue.name] = Fraction(0)
    asking = [queue for queue in siblings if queue_demand(facts, queue) > 0]
    demands = [Fraction(queue_demand(facts, queue)) for queue in asking]
    guarantees = [Fraction(total_units(facts, queue.guarantee) or 0) for queue in asking]
    base = fill(amount, guarantees, [min(d, g) for d, g in zip(demands, guarantees, strict=True)])
    all_weight = sum(queue.weight for queue in asking)
    all_usage = sum(past_usage(facts, queue) for queue in asking)
    weights = []
    for queue in asking:
        s = Fraction(queue.weight, all_weight)
        v = Fraction(past_usage(facts, queue), all_usage) if all_usage else Fraction(0)
        weights.append(2 * queue.weight * s / (s + v))
    rest = fill(amount - sum(base), weights, [d - b for d, b in zip(demands, base, strict=True)])
    for queue, b, r in zip(asking, base, rest, strict=True):
        found[queue.name] = b + r
    for queue in siblings:
        children = facts.children(queue)
        if children:
            _share_out(facts, found[queue.name], children, found)


def shares(facts: Facts) -> dict[str, int]:
    """The share factor of every eligible job, thousandths."""
    found = {job.name: 1_000 for job in facts.eligible}
    entitled = entitlements(facts)
    floor = facts.policy.share_floor_milli
    for queue in facts.snapshot.queues:
        e = int(entitled[queue.name])
        used = sum(facts.units(job) for job in facts.on_nodes if job.queue == queue.name)
        mine = [job for job in facts.eligible if job.queue == queue.name]
        for key in sorted({(facts.tier(job), instant(job.submit)) for job in mine}):
            block = [job for job in mine if (facts.tier(job), instant(job.submit)) == key]
            b = sum(facts.units(job) for job in block)
            if b == 0:
                continue
            below = min(b, max(0, e - used))
            for job in block:
                if facts.units(job) > 0 and not isinstance(job, Missing):
                    found[job.name] = (1_000 * below + floor * (b - below)) // b
            used += b
    return found
