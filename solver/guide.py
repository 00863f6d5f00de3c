"""Who starts, in whole jobs, with the supply still in fractions: where the search should look.

Stage by stage: the relaxation prices the slots, the priced decisions say which jobs of the stage
start (`lagrange`), and the relaxation then shows which of these the supply can carry. Nothing here
is a proof; a guide that misses only costs quality, which the bounds then show.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trencadis.solver.bound import matrix
from trencadis.solver.cpsat import Effort, Window
from trencadis.solver.lagrange import decide
from trencadis.solver.lp import LinearProgram, Relaxation, at_most
from trencadis.solver.program import Objective, Program

EPSILON = 1e-6
PATIENCE = 3
"""Rounding steps that leave some parts open; after these, all are rounded at once."""


@dataclass(frozen=True, slots=True)
class Guide:
    """A point whose starts are whole."""

    point: npt.NDArray[np.float64]
    starts: dict[int, int]
    """Value of each piece column."""
    values: dict[str, int]
    """What each stage could reach; stages that were not worked out are missing."""


class Guider:
    """Works out a guide on a relaxation of its own."""

    def __init__(
        self,
        program: Program,
        pieces: Sequence[int],
        decision: npt.NDArray[np.bool_],
        gap: float,
        effort: Effort,
        stop: threading.Event,
    ) -> None:
        self.program, self.decision, self.gap = program, decision, gap
        self.effort, self.stop = effort, stop
        self.relaxed = LinearProgram(program)
        self.low = np.array(program.low, dtype=np.int64)
        self.high = np.array(program.high, dtype=np.int64)
        self.pieces = np.array(sorted(pieces), dtype=np.int64)
        self.settled = np.zeros(len(self.low), dtype=bool)
        self.values: dict[str, int] = {}

    def guide(self) -> Guide | None:
        """The guide; None if a relaxation was not solved."""
        last: Relaxation | None = None
        for objective in self.program.objectives:
            if not objective.terms:
                self.values[objective.name] = objective.constant
                continue
            if self.stop.is_set():
                return None
            reached = self._stage(objective)
            if reached is None:
                # Floats got in each other's way: the stages so far are guide enough.
                break
            last = reached
        if last is None:
            return None
        starts = {int(c): int(np.floor(last.point[c] + 1e-4)) for c in self.pieces}
        return Guide(last.point, starts, self.values)

    def _stage(self, objective: Objective) -> Relaxation | None:
        relaxation = self.relaxed.solve(objective, self.effort.seconds)
        if relaxation is None:
            return None
        mine = np.array(
            [c for c in self.pieces if c in objective.terms and not self.settled[c]], dtype=np.int64
        )
        if mine.size and self._fraction(relaxation, mine).any():
            relaxation = self._make_whole(objective, relaxation, mine)
            if relaxation is None:
                return None
        if mine.size:
            whole = np.rint(relaxation.point[mine]).astype(np.int64)
            # A hair of slack: floats that are whole to six digits must not make this infeasible.
            self._restrict(mine, np.maximum(self.low[mine], whole - 1), whole)
            self.settled[mine] = True
        slack = int(max(10.0, 1e-6 * abs(relaxation.value)))
        self.values[objective.name] = int(np.ceil(relaxation.value - 1e-3))
        self.relaxed.add(at_most(objective, self.values[objective.name] + slack))
        return relaxation

    def _fraction(
        self, relaxation: Relaxation, columns: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        part = relaxation.point[columns]
        result: npt.NDArray[np.bool_] = np.abs(part - np.rint(part)) > EPSILON
        return result

    def _restrict(
        self,
        columns: npt.NDArray[np.int64],
        low: npt.NDArray[np.int64],
        high: npt.NDArray[np.int64],
    ) -> None:
        self.low[columns], self.high[columns] = low, high
        self.relaxed.restrict(columns.tolist(), low.tolist(), high.tolist())

    def _make_whole(
        self, objective: Objective, relaxation: Relaxation, mine: npt.NDArray[np.int64]
    ) -> Relaxation | None:
        """Whole starts for this stage: by rounding, and by priced decisions if that loses much."""
        low, high = self.low[mine].copy(), self.high[mine].copy()
        rounded = self._round(objective, mine)
        nothing = objective.value(self.program.rest)
        allowed = self.gap * max(0.0, nothing - relaxation.value)
        if rounded is not None and rounded.value - relaxation.value <= allowed:
            return rounded
        kept_low, kept_high = self.low[mine].copy(), self.high[mine].copy()
        self._restrict(mine, low, high)
        self._decide(objective, relaxation, mine)
        decided = self._round(objective, mine)
        if rounded is not None and (decided is None or rounded.value <= decided.value):
            self._restrict(mine, kept_low, kept_high)
            return self.relaxed.solve(objective, self.effort.seconds)
        return decided

    def _decide(
        self, objective: Objective, relaxation: Relaxation, mine: npt.NDArray[np.int64]
    ) -> None:
        """Lets the priced problem choose among this stage's jobs."""
        rows = self.relaxed.rows
        priced = decide(
            rows,
            matrix(rows),
            objective,
            relaxation.duals,
            self.decision,
            Window(self.low.tolist(), self.high.tolist()),
            np.rint(relaxation.point).astype(np.int64),
            self.effort,
            self.stop,
        )
        if priced.point is not None:
            most = np.array([priced.point[c] for c in mine], dtype=np.int64)
            self._restrict(mine, self.low[mine], np.maximum(most, self.low[mine]))

    def _round(self, objective: Objective, mine: npt.NDArray[np.int64]) -> Relaxation | None:
        """Rounds what is still in parts down, the smallest parts first, until all is whole."""
        for step in range(PATIENCE + 1):
            relaxation = self.relaxed.solve(objective, self.effort.seconds)
            if relaxation is None or self.stop.is_set():
                return None
            parts = mine[self._fraction(relaxation, mine)]
            if not parts.size:
                return relaxation
            order = parts[np.argsort(relaxation.point[parts] % 1.0, kind="stable")]
            chosen = order[: max(1, len(order) // 2)] if step < PATIENCE else mine
            whole = np.floor(relaxation.point[chosen] + EPSILON).astype(np.int64)
            self._restrict(chosen, np.minimum(self.low[chosen], whole), whole)
        return self.relaxed.solve(objective, self.effort.seconds)
