"""Rows: the shortfall of each guarantee that is short now."""

from __future__ import annotations

from trencadis.solver.model.columns import Columns
from trencadis.solver.model.limits import charged
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import INFINITE, Program


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """shortfall >= what is missing - what starts."""
    sums = charged(problem, columns)
    index = problem.facts.books.index
    for column, target in zip(columns.shortfalls, problem.facts.targets, strict=True):
        account = index.get(("use", target.queue, target.model))
        started = [] if account is None else sums.get(account, [])
        program.row([(column, 1), *started], target.missing, INFINITE)
