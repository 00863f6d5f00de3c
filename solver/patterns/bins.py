"""What patterns are made of: slots, types of bin, patterns, what is left of a node's GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trencadis.solver.gpus import LinkGraph
from trencadis.solver.pieces import Blank, Cut, Piece, closable


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a pattern: all needs that are alike in this type of bin map to one slot."""

    model: str | None
    gpus: int
    sets: int
    need: tuple[int, ...]
    """CPU, memory, resources; 0 where the bin has more than any pattern can use."""
    linked: bool
    union: bool
    cost: int
    """Of each unlinked set; in bins without links, of the whole."""
    tier: int
    exclusive: bool
    cap: int
    owner: str
    located: int
    """Index of the located need that it serves alone; -1 for a free slot."""
    pieces: tuple[Piece, ...] = ()
    """Slices and shares that it takes, of GPUs of the model."""


@dataclass(frozen=True, slots=True)
class BinType:
    """What decides which patterns a node admits, and what they cost."""

    column: int
    idle: tuple[tuple[str, int], ...]
    """Idle GPUs by model: their number; or their canonical mask under `graph`."""
    graph: LinkGraph | None
    """Explicit NVLink; None where all pairs of GPUs are alike."""
    nvswitch: bool
    free: tuple[int | None, ...]
    """CPU, memory, resources, as far as they can matter; None: more than any pattern can use."""
    vacant: bool
    """Open to exclusive jobs."""
    cuts: tuple[Cut, ...] = ()
    """GPUs in MIG mode or shared, sorted."""
    blanks: tuple[Blank, ...] = ()
    """What its whole idle GPUs may be made into, by model."""

    def blank(self, model: str | None) -> Blank | None:
        """What a whole idle GPU of the model may be made into, if anything."""
        return next((blank for blank in self.blanks if blank.model == model), None)

    def takes(self, model: str | None) -> int:
        """GPUs of a model that whole-GPU slots may have: idle ones, and those in MIG mode that may
        be turned into such."""
        return self.counts().get(model or "", 0) + closable(self.cuts, model)

    def counts(self) -> dict[str, int]:
        """Idle GPUs by model."""
        if self.graph is None:
            return dict(self.idle)
        return {model: mask.bit_count() for model, mask in self.idle}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to fill a bin."""

    counts: tuple[tuple[int, int], ...]
    """(slot, how many), ascending."""
    used: tuple[int, ...]
    """CPU, memory, resources that the slots take (as far as they can matter)."""
    reserve: tuple[int, ...]
    """CPU, memory, resources that tasks without GPUs must leave, for `fragmentation` to hold."""
    costs: tuple[tuple[int, int], ...]
    """(tier, cost) of unlinked sets."""
    fragmentation: int
    """F of what is left and the cost of new MIG layouts, GPU-seconds."""
    cuts: tuple[Cut, ...] = ()
    """The second stage afterwards, sorted."""


class TooManyPatternsError(Exception):
    """The bin type has more patterns than the limit."""


class State(NamedTuple):
    """What is left of a node's GPUs."""

    whole: tuple[tuple[str, int], ...]
    """By model: the number of idle GPUs, or their mask."""
    cuts: tuple[Cut, ...]
    """The second stage, sorted."""
