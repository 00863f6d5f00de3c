"""Nodes taken apart: their whole GPUs as one bin, each GPU in parts as a bin of its own.

Where the GPUs in parts of a node admit too many patterns, they are counted GPU by GPU. Their CPU
and memory are then pooled over nodes, which admits too much, never too little. Whole GPUs that may
be opened are handed over by slots of their own in the patterns of the node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trencadis.solver.capacity import NodeState
from trencadis.solver.patterns.bins import BinType, Slot
from trencadis.solver.pieces import SHARE, Blank, Cut, ShareCut, closable
from trencadis.solver.shapes import Need
from trencadis.solver.slices import Cutter

_HAND = "\n"
"""How the owner of a slot begins that hands a GPU over. No job's name has a line break."""


def is_hand(slot: Slot) -> bool:
    """Whether the slot hands a whole GPU over to be opened."""
    return slot.owner.startswith(_HAND)


def can_open(bin_type: BinType, slots: Sequence[Slot], located: Sequence[Need]) -> bool:
    """Whether taking nodes of this type apart loses no plan."""
    mine = [slot for slot in slots if slot.pieces]
    if not mine or any(len(slot.pieces) > 1 for slot in mine):
        return False
    # Bins that are opened by the way have no place in the fabric.
    if bin_type.blanks and any(need.pieces for need in located):
        return False
    # GPUs that may be turned into whole ones belong to both.
    if any(slot.gpus and closable(bin_type.cuts, slot.model) for slot in slots):
        return False
    # A node of an exclusive job leaves nothing of its other GPUs.
    return not any(slot.exclusive for slot in slots)


def whole_of(bin_type: BinType) -> BinType:
    """The type without its GPUs in parts."""
    return replace(bin_type, cuts=())


def part_type(bin_type: BinType, cut: Cut) -> BinType:
    """One GPU in parts."""
    return BinType(
        column=bin_type.column,
        idle=(),
        graph=None,
        nvswitch=False,
        free=(None,) * len(bin_type.free),
        vacant=False,
        cuts=(cut,),
        blanks=(),
    )


def parts_of(knife: Cutter, bin_type: BinType) -> list[tuple[BinType, int]]:
    """GPUs that are, or may come to be, in parts: (type, number)."""
    found = [(part_type(bin_type, cut), n) for cut, n in Counter(bin_type.cuts).items()]
    counts = bin_type.counts()
    for blank in bin_type.blanks:
        for cut in _opened(knife, blank).values():
            found.append((part_type(bin_type, cut), counts.get(blank.model, 0)))
    return found


def _opened(knife: Cutter, blank: Blank) -> dict[str, Cut]:
    """What a whole GPU may be made into, by the owner of the slot that hands it over."""
    found: dict[str, Cut] = {}
    if blank.mig:
        found[_HAND + "MIG"] = knife.empty_mig(blank.model, turned_on=True)
    if blank.slots:
        cut = ShareCut(SHARE, blank.model, 1_000, blank.memory, blank.slots)
        found[_HAND + "share"] = knife.plain_share(cut)
    return found


def hands_of(knife: Cutter, bin_type: BinType, wanting: Sequence[Need]) -> tuple[Slot, ...]:
    """The slots that hand whole GPUs over to what waits."""
    return tuple(
        Slot(
            model=blank.model,
            gpus=1,
            sets=1,
            need=(0,) * len(bin_type.free),
            linked=False,
            union=False,
            cost=0,
            tier=-1,
            exclusive=False,
            cap=0,
            owner=owner,
            located=-1,
        )
        for blank in bin_type.blanks
        for owner, cut in _opened(knife, blank).items()
        if any(
            need.model == blank.model and bool(need.pieces[0].profile) == (cut.kind != SHARE)
            for need in wanting
        )
    )


def by_cut(states: Sequence[NodeState]) -> dict[Cut, list[NodeState]]:
    """The GPUs in parts of these nodes, each a state of its own that remembers its position."""
    found: defaultdict[Cut, list[NodeState]] = defaultdict(list)
    for state in states:
        for position, cut in enumerate(state.cuts):
            found[cut].append(
                replace(state, idle={}, cuts=(cut,), cut_gpus=(position,), blanks={})
            )
    return dict(sorted(found.items()))


def by_hand(
    knife: Cutter, bin_type: BinType, slots: Sequence[Slot], states: Sequence[NodeState]
) -> Iterator[tuple[int, Cut, list[NodeState]]]:
    """(slot that hands over, cut of an opened GPU, the GPUs that may be)."""
    for index, slot in enumerate(slots):
        blank = bin_type.blank(slot.model) if is_hand(slot) else None
        if blank is None:
            continue
        cut = _opened(knife, blank)[slot.owner]
        opened = [
            replace(state, idle={}, cuts=(cut,), cut_gpus=(), blanks={})
            for state in states
            for _ in state.idle.get(blank.model, ())
        ]
        yield index, cut, opened
