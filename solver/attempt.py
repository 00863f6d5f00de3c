"""One search of a round: counts, then names, part by part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from trencadis.solver.again import Beginning
from trencadis.solver.clock import Limits
from trencadis.solver.greedy import complete, order
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.build import Model, build
from trencadis.solver.model.problem import Facts, Problem, Thresholds, classify
from trencadis.solver.place import place
from trencadis.solver.progress import Stage
from trencadis.solver.report import Round
from trencadis.solver.residual import residual
from trencadis.solver.search import Solution, find_counts
from trencadis.solver.stages import FRAGMENTATION
from trencadis.solver.timer import Timer

NONE: frozenset[str] = frozenset()
MAX_SPOILED = 200
"""Clusters of more nodes are not searched again only because tasks without GPUs spread badly."""
MAX_PARTS = 6
"""Searches of one round: each settles what its relaxation has in whole numbers."""


def search_and_place(
    read: Facts,
    thresholds: Thresholds,
    limits: Limits,
    timer: Timer,
    built: Callable[[], object] = lambda: None,
    beginning: Beginning | None = None,
) -> Round:
    """Counts, then names, until nothing is left that is worth another look.

    `built` is called whenever a model is built and its search begins.
    """
    ledger = Ledger(read)
    rest = read
    outcome: Round | None = None
    if beginning is not None:
        problem = classify(read, thresholds, NONE, NONE)
        timer.lap("classify")
        outcome = _round(problem, build(problem), ledger, Solution([], {}))
        timer.lap("build")
        beginning.enter(ledger, outcome.shape_of.__getitem__)
        timer.lap("keep")
        rest = residual(read, ledger)
    for _ in range(MAX_PARTS):
        problem, model, solution = count_and_place(rest, ledger, thresholds, limits, timer, built)
        if outcome is None:
            outcome = _round(problem, model, ledger, solution)
        if not solution.partial or limits.over():
            break
        rest = residual(read, ledger)
    assert outcome is not None
    # Counts may have found no place for who comes first.
    ledger.withdraw_passing()
    complete(ledger, outcome.shape_of.__getitem__, order(read))
    timer.lap("complete")
    return outcome


def _round(problem: Problem, model: Model, ledger: Ledger, solution: Solution) -> Round:
    shapes = problem.demand.shapes
    shape_of = {name: shapes[index] for name, index in problem.demand.shape_of.items()}
    return Round(model, ledger, solution, shape_of)


def count_and_place(
    read: Facts,
    ledger: Ledger,
    thresholds: Thresholds,
    limits: Limits,
    timer: Timer,
    built: Callable[[], object],
) -> tuple[Problem, Model, Solution]:
    """One search and its placement; classes that can't be placed as counted are split."""
    split: frozenset[str] = frozenset()
    singled: frozenset[str] = frozenset()
    for attempt in count():
        problem = classify(read, thresholds, split, singled)
        timer.lap("classify")
        model = build(problem)
        timer.lap("build")
        built()
        solution = find_counts(model, limits, thresholds)
        timer.lap("search")
        found = {name: Stage(r.value, r.bound) for name, r in solution.stages.items()}
        timer.tell("searched", len(ledger.started), found)
        before = ledger.started.copy()
        trouble = place(problem, model, solution.counts, ledger)
        timer.lap("place")
        timer.tell("placed", len(ledger.started))
        more = (split | trouble.jobs, singled | trouble.nodes | spoiled(problem, solution, ledger))
        # Only a search of the whole program makes promises that are worth another attempt.
        done = more == (split, singled) or not solution.stages or limits.over()
        if done or attempt == thresholds.splits:
            break
        split, singled = more
        ledger.withdraw(ledger.started.keys() - before.keys())
    return problem, model, solution


def spoiled(problem: Problem, solution: Solution, ledger: Ledger) -> frozenset[str]:
    """Nodes that tasks without GPUs fragment more than their pooled counts promised."""
    promised = solution.stages.get(FRAGMENTATION)
    supply = problem.supply
    pooled = supply.fillers or supply.located_fillers or any(c.opened for c in supply.classes)
    if promised is None or not pooled or len(ledger.nodes) > MAX_SPOILED:
        return frozenset()
    if sum(ledger.fragmentation(name) for name in ledger.nodes) <= promised.value:
        return frozenset()
    return frozenset(ledger.nodes)
