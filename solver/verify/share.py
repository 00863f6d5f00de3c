"""What each queue is entitled to, and how much of a job's weight that leaves (problem.md, 6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from trencadis.models import Job, Queue
from trencadis.solver.verify.tree import Tree
from trencadis.solver.verify.units import Scale


def fill(amount: Fraction, weights: Sequence[Fraction], caps: Sequence[Fraction]) -> list[Fraction]:
    """Weighted water-filling: raise all in proportion to their weights until capped or used up."""
    got = [Fraction(0)] * len(weights)
    ratios = [(caps[i] / weights[i], i) for i in range(len(weights)) if weights[i] > 0]
    open_weight = sum((weights[i] for _, i in ratios), Fraction(0))
    left = amount
    ratios.sort()
    for place, (level, i) in enumerate(ratios):
        # The water stands at `left / open_weight` over those still open, full ones taken off.
        if level * open_weight >= left:
            for _, k in ratios[place:]:
                got[k] = weights[k] * max(Fraction(0), left) / open_weight
            return got
        got[i] = caps[i]
        left -= caps[i]
        open_weight -= weights[i]
    return got


def entitlements(
    tree: Tree, scale: Scale, used: Mapping[str, int], wanted: Mapping[str, int]
) -> dict[str, Fraction]:
    """Entitlement of each queue in units, leaves rounded down.

    `used` and `wanted` are quota units by leaf: in use, and of eligible jobs.
    """
    demand: dict[str, int] = {}
    usage: dict[str, int] = {}
    for name in tree.bottom_up:
        queue, children = tree.queues[name], tree.children.get(name, ())
        total = used.get(name, 0) + wanted.get(name, 0)
        total += sum(demand[child] for child in children)
        limit = queue.limit.quota.total_milli()
        demand[name] = total if limit is None else min(total, limit * scale.unit // 1_000)
        usage[name] = queue.past_usage_gpu_hours + sum(usage[child] for child in children)
    entitled: dict[str, Fraction] = {}
    capacity = Fraction(scale.gpus * scale.unit)
    for parent in (None, *reversed(tree.bottom_up)):
        children = tree.children.get(parent, ())
        amount = capacity if parent is None else entitled[parent]
        parts = _among(
            [tree.queues[child] for child in children],
            amount,
            [Fraction(demand[child]) for child in children],
            [usage[child] for child in children],
            scale.unit,
        )
        for child, part in zip(children, parts, strict=True):
            entitled[child] = Fraction(part // 1) if tree.is_leaf(child) else part
    return entitled


def _among(
    queues: Sequence[Queue],
    amount: Fraction,
    demand: Sequence[Fraction],
    usage: Sequence[int],
    unit: int,
) -> list[Fraction]:
    """What siblings get of an amount; those without demand get nothing and count nowhere."""
    some = [i for i in range(len(queues)) if demand[i] > 0]
    guarantee = [Fraction((queues[i].guarantee.total_milli() or 0) * unit // 1_000) for i in some]
    wanted = [demand[i] for i in some]
    base = fill(amount, guarantee, [min(pair) for pair in zip(wanted, guarantee, strict=True)])
    all_weight = sum(queues[i].weight for i in some)
    all_usage = sum(usage[i] for i in some)
    weights = []
    for i in some:
        share = Fraction(queues[i].weight, all_weight)
        used = Fraction(usage[i], all_usage) if all_usage else Fraction(0)
        weights.append(2 * queues[i].weight * share / (share + used))
    rest = [want - has for want, has in zip(wanted, base, strict=True)]
    more = fill(amount - sum(base), weights, rest)
    got = [Fraction(0)] * len(queues)
    for place, i in enumerate(some):
        got[i] = base[place] + more[place]
    return got


def share_factors(
    jobs: Iterable[tuple[Job, tuple[int, int], int]],
    used: Mapping[str, int],
    entitled: Mapping[str, Fraction],
    floor_milli: int,
) -> dict[str, int]:
    """Share factor of each eligible job, thousandths; jobs are (job, (tier, submit), units)."""
    shares: dict[str, int] = {}
    blocks: dict[str, dict[tuple[int, int], list[tuple[Job, int]]]] = defaultdict(dict)
    for job, key, units in jobs:
        if units == 0:
            shares[job.name] = 1_000
        else:
            blocks[job.queue].setdefault(key, []).append((job, units))
    for queue, by_key in blocks.items():
        total = used.get(queue, 0)
        for key in sorted(by_key):
            block = sum(units for _, units in by_key[key])
            below = min(block, max(0, int(entitled[queue]) - total))
            share = (1_000 * below + floor_milli * (block - below)) // block
            for job, _ in by_key[key]:
                shares[job.name] = share
            total += block
    return shares
