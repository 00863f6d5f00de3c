"""The core problem: the starts that are a close call, decided in whole numbers.

Most jobs of a stage clearly start or clearly wait, whatever happens to the few whose worth is near
the price of what they take (Balas and Zemel, 1980). Those few are searched, the others stay as the
relaxation has them. Supply is one row: what starts may together take what it takes in the
relaxation, priced by its duals. Nothing here is a proof; the relaxation shows afterwards what the
supply really carries.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trencadis.solver.bound import Ints, Matrix
from trencadis.solver.cpsat import Effort, Window, search
from trencadis.solver.lp import LinearProgram, Relaxation
from trencadis.solver.program import INFINITE, Objective, Program, Row

Mask = npt.NDArray[np.bool_]
CLOSE = 300
"""Pieces of the stage, and as many of later ones, that are searched."""
STEPS = 3
"""Units by which a piece may differ from the relaxation."""
PATIENCE = 1.0
"""Without a better point for so many times as long as it took to the last one, the search ends."""
DRIFT = 20
"""The same for sums over many pieces."""
STRATEGY = ("reduced_costs",)
"""Of CP-SAT's portfolio the one that decides these by itself soonest, in a third of the time that
four take together on two cores."""
WHOLE = 2e-3
"""Closer to a whole number than this is whole: pins leave that much room to floats."""


@dataclass(frozen=True, slots=True)
class Field:
    """What a core problem is about; arrays are by column."""

    decision: Mask
    """Columns that decide who starts; all others are supply."""
    mine: Ints
    """Piece columns of the stage."""
    later: Ints
    """Piece columns that a later stage settles; guarantees may need some of them."""
    settled: Ints
    """Piece columns of earlier stages."""
    open: Ints
    """Columns that keep all of their bounds."""
    low: Ints
    high: Ints


def fractional(point: npt.NDArray[np.float64]) -> Mask:
    """Marks what is not whole."""
    result: Mask = np.abs(point - np.rint(point)) > WHOLE
    return result


def whole_part(point: npt.NDArray[np.float64]) -> Ints:
    """Each rounded down, what is whole but for floats to that."""
    whole: Ints = np.floor(point + WHOLE).astype(np.int64)
    return whole


def shared_out(point: npt.NDArray[np.float64]) -> Ints:
    """The whole part of each, and one more for those with the largest rest, up to the same sum."""
    whole = whole_part(point)
    more = int(np.floor(point.sum() + WHOLE)) - int(whole.sum())
    if more > 0:
        whole[np.argsort(whole - point, kind="stable")[:more]] += 1
    return whole


def reduced_costs(
    flat: Matrix, objective: Objective, relaxation: Relaxation
) -> npt.NDArray[np.float64]:
    """Reduced cost of each column, in floats; rows added since the solve have none."""
    reduced = np.zeros(len(relaxation.point))
    for column, cost in objective.terms.items():
        reduced[column] = cost
    known = flat.row < len(relaxation.duals)
    spent = flat.value[known] * relaxation.duals[flat.row[known]]
    np.subtract.at(reduced, flat.column[known], spent)
    return reduced


def decide_close(
    relaxed: LinearProgram,
    objective: Objective,
    relaxation: Relaxation,
    field: Field,
    slack: int,
    effort: Effort,
    stop: threading.Event,
) -> list[int] | None:
    """Whole values for the decision columns; None if none were found.

    `slack`: the search ends this close to the relaxation.
    """
    flat = relaxed.flat()
    near = np.rint(relaxation.point).astype(np.int64)
    low, high = _window(field, near, relaxation.point, reduced_costs(flat, objective, relaxation))
    own = np.ones(len(relaxed.rows), dtype=bool)
    np.logical_and.at(own, flat.row, field.decision[flat.column])
    # Earlier stages are kept by their starts, and priced: whole jobs may change their spread.
    for position in range(len(relaxed.program.rows), len(relaxed.rows)):
        own[position] &= set(relaxed.rows[position].columns) <= set(field.open.tolist())
    goal = Objective(
        objective.name,
        objective.constant,
        {c: cost for c, cost in objective.terms.items() if field.decision[c]},
    )
    reached = goal.constant + sum(cost * relaxation.point[c] for c, cost in goal.terms.items())
    rows = [row for row, mine in zip(relaxed.rows, own, strict=True) if mine]
    outcome = search(
        Program(low=low.tolist(), high=high.tolist(), rest=[0] * len(low), rows=rows),
        goal,
        Window(low.tolist(), high.tolist()),
        np.clip(near, low, high).tolist(),
        int(reached) + slack,
        replace(effort, linearization=2, strategies=STRATEGY),
        stop,
        [_price(flat, np.where(own, 0.0, relaxation.duals), field.decision, relaxation.point)],
        patience=PATIENCE,
    )
    return outcome.solution


def _window(
    field: Field,
    near: Ints,
    point: npt.NDArray[np.float64],
    reduced: npt.NDArray[np.float64],
) -> tuple[Ints, Ints]:
    away = np.full(len(near), DRIFT)
    pieces = np.concatenate((field.mine, field.later))
    away[pieces] = 0
    broken = fractional(point)
    for part in (field.mine, field.later):
        order = np.lexsort((part, np.abs(reduced[part]).round(3), ~broken[part]))
        away[part[order[:CLOSE]]] = STEPS
    low, high = np.maximum(field.low, near - away), np.minimum(field.high, near + away)
    low[field.settled] = high[field.settled] = field.high[field.settled]
    low[field.open], high[field.open] = field.low[field.open], field.high[field.open]
    low, high = np.minimum(low, high), np.maximum(low, high)
    return np.where(field.decision, low, 0), np.where(field.decision, high, 0)


def _price(
    flat: Matrix,
    duals: npt.NDArray[np.float64],
    decision: Mask,
    point: npt.NDArray[np.float64],
) -> Row:
    """What starts takes no more supply, at the prices of the relaxation, than it takes there."""
    worth = np.zeros(len(point))
    np.add.at(worth, flat.column, flat.value * duals[flat.row])
    whole = np.ceil(np.where(decision, worth, 0.0)).astype(np.int64)
    columns = np.flatnonzero(whole)
    least = int(np.floor(float(whole @ point) - 1e-6 * float(np.abs(whole) @ np.abs(point))))
    return Row(columns.tolist(), whole[columns].tolist(), least, INFINITE)
