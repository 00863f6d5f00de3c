"""Whole numbers around a guide: CP-SAT on the few columns that rounding can touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trencadis.solver.blend import blended
from trencadis.solver.bound import Ints
from trencadis.solver.clock import Limits
from trencadis.solver.core import WHOLE, fractional, whole_part
from trencadis.solver.cpsat import Hear, News, Window, search
from trencadis.solver.guide import Guide
from trencadis.solver.model.build import Model
from trencadis.solver.program import Program
from trencadis.solver.progress import Stage
from trencadis.solver.prove import trivial


@dataclass(frozen=True, slots=True)
class Reach:
    """How far from the guide to look."""

    patterns: int
    """So many that the guide does not use, the cheapest by reduced cost."""
    close: int
    """Pieces of each stage that may start a unit less."""
    more: bool
    """Whether these may start a unit more as well."""
    elsewhere: Literal["nobody", "parts", "all"]
    """Who may go to domains that the guide does not use: only kinds of jobs that it has in parts,
    or all."""


EVERY = 1_000_000
REACHES = (
    Reach(patterns=600, close=60, more=False, elsewhere="nobody"),
    Reach(patterns=600, close=EVERY, more=False, elsewhere="parts"),
    Reach(patterns=2_000, close=200, more=True, elsewhere="all"),
)
"""The next one where nothing good enough is near; that there is nothing is soon seen."""
TIME = 0.2
"""Part of the time left that one search may take."""
AT_LEAST = 2.0
"""Seconds that it may take in any case, where there are so many left: in less it finds nothing."""
STEPS = 3
"""Bins by which the number of a pattern may differ from the guide's."""
DRIFT = 6
"""The same for sums over many patterns or jobs."""
STRATEGIES = ("reduced_costs", "default_lp")
"""Of CP-SAT's portfolio, without presolve. The first finds most points soonest, some only the
second; more of them wait for each other on two cores."""
PATIENCE = 0.5
"""After a point that is good enough, so much longer: a little slack in one tier spoils the bounds
of those below by far more."""
SHARE = 0.1
"""Part of the gap that whole numbers may use up: what a stage leaves open, later ones exploit."""


def settle(model: Model, guide: Guide, limits: Limits) -> list[int] | None:
    """Whole counts near the guide; None if none were found in time."""
    program = model.program
    blend = blended(program)

    def enough(counts: list[int]) -> bool:
        return as_good(program, guide, limits.gap, counts)

    counts: list[int] | None = None
    hint = np.rint(guide.point).astype(np.int64)
    for reach in REACHES:
        if limits.over():
            break
        low, high = _window(model, guide, reach)
        if counts is not None:
            low, high = np.minimum(low, counts), np.maximum(high, counts)
        outcome = search(
            program,
            blend,
            Window(low.tolist(), high.tolist()),
            np.clip(hint, low, high).tolist(),
            None,
            replace(
                limits.effort(max(AT_LEAST, TIME * limits.clock.left())),
                presolve=False,
                strategies=STRATEGIES,
            ),
            limits.stop,
            enough=enough,
            patience=PATIENCE,
            hear=_hears(program, limits),
        )
        if outcome.solution is not None:
            counts = outcome.solution
            hint = np.array(counts, dtype=np.int64)
            if enough(counts):
                break
        elif not outcome.infeasible:
            # Where nothing was found in time, a wider search finds nothing either.
            break
    return counts


def _hears(program: Program, limits: Limits) -> Hear | None:
    """Passes on each solution, by stage. Around a guide a search proves nothing of the whole."""
    tell = limits.hear
    if tell is None:
        return None
    bounds = {o.name: max(0, trivial(program, o)) for o in program.objectives}

    def hear(news: News) -> None:
        if news.solution is None:
            return
        stages = {}
        for objective in program.objectives:
            value = objective.value(news.solution)
            stages[objective.name] = Stage(value, min(value, bounds[objective.name]))
        tell(stages)

    return hear


def as_good(program: Program, guide: Guide, gap: float, counts: list[int]) -> bool:
    """Whether every stage is as good as the guide's, give or take a part of the gap."""
    for objective in program.objectives:
        reached = guide.values.get(objective.name)
        if reached is None:
            continue
        room = max(0.0, objective.value(program.rest) - reached)
        if objective.value(counts) > reached + max(1.0, gap * SHARE * room):
            return False
    return True


def _window(model: Model, guide: Guide, reach: Reach) -> tuple[Ints, Ints]:
    columns, point = model.columns, guide.point
    floor = whole_part(point)
    ceil = np.ceil(point - WHOLE).astype(np.int64)
    less, more = np.zeros(len(point), dtype=np.int64), np.zeros(len(point), dtype=np.int64)

    fills = np.array(list(columns.fills.values()), dtype=np.int64)
    unused = fills[point[fills] <= WHOLE]
    cheap = unused[np.lexsort((unused, np.abs(guide.reduced[unused]).round(3)))[: reach.patterns]]
    parts = np.array(list(columns.parts.values()), dtype=np.int64)
    for some in (fills[point[fills] > WHOLE], cheap, parts):
        less[some] = more[some] = STEPS
    for places in _places(model, guide, reach):
        less[places] = more[places] = 1

    pieces = _close_pieces(guide, reach.close)
    less[pieces] = 1
    more[pieces] = 1 if reach.more else 0
    _free_sums(model, less, more)
    low = np.maximum(model.program.low, floor - less)
    high = np.minimum(model.program.high, ceil + more)
    for column in columns.shortfalls:
        low[column], high[column] = model.program.low[column], model.program.high[column]
    return np.minimum(low, high), np.maximum(low, high)


def _places(model: Model, guide: Guide, reach: Reach) -> Iterator[Ints]:
    """Columns of jobs by domain. Where the guide has parts of jobs, whole ones may fit nowhere but
    in a domain that it does not use, or one level up."""
    columns, shapes = model.columns, model.problem.demand.shapes
    tables: list[list[Ints]] = []
    for shape in shapes:
        ways = [alt.way for alt in shape.alternatives if alt.way in columns.places]
        of_shape = [columns.places[way] for way in ways]
        of_shape += [columns.segments[way] for way in ways if way in columns.segments]
        tables.append([np.array(list(table.values()), dtype=np.int64) for table in of_shape])
    for some in tables:
        everywhere = reach.elsewhere == "all"
        if reach.elsewhere == "parts":
            everywhere = any(fractional(guide.point[table]).any() for table in some)
        for table in some:
            yield table if everywhere else table[guide.point[table] > WHOLE]


def _close_pieces(guide: Guide, number: int) -> Ints:
    found: list[int] = []
    for stage in guide.close:
        found.extend(sorted(stage, key=lambda c: (round(stage[c], 3), c))[:number])
    return np.array(sorted(found), dtype=np.int64)


def _free_sums(model: Model, less: Ints, more: Ints) -> None:
    """Sums over what may move may move as well."""
    columns = model.columns
    for table in (
        columns.chosen,
        columns.flows,
        columns.fillers,
        columns.cell_fillers,
        columns.on_model,
        columns.pooled,
    ):
        drifting = list(table.values())
        less[drifting] = more[drifting] = DRIFT
