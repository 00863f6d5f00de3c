"""How few running MIG jobs of a GPU would have to restart elsewhere on it to make room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trencadis.models import MigInstance
from trencadis.models.mig import MigTable
from trencadis.solver.layouts import is_legal


@dataclass(frozen=True, slots=True)
class Repack:
    """A layout that holds everything."""

    restarts: int
    layout: tuple[MigInstance, ...]
    """By start."""
    moved: tuple[tuple[MigInstance, int], ...]
    """(instance, its new start), by present start."""


def repack(
    table: MigTable, pinned: Sequence[MigInstance], wanted: Sequence[str]
) -> Repack | None:
    """The layout with what runs and these further profiles that moves the fewest instances; None
    if no layout holds them all. Exact: tries every start, fewest restarts first."""
    names = {profile.name: profile for profile in table.profiles}
    if not {*wanted, *(instance.profile for instance in pinned)} <= names.keys():
        return None
    order = sorted(pinned, key=lambda instance: instance.start)

    def place(
        i: int, layout: list[MigInstance], moves: list[tuple[MigInstance, int]], left: int
    ) -> Repack | None:
        if i == len(order) + len(wanted):
            done = tuple(sorted(layout, key=lambda instance: instance.start))
            return Repack(len(moves), done, tuple(moves))
        own = order[i] if i < len(order) else None
        profile = names[own.profile if own is not None else wanted[i - len(order)]]
        # Where it is now comes first: an instance moves only if it must.
        starts = sorted(profile.starts, key=lambda start: own is None or start != own.start)
        for start in starts:
            moves_it = own is not None and start != own.start
            if moves_it and not left:
                break
            more = [*layout, MigInstance(profile=profile.name, start=start)]
            if is_legal(table, more):
                further = [*moves, (own, start)] if moves_it and own is not None else moves
                found = place(i + 1, more, further, left - moves_it)
                if found is not None:
                    return found
        return None

    for restarts in range(len(order) + 1):
        found = place(0, [], [], restarts)
        if found is not None:
            return found
    return None
