"""How many of a need fit where: on the bins of a class, in a domain, in the whole cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from trencadis.solver.bin_classes import BinClass
from trencadis.solver.capacity import NodeState
from trencadis.solver.fabric import Domain
from trencadis.solver.model.problem import Problem
from trencadis.solver.room import alike, fits, fits_on_part
from trencadis.solver.shapes import Need


class ClassRoom:
    """The room of the classes; worked out once per need."""

    def __init__(self, problem: Problem) -> None:
        self.classes = problem.supply.classes
        self._totals: dict[Need, int] = {}
        self._domains: dict[tuple[Need, int], dict[Domain, int]] = {}
        self._fits: dict[tuple[Need, int], int] = {}
        self._kind: dict[str, int] = {}
        """By node of a mixed class; nodes of one kind take the same."""
        self._kinds: dict[Hashable, int] = {}
        self._numbers: dict[int, list[tuple[NodeState, int, int]]] = {}
        """By the identity of a group of nodes: (one of them, its kind, how many there are)."""

    def of(self, need: Need, cls: BinClass, states: Sequence[NodeState]) -> int:
        """On some nodes of one class."""
        if cls.opened and bool(need.pieces) != cls.part:
            # Slices and shares find their places on the parts, all others on the rest.
            return 0
        if cls.part:
            # CPU and memory are those of many nodes: what they limit is in rows of their own.
            return fits_on_part(need, cls.nodes[0], cls.type.column) * len(states)
        if cls.mixed:
            column, numbers = cls.type.column, self._of_kinds(states, cls.type.column)
            return sum(self._on(need, state, kind, column) * n for state, kind, n in numbers)
        if need.on_gpus:
            return fits(need, states[0], cls.type.column) * len(states)
        return sum(fits(need, state, cls.type.column) for state in states)

    def _on(self, need: Need, state: NodeState, kind: int, column: int) -> int:
        key = (need, kind)
        if key not in self._fits:
            self._fits[key] = fits(need, state, column)
        return self._fits[key]

    def _of_kinds(
        self, states: Sequence[NodeState], column: int
    ) -> list[tuple[NodeState, int, int]]:
        if id(states) not in self._numbers:
            found: dict[int, NodeState] = {}
            numbers: Counter[int] = Counter()
            for state in states:
                if state.name not in self._kind:
                    key = alike(state, column)
                    self._kind[state.name] = self._kinds.setdefault(key, len(self._kinds))
                kind = self._kind[state.name]
                found.setdefault(kind, state)
                numbers[kind] += 1
            self._numbers[id(states)] = [(found[k], k, n) for k, n in numbers.items()]
        return self._numbers[id(states)]

    def total(self, need: Need) -> int:
        """In the whole cluster."""
        if need not in self._totals:
            self._totals[need] = sum(self.of(need, cls, cls.nodes) for cls in self.classes)
        return self._totals[need]

    def by_domain(self, need: Need, depth: int) -> dict[Domain, int]:
        """By domain of a depth."""
        key = (need, depth)
        if key not in self._domains:
            room: defaultdict[Domain, int] = defaultdict(int)
            for cls in self.classes:
                for domain, states in cls.cells.items():
                    number = self.of(need, cls, states)
                    if number:
                        room[domain[:depth]] += number
            self._domains[key] = dict(sorted(room.items()))
        return self._domains[key]
