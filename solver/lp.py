"""The linear relaxation, solved again and again from where it was. Talks to GLOP, alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ortools.linear_solver import linear_solver_pb2, pywraplp

from trencadis.solver.bound import Matrix, joined, matrix
from trencadis.solver.program import INFINITE, Objective, Program, Row


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An optimal point of the relaxation, in floats."""

    value: float
    point: npt.NDArray[np.float64]
    duals: npt.NDArray[np.float64]
    """Per row of `LinearProgram.rows`."""


class LinearProgram:
    """A program without its integrality.

    Objectives, bounds and further rows change between solves. Without presolve, GLOP goes on
    from the last basis: on models of 40,000 columns a stage takes tenths of a second, not seconds.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rows: list[Row] = []
        self._own: Matrix | None = None
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._solver.SuppressOutput()
        self._solver.SetSolverSpecificParametersAsString("use_preprocessing: false")
        fault = self._solver.LoadModelFromProto(_message(program))
        assert not fault, fault
        self.rows.extend(program.rows)
        self._columns: list[pywraplp.Variable] = self._solver.variables()
        self._handles: list[pywraplp.Constraint] = self._solver.constraints()
        self._goal: Objective | None = None

    def add(self, row: Row) -> None:
        """Adds a row."""
        infinity = self._solver.infinity()
        handle = self._solver.RowConstraint(
            -infinity if row.low <= -INFINITE else row.low,
            infinity if row.high >= INFINITE else row.high,
            "",
        )
        for column, coefficient in zip(row.columns, row.coefficients, strict=True):
            handle.SetCoefficient(self._columns[column], coefficient)
        self.rows.append(row)
        self._handles.append(handle)

    def flat(self) -> Matrix:
        """All rows, flat."""
        count = len(self.program.rows)
        if self._own is None:
            self._own = matrix(self.rows[:count])
        return joined(self._own, matrix(self.rows[count:]))

    def loosen(self) -> None:
        """Takes further rows and narrower bounds back; the basis stays."""
        program, infinity = self.program, self._solver.infinity()
        for position in range(len(program.rows), len(self.rows)):
            self.rows[position] = Row([], [], -INFINITE, INFINITE)
            self._handles[position].SetBounds(-infinity, infinity)
        self.restrict(range(len(self._columns)), program.low, program.high)

    def restrict(self, columns: Iterable[int], low: Iterable[int], high: Iterable[int]) -> None:
        """New bounds for some columns."""
        for column, least, most in zip(columns, low, high, strict=True):
            self._columns[column].SetBounds(int(least), int(most))

    def solve(self, objective: Objective, seconds: float) -> Relaxation | None:
        """Minimises; None if there is no point or it took longer than `seconds`."""
        goal = self._solver.Objective()
        if objective is not self._goal:
            goal.Clear()
            for column, coefficient in objective.terms.items():
                goal.SetCoefficient(self._columns[column], coefficient)
            goal.SetMinimization()
            self._goal = objective
        self._solver.set_time_limit(max(1, int(min(seconds, 86_400) * 1_000)))
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        # In one call: to ask each column for its value takes as long as a third of the solve.
        found = linear_solver_pb2.MPSolutionResponse()
        self._solver.FillSolutionResponseProto(found)
        return Relaxation(
            value=goal.Value() + objective.constant,
            point=np.array(found.variable_value),
            duals=np.array(found.dual_value),
        )


def _message(program: Program) -> linear_solver_pb2.MPModelProto:
    """The program in one piece: to set coefficient by coefficient takes five times as long."""
    model = linear_solver_pb2.MPModelProto()
    for low, high in zip(program.low, program.high, strict=True):
        model.variable.add(lower_bound=low, upper_bound=high)
    for row in program.rows:
        entry = model.constraint.add(
            lower_bound=-math.inf if row.low <= -INFINITE else row.low,
            upper_bound=math.inf if row.high >= INFINITE else row.high,
        )
        entry.var_index.extend(row.columns)
        entry.coefficient.extend(row.coefficients)
    return model


def at_most(objective: Objective, value: int) -> Row:
    """The row that keeps an objective at `value` or below."""
    return Row(
        list(objective.terms),
        list(objective.terms.values()),
        -INFINITE,
        value - objective.constant,
    )
