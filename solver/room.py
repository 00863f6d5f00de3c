"""How many tasks fit where: capacity of nodes and domains for one kind of task, exactly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from trencadis.models import Job
from trencadis.solver.bin_types import bin_graph
from trencadis.solver.capacity import NodeState
from trencadis.solver.fabric import Domain, Tree
from trencadis.solver.gpus import LinkGraph, subsets
from trencadis.solver.pieces import NEVER, Cut, MigCut
from trencadis.solver.shapes import Need, Way

UNBOUNDED = 1_000_000_000


@lru_cache(maxsize=65_536)
def _linked_sets(graph: LinkGraph, mask: int, size: int) -> int:
    """The most disjoint sets of `size` linked GPUs within the mask."""
    if mask.bit_count() < size:
        return 0
    best = 0
    low = mask & -mask
    for rest in subsets(mask ^ low, size - 1):
        if graph.linked(low | rest):
            best = max(best, 1 + _linked_sets(graph, graph.canonical(mask ^ low ^ rest), size))
            if best == mask.bit_count() // size:
                return best
    return max(best, _linked_sets(graph, graph.canonical(mask ^ low), size))


def most_beside(need: Need, idle: int, free: Sequence[int]) -> int:
    """How many of a need so many idle GPUs and what is free beside them can take."""
    most = need.cap or UNBOUNDED
    if need.gpus:
        most = min(most, idle // need.gpus)
    for want, have in zip(need.need, free, strict=True):
        if want and have // want < most:
            most = have // want
    return most


def fits(need: Need, state: NodeState, column: int) -> int:
    """How many of a need the node can take now."""
    if not need.columns >> column & 1 or (need.exclusive and not state.vacant):
        return 0
    idle = state.idle.get(need.model or "", ())
    most = most_beside(need, state.takes(need.model), state.free)
    if need.pieces and most:
        model = need.model or ""
        whole = len(state.idle.get(model, ()))
        blank = state.blanks.get(model)
        most = min(most, state.cutter.most_on(state.cuts, blank, whole, model, need.pieces))
    if most and need.gpus and need.linked and state.node.nvlink.kind != "nvswitch":
        graph = None if state.counted else bin_graph(state.node)
        if graph is None:
            return 0
        size = need.gpus // need.sets
        sets = _linked_sets(graph, graph.canonical(sum(1 << i for i in idle)), size)
        most = min(most, sets // need.sets)
    return most


def fits_on_part(need: Need, state: NodeState, column: int) -> int:
    """How many of a need of slices or shares the GPUs in parts can take, CPU and memory aside."""
    if not need.columns >> column & 1:
        return 0
    most = state.cutter.most_on(state.cuts, None, 0, need.model or "", need.pieces)
    return min(most, need.cap) if need.cap else most


@dataclass(frozen=True, slots=True)
class Room:
    """Nodes in groups of equals, to ask quickly how many of a need fit where."""

    fabric: Tree
    groups: tuple[tuple[NodeState, int, Mapping[Domain, int]], ...]
    """(a node of the group, its column, number of nodes by padded path)."""
    _numbers: dict[Need, list[int]] = field(default_factory=dict, compare=False)
    _domains: dict[tuple[Need, int, int], Mapping[Domain, int]] = field(
        default_factory=dict, compare=False
    )

    _idle: dict[tuple[frozenset[str | None], int], Counter[int]] = field(
        default_factory=dict, compare=False
    )

    def by_domain(self, need: Need, depth: int, cap: int = 0) -> Mapping[Domain, int]:
        """How many of a need each domain of a depth can take; at most `cap` a node, if given."""
        key = (need, depth, cap)
        known = self._domains.get(key)
        if known is not None:
            return known
        room: defaultdict[Domain, int] = defaultdict(int)
        for most, (_, _, paths) in zip(self.numbers(need), self.groups, strict=True):
            number = min(most, cap) if cap else most
            if number:
                for path, nodes in paths.items():
                    room[path[:depth]] += number * nodes
        self._domains[key] = dict(room)
        return self._domains[key]

    def idle(self, models: frozenset[str | None], columns: int) -> Counter[int]:
        """Number of nodes in these columns by their idle GPUs of the models."""
        found: Counter[int] = Counter()
        if (models, columns) not in self._idle:
            for state, column, paths in self.groups:
                if columns >> column & 1:
                    # In MIG mode and turned into a whole one counts as idle, too.
                    idle = sum(state.takes(model) for model in models)
                    found[idle] += sum(paths.values())
            self._idle[(models, columns)] = found
        return self._idle[(models, columns)]

    def stay_in_mig(self, models: frozenset[str | None], columns: int) -> int:
        """GPUs of the models on nodes in these columns that nobody uses, and that stay in MIG
        mode."""
        return sum(
            sum(paths.values()) * sum(stays_in_mig(cut, models) for cut in state.cuts)
            for state, column, paths in self.groups
            if columns >> column & 1
        )

    def numbers(self, need: Need) -> list[int]:
        """How many of a need a node of each group can take."""
        if need not in self._numbers:
            self._numbers[need] = [fits(need, state, column) for state, column, _ in self.groups]
        return self._numbers[need]

    def some_node_takes(self, need: Need) -> bool:
        """Whether one node can take the need."""
        return any(self.numbers(need))

    def takes(self, job: Job, way: Way) -> bool:
        """Whether a whole job can go this way."""
        cap = 0
        if job.max_tasks_per_node is not None:
            cap = max(1, job.max_tasks_per_node // way.need.sets)
        if way.depth > self.fabric.depth:
            return self.some_node_takes(way.need)
        fine = way.segment_depth if way.segment else way.depth
        room = self.by_domain(way.need, fine, cap)
        if not way.segment:
            return any(number >= way.count for number in room.values())
        segments: defaultdict[Domain, int] = defaultdict(int)
        for domain, number in room.items():
            whole = number // way.segment
            segments[domain[: way.depth]] += min(whole, way.most) if way.most else whole
        return any(number >= way.count // way.segment for number in segments.values())


def stays_in_mig(cut: Cut, models: frozenset[str | None]) -> bool:
    """Whether nobody uses a GPU in MIG mode, and that can't be turned off."""
    return isinstance(cut, MigCut) and not cut.mask and cut.off == NEVER and cut.model in models


def room_of(states: Iterable[NodeState], column: Mapping[str, int], fabric: Tree) -> Room:
    """Groups nodes that are alike but for their place."""
    groups: dict[Hashable, tuple[NodeState, int, Counter[Domain]]] = {}
    for state in states:
        key = alike(state, column[state.name])
        if key not in groups:
            groups[key] = (state, column[state.name], Counter())
        groups[key][2][fabric.path[state.name]] += 1
    return Room(fabric, tuple(groups.values()))


def alike(state: NodeState, column: int) -> Hashable:
    """Nodes with equal keys take the same, their place aside."""
    return (
        column,
        tuple(state.idle.items()) if state.node.nvlink.links else state_counts(state),
        state.node.nvlink.kind,
        state.node.nvlink.links,
        state.counted,
        state.free,
        state.vacant,
        state.cuts,
        tuple(state.blanks.values()),
    )


def state_counts(state: NodeState) -> tuple[tuple[str, int], ...]:
    """Idle GPUs by model, as numbers."""
    return tuple((model, len(indices)) for model, indices in state.idle.items())
