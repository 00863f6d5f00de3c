"""A lower bound that holds in integers, from the duals of a linear relaxation.

Any multipliers y give a bound: sum of y_i x (the side of row i that y_i pushes against) plus,
for each column, its reduced cost times the better of its bounds. Duals come as floats; they are
rounded to integers first and everything after that is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trencadis.solver.program import INFINITE, Objective, Program, Row

Ints = npt.NDArray[np.int64]
LIMIT = 1 << 61


@dataclass(frozen=True, slots=True)
class Matrix:
    """The rows of a program, flat."""

    row: Ints
    column: Ints
    value: Ints
    low: Ints
    high: Ints


def matrix(rows: Sequence[Row]) -> Matrix:
    """Flattens rows."""
    lengths = np.array([len(row.columns) for row in rows], dtype=np.int64)
    return Matrix(
        row=np.repeat(np.arange(len(rows)), lengths),
        column=np.array([c for row in rows for c in row.columns], dtype=np.int64),
        value=np.array([c for row in rows for c in row.coefficients], dtype=np.int64),
        low=np.array([max(row.low, -INFINITE) for row in rows], dtype=np.int64),
        high=np.array([min(row.high, INFINITE) for row in rows], dtype=np.int64),
    )


def joined(first: Matrix, second: Matrix) -> Matrix:
    """The rows of both, in order."""
    return Matrix(
        row=np.concatenate((first.row, second.row + len(first.low))),
        column=np.concatenate((first.column, second.column)),
        value=np.concatenate((first.value, second.value)),
        low=np.concatenate((first.low, second.low)),
        high=np.concatenate((first.high, second.high)),
    )


@dataclass(frozen=True, slots=True)
class SafeBound:
    """The bound, and reduced costs that prove which columns can't be used."""

    value: int
    """No integer point has a smaller objective."""
    reduced: Ints
    """Reduced costs times `scale`, exact."""
    scale: int
    low: Ints
    """The columns' bounds that the reduced costs refer to."""
    high: Ints


def safe_bound(
    program: Program,
    objective: Objective,
    rows: Matrix,
    duals: npt.NDArray[np.float64],
) -> SafeBound:
    """The bound that the duals prove. Whatever their quality, it holds."""
    scale = 1 << 24
    low = np.array(program.low, dtype=np.int64)
    high = np.array(program.high, dtype=np.int64)
    costs = np.zeros(len(low), dtype=np.int64)
    for column, coefficient in objective.terms.items():
        costs[column] = coefficient
    duals = np.where((rows.low <= -INFINITE) & (duals > 0), 0.0, duals)
    duals = np.where((rows.high >= INFINITE) & (duals < 0), 0.0, duals)
    while scale > 1:
        # Everything below stays within int64 if the sum of magnitudes does.
        size = np.zeros(len(low))
        np.add.at(size, rows.column, np.abs(rows.value * duals[rows.row]))
        if (size.max(initial=0.0) + np.abs(costs).max(initial=0)) * scale < LIMIT:
            break
        scale >>= 1
    whole = np.rint(duals * scale).astype(np.int64)
    reduced = costs * scale
    np.subtract.at(reduced, rows.column, rows.value * whole[rows.row])
    total = objective.constant * scale
    side = np.where(whole > 0, rows.low, rows.high)
    for multiplier, bound in zip(whole.tolist(), side.tolist(), strict=True):
        total += multiplier * bound
    best = np.where(reduced > 0, low, high)
    for cost, bound in zip(reduced.tolist(), best.tolist(), strict=True):
        total += cost * bound
    return SafeBound(-(-total // scale), reduced, scale, low, high)
