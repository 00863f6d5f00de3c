"""Where a pattern puts its slices and shares: worked out for the patterns that are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trencadis.solver.patterns.whole import BinType, Pattern, Slot
from trencadis.solver.pieces import WHOLE, Cut, OffCut, Piece, Spot
from trencadis.solver.slices import Cutter, steps

Recipe = tuple[tuple[str, tuple[Piece, ...], tuple[Spot, ...]], ...]
"""(GPU model, pieces of a need, their spots). Positions are those of the type's cuts; beyond them
come the whole GPUs that the pattern opens."""

_Step = tuple[str, tuple[Piece, ...], Piece]


def recipe(
    bin_type: BinType, slots: Sequence[Slot], pattern: Pattern, cutter: Cutter
) -> Recipe:
    """Spots for the pattern's pieces that leave the GPUs as the pattern says; GPUs on which it
    turns MIG off come last."""
    bundles = [
        (slots[s].model or "", slots[s].pieces)
        for s, number in pattern.counts
        for _ in range(number)
        if slots[s].pieces
    ]
    bundles += [(cut.model, (WHOLE,)) for cut in turned_off(bin_type, pattern)]
    # Equal GPUs are interchangeable: one way to each multiset of cuts is enough.
    frontier: dict[tuple[Cut, ...], tuple[tuple[Cut, ...], tuple[Spot, ...]]] = {
        bin_type.cuts: (bin_type.cuts, ())
    }
    idle = bin_type.counts()
    most = len(bin_type.cuts) + sum(idle.values())
    for model, pieces in bundles:
        blank = bin_type.blank(model)
        for piece in pieces:
            grown: dict[tuple[Cut, ...], tuple[tuple[Cut, ...], tuple[Spot, ...]]] = {}
            for cuts, spots in frontier.values():
                for position, start, after in steps(cutter, cuts, model, piece):
                    moved = (*cuts[:position], after, *cuts[position + 1 :])
                    grown.setdefault(
                        tuple(sorted(moved)), (moved, (*spots, Spot(position, start)))
                    )
                opened = sum(cut.model == model for cut in cuts[len(bin_type.cuts) :])
                full = len(cuts) >= most or opened >= idle.get(model, 0)
                if piece == WHOLE or blank is None or full:
                    continue
                empty = cutter.opened(blank, piece)
                for start, after in cutter.places(empty, piece) if empty is not None else ():
                    moved = (*cuts, after)
                    grown.setdefault(
                        tuple(sorted(moved)), (moved, (*spots, Spot(len(cuts), start)))
                    )
            frontier = grown
    _, spots = frontier[pattern.cuts]
    found = []
    first = 0
    for model, pieces in bundles:
        found.append((model, pieces, spots[first : first + len(pieces)]))
        first += len(pieces)
    return tuple(found)


def turned_off(bin_type: BinType, pattern: Pattern) -> list[OffCut]:
    """The GPUs on which the pattern turns MIG off."""
    new = Counter(pattern.cuts) - Counter(bin_type.cuts)
    return [cut for cut in new.elements() if isinstance(cut, OffCut)]


def moved(steps: Recipe, position: int) -> Recipe:
    """The recipe of a single GPU, for the GPU at a position of its node."""
    return tuple(
        (model, pieces, tuple(spot._replace(position=position) for spot in spots))
        for model, pieces, spots in steps
    )
