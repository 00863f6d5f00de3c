"""Pieces of GPUs, and GPUs that are in pieces, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trencadis.models import Share

UNLIMITED = -1
"""GPU memory of which the capacity is unknown."""


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


Cut = MigCut | ShareCut
MIG, SHARE = 0, 1


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
