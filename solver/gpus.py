"""Which GPUs of a node a task gets: exact over all subsets, NVLink in mind.

A set of GPUs is a bit mask of node-wide indices. On nodes with explicit links, GPUs differ; on
all others only their number matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import networkx as nx

from trencadis.models import NvLink

Kind = Literal["linked", "unlinked", "graph"]


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """NVLink inside a node with explicit links, over GPU indices 0..n-1."""

    size: int
    links: tuple[tuple[int, int], ...]
    one_model: bool = True
    """Whether all its GPUs are of one model; else no two of them count as alike."""

    def components(self) -> tuple[int, ...]:
        """Masks of the connected components."""
        return _components(self)

    def cliques(self) -> bool:
        """Whether each component links all of its pairs, so that only counts in it matter."""
        return _cliques(self)

    def linked(self, mask: int) -> bool:
        """Whether NVLink joins the GPUs of the mask into one."""
        return _linked(self, mask)

    def canonical(self, mask: int) -> int:
        """A mask that admits the same sets at the same costs: equal for interchangeable masks."""
        return _canonical(self, mask)

    def best_left(self, mask: int) -> int:
        """Number of links among the GPUs of the mask: how much is left for later jobs."""
        return sum(1 for a, b in self.links if mask >> a & 1 and mask >> b & 1)


def link_graph(nvlink: NvLink, size: int, one_model: bool) -> LinkGraph:
    """The graph of a node with `links`."""
    links = {(min(a, b), max(a, b)) for a, b in nvlink.links if a != b}
    return LinkGraph(size=size, links=tuple(sorted(links)), one_model=one_model)


@lru_cache(maxsize=256)
def _components(graph: LinkGraph) -> tuple[int, ...]:
    g = nx.Graph()
    g.add_nodes_from(range(graph.size))
    g.add_edges_from(graph.links)
    return tuple(sorted(sum(1 << i for i in part) for part in nx.connected_components(g)))


@lru_cache(maxsize=256)
def _cliques(graph: LinkGraph) -> bool:
    pairs = sum(part.bit_count() * (part.bit_count() - 1) // 2 for part in graph.components())
    return pairs == len(graph.links)


@lru_cache(maxsize=65_536)
def _linked(graph: LinkGraph, mask: int) -> bool:
    seen = mask & -mask
    while True:
        grown = seen
        for a, b in graph.links:
            if mask >> a & 1 and mask >> b & 1 and (seen >> a & 1 or seen >> b & 1):
                grown |= 1 << a | 1 << b
        if grown == seen:
            return seen == mask
        seen = grown


@lru_cache(maxsize=65_536)
def _canonical(graph: LinkGraph, mask: int) -> int:
    if not (graph.one_model and graph.cliques()):
        return mask
    # Inside a clique all GPUs are alike, and so are cliques of equal size: fill the first ones.
    by_size: dict[int, list[int]] = {}
    for part in graph.components():
        by_size.setdefault(part.bit_count(), []).append(part)
    result = 0
    for parts in by_size.values():
        counts = sorted(((mask & part).bit_count() for part in parts), reverse=True)
        for part, count in zip(parts, counts, strict=True):
            bits = [i for i in range(graph.size) if part >> i & 1]
            result |= sum(1 << i for i in bits[:count])
    return result


def bits(mask: int) -> list[int]:
    """The GPU indices of a mask, ascending."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def subsets(mask: int, size: int) -> Iterator[int]:
    """All masks of `size` GPUs within `mask`."""
    for chosen in combinations(bits(mask), size):
        yield sum(1 << i for i in chosen)


def can_link(graph: LinkGraph | None, nvswitch: bool, mask: int, size: int) -> bool:
    """Whether NVLink joins some `size` GPUs of the mask; without a graph all pairs are alike."""
    if graph is None:
        return nvswitch
    return any(graph.linked(part) for part in subsets(mask, size))


@lru_cache(maxsize=65_536)
def split(graph: LinkGraph, mask: int, size: int) -> tuple[int, tuple[int, ...]]:
    """Splits the GPUs of `mask` into sets of `size` so that as few as possible are unlinked.

    Returns that number and the sets. The size of the mask must be a multiple of `size`.
    """
    if not mask:
        return 0, ()
    low = mask & -mask
    best: tuple[int, tuple[int, ...]] | None = None
    for rest in subsets(mask ^ low, size - 1):
        first = low | rest
        broken = 0 if size < 2 or graph.linked(first) else 1
        if best is not None and broken >= best[0]:
            continue
        more, sets = split(graph, mask ^ first, size)
        if best is None or broken + more < best[0]:
            best = (broken + more, (first, *sets))
            if best[0] == 0:
                break
    assert best is not None
    return best
