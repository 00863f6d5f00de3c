"""Rows: the part of an unused guarantee that its queue does not lend stays idle.

The use of a queue is what it has or what it keeps for itself, whichever is more; a parent's is
that of its children together, or what it keeps. The roots' use must fit the cluster.
"""

from __future__ import annotations

from trencadis.models import Queue
from trencadis.solver.model.columns import Columns
from trencadis.solver.model.limits import charged
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import INFINITE, Program


def kept(queue: Queue, model: str, unit: int) -> int:
    """Units of its guarantee that the queue does not lend."""
    if queue.lending_limit is None:
        return 0
    if model:
        if model not in queue.guarantee.by_model or model not in queue.lending_limit.by_model:
            return 0
        gap = queue.guarantee.by_model[model] - queue.lending_limit.by_model[model]
        return max(0, gap) * unit
    guarantee, lend = queue.guarantee.total_milli(), queue.lending_limit.total_milli()
    return 0 if guarantee is None or lend is None else max(0, guarantee - lend) * unit // 1_000


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Once for GPUs in all, and once per model of which something is kept."""
    queues = problem.facts.values.tree.queues
    models = {""}
    for queue in queues.values():
        if queue.lending_limit is not None:
            models |= set(queue.lending_limit.by_model)
    for model in sorted(models):
        unit = problem.facts.values.rates.unit
        if any(kept(queue, model, unit) for queue in queues.values()):
            _add(problem, program, columns, model)


def _add(problem: Problem, program: Program, columns: Columns, model: str) -> None:
    facts = problem.facts
    unit, tree = facts.values.rates.unit, facts.values.tree
    sums = charged(problem, columns)
    gpus = facts.capacity.gpus_by_model.get(model, 0) if model else facts.capacity.gpus
    before: dict[str, int] = {}
    for name in tree.upwards():
        account = facts.books.index.get(("use", name, model))
        used = 0 if account is None else facts.books.accounts[account].used
        below = sum(before[child] for child in tree.children.get(name, ()))
        before[name] = max(kept(tree.queues[name], model, unit), used, below)
    roots = tree.children.get(None, ())
    most = max(gpus * unit, sum(before[name] for name in roots))
    use = {
        name: program.column(kept(tree.queues[name], model, unit), most, rest=before[name])
        for name in tree.upwards()
    }
    for name, column in use.items():
        if tree.is_leaf(name):
            account = facts.books.index.get(("use", name, model))
            used = 0 if account is None else facts.books.accounts[account].used
            started = [] if account is None else sums.get(account, [])
            program.row([(column, 1), *((c, -n) for c, n in started)], used, INFINITE)
        else:
            children = [(use[child], -1) for child in tree.children[name]]
            program.row([(column, 1), *children], 0, INFINITE)
    program.row([(use[name], 1) for name in roots], -INFINITE, most)
