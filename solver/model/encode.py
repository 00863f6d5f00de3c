"""What a plan decided, as counts: where a search or a proof for that plan begins."""

from __future__ import annotations

from collections.abc import Container

from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.build import Model
from trencadis.solver.model.problem import Problem
from trencadis.solver.shapes import Shape


def decisions_of(model: Model, ledger: Ledger, gone: Container[str] = ()) -> list[int]:
    """Counts of who starts and which way, and who goes; columns of supply are as if nothing did."""
    problem, columns, demand = model.problem, model.columns, model.problem.demand
    counts = list(model.program.rest)
    started = ledger.started
    for index, cls in enumerate(demand.classes):
        units = [unit for unit in cls.units if all(name in started for name in unit)]
        left = len(units)
        for piece in columns.pieces[index]:
            counts[piece.column] = min(left, piece.length)
            left -= counts[piece.column]
        for m in range(len(cls.members)):
            for unit in units:
                column = columns.on_model.get((index, m, started[unit[m]][0] or ""))
                if column is not None:
                    counts[column] += 1
    for name, (_, bundles) in started.items():
        shape = demand.shape_of[name]
        way = _way(problem, demand.shapes[shape], bundles)
        if way is not None:
            counts[columns.chosen[(shape, way)]] += 1
    for name, column in columns.gone.items():
        counts[column] = int(name in gone)
    index_of = problem.facts.books.index
    for column, target in zip(columns.shortfalls, problem.facts.targets, strict=True):
        account = index_of.get(("use", target.queue, target.model))
        terms = [] if account is None else columns.charged.get(account, [])
        gained = sum(amount * counts[charged] for charged, amount in terms)
        counts[column] = max(0, target.missing - gained)
    return counts


def _way(problem: Problem, shape: Shape, bundles: Bundles) -> int | None:
    """The cheapest of the shape's alternatives that describes where a job is."""
    fabric = problem.facts.fabric
    nodes, need = {name for name, _ in bundles}, bundles[0][1]
    depth = fabric.depth + 1 if len(nodes) == 1 else fabric.common_depth(nodes)
    suits = [
        (alternative.way.need != need, alternative.cost, a)
        for a, alternative in enumerate(shape.alternatives)
        if alternative.way.need.model == need.model and alternative.way.depth <= depth
    ]
    return min(suits)[2] if suits else None
