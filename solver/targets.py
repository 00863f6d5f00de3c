"""Guarantee targets: what each queue could have of its guarantee on the empty cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from trencadis.models import Snapshot
from trencadis.solver.capacity import running_model
from trencadis.solver.worth import Values


@dataclass(frozen=True, slots=True)
class Target:
    """A guarantee, and how far its queue is from it."""

    queue: str
    model: str
    """GPU model; empty: in all."""
    leaf: bool
    missing: int
    """Units between what the queue has and its target; negative where it has more."""
    guarantee: int
    """Units."""


def largest_sum(sizes: Counter[int], bound: int) -> int:
    """The largest sum of a sub-multiset of positive sizes that is at most `bound`."""
    sizes = Counter({size: n for size, n in sizes.items() if 0 < size <= bound})
    if not sizes:
        return 0
    total = sum(size * n for size, n in sizes.items())
    if total <= bound:
        return total
    unit = gcd(*sizes)
    limit = bound // unit
    reachable = 1  # bit s: the sum s (in units of the gcd) can be reached
    mask = (1 << (limit + 1)) - 1
    for size, number in sizes.items():
        # Binary splitting: 1, 2, 4, … copies and a rest give every number of copies.
        step, left = 1, number
        while left > 0:
            copies = min(step, left)
            reachable |= reachable << (copies * size // unit) & mask
            left -= copies
            step *= 2
    return (reachable.bit_length() - 1) * unit


def targets(
    snapshot: Snapshot, worths: Values, can_run: Mapping[str, frozenset[str | None]]
) -> list[Target]:
    """Every guarantee. `can_run`: models that suit a job on the empty cluster."""
    unit = worths.rates.unit
    nodes = {node.name: node for node in snapshot.nodes}
    guaranteed = {
        queue.name: queue.guarantee
        for queue in snapshot.queues
        if queue.guarantee.total_milli() is not None or queue.guarantee.by_model
    }
    has: defaultdict[tuple[str, str], int] = defaultdict(int)
    sizes: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for job in snapshot.jobs:
        running = job.on_nodes
        if not running and job.name not in worths.eligible:
            continue
        units = worths.rates.sizes.job(job)
        if running:
            suits: frozenset[str | None] = frozenset((running_model(job, nodes),))
        else:
            suits = can_run.get(job.name, frozenset())
        if not units or not (running or suits):
            continue
        for name in worths.tree.chain(job.queue):
            if name not in guaranteed:
                continue
            for model in ("", *guaranteed[name].by_model):
                if model and model not in suits:
                    continue
                sizes[(name, model)][units] += 1
                if running:
                    has[(name, model)] += units
    found: list[Target] = []
    for name, quota in sorted(guaranteed.items()):
        bounds = {model: gpus * unit for model, gpus in quota.by_model.items()}
        total = quota.total_milli()
        if total is not None:
            bounds[""] = total * unit // 1_000
        for model, bound in sorted(bounds.items()):
            missing = largest_sum(sizes[(name, model)], bound) - has[(name, model)]
            found.append(Target(name, model, worths.tree.is_leaf(name), missing, bound))
    return found
