"""Finds counts: small programs whole and to the end, large ones around a guide."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trencadis.solver.bound import Matrix, SafeBound, matrix, safe_bound
from trencadis.solver.cpsat import Effort, Window, search
from trencadis.solver.guide import Guide, Guider
from trencadis.solver.lagrange import decide
from trencadis.solver.lp import LinearProgram, Relaxation, at_most
from trencadis.solver.model.build import Model
from trencadis.solver.model.problem import Thresholds
from trencadis.solver.program import Objective, Program, Row
from trencadis.solver.prove import reach, trivial

SHARE = 0.1
"""Part of the gap that a stage may use up itself: what it leaves open, later stages exploit, and
their bounds suffer for it."""

STEP = 0.05
"""In deterministic mode, the part of the limit that one step may take, in CP-SAT's own time."""


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
    partial: bool = False
    """The counts are a whole part; what they leave is worth another search."""


class Clock:
    """The time that is left; in deterministic mode time stands still and only work counts."""

    def __init__(self, seconds: float, deterministic: bool) -> None:
        self.end = math.inf if deterministic else time.monotonic() + seconds
        self.seconds = seconds
        self.deterministic = deterministic

    def left(self) -> float:
        """Seconds left."""
        return self.seconds if self.deterministic else max(0.0, self.end - time.monotonic())

    def expired(self) -> bool:
        """Whether the time is up."""
        return self.left() <= 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how well to search."""

    clock: Clock
    workers: int
    seed: int
    gap: float
    stop: threading.Event

    def effort(self, most: float = math.inf) -> Effort:
        """The effort for one step, of at most so many seconds."""
        seconds = min(most, self.clock.left())
        if self.clock.deterministic:
            # No clock adds the steps up here, so each gets a part that the whole can afford.
            seconds = min(most, self.clock.seconds * STEP)
        return Effort(
            seconds=seconds,
            workers=self.workers,
            seed=self.seed,
            deterministic=self.clock.deterministic,
        )

    def over(self) -> bool:
        """Whether to end now."""
        return self.stop.is_set() or self.clock.expired()


def find_counts(model: Model, limits: Limits, thresholds: Thresholds) -> Solution:
    """Lexicographically good counts; `program.rest` (nothing starts) at worst."""
    if len(model.program.low) <= thresholds.whole:
        return _Whole(model.program, limits, model.program.rest, 1.0).solve()
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
        priced: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """`start`: counts to begin from; `share`: part of the time left that a stage may take.

        `priced`: the decision columns, where bounds by prices are worth their time.
        """
        self.program, self.limits, self.share, self.priced = program, limits, share, priced
        self.counts = list(start)
        self.pins: list[Row] = []
        self.relaxed = LinearProgram(program)

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
        return Solution(self.counts, stages)

    def _stage(self, objective: Objective) -> int:
        """Improves the counts in one objective; returns the bound that it proved."""
        bound = trivial(self.program, objective)
        nothing = objective.value(self.program.rest)
        proof: SafeBound | None = None
        if not self._good(objective, bound, nothing) and not self.limits.over():
            relaxation = self.relaxed.solve(objective, self.limits.clock.left())
            if relaxation is not None:
                rows = matrix(self.relaxed.rows)
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
        )
        found = outcome.solution
        if found is not None and objective.value(found) < objective.value(self.counts):
            # An equal solution is no gain, and may be worse in the stages to come.
            self.counts = found
        if outcome.bound is not None:
            bound = max(bound, outcome.bound)
        return bound

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
    nothing = Solution(list(program.rest), {})
    pieces = [piece.column for pieces in model.columns.pieces for piece in pieces]
    large = len(program.low) > thresholds.parts
    guider = Guider(
        program,
        pieces,
        decision_columns(model),
        # What a part leaves open the next one may still get: no need to be exact here.
        1.0 if large else limits.gap * SHARE,
        limits.effort(max(2.0, 0.2 * limits.clock.left())),
        limits.stop,
    )
    guide = guider.guide()
    if guide is None or limits.over():
        return nothing
    if large:
        return Solution(_floor(guide), {}, partial=True)
    settled = _settle(model, guide, limits)
    if settled is None:
        if len(program.low) > thresholds.parts // 2:
            return Solution(_floor(guide), {}, partial=True)
        settled = list(program.rest)
    # The counts hint a search of the whole program for as long as there is time.
    return _Whole(program, limits, settled, 0.5, decision_columns(model)).solve()


def _floor(guide: Guide) -> list[int]:
    """The whole part of a guide: placement takes what holds together of it."""
    counts: list[int] = np.floor(guide.point + 1e-6).astype(np.int64).tolist()
    for column, value in guide.starts.items():
        counts[column] = value
    return counts


def _settle(model: Model, guide: Guide, limits: Limits) -> list[int] | None:
    """Whole numbers around the guide, stage by stage; None if none were found."""
    program = model.program
    window = _window(model, guide)
    near = np.clip(np.rint(guide.point), window.low, window.high)
    hint: Sequence[int] = near.astype(np.int64).tolist()
    counts: list[int] | None = None
    pins: list[Row] = []
    for objective in program.objectives:
        if not objective.terms:
            continue
        nothing = objective.value(program.rest)
        reach_for = guide.values.get(objective.name, trivial(program, objective))
        target = reach_for + int(limits.gap * SHARE * max(0, nothing - reach_for))
        if counts is None or objective.value(counts) > target:
            if limits.over():
                return counts
            effort = limits.effort(limits.clock.left() / 3)
            outcome = search(
                program, objective, window, hint, target, effort, limits.stop, pins
            )
            if outcome.solution is not None:
                counts = outcome.solution
                hint = counts
            if counts is None:
                return None
        pins.append(at_most(objective, objective.value(counts)))
    return counts


def _window(model: Model, guide: Guide) -> Window:
    """Near the guide: jobs may only drop out, patterns are those of the guide, give or take one."""
    program, columns = model.program, model.columns
    least, most = np.array(program.low), np.array(program.high)
    low = np.floor(guide.point + 1e-6).astype(np.int64) - 1
    high = np.ceil(guide.point - 1e-6).astype(np.int64) + 1
    unused = np.zeros(len(low), dtype=bool)
    unused[list(columns.fills.values())] = True
    high = np.where(unused & (guide.point <= 1e-7), 0, high)
    # Sums over many patterns move by as much as the patterns' roundings add up to.
    drift = 8 + int(np.count_nonzero(np.abs(guide.point - np.rint(guide.point)) > 1e-6))
    for table in (columns.flows, columns.fillers, columns.chosen):
        wide = list(table.values())
        low[wide], high[wide] = low[wide] - drift, high[wide] + drift
    for column, value in guide.starts.items():
        low[column], high[column] = value - 2, value
    low = np.clip(low, least, most)
    high = np.clip(high, least, most)
    shortfalls = columns.shortfalls
    low[shortfalls], high[shortfalls] = least[shortfalls], most[shortfalls]
    return Window(np.minimum(low, high).tolist(), np.maximum(low, high).tolist())
