"""What the jobs that start charge to each account, as terms over columns."""

from __future__ import annotations

from collections import defaultdict

from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem

Terms = list[tuple[int, int]]


def charged(problem: Problem, columns: Columns) -> dict[int, Terms]:
    """By account: the terms that add up what the started jobs charge to it."""
    terms: defaultdict[int, Terms] = defaultdict(list)
    for index, cls in enumerate(problem.demand.classes):
        started = columns.started(index)
        for m, member in enumerate(cls.members):
            for charge in member.charges:
                key = (index, m, charge.model)
                if charge.model and key in columns.on_model:
                    terms[charge.account].append((columns.on_model[key], charge.amount))
                elif not charge.model or charge.model in problem.demand.shapes[
                    member.shape
                ].models():
                    terms[charge.account].extend((c, charge.amount) for c, _ in started)
    return terms
