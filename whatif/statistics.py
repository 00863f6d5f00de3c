"""Means, quantiles and fairness of a list of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Of waits or completion times, seconds."""

    count: int
    mean: float
    weighted_mean: float
    """By the GPUs that each job asks for."""
    median: float
    p95: float
    largest: float


def spread(values: Sequence[float], weights: Sequence[float] | None = None) -> Spread:
    """All zero where there are no values."""
    if not values:
        return Spread(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    heavy = [1.0] * len(values) if weights is None else list(weights)
    whole = sum(heavy)
    weighted = sum(v * w for v, w in zip(values, heavy, strict=True)) / whole if whole else 0.0
    return Spread(
        count=len(values),
        mean=sum(values) / len(values),
        weighted_mean=weighted,
        median=quantile(values, 0.5),
        p95=quantile(values, 0.95),
        largest=max(values),
    )


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that at least this part of the values doesn't exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -int(-(len(ordered) * part) // 1))
    return float(ordered[min(rank, len(ordered)) - 1])


def jain(values: Sequence[float]) -> float:
    """Jain, Chiu, Hawe 1984: (sum x)^2 / (n * sum x^2); 1 where all are equal, 1/n at worst."""
    squares = sum(value * value for value in values)
    if not values or squares == 0:
        return 1.0
    return sum(values) ** 2 / (len(values) * squares)
