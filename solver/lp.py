"""The linear relaxation: a value and duals for each stage. The one module that talks to LP solvers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ortools.linear_solver import pywraplp

from trencadis.solver.program import INFINITE, Objective, Program


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An optimal point of the relaxation, in floats."""

    value: float
    point: npt.NDArray[np.float64]
    duals: npt.NDArray[np.float64]
    """Per row; then one per pin, in order."""


class LinearProgram:
    """A program without its integrality, to be solved once per stage.

    Pins keep the objectives of earlier stages at what they achieved.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.solver.SuppressOutput()
        self._columns = [
            self.solver.NumVar(low, high, "")
            for low, high in zip(program.low, program.high, strict=True)
        ]
        self._rows = [self._row(row.columns, row.coefficients, row.low, row.high)
                      for row in program.rows]
        self._pins: list[pywraplp.Constraint] = []

    def _row(
        self, columns: list[int], coefficients: list[int], low: int, high: int
    ) -> pywraplp.Constraint:
        infinity = self.solver.infinity()
        row = self.solver.RowConstraint(
            -infinity if low <= -INFINITE else low, infinity if high >= INFINITE else high, ""
        )
        for column, coefficient in zip(columns, coefficients, strict=True):
            row.SetCoefficient(self._columns[column], coefficient)
        return row

    def pin(self, objective: Objective, value: int) -> None:
        """From now on the objective is at most `value`."""
        self._pins.append(
            self._row(
                list(objective.terms),
                list(objective.terms.values()),
                -INFINITE,
                value - objective.constant,
            )
        )

    def solve(self, objective: Objective, seconds: float) -> Relaxation | None:
        """Minimises one objective; None if it was not solved within the time."""
        goal = self.solver.Objective()
        goal.Clear()
        for column, coefficient in objective.terms.items():
            goal.SetCoefficient(self._columns[column], coefficient)
        goal.SetMinimization()
        self.solver.set_time_limit(max(1, int(seconds * 1_000)))
        if self.solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        rows = [*self._rows, *self._pins]
        return Relaxation(
            value=goal.Value() + objective.constant,
            point=np.array([column.solution_value() for column in self._columns]),
            duals=np.array([row.dual_value() for row in rows]),
        )
