"""Patterns of whole GPUs: every way to fill one node of a bin type, with what each way costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trencadis.solver.fragmentation import Profile
from trencadis.solver.gpus import LinkGraph, can_link, split, subsets


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a pattern: all needs that are alike in this type of bin map to one slot."""

    model: str | None
    gpus: int
    sets: int
    need: tuple[int, ...]
    """CPU, memory, resources; 0 where the bin has more than any pattern can use."""
    linked: bool
    union: bool
    cost: int
    """Of each unlinked set; in bins without links, of the whole."""
    tier: int
    exclusive: bool
    cap: int
    owner: str
    located: int
    """Index of the located need that it serves alone; -1 for a free slot."""


@dataclass(frozen=True, slots=True)
class BinType:
    """What decides which patterns a node admits, and what they cost."""

    column: int
    idle: tuple[tuple[str, int], ...]
    """Idle GPUs by model: their number; or their canonical mask under `graph`."""
    graph: LinkGraph | None
    """Explicit NVLink; None where all pairs of GPUs are alike."""
    nvswitch: bool
    free: tuple[int | None, ...]
    """CPU, memory, resources, as far as they can matter; None: more than any pattern can use."""
    vacant: bool
    """Open to exclusive jobs."""

    def counts(self) -> dict[str, int]:
        """Idle GPUs by model."""
        if self.graph is None:
            return dict(self.idle)
        return {model: mask.bit_count() for model, mask in self.idle}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to fill a bin."""

    counts: tuple[tuple[int, int], ...]
    """(slot, how many), ascending."""
    used: tuple[int, ...]
    """CPU, memory, resources that the slots take (as far as they can matter)."""
    reserve: tuple[int, ...]
    """CPU, memory, resources that tasks without GPUs must leave, for `fragmentation` to hold."""
    costs: tuple[tuple[int, int], ...]
    """(tier, cost) of unlinked sets."""
    fragmentation: int
    """F of what is left, GPU-seconds."""


class TooManyPatternsError(Exception):
    """The bin type has more patterns than the limit."""


State = tuple[tuple[str, int], ...]


def enumerate_patterns(
    bin_type: BinType, slots: Sequence[Slot], profile: Profile, limit: int, fillers: bool
) -> list[Pattern]:
    """All patterns of a bin type, the empty one first.

    `fillers`: whether tasks without GPUs may use up what the slots leave of CPU and memory; then a
    pattern comes once per level of fragmentation that they can be kept from worsening.
    Raises TooManyPatternsError above `limit`.
    """
    found: dict[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], _Best] = {}
    for steps, (counts, left, free, costs) in enumerate(_fillings(bin_type, slots)):
        if steps > 20 * limit or len(found) > limit:
            raise TooManyPatternsError
        key = (counts, costs)
        exclusive = any(slots[i].exclusive for i, _ in counts)
        value = 0 if profile.off or exclusive else _loss(bin_type, profile, left, free)
        links = _links_left(bin_type, left)
        best = found.get(key)
        if best is None or (value, -links) < (best.value, -best.links):
            found[key] = _Best(value, links, left, free)
    patterns: list[Pattern] = []
    for (counts, costs), best in found.items():
        used = tuple(
            sum(slots[i].need[d] * n for i, n in counts) for d in range(len(bin_type.free))
        )
        exclusive = any(slots[i].exclusive for i, _ in counts)
        if not fillers or profile.off or exclusive:
            levels = [((0,) * len(bin_type.free), best.value)]
        else:
            levels = _levels(bin_type, profile, best)
        patterns.extend(Pattern(counts, used, reserve, costs, value) for reserve, value in levels)
    if len(patterns) > limit:
        raise TooManyPatternsError
    return sorted(patterns, key=lambda p: (sum(n for _, n in p.counts) > 0, p.counts, p.costs))


@dataclass(frozen=True, slots=True)
class _Best:
    value: int
    links: int
    left: State
    free: tuple[int | None, ...]


def _counts(bin_type: BinType, state: State) -> dict[str, int]:
    if bin_type.graph is None:
        return dict(state)
    return {model: mask.bit_count() for model, mask in state}


def _loss(
    bin_type: BinType, profile: Profile, state: State, free: tuple[int | None, ...]
) -> int:
    masks = dict(state)

    def links(model: str, n: int) -> bool:
        return can_link(bin_type.graph, bin_type.nvswitch, masks[model], n)

    return profile.cost(_counts(bin_type, state), free, links)


def _links_left(bin_type: BinType, state: State) -> int:
    graph = bin_type.graph
    return 0 if graph is None else sum(graph.best_left(mask) for _, mask in state)


def _levels(
    bin_type: BinType, profile: Profile, best: _Best
) -> list[tuple[tuple[int, ...], int]]:
    """Pairs (reserve, F): the least that must stay free for F to be so low, none dominated."""
    dims = len(bin_type.free)
    corners: set[tuple[int, ...]] = {(0,) * dims}
    if any(_counts(bin_type, best.left).values()):
        for entry in profile.entries:
            if entry.gpus and all(
                have is None or need <= have
                for need, have in zip(entry.need, best.free, strict=True)
            ):
                corners |= {
                    tuple(map(max, corner, entry.need)) for corner in corners
                }
    levels: list[tuple[tuple[int, ...], int]] = []
    for corner in sorted(corners, key=lambda c: (sum(c), c)):
        value = _loss(bin_type, profile, best.left, corner)
        if not any(
            known <= value and all(a <= b for a, b in zip(reserve, corner, strict=True))
            for reserve, known in levels
        ):
            levels.append((corner, value))
    return levels


Filling = tuple[
    tuple[tuple[int, int], ...], State, tuple[int | None, ...], tuple[tuple[int, int], ...]
]


def _fillings(bin_type: BinType, slots: Sequence[Slot]) -> Iterator[Filling]:
    """Every multiset of slots that fits, with the GPUs and the rest that it leaves."""
    shared = [i for i, slot in enumerate(slots) if not slot.exclusive]
    yield from _extend(bin_type, slots, shared, 0, (), bin_type.idle, bin_type.free, ())
    if bin_type.vacant:
        for i, slot in enumerate(slots):
            if slot.exclusive:
                for filling in _extend(
                    bin_type, slots, [i], 0, (), bin_type.idle, bin_type.free, ()
                ):
                    if filling[0]:
                        yield filling


def _extend(
    bin_type: BinType,
    slots: Sequence[Slot],
    order: Sequence[int],
    position: int,
    counts: tuple[tuple[int, int], ...],
    state: State,
    free: tuple[int | None, ...],
    costs: tuple[tuple[int, int], ...],
) -> Iterator[Filling]:
    if position == len(order):
        yield counts, state, free, costs
        return
    index = order[position]
    slot = slots[index]
    frontier = {(state, costs)}
    number = 0
    while frontier:
        chosen = counts if number == 0 else (*counts, (index, number))
        for here, paid in frontier:
            yield from _extend(
                bin_type, slots, order, position + 1, chosen, here, free, paid
            )
        number += 1
        if slot.cap and number > slot.cap:
            return
        less = _take(free, slot.need)
        if less is None:
            return
        free = less
        frontier = {
            step for here, paid in frontier for step in _gpu_choices(bin_type, slot, here, paid)
        }


def _take(free: tuple[int | None, ...], need: tuple[int, ...]) -> tuple[int | None, ...] | None:
    left = tuple(
        None if have is None else have - want for have, want in zip(free, need, strict=True)
    )
    return None if any(have is not None and have < 0 for have in left) else left


def _gpu_choices(
    bin_type: BinType, slot: Slot, state: State, costs: tuple[tuple[int, int], ...]
) -> Iterator[tuple[State, tuple[tuple[int, int], ...]]]:
    """Ways to take the slot's GPUs, one per class of equal ways."""
    if not slot.gpus:
        yield state, costs
        return
    table = dict(state)
    have = table.get(slot.model or "", 0)
    if bin_type.graph is None:
        if have >= slot.gpus:
            table[slot.model or ""] = have - slot.gpus
            yield tuple(table.items()), _pay(costs, slot.tier, slot.cost)
        return
    seen: set[tuple[int, int]] = set()
    for mask, broken in graph_choices(bin_type.graph, slot, have):
        left = bin_type.graph.canonical(have ^ mask)
        if (left, broken) not in seen:
            seen.add((left, broken))
            table[slot.model or ""] = left
            yield tuple(table.items()), _pay(costs, slot.tier, slot.cost * broken)


def graph_choices(graph: LinkGraph, slot: Slot, have: int) -> Iterator[tuple[int, int]]:
    """Masks of idle GPUs that a slot may take under explicit links, and its unlinked sets then."""
    if have.bit_count() < slot.gpus:
        return
    size = slot.gpus // slot.sets
    for mask in subsets(have, slot.gpus):
        broken = 0
        if slot.linked or (slot.cost and not slot.union):
            broken, _ = split(graph, mask, size)
        if slot.linked and broken:
            continue
        if slot.union:
            broken = 0 if graph.linked(mask) else 1
        yield mask, broken if slot.cost else 0


def _pay(
    costs: tuple[tuple[int, int], ...], tier: int, amount: int
) -> tuple[tuple[int, int], ...]:
    if not amount:
        return costs
    table = dict(costs)
    table[tier] = table.get(tier, 0) + amount
    return tuple(sorted(table.items()))
