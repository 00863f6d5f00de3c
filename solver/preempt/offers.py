"""What a node offers in one state, by size of task: how many its GPUs hold, with what is beside."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from trencadis.solver.patterns.bins import Slot

STEPS = 6
"""Amounts of CPU, of memory and of each resource beside a GPU that rows tell apart, about."""


class Size:
    """Tasks of so many GPUs or more, and what such tasks need beside them, by GPUs."""

    def __init__(self, gpus: int, slots: Sequence[Slot]) -> None:
        self.gpus, self.slots = gpus, frozenset(slots)
        least = [min(_beside(slot, gpus, d) for slot in slots) for d in range(len(slots[0].need))]
        self.least = [(d, n.numerator, n.denominator) for d, n in enumerate(least) if n]
        """(Dimension, what the least such task needs of it, and of how many of them)."""

    def most(self, gpus: int, free: Sequence[int]) -> int:
        """How many tasks of this size so many GPUs hold with so much beside them."""
        most = gpus // self.gpus
        for d, need, tasks in self.least:
            if free[d] * tasks < most * need:
                most = free[d] * tasks // need
        return most


def _beside(slot: Slot, gpus: int, d: int) -> Fraction:
    """What a task of a slot needs beside so many of its GPUs."""
    return Fraction(slot.need[d], slot.gpus // gpus)


def _sizes(slots: Sequence[Slot]) -> list[Size]:
    """All tasks of a size or more, and of these the ones that need so much beside a GPU or more:
    few of them fit a node, however much the others leave over."""
    found: dict[tuple[int, frozenset[Slot]], Size] = {}
    for gpus in sorted({slot.gpus for slot in slots if slot.gpus}):
        large = [slot for slot in slots if slot.gpus >= gpus]
        for d in range(len(large[0].need)):
            steps = sorted({_beside(slot, gpus, d) for slot in large})
            for least in steps[:: max(1, len(steps) // STEPS)]:
                size = Size(gpus, [slot for slot in large if _beside(slot, gpus, d) >= least])
                found.setdefault((gpus, size.slots), size)
    return list(found.values())


class Offer(NamedTuple):
    """What a node offers in one of its states."""

    gpus: int
    tasks: tuple[int, ...]
    """By size."""


class Sizes:
    """The sizes of tasks on a GPU model, and what nodes offer for them."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.all = _sizes(slots)
        self._known: dict[tuple[int, tuple[int, ...]], Offer] = {}

    def offer(self, gpus: int, free: tuple[int, ...]) -> Offer:
        """With so many idle GPUs and so much beside them."""
        key = (gpus, free)
        if key not in self._known:
            self._known[key] = Offer(gpus, tuple(size.most(gpus, free) for size in self.all))
        return self._known[key]
