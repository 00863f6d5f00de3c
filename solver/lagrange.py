"""A bound sharper than the relaxation's: the decisions in integers, the supply by its prices.

The duals of the rows that tie decisions to supply price every slot. What remains, who starts
within limits and guarantees, is a small integer program: CP-SAT solves it, and its bound plus what
the prices give for the supply bounds the whole (Lagrangian relaxation, Geoffrion 1974). Prices are
rounded to integers first, so the bound holds exactly whatever the floats were.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trencadis.solver.bound import Ints, Matrix
from trencadis.solver.cpsat import Effort, Window, search
from trencadis.solver.program import INFINITE, Objective, Program, Row

SCALE = 1 << 8
"""Prices are kept to 1/256 of a unit of the objective."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the priced problem decides."""

    bound: int | None
    """No integer point has a smaller objective; None if nothing was proven in time."""
    cut: Row | None
    """The bound as a row over decisions: whole starts keep it, fractional ones often don't."""
    supply: Row | None = None
    """All rows added up at these prices: what starts takes no more than there is."""


def decide(
    rows: Sequence[Row],
    flat: Matrix,
    objective: Objective,
    duals: npt.NDArray[np.float64],
    decision: npt.NDArray[np.bool_],
    window: Window,
    hint: Ints,
    effort: Effort,
    stop: threading.Event,
    cuts: Collection[int] = (),
    further: Sequence[Row] = (),
) -> Decisions:
    """Solves the decisions against prices.

    `decision`: marks their columns; `hint`: where to begin; `window`: bounds that all points to be
    bounded keep; `cuts`: positions of rows that integers keep by themselves, and that are left out;
    `further`: rows over decisions that all points to be bounded keep.
    """
    low = np.array(window.low, dtype=np.int64)
    high = np.array(window.high, dtype=np.int64)
    own = np.ones(len(rows), dtype=bool)
    np.logical_and.at(own, flat.row, decision[flat.column])
    own[list(cuts)] = False
    prices = np.where(own, 0.0, duals)
    prices[list(cuts)] = 0.0
    prices = np.where((flat.low <= -INFINITE) & (prices > 0), 0.0, prices)
    prices = np.where((flat.high >= INFINITE) & (prices < 0), 0.0, prices)
    whole = np.rint(prices * SCALE).astype(np.int64)
    reduced = np.zeros(len(low), dtype=np.int64)
    for column, cost in objective.terms.items():
        reduced[column] = cost * SCALE
    np.subtract.at(reduced, flat.column, flat.value * whole[flat.row])
    constant = objective.constant * SCALE
    side = np.where(whole > 0, flat.low, flat.high)
    for position in np.flatnonzero(whole):
        constant += int(whole[position]) * int(side[position])
    for index in np.flatnonzero(~decision & (reduced != 0)):
        best = int(low[index] if reduced[index] > 0 else high[index])
        constant += int(reduced[index]) * best
    priced = Program(
        low=np.where(decision, low, 0).tolist(),
        high=np.where(decision, high, 0).tolist(),
        rest=[0] * len(low),
        rows=[row for row, mine in zip(rows, own, strict=True) if mine],
    )
    goal = Objective(
        objective.name,
        constant,
        {int(c): int(reduced[c]) for c in np.flatnonzero(decision & (reduced != 0))},
    )
    outcome = search(
        priced,
        goal,
        Window(priced.low, priced.high),
        np.clip(hint, priced.low, priced.high).tolist(),
        None,
        # Thousands of near-equal knapsack items: presolve costs more than the search.
        replace(effort, presolve=False),
        stop,
        further,
    )
    if outcome.infeasible:
        return Decisions(None, None)
    if outcome.bound is None:
        return Decisions(None, None)
    least = outcome.bound - constant
    cut = Row(list(goal.terms), list(goal.terms.values()), least, INFINITE)
    supply = _added_up(flat, whole, side, decision, low, high)
    return Decisions(-(-outcome.bound // SCALE), cut, supply)


def _added_up(
    flat: Matrix, prices: Ints, side: Ints, decision: npt.NDArray[np.bool_], low: Ints, high: Ints
) -> Row:
    """The sum of all rows times their prices, with supply at its better bound."""
    worth = np.zeros(len(low), dtype=np.int64)
    np.add.at(worth, flat.column, flat.value * prices[flat.row])
    least = sum(int(prices[row]) * int(side[row]) for row in np.flatnonzero(prices))
    for column in np.flatnonzero(~decision & (worth != 0)):
        best = int(high[column] if worth[column] > 0 else low[column])
        least -= int(worth[column]) * best
    # Counts are not negative, so that rounding their factors up weakens the row.
    factors = -(-worth // SCALE)
    columns = np.flatnonzero(decision & (factors != 0))
    return Row(columns.tolist(), factors[columns].tolist(), least // SCALE, INFINITE)
