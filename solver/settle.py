"""Whole numbers around a guide: CP-SAT on the few columns that rounding can touch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trencadis.solver.blend import blended
from trencadis.solver.bound import Ints
from trencadis.solver.clock import Limits
from trencadis.solver.core import WHOLE, whole_part
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


NEAR = Reach(patterns=600, close=60, more=False)
WIDE = Reach(patterns=2_000, close=200, more=True)
TIME = 0.4
"""Part of the time left that one search may take."""
AT_LEAST = 3.0
"""Seconds that it may take in any case, where there are so many left: in less it finds nothing."""
STEPS = 3
"""Bins by which the number of a pattern may differ from the guide's."""
DRIFT = 6
"""The same for sums over many patterns or jobs."""
STRATEGIES = ("reduced_costs", "max_lp", "quick_restart_no_lp")
"""The first two find nearly every settled point, the third sees soonest that there is none."""
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
    for reach in (NEAR, WIDE):
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
                limits.effort(max(AT_LEAST, TIME * limits.clock.left())), strategies=STRATEGIES
            ),
            limits.stop,
            enough=enough,
            hear=_hears(program, limits),
        )
        if outcome.solution is not None:
            counts = outcome.solution
            hint = np.array(counts, dtype=np.int64)
            if enough(counts):
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
    for places in (*columns.places.values(), *columns.segments.values()):
        for column in places.values():
            if point[column] > WHOLE:
                less[column] = more[column] = 1

    pieces = _close_pieces(guide, reach.close)
    ceil[guide.pieces] = floor[guide.pieces]
    less[pieces] = 1
    more[pieces] = 1 if reach.more else 0
    _free_sums(model, less, more)
    low = np.maximum(model.program.low, floor - less)
    high = np.minimum(model.program.high, ceil + more)
    for column in columns.shortfalls:
        low[column], high[column] = model.program.low[column], model.program.high[column]
    return np.minimum(low, high), np.maximum(low, high)


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
