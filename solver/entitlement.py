"""Which part of the cluster each queue is entitled to, and what share of its jobs lies within."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from trencadis.models import Job, Queue, Snapshot


@dataclass(frozen=True, slots=True)
class QueueTree:
    """The queues with what belongs together."""

    queues: Mapping[str, Queue]
    children: Mapping[str | None, tuple[str, ...]]
    """By parent; None for the roots."""

    def is_leaf(self, name: str) -> bool:
        """Whether jobs may belong to it."""
        return name not in self.children

    def chain(self, name: str) -> list[str]:
        """The queue and its ancestors, upwards."""
        chain = []
        current: str | None = name
        while current is not None:
            chain.append(current)
            current = self.queues[current].parent
        return chain

    def upwards(self) -> list[str]:
        """All queues, children before parents."""
        order: list[str] = []
        stack = list(self.children.get(None, ()))
        while stack:
            name = stack.pop()
            order.append(name)
            stack.extend(self.children.get(name, ()))
        return order[::-1]


def queue_tree(snapshot: Snapshot) -> QueueTree:
    """The tree, children sorted by name."""
    children: defaultdict[str | None, list[str]] = defaultdict(list)
    for queue in snapshot.queues:
        children[queue.parent].append(queue.name)
    return QueueTree(
        queues={queue.name: queue for queue in snapshot.queues},
        children={parent: tuple(sorted(names)) for parent, names in children.items()},
    )


def fill(
    amount: Fraction, weights: Sequence[Fraction], caps: Sequence[Fraction]
) -> list[Fraction]:
    """Weighted water-filling: raises all in proportion to their weights, each up to its cap."""
    given = [Fraction(0)] * len(weights)
    open_ = [i for i in range(len(weights)) if weights[i] > 0 and caps[i] > 0]
    rest = amount
    while open_ and rest > 0:
        total = sum((weights[i] for i in open_), Fraction(0))
        level = rest / total
        full = [i for i in open_ if caps[i] - given[i] <= level * weights[i]]
        if not full:
            for i in open_:
                given[i] += level * weights[i]
            break
        for i in full:
            rest -= caps[i] - given[i]
            given[i] = caps[i]
        open_ = [i for i in open_ if i not in set(full)]
    return given


def entitlements(
    tree: QueueTree, in_use: Mapping[str, int], asked: Mapping[str, int], capacity: int, unit: int
) -> dict[str, int]:
    """Entitlement of each leaf queue, in units, rounded down.

    `in_use` and `asked`: units that the leaf's jobs have now, and that its eligible jobs ask for.
    """
    demand: dict[str, int] = {}
    usage: dict[str, int] = {}
    for name in tree.upwards():
        queue = tree.queues[name]
        below = tree.children.get(name, ())
        if below:
            wanted = sum(demand[child] for child in below)
        else:
            wanted = in_use.get(name, 0) + asked.get(name, 0)
        limit = queue.limit.quota.total_milli()
        demand[name] = wanted if limit is None else min(wanted, limit * unit // 1_000)
        usage[name] = queue.past_usage_gpu_hours + sum(usage[child] for child in below)
    result: dict[str, int] = {name: 0 for name in tree.queues if tree.is_leaf(name)}
    stack: list[tuple[str | None, Fraction]] = [(None, Fraction(capacity))]
    while stack:
        parent, amount = stack.pop()
        siblings = [name for name in tree.children.get(parent, ()) if demand[name] > 0]
        for name, part in zip(
            siblings, _divide(tree, siblings, amount, demand, usage, unit), strict=True
        ):
            if tree.is_leaf(name):
                result[name] = int(part)
            else:
                stack.append((name, part))
    return result


def _divide(
    tree: QueueTree,
    siblings: Sequence[str],
    amount: Fraction,
    demand: Mapping[str, int],
    usage: Mapping[str, int],
    unit: int,
) -> list[Fraction]:
    guarantees = [
        Fraction((tree.queues[name].guarantee.total_milli() or 0) * unit, 1_000)
        for name in siblings
    ]
    wanted = [Fraction(demand[name]) for name in siblings]
    base = fill(
        amount, guarantees, [min(d, g) for d, g in zip(wanted, guarantees, strict=True)]
    )
    weights = [Fraction(tree.queues[name].weight) for name in siblings]
    all_weight = sum(weights, Fraction(0))
    all_usage = sum(usage[name] for name in siblings)
    corrected = []
    for name, weight in zip(siblings, weights, strict=True):
        target = weight / all_weight
        past = Fraction(usage[name], all_usage) if all_usage else Fraction(0)
        corrected.append(2 * weight * target / (target + past))
    rest = amount - sum(base, Fraction(0))
    surplus = fill(rest, corrected, [d - b for d, b in zip(wanted, base, strict=True)])
    return [b + s for b, s in zip(base, surplus, strict=True)]


def share_factors(
    jobs: Sequence[tuple[Job, int, int]], used: int, entitlement: int, floor_milli: int
) -> dict[str, int]:
    """Share factor of one leaf queue's eligible jobs, thousandths.

    `jobs`: (job, tier, quota units). The queue's entitlement is given out in order of tier and
    submit time; what lies beyond it counts `floor_milli`. Jobs of one instant share a block.
    """
    blocks: defaultdict[tuple[int, int], list[tuple[Job, int]]] = defaultdict(list)
    factors: dict[str, int] = {}
    for job, tier, units in jobs:
        factors[job.name] = 1_000
        if units:
            blocks[(tier, int(job.submit.timestamp()))].append((job, units))
    for key in sorted(blocks):
        total = sum(units for _, units in blocks[key])
        below = min(total, max(0, entitlement - used))
        factor = (1_000 * below + floor_milli * (total - below)) // total
        for job, _ in blocks[key]:
            factors[job.name] = factor
        used += total
    return factors
