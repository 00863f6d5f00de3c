"""Rows: the part of an unused guarantee that its queue does not lend stays idle.

The use of a queue is what it has or what it keeps for itself, whichever is more; a parent's is
that of its children together, or what it keeps. The roots' use must fit the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from trencadis.models import Queue
from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Facts, Problem
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


def kept_models(facts: Facts) -> list[str]:
    """GPU models of which some queue keeps a part for itself; '' for GPUs in all."""
    queues, unit = facts.values.tree.queues.values(), facts.values.rates.unit
    models = {""}
    for queue in queues:
        if queue.lending_limit is not None:
            models |= set(queue.lending_limit.by_model)
    return sorted(m for m in models if any(kept(queue, m, unit) for queue in queues))


def in_use(facts: Facts, model: str) -> dict[str, int]:
    """Units that each leaf queue's running and draining jobs have."""
    books, tree = facts.books, facts.values.tree
    found: dict[str, int] = {}
    for name in tree.upwards():
        if tree.is_leaf(name):
            account = books.index.get(("use", name, model))
            found[name] = 0 if account is None else books.accounts[account].used
    return found


def uses(facts: Facts, model: str, used: Mapping[str, int]) -> dict[str, int]:
    """The use of each queue, if its leaves have so much."""
    tree, unit = facts.values.tree, facts.values.rates.unit
    found: dict[str, int] = {}
    for name in tree.upwards():
        below = used[name] if tree.is_leaf(name) else sum(found[c] for c in tree.children[name])
        found[name] = max(kept(tree.queues[name], model, unit), below)
    return found


def total_use(facts: Facts, use: Mapping[str, int]) -> int:
    """The use of the roots together."""
    return sum(use[name] for name in facts.values.tree.children.get(None, ()))


def most_use(facts: Facts, model: str) -> int:
    """What the roots' use may come to: the cluster, or what it is already."""
    gpus = facts.capacity.gpus_by_model.get(model, 0) if model else facts.capacity.gpus
    now = total_use(facts, uses(facts, model, in_use(facts, model)))
    return max(gpus * facts.values.rates.unit, now)


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Once for GPUs in all, and once per model of which something is kept."""
    for model in kept_models(problem.facts):
        _add(problem.facts, program, columns, model)


def _add(facts: Facts, program: Program, columns: Columns, model: str) -> None:
    unit, tree = facts.values.rates.unit, facts.values.tree
    used = in_use(facts, model)
    before = uses(facts, model, used)
    most = most_use(facts, model)
    use = {
        name: program.column(kept(tree.queues[name], model, unit), most, rest=before[name])
        for name in tree.upwards()
    }
    for name, column in use.items():
        if tree.is_leaf(name):
            account = facts.books.index.get(("use", name, model))
            started = [] if account is None else columns.charged.get(account, [])
            program.row([(column, 1), *((c, -n) for c, n in started)], used[name], INFINITE)
        else:
            children = [(use[child], -1) for child in tree.children[name]]
            program.row([(column, 1), *children], 0, INFINITE)
    program.row([(use[name], 1) for name in tree.children.get(None, ())], -INFINITE, most)
