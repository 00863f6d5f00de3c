"""Builds the counting model of a problem: all columns, all families of rows, all objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trencadis.solver.model import (
    bins,
    domains,
    fillers,
    guarantees,
    lending,
    limits,
    objective,
    order,
    starts,
)
from trencadis.solver.model.charges import charged
from trencadis.solver.model.columns import Columns, add_columns
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import Program

Family = Callable[[Problem, Program, Columns], None]

FAMILIES: tuple[Family, ...] = (
    starts.add,
    bins.add,
    domains.add,
    fillers.add,
    limits.add,
    guarantees.add,
    lending.add,
    order.add,
    objective.add,
)


@dataclass(frozen=True, slots=True)
class Model:
    """A program and what its columns mean."""

    problem: Problem
    program: Program
    columns: Columns


def build(problem: Problem) -> Model:
    """The model of a problem."""
    program = Program()
    columns = add_columns(problem, program)
    columns.charged = charged(problem, columns)
    for family in FAMILIES:
        family(problem, program, columns)
    return Model(problem, program, columns)
