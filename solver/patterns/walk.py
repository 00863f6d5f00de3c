"""Ways to fill a node slot by slot: which GPUs a slot takes, and where its slices and shares go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trencadis.solver.gpus import LinkGraph, split, subsets
from trencadis.solver.patterns.bins import BinType, Slot, State, TooManyPatternsError
from trencadis.solver.pieces import Cut, Piece, closed
from trencadis.solver.slices import Cutter, steps

Filling = tuple[
    tuple[tuple[int, int], ...], State, tuple[int | None, ...], tuple[tuple[int, int], ...]
]


class Walk:
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
        paid = _pay(costs, slot.tier, slot.cost)
        for off, cuts in _closings(state.cuts, slot.model, slot.gpus):
            if have >= slot.gpus - off:
                if have:
                    table[slot.model or ""] = have - slot.gpus + off
                yield State(tuple(table.items()), cuts), paid
        return
    seen: set[tuple[int, int]] = set()
    for mask, broken in graph_choices(bin_type.graph, slot, have):
        canonical = bin_type.graph.canonical(have ^ mask)
        if (canonical, broken) not in seen:
            seen.add((canonical, broken))
            table[slot.model or ""] = canonical
            left = state._replace(whole=tuple(table.items()))
            yield left, _pay(costs, slot.tier, slot.cost * broken)


def _closings(
    cuts: tuple[Cut, ...], model: str | None, most: int
) -> Iterator[tuple[int, tuple[Cut, ...]]]:
    """Ways to turn MIG off on up to so many GPUs of a model: (how many, the cuts after)."""
    frontier = {cuts}
    for number in range(most + 1):
        for here in frontier:
            yield number, here
        frontier = {
            tuple(sorted((*here[:i], after, *here[i + 1 :])))
            for here in frontier
            for i, cut in enumerate(here)
            if cut.model == model
            for _, after in closed(cut)
        }


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
