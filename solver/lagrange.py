"""A bound sharper than the relaxation's: the decisions in integers, the supply by its prices.

The duals of the rows that tie decisions to supply price every slot. What remains, who starts within
limits and guarantees, is a small integer program: CP-SAT solves it, and its bound bounds the whole.
It minimises the larger of two costs that no plan beats:

- the **priced** one: the objective, with what starts paying for the supply that it takes
  (Lagrangian relaxation, Geoffrion 1974);
- the **own** one: the objective itself, where all that starts may take no more supply, added up at
  these prices, than there is (surrogate relaxation, Greenberg and Pierskalla 1970).

With the same prices the second is never the weaker where supply costs nothing by itself: what
starts short of the supply is paid nothing for what it leaves. Prices are rounded to integers, so
the bound holds exactly whatever the floats were.
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
STRATEGY = ("max_lp",)
"""Of CP-SAT's portfolio: with the linear relaxation at its sharpest one worker proves nearly all of
it, sooner than with others beside it."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the priced problem decides."""

    bound: int | None
    """No integer point has a smaller objective; None if nothing was proven in time."""
    cut: Row | None
    """The bound as a row over decisions: whole starts keep it, fractional ones often don't."""
    supply: Row | None = None
    """All rows added up at these prices: what starts takes no more than there is."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """A cost of decisions, in 1/SCALE units."""

    constant: int
    terms: dict[int, int]

    def of(self, point: Ints) -> int:
        return self.constant + sum(cost * int(point[c]) for c, cost in self.terms.items())

    def range(self, low: Ints, high: Ints) -> tuple[int, int]:
        """The least and the most that it can be between these bounds."""
        least = most = self.constant
        for column, cost in self.terms.items():
            ends = (cost * int(low[column]), cost * int(high[column]))
            least, most = least + min(ends), most + max(ends)
        return least, most


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
    mine = np.ones(len(rows), dtype=bool)
    np.logical_and.at(mine, flat.row, decision[flat.column])
    mine[list(cuts)] = False
    prices = _whole_prices(flat, duals, mine, cuts)
    side = np.where(prices > 0, flat.low, flat.high)
    supply = _added_up(flat, prices, side, decision, low, high)
    own = _own(objective, decision, low, high)
    both = (_priced(objective, flat, prices, side, decision, low, high), own)

    # One more column, the larger of the two costs.
    larger = len(low)
    ends = [cost.range(low, high) for cost in both]
    kept = np.where(decision, low, 0), np.where(decision, high, 0)
    program = Program(
        low=[*kept[0].tolist(), max(least for least, _ in ends)],
        high=[*kept[1].tolist(), max(most for _, most in ends)],
        rest=[0] * (larger + 1),
        rows=[
            *(row for row, keep in zip(rows, mine, strict=True) if keep),
            *(
                Row(
                    [larger, *cost.terms],
                    [1, *(-factor for factor in cost.terms.values())],
                    cost.constant,
                    INFINITE,
                )
                for cost in both
            ),
            supply,
            *further,
        ],
    )
    start = np.clip(hint, *kept)
    outcome = search(
        program,
        Objective(objective.name, 0, {larger: 1}),
        Window(program.low, program.high),
        [*start.tolist(), max(cost.of(start) for cost in both)],
        None,
        # Thousands of near-equal knapsack items: presolve costs more than the search.
        replace(effort, presolve=False, linearization=2, strategies=STRATEGY),
        stop,
    )
    if outcome.bound is None:
        return Decisions(None, None)
    bound = -(-outcome.bound // SCALE)
    # Over the whole objective, as either of the two costs may be the one that proved it.
    terms = objective.terms
    cut = Row(list(terms), list(terms.values()), bound - objective.constant, INFINITE)
    return Decisions(bound, cut, supply)


def _whole_prices(
    flat: Matrix, duals: npt.NDArray[np.float64], own: npt.NDArray[np.bool_], cuts: Collection[int]
) -> Ints:
    """Duals of the rows that tie decisions to supply, in whole numbers and of legal sign."""
    prices = np.where(own, 0.0, duals)
    prices[list(cuts)] = 0.0
    prices = np.where((flat.low <= -INFINITE) & (prices > 0), 0.0, prices)
    prices = np.where((flat.high >= INFINITE) & (prices < 0), 0.0, prices)
    whole: Ints = np.rint(prices * SCALE).astype(np.int64)
    return whole


def _priced(
    objective: Objective,
    flat: Matrix,
    prices: Ints,
    side: Ints,
    decision: npt.NDArray[np.bool_],
    low: Ints,
    high: Ints,
) -> _Cost:
    """The objective less what the rows are worth, with supply at its better bound."""
    reduced = np.zeros(len(low), dtype=np.int64)
    for column, cost in objective.terms.items():
        reduced[column] = cost * SCALE
    np.subtract.at(reduced, flat.column, flat.value * prices[flat.row])
    constant = objective.constant * SCALE
    for position in np.flatnonzero(prices):
        constant += int(prices[position]) * int(side[position])
    for index in np.flatnonzero(~decision & (reduced != 0)):
        best = int(low[index] if reduced[index] > 0 else high[index])
        constant += int(reduced[index]) * best
    return _Cost(
        constant, {int(c): int(reduced[c]) for c in np.flatnonzero(decision & (reduced != 0))}
    )


def _own(
    objective: Objective, decision: npt.NDArray[np.bool_], low: Ints, high: Ints
) -> _Cost:
    """The objective, with supply at its better bound."""
    constant = objective.constant * SCALE
    terms: dict[int, int] = {}
    for column, cost in objective.terms.items():
        if decision[column]:
            terms[column] = cost * SCALE
        else:
            constant += SCALE * cost * int(low[column] if cost > 0 else high[column])
    return _Cost(constant, terms)


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
