"""solve(): one round, from a snapshot to a verified plan."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import count

from trencadis.models import Plan, Snapshot
from trencadis.models.check import check
from trencadis.models.collector import paused_collector
from trencadis.models.order import in_order
from trencadis.models.plan import Made
from trencadis.solver.clock import Clock, Limits
from trencadis.solver.greedy import complete, order
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.build import Model, build
from trencadis.solver.model.problem import Facts, Problem, Thresholds, classify, facts
from trencadis.solver.place import place
from trencadis.solver.report import Round, make_plan
from trencadis.solver.residual import residual
from trencadis.solver.search import Solution, find_counts
from trencadis.solver.stages import FRAGMENTATION
from trencadis.solver.verify import verify

AFTER_SEARCH = 4.0
"""Report and verification, and the reading itself, in times of the reading."""
MAX_SPOILED = 200
"""Clusters of more nodes are not searched again only because tasks without GPUs spread badly."""
MAX_PARTS = 6
"""Searches of one round: each settles what its relaxation has in whole numbers."""


class InternalError(RuntimeError):
    """The solver's plan failed its own verification: a fault of ours, never a plan."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to solve; what to solve is all in the snapshot."""

    time_limit_s: float | None = None
    """Wall time; the policy's where None. In deterministic mode a measure of work instead."""
    gap: float | None = None
    """Good enough, relative; the policy's where None."""
    workers: int = 8
    """Threads of CP-SAT's portfolio; more than there are cores pays: their strategies differ."""
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
    with paused_collector():
        return _solve(snapshot, options, stop)


def _solve(snapshot: Snapshot, options: Options, stop: threading.Event) -> Plan:
    timer = Timer()
    warnings = check(snapshot)
    snapshot = in_order(snapshot)
    limit = options.time_limit_s or snapshot.policy.time_limit_seconds
    read = facts(snapshot)
    timer.lap("read")
    # What comes after the search takes a multiple of what it took to read the snapshot.
    search_seconds = limit
    if not options.deterministic:
        search_seconds = max(0.1, 0.75 * (limit - AFTER_SEARCH * timer.laps()["read"]))
    limits = Limits(
        clock=Clock(search_seconds, options.deterministic),
        workers=options.workers,
        seed=options.seed,
        gap=snapshot.policy.gap_micro / 1e6 if options.gap is None else options.gap,
        stop=stop,
    )
    outcome = search_and_place(read, options, limits, timer)
    plan = make_plan(
        read,
        outcome,
        limits,
        made=Made(
            trencadis=version("trencadis"),
            ortools=version("ortools"),
            seed=options.seed,
            deterministic=options.deterministic,
            workers=1 if options.deterministic else options.workers,
        ),
        warnings=tuple(sorted(fault.message for fault in warnings)),
    )
    timer.lap("report")
    verdict = verify(snapshot, plan, fingerprint=plan.snapshot)
    timer.lap("verify")
    if verdict.violations:
        raise InternalError("; ".join(str(violation) for violation in verdict.violations[:5]))
    if options.deterministic:
        return plan
    return plan.model_copy(update={"timings_s": timer.laps()})


def search_and_place(read: Facts, options: Options, limits: Limits, timer: Timer) -> Round:
    """Counts, then names, until nothing is left that is worth another look."""
    ledger = Ledger(read)
    rest = read
    outcome: Round | None = None
    for _ in range(MAX_PARTS):
        problem, model, solution = count_and_place(rest, ledger, options, limits, timer)
        if outcome is None:
            shapes = problem.demand.shapes
            shape_of = {name: shapes[index] for name, index in problem.demand.shape_of.items()}
            outcome = Round(model, ledger, solution, shape_of)
        if not solution.partial or limits.over():
            break
        rest = residual(read, ledger)
    assert outcome is not None
    complete(ledger, outcome.shape_of.__getitem__, order(read))
    timer.lap("complete")
    return outcome


def count_and_place(
    read: Facts, ledger: Ledger, options: Options, limits: Limits, timer: Timer
) -> tuple[Problem, Model, Solution]:
    """One search and its placement; classes that can't be placed as counted are split."""
    thresholds = options.thresholds
    split: frozenset[str] = frozenset()
    singled: frozenset[str] = frozenset()
    for attempt in count():
        problem = classify(read, thresholds, split, singled)
        timer.lap("classify")
        model = build(problem)
        timer.lap("build")
        solution = find_counts(model, limits, thresholds)
        timer.lap("search")
        before = ledger.started.copy()
        trouble = place(problem, model, solution.counts, ledger)
        timer.lap("place")
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


__all__ = ["InternalError", "Options", "solve"]
