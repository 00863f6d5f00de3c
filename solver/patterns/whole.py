"""Patterns: every way to fill one node of a bin type, with what each way costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trencadis.solver.fragmentation import Profile, reconfiguration
from trencadis.solver.gpus import LinkGraph, can_link, split, subsets
from trencadis.solver.slices import Blank, Cut, Cutter, Piece, steps


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
    pieces: tuple[Piece, ...] = ()
    """Slices and shares that it takes, of GPUs of the model."""


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
    cuts: tuple[Cut, ...] = ()
    """GPUs in MIG mode or shared, sorted."""
    blanks: tuple[Blank, ...] = ()
    """What its whole idle GPUs may be made into, by model."""

    def blank(self, model: str | None) -> Blank | None:
        """What a whole idle GPU of the model may be made into, if anything."""
        return next((blank for blank in self.blanks if blank.model == model), None)

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
    """F of what is left and the cost of new MIG layouts, GPU-seconds."""
    cuts: tuple[Cut, ...] = ()
    """The second stage afterwards, sorted."""


class TooManyPatternsError(Exception):
    """The bin type has more patterns than the limit."""


class State(NamedTuple):
    """What is left of a node's GPUs."""

    whole: tuple[tuple[str, int], ...]
    """By model: the number of idle GPUs, or their mask."""
    cuts: tuple[Cut, ...]
    """The second stage, sorted."""


MAX_STATES = 60
"""States of GPUs that may be met, per pattern of the limit."""


def enumerate_patterns(
    bin_type: BinType,
    slots: Sequence[Slot],
    wanted: Sequence[int],
    profile: Profile,
    limit: int,
    fillers: bool,
) -> list[Pattern]:
    """All patterns of a bin type, the empty one first.

    `wanted`: the most of each slot that all jobs together could use.
    `fillers`: whether tasks without GPUs may use up what the slots leave of CPU and memory; then a
    pattern comes once per level of fragmentation that they can be kept from worsening.
    Raises TooManyPatternsError above `limit`.
    """
    found: dict[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], _Best] = {}
    walk = _Walk(bin_type, slots, wanted, profile.cutter, MAX_STATES * limit)
    for number, (counts, left, free, costs) in enumerate(walk.fillings()):
        if number > 20 * limit or len(found) > limit:
            raise TooManyPatternsError
        key = (counts, costs)
        exclusive = any(slots[i].exclusive for i, _ in counts)
        value = _value(bin_type, profile, left, free, exclusive=exclusive)
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
        patterns.extend(
            Pattern(counts, used, reserve, costs, value, best.left.cuts)
            for reserve, value in levels
        )
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
        return dict(state.whole)
    return {model: mask.bit_count() for model, mask in state.whole}


def _value(
    bin_type: BinType,
    profile: Profile,
    state: State,
    free: tuple[int | None, ...],
    *,
    exclusive: bool = False,
) -> int:
    """F of what is left, which an exclusive job does not leave, and of new layouts the cost."""
    if profile.off:
        return 0
    if exclusive:
        return sum(reconfiguration(cut) for cut in state.cuts)
    masks = dict(state.whole)

    def links(model: str, n: int) -> bool:
        return can_link(bin_type.graph, bin_type.nvswitch, masks[model], n)

    blanks = {blank.model: blank for blank in bin_type.blanks}
    whole = profile.cost(_counts(bin_type, state), free, links, blanks)
    return whole + profile.cuts_cost(state.cuts)


def _links_left(bin_type: BinType, state: State) -> int:
    graph = bin_type.graph
    return 0 if graph is None else sum(graph.best_left(mask) for _, mask in state.whole)


def _levels(
    bin_type: BinType, profile: Profile, best: _Best
) -> list[tuple[tuple[int, ...], int]]:
    """Pairs (reserve, F): the least that must stay free for F to be so low, none dominated."""
    dims = len(bin_type.free)
    corners: set[tuple[int, ...]] = {(0,) * dims}
    if any(_counts(bin_type, best.left).values()):
        for entry in profile.entries:
            if entry.on_gpus and all(
                have is None or need <= have
                for need, have in zip(entry.need, best.free, strict=True)
            ):
                corners |= {
                    tuple(map(max, corner, entry.need)) for corner in corners
                }
    levels: list[tuple[tuple[int, ...], int]] = []
    for corner in sorted(corners, key=lambda c: (sum(c), c)):
        value = _value(bin_type, profile, best.left, corner)
        if not any(
            known <= value and all(a <= b for a, b in zip(reserve, corner, strict=True))
            for reserve, known in levels
        ):
            levels.append((corner, value))
    return levels


Filling = tuple[
    tuple[tuple[int, int], ...], State, tuple[int | None, ...], tuple[tuple[int, int], ...]
]


class _Walk:
    """Fills a node slot by slot; equal states are merged, so that each is extended once."""

    def __init__(
        self,
        bin_type: BinType,
        slots: Sequence[Slot],
        wanted: Sequence[int],
        cutter: Cutter,
        most: int,
    ) -> None:
        self.bin_type, self.slots, self.wanted, self.cutter = bin_type, slots, wanted, cutter
        self.left = most
        """States that may still be met."""

    def fillings(self) -> Iterator[Filling]:
        """Every multiset of slots that fits, with the GPUs and the rest that it leaves."""
        bin_type = self.bin_type
        idle = State(bin_type.idle, bin_type.cuts)
        shared = [i for i, slot in enumerate(self.slots) if not slot.exclusive]
        yield from self._extend(shared, 0, (), idle, bin_type.free, ())
        if bin_type.vacant:
            for i, slot in enumerate(self.slots):
                if slot.exclusive:
                    for filling in self._extend([i], 0, (), idle, bin_type.free, ()):
                        if filling[0]:
                            yield filling

    def _extend(
        self,
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
        slot = self.slots[index]
        frontier = {(state, costs)}
        number = 0
        while frontier:
            self.left -= len(frontier)
            if self.left < 0:
                raise TooManyPatternsError
            chosen = counts if number == 0 else (*counts, (index, number))
            for here, paid in frontier:
                yield from self._extend(order, position + 1, chosen, here, free, paid)
            number += 1
            if number > self.wanted[index] or (slot.cap and number > slot.cap):
                return
            less = _take(free, slot.need)
            if less is None:
                return
            free = less
            frontier = {step for here, paid in frontier for step in self._choices(slot, here, paid)}

    def _choices(
        self, slot: Slot, state: State, costs: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[State, tuple[tuple[int, int], ...]]]:
        """Ways to take what the slot needs of the GPUs, one per class of equal ways."""
        if not slot.pieces:
            yield from _gpu_choices(self.bin_type, slot, state, costs)
            return
        frontier = {state}
        for piece in slot.pieces:
            frontier = {
                after
                for here in frontier
                for after in piece_choices(self.bin_type, self.cutter, slot.model, piece, here)
            }
        for after in frontier:
            yield after, costs


def piece_choices(
    bin_type: BinType, cutter: Cutter, model: str | None, piece: Piece, state: State
) -> Iterator[State]:
    """Ways to place a slice or a share: on a GPU of the second stage, or on one made ready."""
    cuts = state.cuts
    for position, _, after in steps(cutter, cuts, model or "", piece):
        yield state._replace(
            cuts=tuple(sorted((*cuts[:position], after, *cuts[position + 1 :])))
        )
    blank = bin_type.blank(model)
    empty = cutter.opened(blank, piece) if blank is not None else None
    if empty is None:
        return
    for whole in _without_one(bin_type, state, model or ""):
        for _, after in cutter.places(empty, piece):
            yield State(whole, tuple(sorted((*cuts, after))))


def _without_one(
    bin_type: BinType, state: State, model: str
) -> Iterator[tuple[tuple[str, int], ...]]:
    """The whole GPUs less one of a model."""
    table = dict(state.whole)
    have = table.get(model, 0)
    if not have:
        return
    if bin_type.graph is None:
        table[model] = have - 1
        yield tuple(table.items())
        return
    for left in dict.fromkeys(bin_type.graph.canonical(have ^ one) for one in subsets(have, 1)):
        table[model] = left
        yield tuple(table.items())


def _take(free: tuple[int | None, ...], need: tuple[int, ...]) -> tuple[int | None, ...] | None:
    left = tuple(
        None if have is None else have - want for have, want in zip(free, need, strict=True)
    )
    return None if any(have is not None and have < 0 for have in left) else left


def _gpu_choices(
    bin_type: BinType, slot: Slot, state: State, costs: tuple[tuple[int, int], ...]
) -> Iterator[tuple[State, tuple[tuple[int, int], ...]]]:
    """Ways to take the slot's whole GPUs, one per class of equal ways."""
    if not slot.gpus:
        yield state, costs
        return
    table = dict(state.whole)
    have = table.get(slot.model or "", 0)
    if bin_type.graph is None:
        if have >= slot.gpus:
            table[slot.model or ""] = have - slot.gpus
            left = state._replace(whole=tuple(table.items()))
            yield left, _pay(costs, slot.tier, slot.cost)
        return
    seen: set[tuple[int, int]] = set()
    for mask, broken in graph_choices(bin_type.graph, slot, have):
        canonical = bin_type.graph.canonical(have ^ mask)
        if (canonical, broken) not in seen:
            seen.add((canonical, broken))
            table[slot.model or ""] = canonical
            left = state._replace(whole=tuple(table.items()))
            yield left, _pay(costs, slot.tier, slot.cost * broken)


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
