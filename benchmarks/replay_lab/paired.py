"""Differences between two policies on the same windows, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

STUDENT_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}
"""Two-sided 95 % quantiles of Student's t by degrees of freedom (any table of the distribution)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """First minus second, over windows."""

    mean: float
    half: float
    """Half the width of the 95 % interval."""

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return abs(self.mean) > self.half


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Of paired values, 2 to 9 pairs. Raises KeyError for other numbers of pairs."""
    each = [a - b for a, b in zip(first, second, strict=True)]
    spread = stdev(each) / sqrt(len(each))
    return Difference(mean(each), STUDENT_T[len(each) - 1] * spread)
