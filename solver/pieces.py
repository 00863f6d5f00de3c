"""Pieces of GPUs, and GPUs that are in pieces, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trencadis.models import Share

UNLIMITED = -1
"""GPU memory of which the capacity is unknown."""
NEVER = -1
"""What it takes to turn MIG off where that can't be done."""


class Piece(NamedTuple):
    """What a task asks of one GPU: a MIG instance, or a share."""

    profile: str
    """Empty for a share."""
    milli: int = 0
    memory: int = 0


class MigCut(NamedTuple):
    """A GPU in MIG mode."""

    kind: int
    model: str
    fixed: bool
    """Its layout may not change: only idle instances can be used, as they are."""
    mask: int
    """Memory slices that are in use."""
    counts: tuple[int, ...]
    """Instances in use, by profile of the table."""
    idle: tuple[tuple[int, int], ...]
    """(start, profile) of the instances that stand idle; dropped once the layout changes."""
    cost: int
    """GPU-seconds of reconfiguration so far."""
    off: int = NEVER
    """GPU-seconds that it takes to turn MIG off; NEVER where it stays on."""


class ShareCut(NamedTuple):
    """A GPU that jobs share."""

    kind: int
    model: str
    milli: int
    """What is left."""
    memory: int
    """MiB left; UNLIMITED where unknown."""
    slots: int
    """How many more shares it takes."""


class OffCut(NamedTuple):
    """A GPU that was in MIG mode, and is turned into a whole one for a start."""

    kind: int
    model: str
    cost: int
    """GPU-seconds that it takes."""


Cut = MigCut | ShareCut | OffCut
MIG, SHARE, OFF = 0, 1, 2

WHOLE = Piece("", 0)
"""All of a GPU in MIG mode: MIG is turned off for it."""


class Blank(NamedTuple):
    """What a whole idle GPU of a node may be made into."""

    model: str
    mig: bool
    memory: int
    slots: int
    """Shares on one GPU; 0: it may not be shared."""


class Spot(NamedTuple):
    """Where a piece is on a node."""

    position: int
    """Of the node's cuts; beyond them, of the GPUs that this plan opens."""
    start: int
    """Memory slice; 0 for shares."""


def share_places(cut: ShareCut, piece: Piece) -> list[tuple[int, ShareCut]]:
    """The ways to put a share there: none, or one."""
    if cut.slots < 1 or cut.milli < piece.milli:
        return []
    memory = cut.memory
    if memory != UNLIMITED:
        memory -= piece.memory
        if memory < 0:
            return []
    return [(0, cut._replace(milli=cut.milli - piece.milli, memory=memory, slots=cut.slots - 1))]


def plain_share(cut: ShareCut, shares: Sequence[Share]) -> ShareCut:
    """The same without what can't bind: slots and memory beyond what the milli-GPU can hold.

    `shares`: all that some job or the demand profile asks for.
    """
    if not shares:
        return cut
    slots = min(cut.slots, cut.milli // min(share.gpu_milli for share in shares))
    # No shares that fit the milli-GPU take more memory than the hungriest per milli-GPU would.
    fits = all(cut.milli * share.memory_mib <= cut.memory * share.gpu_milli for share in shares)
    memory = UNLIMITED if cut.memory != UNLIMITED and fits else cut.memory
    return cut._replace(slots=slots, memory=memory)


def most_shares(cut: ShareCut, piece: Piece) -> int:
    """How many such shares fit there."""
    if piece.profile:
        return 0
    most = min(cut.slots, cut.milli // piece.milli)
    if cut.memory != UNLIMITED and piece.memory:
        most = min(most, cut.memory // piece.memory)
    return max(0, most)


def closable(cuts: Iterable[Cut], model: str | None) -> int:
    """How many of them can be turned into whole GPUs of a model."""
    return sum(isinstance(cut, MigCut) and cut.off != NEVER and cut.model == model for cut in cuts)


def closed(cut: Cut) -> Sequence[tuple[int, OffCut]]:
    """The way to turn a GPU in MIG mode into a whole one: none, or one."""
    if not isinstance(cut, MigCut) or cut.off == NEVER:
        return ()
    return ((0, OffCut(OFF, cut.model, cut.off)),)
