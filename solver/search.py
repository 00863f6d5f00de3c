"""Finds counts: small programs whole and to the end, large ones around a guide."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trencadis.solver.bound import Ints, Matrix, SafeBound, safe_bound
from trencadis.solver.clock import Limits
from trencadis.solver.core import whole_part
from trencadis.solver.cpsat import Hear, News, Window, search
from trencadis.solver.guide import Guider, Parts
from trencadis.solver.lagrange import decide
from trencadis.solver.lp import LinearProgram, Relaxation, at_most
from trencadis.solver.model.build import Model
from trencadis.solver.model.problem import Thresholds
from trencadis.solver.program import Objective, Program, Row
from trencadis.solver.progress import Stage
from trencadis.solver.prove import Prover, reach, trivial
from trencadis.solver.settle import as_good, settle

SHARE = 0.1
"""Part of the gap that a stage may use up itself: what it leaves open, later stages exploit, and
their bounds suffer for it."""

GUIDE_SHARE = 0.5
"""Part of the time that the stages of a guide may take whose whole part is only the first of
several."""

ENOUGH = 0.5
"""Part of the gap within which a bound is sharp enough."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """What the search proved of one stage, given the stages before it."""

    value: int
    bound: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Solution:
    """Counts, and what the search proved on the way."""

    counts: list[int]
    stages: dict[str, StageResult]
    """Empty where only the whole part of a guide was settled."""
    relaxed: LinearProgram | None = None
    """The relaxation, as the search left it."""
    partial: bool = False
    """The counts are a whole part; what they leave is worth another search."""


def find_counts(model: Model, limits: Limits, thresholds: Thresholds) -> Solution:
    """Lexicographically good counts; `program.rest` (nothing starts) at worst."""
    if len(model.program.low) <= thresholds.whole:
        relaxed = LinearProgram(model.program)
        return _Whole(model.program, limits, model.program.rest, 1.0, relaxed).solve()
    return _around_guide(model, limits, thresholds)


def decision_columns(model: Model) -> npt.NDArray[np.bool_]:
    """Marks the columns that decide who starts."""
    decision = np.ones(len(model.program.low), dtype=bool)
    decision[list(model.columns.supply())] = False
    return decision


class _Whole:
    """Each stage to its end: relaxation, reduced costs, CP-SAT on what is within reach."""

    def __init__(
        self,
        program: Program,
        limits: Limits,
        start: Sequence[int],
        share: float,
        relaxed: LinearProgram,
        priced: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """`start`: counts to begin from; `share`: part of the time left that a stage may take.

        `priced`: the decision columns, where bounds by prices are worth their time.
        """
        self.program, self.limits, self.share, self.priced = program, limits, share, priced
        self.counts = list(start)
        self.pins: list[Row] = []
        self.relaxed = relaxed

    def solve(self) -> Solution:
        stages = {}
        for objective in self.program.objectives:
            began = time.monotonic()
            bound = self._stage(objective)
            value = objective.value(self.counts)
            seconds = time.monotonic() - began
            stages[objective.name] = StageResult(value, min(bound, value), seconds)
            if objective.terms:
                pin = at_most(objective, value)
                self.pins.append(pin)
                self.relaxed.add(pin)
        return Solution(self.counts, stages, self.relaxed)

    def _stage(self, objective: Objective) -> int:
        """Improves the counts in one objective; returns the bound that it proved."""
        bound = trivial(self.program, objective)
        nothing = objective.value(self.program.rest)
        proof: SafeBound | None = None
        if not self._good(objective, bound, nothing) and not self.limits.over():
            relaxation = self.relaxed.solve(objective, self.limits.clock.left())
            if relaxation is not None:
                rows = self.relaxed.flat()
                proof = safe_bound(self.program, objective, rows, relaxation.duals)
                bound = max(bound, proof.value)
                if self.priced is not None and not self._good(objective, bound, nothing):
                    bound = max(bound, self._priced_bound(objective, relaxation, rows))
        if self._good(objective, bound, nothing) or self.limits.over():
            return bound
        outcome = search(
            self.program,
            objective,
            self._window(objective, proof),
            self.counts,
            bound + int(self.limits.gap * SHARE * max(0, nothing - bound)),
            self.limits.effort(self.share * self.limits.clock.left()),
            self.limits.stop,
            self.pins,
            hear=self._hears(objective, bound),
        )
        found = outcome.solution
        if found is not None and objective.value(found) < objective.value(self.counts):
            # An equal solution is no gain, and may be worse in the stages to come.
            self.counts = found
        if outcome.bound is not None:
            bound = max(bound, outcome.bound)
        return bound

    def _hears(self, objective: Objective, bound: int) -> Hear | None:
        """Passes on what a search of this stage finds: beyond its window nothing is better."""
        tell = self.limits.hear
        if tell is None:
            return None
        value = objective.value(self.counts)

        def hear(news: News) -> None:
            nonlocal value, bound
            before = value, bound
            if news.solution is not None:
                value = min(value, objective.value(news.solution))
            if news.bound is not None:
                bound = max(bound, min(news.bound, value))
            if (value, bound) != before:
                tell({objective.name: Stage(value, bound)})

        return hear

    def _priced_bound(self, objective: Objective, relaxation: Relaxation, rows: Matrix) -> int:
        """A sharper bound, so that no time goes into improving what is best already."""
        assert self.priced is not None
        priced = decide(
            self.relaxed.rows,
            rows,
            objective,
            relaxation.duals,
            self.priced,
            Window(self.program.low, self.program.high),
            np.rint(relaxation.point).astype(np.int64),
            self.limits.effort(min(1.0, 0.1 * self.limits.clock.left())),
            self.limits.stop,
        )
        return trivial(self.program, objective) if priced.bound is None else priced.bound

    def _good(self, objective: Objective, bound: int, nothing: int) -> bool:
        excess = objective.value(self.counts) - bound
        return excess <= self.limits.gap * SHARE * max(0, nothing - bound)

    def _window(self, objective: Objective, proof: SafeBound | None) -> Window:
        """All points that can beat what we have, and what we have."""
        low = np.array(self.program.low, dtype=np.int64)
        high = np.array(self.program.high, dtype=np.int64)
        if proof is not None:
            low, high = reach(proof, objective.value(self.counts), low, high)
            low, high = np.minimum(low, self.counts), np.maximum(high, self.counts)
        return Window(low.tolist(), high.tolist())


def _around_guide(model: Model, limits: Limits, thresholds: Thresholds) -> Solution:
    program = model.program
    relaxed = LinearProgram(program)
    large = len(program.low) > thresholds.parts
    staging = limits.part(GUIDE_SHARE) if large else limits
    guide = Guider(program, relaxed, parts_of(model), limits, staging).guide()
    if guide is None:
        return Solution(list(program.rest), {})
    settled = None if large or limits.over() else settle(model, guide, limits)
    if settled is None:
        # Placement takes what holds together of the guide; the rest is searched in its turn.
        return Solution(whole_part(guide.point).tolist(), {}, partial=True)
    if not limits.proves or limits.over() or as_good(program, guide, limits.gap, settled):
        # Where whole numbers cost nothing against the guide, what is open is the bound, and a
        # search of the whole program does not sharpen that in any time that a round has.
        return Solution(settled, _promised(program, settled), relaxed)
    relaxed.loosen()
    solution = Solution(settled, _proven(model, relaxed, settled, limits), relaxed)
    if limits.over() or _good(program, solution, limits.gap):
        return solution
    # The counts hint a search of the whole program for as long as there is time.
    relaxed.loosen()
    further = _Whole(program, limits, settled, 0.5, relaxed, decision_columns(model)).solve()
    return _with_bounds(further, solution.stages)


def _promised(program: Program, counts: list[int]) -> dict[str, StageResult]:
    """What the counts reach; the proof is left to whoever sees what becomes of them."""
    return {
        objective.name: StageResult(objective.value(counts), trivial(program, objective), 0.0)
        for objective in program.objectives
    }


def _proven(
    model: Model, relaxed: LinearProgram, counts: list[int], limits: Limits
) -> dict[str, StageResult]:
    """What the relaxation and priced decisions prove of the counts."""
    prover = Prover(model.program, relaxed, decision_columns(model), counts)
    stages: dict[str, StageResult] = {}
    objectives = model.program.objectives
    for position, objective in enumerate(objectives):
        began = time.monotonic()
        value = objective.value(counts)
        slack = int(limits.gap * ENOUGH * max(0, objective.value(model.program.rest) - value))
        later = len(objectives) - position - 1
        bound = prover.bound(objective, value, value - slack, limits.effort(), limits.stop, later)
        prover.pin(objective, value)
        stages[objective.name] = StageResult(value, bound, time.monotonic() - began)
    return stages


def _with_bounds(solution: Solution, proven: dict[str, StageResult]) -> Solution:
    """The solution with these bounds as well, for as long as it is what they were proven of."""
    stages = dict(solution.stages)
    for name, stage in solution.stages.items():
        known = proven[name]
        stages[name] = replace(stage, bound=min(stage.value, max(stage.bound, known.bound)))
        if stage.value != known.value:
            break
    return replace(solution, stages=stages)


def _good(program: Program, solution: Solution, gap: float) -> bool:
    """Whether every stage is within the gap."""
    return all(
        stage.value - stage.bound <= gap * (objective.value(program.rest) - stage.bound)
        for objective in program.objectives
        for stage in (solution.stages[objective.name],)
    )


def parts_of(model: Model) -> Parts:
    """What a guide must know of a model's columns."""
    columns = model.columns
    levels: defaultdict[int, list[Ints]] = defaultdict(list)
    for places in columns.places.values():
        by_depth: defaultdict[int, list[int]] = defaultdict(list)
        for domain, column in places.items():
            by_depth[-len(domain)].append(column)
        for depth, found in by_depth.items():
            levels[depth].append(np.array(found, dtype=np.int64))
    pieces = sorted(piece.column for pieces in columns.pieces for piece in pieces)
    return Parts(
        pieces=np.array(pieces, dtype=np.int64),
        decision=decision_columns(model),
        open=np.array(columns.shortfalls, dtype=np.int64),
        places=[levels[depth] for depth in sorted(levels)],
    )
