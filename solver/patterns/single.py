"""Patterns of a single GPU in parts: what is known of a layout serves every GPU that comes to it.

Where a node is taken apart, hundreds of types of GPU differ in the instances that stand idle. Once
a layout changes, these no longer matter, so most of the ways to go on are shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from trencadis.solver.fragmentation import Profile
from trencadis.solver.patterns.bins import BinType, Pattern, Slot, TooManyPatternsError
from trencadis.solver.pieces import Cut

Counts = tuple[tuple[int, int], ...]


def is_single(bin_type: BinType, slots: Sequence[Slot]) -> bool:
    """Whether the type is one GPU in parts whose CPU and memory are counted elsewhere."""
    return (
        len(bin_type.cuts) == 1
        and not bin_type.idle
        and not bin_type.blanks
        and all(have is None for have in bin_type.free)
        and all(slot.pieces and not slot.exclusive for slot in slots)
    )


class Single:
    """The patterns of GPUs in parts for one list of slots."""

    def __init__(self, slots: Sequence[Slot], wanted: Sequence[int], profile: Profile) -> None:
        """`wanted`: the most of each slot that all jobs together could use."""
        self.slots, self.profile = slots, profile
        self.most = [
            min(number, slot.cap or number) for slot, number in zip(slots, wanted, strict=True)
        ]
        self._ways: dict[tuple[int, Cut], dict[Counts, tuple[int, Cut]]] = {}

    def patterns(self, bin_type: BinType, limit: int) -> list[Pattern]:
        """As `enumerate_patterns`. Raises TooManyPatternsError above `limit`."""
        (cut,) = bin_type.cuts
        ways = self._from(0, cut)
        if len(ways) > limit:
            raise TooManyPatternsError
        nothing = (0,) * len(bin_type.free)
        found = [
            Pattern(counts, nothing, nothing, (), value, (end,))
            for counts, (value, end) in ways.items()
        ]
        return sorted(found, key=lambda pattern: (bool(pattern.counts), pattern.counts))

    def _from(self, index: int, cut: Cut) -> dict[Counts, tuple[int, Cut]]:
        """Counts of the slots from an index on -> least F with new layouts' cost, and the end."""
        key = (index, cut)
        known = self._ways.get(key)
        if known is None:
            known = self._ways[key] = self._find(index, cut)
        return known

    def _find(self, index: int, cut: Cut) -> dict[Counts, tuple[int, Cut]]:
        if index == len(self.slots):
            value = 0 if self.profile.off else self.profile.cuts_cost((cut,))
            return {(): (value, cut)}
        found: dict[Counts, tuple[int, Cut]] = {}
        frontier = {cut}
        for number in range(self.most[index] + 1):
            first: Counts = ((index, number),) if number else ()
            for here in frontier:
                for counts, way in self._from(index + 1, here).items():
                    chosen = first + counts
                    best = found.get(chosen)
                    if best is None or way < best:
                        found[chosen] = way
            frontier = {after for here in frontier for after in self._with(index, here)}
            if not frontier:
                break
        return found

    def _with(self, index: int, cut: Cut) -> set[Cut]:
        """The GPU with one more of a slot's needs."""
        slot, knife = self.slots[index], self.profile.cutter
        if slot.model != cut.model:
            return set()
        frontier = {cut}
        for piece in slot.pieces:
            frontier = {after for here in frontier for _, after in knife.places(here, piece)}
        return frontier
