"""solve(): one round, from a snapshot to a verified plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import ortools

import trencadis
from trencadis.models import Plan, Snapshot
from trencadis.models.check import check
from trencadis.models.plan import Made
from trencadis.solver.cpsat import Effort
from trencadis.solver.demand import Shape
from trencadis.solver.greedy import complete, order
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.build import build
from trencadis.solver.model.problem import Facts, Thresholds, classify, facts
from trencadis.solver.place import place
from trencadis.solver.report import Round, make_plan
from trencadis.solver.search import Clock, Solution, solve_stages
from trencadis.solver.verify import verify


class InternalError(RuntimeError):
    """The solver's plan failed its own verification: a fault of ours, never a plan."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to solve; what to solve is all in the snapshot."""

    time_limit_s: float | None = None
    """Wall time; the policy's where None. In deterministic mode a measure of work instead."""
    gap: float | None = None
    """Good enough, relative; the policy's where None."""
    workers: int = 2
    deterministic: bool = False
    """Byte-identical plans for equal input: one worker, no clock."""
    seed: int = 0
    thresholds: Thresholds = field(default_factory=Thresholds)


def solve(
    snapshot: Snapshot, options: Options | None = None, stop: threading.Event | None = None
) -> Plan:
    """Decides one round.

    Returns a plan that has passed the verifier, with bounds. Setting `stop` from another thread
    ends the search early; the plan is then the best one found. Raises InvalidInputError if the
    snapshot contradicts itself, InternalError if the plan fails verification.
    """
    options = options or Options()
    stop = stop or threading.Event()
    timer = Timer()
    warnings = check(snapshot)
    limit = options.time_limit_s or snapshot.policy.time_limit_seconds
    clock = Clock(limit, options.deterministic)
    read = facts(snapshot)
    timer.lap("read")
    outcome = search_and_place(read, options, clock, stop, timer)
    plan = make_plan(
        read,
        outcome,
        made=Made(
            trencadis=trencadis.__version__,
            ortools=ortools.__version__,
            seed=options.seed,
            deterministic=options.deterministic,
            workers=1 if options.deterministic else options.workers,
        ),
        warnings=tuple(str(fault) for fault in warnings),
        gap=_gap(snapshot, options),
        interrupted=stop.is_set(),
        timed_out=clock.expired(),
        timed=not options.deterministic,
    )
    timer.lap("report")
    verdict = verify(snapshot, plan)
    timer.lap("verify")
    if verdict.violations:
        raise InternalError("; ".join(str(violation) for violation in verdict.violations[:5]))
    if options.deterministic:
        return plan
    return plan.model_copy(update={"timings_s": timer.laps()})


def search_and_place(
    read: Facts, options: Options, clock: Clock, stop: threading.Event, timer: Timer
) -> Round:
    """Counts, then names; classes that can't be placed as counted are split and counted again."""
    thresholds = options.thresholds
    split: frozenset[str] = frozenset()
    singled: frozenset[str] = frozenset()
    units = order(read)
    for attempt in range(thresholds.splits + 1):
        problem = classify(read, thresholds, split, singled)
        timer.lap("classify")
        model = build(problem)
        timer.lap("build")
        solution = solve_stages(
            model.program,
            clock,
            lambda seconds: Effort(
                seconds=seconds,
                workers=options.workers,
                seed=options.seed,
                deterministic=options.deterministic,
            ),
            _gap(read.snapshot, options),
            stop,
        )
        timer.lap("search")
        ledger = Ledger(read)
        trouble = place(problem, model, solution.counts, ledger)
        timer.lap("place")
        more = (split | trouble.jobs, singled | trouble.nodes)
        if not trouble.jobs or more == (split, singled) or attempt == thresholds.splits:
            break
        if clock.expired() or stop.is_set():
            break
        split, singled = more
    shapes = problem.demand.shapes
    shape_of: Mapping[str, Shape] = {
        name: shapes[index] for name, index in problem.demand.shape_of.items()
    }
    complete(ledger, shape_of.__getitem__, units, lambda: False)
    timer.lap("complete")
    return Round(problem, ledger, solution, shape_of)


def _gap(snapshot: Snapshot, options: Options) -> float:
    return snapshot.policy.gap_micro / 1e6 if options.gap is None else options.gap


class Timer:
    """Wall time by step."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Books the time since the last lap."""
        now = time.monotonic()
        self._laps[name] = self._laps.get(name, 0.0) + now - self._last
        self._last = now

    def laps(self) -> dict[str, float]:
        """Seconds by step, rounded to milliseconds."""
        return {name: round(seconds, 3) for name, seconds in self._laps.items()}


__all__ = ["InternalError", "Options", "Round", "Solution", "solve"]
