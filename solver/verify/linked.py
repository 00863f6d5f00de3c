"""Which sets of GPUs on a node NVLink joins, and how many there can be (problem.md, 3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

from trencadis.models import Node

Links = tuple[tuple[int, int], ...]

BUDGET = 20_000
"""Search steps for one packing; enough to be exact for any node of up to 16 GPUs in practice."""


def is_linked(node: Node, counted: bool, gpus: Collection[int] | None) -> bool:
    """Whether a set of at least two GPUs is linked; `gpus` is None where indices are unknown."""
    if node.nvlink.kind == "nvswitch":
        return True
    if node.nvlink.kind == "none" or counted or gpus is None:
        return False
    return len(components(node.nvlink.links, frozenset(gpus))) == 1


@lru_cache(maxsize=65_536)
def components(links: Links, gpus: frozenset[int]) -> tuple[frozenset[int], ...]:
    """The connected parts of these GPUs, by the links among them alone."""
    adjacent: dict[int, list[int]] = {gpu: [] for gpu in gpus}
    for a, b in links:
        if a in gpus and b in gpus:
            adjacent[a].append(b)
            adjacent[b].append(a)
    parts, seen = [], set[int]()
    for gpu in sorted(gpus):
        if gpu in seen:
            continue
        part, stack = {gpu}, [gpu]
        while stack:
            for other in adjacent[stack.pop()]:
                if other not in part:
                    part.add(other)
                    stack.append(other)
        seen |= part
        parts.append(frozenset(part))
    return tuple(parts)


@lru_cache(maxsize=65_536)
def pack(links: Links, gpus: frozenset[int], size: int) -> tuple[frozenset[int], ...]:
    """As many disjoint linked sets of `size` of these GPUs as there can be."""
    packed: list[frozenset[int]] = []
    for part in components(links, gpus):
        if len(part) >= size:
            packed += _Packing(links, part, size).best()
    return tuple(packed)


class _Packing:
    """Exact search in one connected part, over bit masks of the GPUs that are left."""

    def __init__(self, links: Links, part: frozenset[int], size: int) -> None:
        self.order = sorted(part)
        bit = {gpu: 1 << i for i, gpu in enumerate(self.order)}
        self.adjacent = dict.fromkeys(bit.values(), 0)
        for a, b in links:
            if a in bit and b in bit and a != b:
                self.adjacent[bit[a]] |= bit[b]
                self.adjacent[bit[b]] |= bit[a]
        self.size = size
        self.steps = 0
        self.known: dict[int, tuple[int, ...]] = {}

    def best(self) -> list[frozenset[int]]:
        masks = self._most((1 << len(self.order)) - 1)
        return [
            frozenset(gpu for i, gpu in enumerate(self.order) if mask >> i & 1) for mask in masks
        ]

    def _most(self, left: int) -> tuple[int, ...]:
        limit = left.bit_count() // self.size
        if limit == 0:
            return ()
        if left in self.known:
            return self.known[left]
        lowest = left & -left
        best: tuple[int, ...] = ()
        for chosen in self._grow(lowest, self.adjacent[lowest] & left, left ^ lowest, 1):
            self.steps += 1
            found = (chosen, *self._most(left & ~chosen))
            if len(found) > len(best):
                best = found
            if len(best) == limit or self.steps > BUDGET:
                break
        if len(best) < limit and self.steps <= BUDGET:
            without = self._most(left ^ lowest)
            if len(without) > len(best):
                best = without
        self.known[left] = best
        return best

    def _grow(self, chosen: int, frontier: int, free: int, count: int) -> Iterator[int]:
        """Each connected set of the size wanted that contains `chosen`, once."""
        if count == self.size:
            yield chosen
            return
        while frontier:
            gpu = frontier & -frontier
            frontier ^= gpu
            # A GPU passed over is out of `free` for good: no set is met twice.
            free &= ~gpu
            wider = frontier | (self.adjacent[gpu] & free)
            yield from self._grow(chosen | gpu, wider, free, count + 1)
