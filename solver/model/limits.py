"""Rows: limits of queues, users and QOS, array throttles, licences."""

from __future__ import annotations

from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import INFINITE, Program


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """What starts stays within what each limit leaves."""
    for index, account in enumerate(problem.facts.books.accounts):
        if account.limit is not None:
            program.row(columns.charged.get(index, []), -INFINITE, account.slack)
