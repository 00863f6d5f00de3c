"""Patterns: every way to fill one node of a bin type, with what each way costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trencadis.solver.fragmentation import Profile, reconfiguration
from trencadis.solver.gpus import can_link
from trencadis.solver.patterns.bins import BinType, Pattern, Slot, State, TooManyPatternsError
from trencadis.solver.patterns.walk import Walk, graph_choices

__all__ = [
    "STATES",
    "BinType",
    "Pattern",
    "Slot",
    "TooManyPatternsError",
    "enumerate_patterns",
    "graph_choices",
]

STATES = 20
"""States of GPUs that may be met, per pattern of the limit."""


def enumerate_patterns(
    bin_type: BinType,
    slots: Sequence[Slot],
    wanted: Sequence[int],
    profile: Profile,
    limit: int,
    fillers: bool,
    states: int = STATES,
) -> list[Pattern]:
    """All patterns of a bin type, the empty one first.

    `wanted`: the most of each slot that all jobs together could use.
    `fillers`: whether tasks without GPUs may use up what the slots leave of CPU and memory; then a
    pattern comes once per level of fragmentation that they can be kept from worsening.
    Raises TooManyPatternsError above `limit`, and where more than `states` times as many states of
    the GPUs would have to be looked at.
    """
    found: dict[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], _Best] = {}
    price = _Price(bin_type, profile)
    walk = Walk(bin_type, slots, wanted, profile.cutter, states * limit)
    for number, (counts, left, free, costs) in enumerate(walk.fillings()):
        if number > 20 * limit or len(found) > limit:
            raise TooManyPatternsError
        key = (counts, costs)
        exclusive = any(slots[i].exclusive for i, _ in counts)
        value = price.of(left, free, exclusive=exclusive)
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
            levels = _levels(bin_type, price, best)
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


class _Price:
    """F of what is left of nodes of one type, and of new layouts the cost."""

    def __init__(self, bin_type: BinType, profile: Profile) -> None:
        self.bin_type, self.profile = bin_type, profile
        counts = bin_type.counts()
        self.needs = tuple(
            dict.fromkeys(
                entry.need
                for entry in profile.entries
                if entry.on_gpus
                and (bin_type.blanks or any(0 < entry.gpus <= n for n in counts.values()))
            )
        )
        """CPU, memory and resources of the kinds of task that could use idle GPUs here."""
        self._blanks = {blank.model: blank for blank in bin_type.blanks}
        # Many states differ in their GPUs in parts alone.
        self._whole: dict[
            tuple[tuple[tuple[str, int], ...], tuple[int | None, ...]], int
        ] = {}

    def of(self, state: State, free: tuple[int | None, ...], *, exclusive: bool = False) -> int:
        """GPU-seconds; an exclusive job leaves nothing."""
        if self.profile.off:
            return 0
        if exclusive:
            return sum(reconfiguration(cut) for cut in state.cuts)
        key = (state.whole, free)
        if key not in self._whole:
            self._whole[key] = self._of_whole(state, free)
        return self._whole[key] + self.profile.cuts_cost(state.cuts)

    def _of_whole(self, state: State, free: tuple[int | None, ...]) -> int:
        masks = dict(state.whole)
        bin_type = self.bin_type

        def links(model: str, n: int) -> bool:
            return can_link(bin_type.graph, bin_type.nvswitch, masks[model], n)

        return self.profile.cost(_counts(bin_type, state), free, links, self._blanks)


def _links_left(bin_type: BinType, state: State) -> int:
    graph = bin_type.graph
    return 0 if graph is None else sum(graph.best_left(mask) for _, mask in state.whole)


def _levels(
    bin_type: BinType, price: _Price, best: _Best
) -> list[tuple[tuple[int, ...], int]]:
    """Pairs (reserve, F): the least that must stay free for F to be so low, none dominated."""
    dims = len(bin_type.free)
    corners: set[tuple[int, ...]] = {(0,) * dims}
    if any(_counts(bin_type, best.left).values()):
        for need in price.needs:
            if all(
                have is None or want <= have for want, have in zip(need, best.free, strict=True)
            ):
                corners |= {tuple(map(max, corner, need)) for corner in corners}
    levels: list[tuple[tuple[int, ...], int]] = []
    for corner in sorted(corners, key=lambda c: (sum(c), c)):
        value = price.of(best.left, corner)
        if not any(
            known <= value and all(a <= b for a, b in zip(reserve, corner, strict=True))
            for reserve, known in levels
        ):
            levels.append((corner, value))
    return levels
