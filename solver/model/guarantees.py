"""Rows: the shortfall of each guarantee that is short now."""

from __future__ import annotations

from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import INFINITE, Program


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """shortfall >= what is missing - what starts."""
    index = problem.facts.books.index
    for column, target in zip(columns.shortfalls, problem.facts.targets, strict=True):
        account = index.get(("use", target.queue, target.model))
        started = [] if account is None else columns.charged.get(account, [])
        program.row([(column, 1), *started], target.missing, INFINITE)
