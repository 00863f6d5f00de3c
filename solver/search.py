"""Solves a model stage by stage: relaxation, window around it, and the whole where that is small."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trencadis.solver.bound import Matrix, SafeBound, matrix, safe_bound
from trencadis.solver.cpsat import Effort, Outcome, Window, search
from trencadis.solver.lp import LinearProgram, Relaxation
from trencadis.solver.program import INFINITE, Objective, Program, Row

SMALL = 3_000
"""Programs of at most so many columns are searched whole at once."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage of the counting model, in its own units."""

    name: str
    value: int
    bound: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Solution:
    """Counts, and what each stage proved about them."""

    counts: list[int]
    stages: tuple[StageResult, ...]
    interrupted: bool
    timed_out: bool


class Clock:
    """The time that is left; endless in deterministic mode, where only work counts."""

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


def solve_stages(
    program: Program,
    clock: Clock,
    effort: Callable[[float], Effort],
    gap: float,
    stop: threading.Event,
) -> Solution:
    """Lexicographic optimum of a program's objectives, or what the time allows.

    Starts from `program.rest`, where nothing starts.
    """
    run = _Run(program, clock, effort, gap, stop)
    for objective in program.objectives:
        run.stage(objective)
    return Solution(
        counts=run.counts,
        stages=tuple(run.results),
        interrupted=stop.is_set(),
        timed_out=clock.expired(),
    )


class _Run:
    def __init__(
        self,
        program: Program,
        clock: Clock,
        effort: Callable[[float], Effort],
        gap: float,
        stop: threading.Event,
    ) -> None:
        self.program, self.clock, self.effort, self.gap, self.stop = (
            program, clock, effort, gap, stop,
        )
        self.counts = list(program.rest)
        self.pins: list[tuple[Objective, int]] = []
        self.results: list[StageResult] = []
        self.relaxed = LinearProgram(program)
        self.rows = list(program.rows)
        self.flat: Matrix | None = None

    def stage(self, objective: Objective) -> None:
        """Minimises one objective, earlier ones pinned."""
        began = time.monotonic()
        nothing = objective.value(self.program.rest)
        value = objective.value(self.counts)
        bound = _trivial(self.program, objective)
        relaxed: Relaxation | None = None
        if value > bound and not self._over():
            relaxed = self.relaxed.solve(objective, self.clock.left())
        proof: SafeBound | None = None
        if relaxed is not None:
            proof = safe_bound(self.program, objective, self._matrix(), relaxed.duals)
            bound = max(bound, proof.value)
        if value > bound and not self._over():
            bound = self._improve(objective, relaxed, proof, bound, nothing)
            value = objective.value(self.counts)
        self.results.append(
            StageResult(objective.name, value, min(bound, value), time.monotonic() - began)
        )
        self._pin(objective, value)

    def _over(self) -> bool:
        return self.stop.is_set() or self.clock.expired()

    def _matrix(self) -> Matrix:
        if self.flat is None:
            self.flat = matrix(self.rows)
        return self.flat

    def _pin(self, objective: Objective, value: int) -> None:
        if not objective.terms:
            return
        self.pins.append((objective, value))
        self.relaxed.pin(objective, value)
        self.rows.append(
            Row(
                list(objective.terms),
                list(objective.terms.values()),
                -INFINITE,
                value - objective.constant,
            )
        )
        self.flat = None

    def _improve(
        self,
        objective: Objective,
        relaxed: Relaxation | None,
        proof: SafeBound | None,
        bound: int,
        nothing: int,
    ) -> int:
        """Looks for better counts; returns the best bound known."""
        small = len(self.program.low) <= SMALL
        if relaxed is not None and not small:
            self._accept(objective, self._search(objective, self._window(relaxed), bound, nothing))
        if self._good(objective, bound, nothing) or self._over():
            return bound
        window = self._reach(objective, proof)
        outcome = self._search(objective, window, bound, nothing)
        self._accept(objective, outcome)
        value = objective.value(self.counts)
        if outcome.infeasible:
            # Nothing better lies within reach of the bound: what we have is best.
            return value
        if outcome.bound is not None:
            bound = max(bound, min(outcome.bound, value))
        return bound

    def _good(self, objective: Objective, bound: int, nothing: int) -> bool:
        value = objective.value(self.counts)
        return value <= bound or value - bound <= self.gap * (nothing - bound)

    def _search(
        self, objective: Objective, window: Window, bound: int, nothing: int
    ) -> Outcome:
        target = bound + int(self.gap * max(0, nothing - bound))
        return search(
            self.program,
            self.pins,
            objective,
            window,
            self.counts,
            target,
            self.effort(self.clock.left()),
            self.stop,
        )

    def _accept(self, objective: Objective, outcome: Outcome) -> None:
        if outcome.solution is not None and objective.value(outcome.solution) <= objective.value(
            self.counts
        ):
            self.counts = outcome.solution

    def _window(self, relaxed: Relaxation) -> Window:
        """Around the relaxed point, and including what we have."""
        here = np.array(self.counts)
        low = np.minimum(np.floor(relaxed.point + 1e-6).astype(np.int64), here)
        high = np.maximum(np.ceil(relaxed.point - 1e-6).astype(np.int64), here)
        low = np.maximum(low, self.program.low)
        high = np.minimum(high, self.program.high)
        return Window(low.tolist(), high.tolist())

    def _reach(self, objective: Objective, proof: SafeBound | None) -> Window:
        """All points that can beat what we have: reduced costs fix the other columns."""
        low, high = np.array(self.program.low), np.array(self.program.high)
        if proof is not None:
            slack = (objective.value(self.counts) - proof.value + 1) * proof.scale
            steps = np.where(
                proof.reduced == 0, INFINITE, slack // np.maximum(1, np.abs(proof.reduced))
            )
            high = np.where(proof.reduced > 0, np.minimum(high, low + steps), high)
            low = np.where(proof.reduced < 0, np.maximum(low, np.array(self.program.high) - steps), low)
            here = np.array(self.counts)
            low, high = np.minimum(low, here), np.maximum(high, here)
        return Window(low.tolist(), high.tolist())


def _trivial(program: Program, objective: Objective) -> int:
    """The objective with each column at its better bound."""
    return objective.constant + sum(
        cost * (program.low[c] if cost > 0 else program.high[c])
        for c, cost in objective.terms.items()
    )
