"""How many of a need fit where: on the bins of a class, in a domain, in the whole cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from trencadis.solver.bin_classes import BinClass
from trencadis.solver.capacity import NodeState
from trencadis.solver.fabric import Domain
from trencadis.solver.model.problem import Problem
from trencadis.solver.room import fits, fits_on_part
from trencadis.solver.shapes import Need


class ClassRoom:
    """The room of the classes; worked out once per need."""

    def __init__(self, problem: Problem) -> None:
        self.classes = problem.supply.classes
        self._totals: dict[Need, int] = {}
        self._domains: dict[tuple[Need, int], dict[Domain, int]] = {}
        self._fits: dict[tuple[Need, str], int] = {}

    def of(self, need: Need, cls: BinClass, states: Sequence[NodeState]) -> int:
        """On some nodes of one class."""
        if cls.opened and bool(need.pieces) != cls.part:
            # Slices and shares find their places on the parts, all others on the rest.
            return 0
        if cls.part:
            # CPU and memory are those of many nodes: what they limit is in rows of their own.
            return fits_on_part(need, cls.nodes[0], cls.type.column) * len(states)
        if cls.mixed:
            return sum(self._on(need, state, cls.type.column) for state in states)
        if need.on_gpus:
            return fits(need, states[0], cls.type.column) * len(states)
        return sum(fits(need, state, cls.type.column) for state in states)

    def _on(self, need: Need, state: NodeState, column: int) -> int:
        key = (need, state.name)
        if key not in self._fits:
            self._fits[key] = fits(need, state, column)
        return self._fits[key]

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
