"""Classes of bins that are alike, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.solver.capacity import NodeState
from trencadis.solver.fabric import Domain
from trencadis.solver.patterns.whole import BinType, Pattern, Slot
from trencadis.solver.shapes import Need


@dataclass(frozen=True, slots=True)
class Kind:
    """Bins of one type in a class of several."""

    type: BinType
    patterns: tuple[Pattern, ...]
    """The same as the class's, in the same order, with the type's own ends."""
    number: int


@dataclass(frozen=True, slots=True)
class BinClass:
    """Interchangeable nodes."""

    type: BinType
    nodes: tuple[NodeState, ...]
    slots: tuple[Slot, ...]
    slot_of: Mapping[int, int]
    """Free slot by index of a need that this class can hold."""
    located_slot_of: Mapping[int, int]
    """Slot by index of a located need."""
    patterns: tuple[Pattern, ...] | None
    """The empty one first; None: too many, the class is pooled."""
    cells: Mapping[Domain, tuple[NodeState, ...]]
    """The nodes by domain, where tasks must be counted by domain; else empty."""
    family: int
    """Classes of one family map needs to slots alike."""
    pool: int
    """The family on whose CPU and memory this one draws: its own, unless its bins are parts."""
    feed: tuple[int, int] | None = None
    """(class, slot) that opens whole GPUs for these bins; None: they are there from the start."""
    opened: bool = False
    """Its nodes' GPUs in parts are bins of their own."""
    kinds: tuple[Kind, ...] = ()
    """Of GPUs in parts that the same patterns fill, with the same effect: each type in the order of
    its bins; else empty."""
    mixed: bool = False
    """Its nodes differ, and it has no patterns: each is asked for what it can hold."""

    @property
    def part(self) -> bool:
        """Whether its bins are single GPUs of nodes."""
        return self.pool != self.family

    def own_kinds(self) -> tuple[Kind, ...]:
        """Its types, if it has patterns."""
        if self.kinds or self.patterns is None:
            return self.kinds
        return (Kind(self.type, self.patterns, len(self.nodes)),)


@dataclass(frozen=True, slots=True)
class Supply:
    """The supply of a round, in classes."""

    needs: tuple[Need, ...]
    """Needs that may go anywhere."""
    located: tuple[Need, ...]
    """Needs that are counted by domain."""
    fillers: frozenset[int]
    """Indices of needs without GPUs that share nodes: kept out of patterns."""
    located_fillers: frozenset[int]
    classes: tuple[BinClass, ...]
    grain: int
    """Depth of the domains by which located needs are counted."""
    flows: Mapping[tuple[int, int], tuple[tuple[int, int], ...]]
    """(family, need) -> the (class, slot) pairs that can hold it."""
