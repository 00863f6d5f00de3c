"""What a MIG table implies: which of its limits on numbers can bind at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from trencadis.models.mig import MigTable

_known: dict[int, tuple[MigTable, tuple[tuple[int, ...], tuple[str, ...]]]] = {}


def engines_suffice(table: MigTable, counts: Sequence[int]) -> bool:
    """Whether the GPU's engines suffice for so many instances of each profile."""
    for engine, have in table.engines.items():
        wanted = sum(
            n * profile.engines.get(engine, 0)
            for n, profile in zip(counts, table.profiles, strict=True)
            if n
        )
        if wanted > have:
            return False
    return True


def binding(table: MigTable) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions of profiles of which more would fit than there may be, and engines that can run
    short. Of all others only memory slices decide."""
    known = _known.get(id(table))
    if known is None:
        numbers = tuple(
            i for i, p in enumerate(table.profiles)
            if _most(table.memory_slices, ((p.memory_slices, p.starts, 1, False),)) > p.most
        )
        engines = tuple(
            engine for engine, have in sorted(table.engines.items())
            if _most(
                table.memory_slices,
                tuple(
                    (p.memory_slices, p.starts, p.engines.get(engine, 0), p.most == 1)
                    for p in table.profiles
                ),
            )
            > have
        )
        # The table is kept with it: its id stays its own.
        known = _known[id(table)] = (table, (numbers, engines))
    return known[1]


_Kind = tuple[int, tuple[int, ...], int, bool]
"""Length, starts, worth, and whether there may be one only."""


@lru_cache(maxsize=1_024)
def _most(slices: int, kinds: tuple[_Kind, ...]) -> int:
    """The largest sum of worths of instances that don't overlap."""

    @cache
    def best(start: int, used: int) -> int:
        if start >= slices:
            return 0
        most = best(start + 1, used)
        for i, (length, starts, worth, once) in enumerate(kinds):
            if start in starts and not (once and used >> i & 1):
                most = max(most, worth + best(start + length, used | (1 << i if once else 0)))
        return most

    return best(0, 0)
