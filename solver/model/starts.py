"""Rows: the jobs that start are placed, each in one way, and each way in its domains."""

from __future__ import annotations

from collections import defaultdict

from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import Program
from trencadis.solver.shapes import Way


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Per shape: jobs that start = jobs placed, over all ways; per way: over all domains."""
    placed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    placed_on: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    going: defaultdict[Way, list[tuple[int, int]]] = defaultdict(list)
    for (s, a), column in columns.chosen.items():
        way = problem.demand.shapes[s].alternatives[a].way
        placed[s].append((column, -1))
        placed_on[(s, way.need.model or "")].append((column, -1))
        going[way].append((column, 1))
    for way, places in columns.places.items():
        program.row([*going[way], *((column, -1) for column in places.values())], 0, 0)
    started: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for index, cls in enumerate(problem.demand.classes):
        for member in cls.members:
            started[member.shape].extend(columns.started(index))
    for s in range(len(problem.demand.shapes)):
        program.row([*started[s], *placed[s]], 0, 0)
    _add_models(problem, program, columns, placed_on)


def _add_models(
    problem: Problem,
    program: Program,
    columns: Columns,
    placed_on: dict[tuple[int, str], list[tuple[int, int]]],
) -> None:
    """Where accounts ask for a GPU model: who runs on which."""
    counted: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for index, cls in enumerate(problem.demand.classes):
        for m, member in enumerate(cls.members):
            parts = [
                (columns.on_model[(index, m, model or "")], model or "")
                for model in problem.demand.shapes[member.shape].models()
                if (index, m, model or "") in columns.on_model
            ]
            if parts:
                whole = [(column, -1) for column, _ in columns.started(index)]
                program.row([*((column, 1) for column, _ in parts), *whole], 0, 0)
                for column, model in parts:
                    counted[(member.shape, model)].append((column, 1))
    for key, terms in counted.items():
        # Jobs of the shape that no account asks about take the rest.
        program.row([*terms, *placed_on[key]], -sum(program.high[c] for c, _ in placed_on[key]), 0)
