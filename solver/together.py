"""How many sets of pieces fit together: the best counts of each GPU, and the best of their sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Counts = tuple[int, ...]
"""How many of each kind of piece."""


def best(counts: Iterable[Counts]) -> tuple[Counts, ...]:
    """Those that no other equals or exceeds in every kind, in descending order."""
    found: list[Counts] = []
    for entry in sorted(set(counts), reverse=True):
        if not any(all(a <= b for a, b in zip(entry, other, strict=True)) for other in found):
            found.append(entry)
    return tuple(found)


def most_sets(gpus: Sequence[Sequence[Counts]], each: Counts, most: int) -> int:
    """The largest number of sets, `each` pieces of every kind, that the GPUs hold; at most `most`.

    `gpus`: for each the counts that it can hold at best. Exact: counts of kinds on different GPUs
    add up, and what more than `most` sets would need is cut off.
    """
    cap = tuple(most * number for number in each)
    sums: tuple[Counts, ...] = ((0,) * len(each),)
    for ways in gpus:
        sums = best(
            tuple(min(a + b, c) for a, b, c in zip(total, way, cap, strict=True))
            for total in sums
            for way in ways
        )
    return max(
        min(have // number for have, number in zip(total, each, strict=True)) for total in sums
    )
