"""Idle GPUs per domain of the fabric, for whom, and the slots that they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from trencadis.solver.fabric import Domain
from trencadis.solver.room import Room
from trencadis.solver.shapes import Alternative


def reach(ways: Sequence[Alternative]) -> tuple[frozenset[str | None], int]:
    """The GPU models and the node columns that the ways may use."""
    columns = 0
    for alternative in ways:
        columns |= alternative.way.need.columns
    return frozenset(alternative.way.need.model for alternative in ways), columns


def by_level(
    room: Room, models: frozenset[str | None], columns: int
) -> dict[str, int]:
    """The most idle GPUs of the models in one domain, by level name, coarse to fine."""
    tree = room.fabric
    totals: list[defaultdict[Domain, int]] = [defaultdict(int) for _ in range(tree.depth + 1)]
    for state, column, paths in room.groups:
        if columns >> column & 1:
            idle = sum(len(gpus) for model, gpus in state.idle.items() if model in models)
            for path, count in paths.items():
                for depth in range(1, tree.depth + 1):
                    totals[depth][path[:depth]] += idle * count
    return {
        tree.names[depth]: max(totals[depth].values(), default=0)
        for depth in range(1, tree.depth + 1)
    }


def slots(room: Room, ways: Sequence[Alternative]) -> int:
    """The most tasks that fit anywhere at once, nearness aside."""
    return max(
        (
            sum(room.by_domain(alternative.way.need, 0).values()) * alternative.way.need.sets
            for alternative in ways
        ),
        default=0,
    )
