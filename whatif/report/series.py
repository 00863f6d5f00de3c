"""Samples of a replay as curves of a few hundred points, each a mean over its stretch of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from trencadis.whatif.engine import Sample

POINTS = 300
DAY, HOUR = 86_400, 3_600

Ratio = Callable[[Sample], tuple[float, float]]
"""Numerator and denominator at a sample; both are averaged before they are divided."""


def utilized(sample: Sample) -> tuple[float, float]:
    """GPUs that are not idle, of all."""
    return sample.capacity_milli - sample.idle_milli, sample.capacity_milli


def fragmented(sample: Sample) -> tuple[float, float]:
    """F, of the idle GPUs."""
    return sample.fragments_milli, sample.idle_milli


def waiting(sample: Sample) -> tuple[float, float]:
    """Jobs that wait."""
    return sample.pending, 1


def means(
    samples: Sequence[Sample], ratio: Ratio, began: int, points: int = POINTS
) -> list[tuple[float, float]]:
    """Days since `began`, and the mean by time from there to the next point.

    A sample holds until the next; the last one ends the curve. At most `points` stretches of equal
    length, with a last point where the curve ends; a stretch without denominator counts 0.
    """
    first, last = samples[0].at, samples[-1].at
    if first == last:
        up, down = ratio(samples[0])
        return [((first - began) / DAY, up / down if down else 0.0)]
    step = max(1, -(-(last - first) // points))
    sums = [[0.0, 0.0] for _ in range(-(-(last - first) // step))]
    for sample, after in pairwise(samples):
        up, down = ratio(sample)
        at = sample.at
        while at < after.at:
            stretch = (at - first) // step
            until = min(after.at, first + (stretch + 1) * step)
            sums[stretch][0] += up * (until - at)
            sums[stretch][1] += down * (until - at)
            at = until
    found = [
        ((first - began + number * step) / DAY, up / down if down else 0.0)
        for number, (up, down) in enumerate(sums)
    ]
    return [*found, ((last - began) / DAY, found[-1][1])]


def shares(waits: Sequence[int], points: int = POINTS) -> list[tuple[float, float]]:
    """(hours, part of the jobs that waited at most so long), at most `points` of them.

    `waits`: seconds, ascending.
    """
    count = len(waits)
    ranks = sorted({-(-count * number // points) for number in range(1, points + 1)} - {0})
    curve: dict[float, float] = {0.0: 0.0}
    for rank in ranks:
        # Ties: the last rank with this wait is the part that waited at most so long.
        curve[waits[rank - 1] / HOUR] = rank / count
    if waits[0] == 0:
        zero = sum(1 for wait in waits if wait == 0)
        curve[0.0] = zero / count
    return list(curve.items())
