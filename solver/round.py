"""solve(): one round, from a snapshot to a verified plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
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
from trencadis.solver.preempt.exchange import make_room, relevant, without_victims
from trencadis.solver.progress import Progress, Stage, Step
from trencadis.solver.report import Round, make_plan
from trencadis.solver.residual import residual
from trencadis.solver.reserve.due import with_due
from trencadis.solver.reserve.passes import with_reservations
from trencadis.solver.search import Solution, find_counts
from trencadis.solver.stages import FRAGMENTATION
from trencadis.solver.verify import prepare, verify

NONE: frozenset[str] = frozenset()
AFTER_SEARCH = 3.0
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
    snapshot: Snapshot,
    options: Options | None = None,
    stop: threading.Event | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """Decides one round.

    Returns a plan that has passed the verifier, with bounds. Setting `stop` from another thread
    ends the search early; the plan is then the best one found. `progress` hears how far it is.
    Raises InvalidInputError if the snapshot contradicts itself, InternalError if the plan fails
    verification.
    """
    options = options or Options()
    stop = stop or threading.Event()
    with paused_collector():
        return _solve(snapshot, options, stop, Timer(progress))


def _solve(snapshot: Snapshot, options: Options, stop: threading.Event, timer: Timer) -> Plan:
    warnings = check(snapshot)
    snapshot = in_order(snapshot)
    limit = options.time_limit_s or snapshot.policy.time_limit_seconds
    plain = facts(snapshot)
    read = with_due(plain)
    timer.lap("read")
    timer.tell("read")
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
    with ThreadPoolExecutor(1) as beside:
        # The verifier reads the snapshot by itself, while the search leaves a core idle.
        prepared = cache(lambda: beside.submit(prepare, snapshot))
        outcome = search_and_place(read, options, limits, timer, built=prepared)
        outcome = with_preemption(read, outcome, options.thresholds)
        timer.lap("preempt")

        def again(kept: Facts) -> Round:
            second = search_and_place(kept, options, limits, timer)
            return with_preemption(kept, second, options.thresholds)

        decided, outcome = with_reservations(plain, read, outcome, again)
        timer.lap("reserve")
    plan = make_plan(
        decided,
        outcome,
        plain,
        limits,
        fingerprint=prepared().result().fingerprint,
        made=Made(
            trencadis=_installed("trencadis"),
            ortools=_installed("ortools"),
            seed=options.seed,
            deterministic=options.deterministic,
            workers=1 if options.deterministic else options.workers,
        ),
        warnings=tuple(sorted(fault.message for fault in warnings)),
    )
    timer.lap("report")
    verdict = verify(snapshot, plan, prepared().result())
    timer.lap("verify")
    if verdict.violations:
        raise InternalError("; ".join(str(violation) for violation in verdict.violations[:5]))
    stages = {stage.name: Stage(stage.objective, stage.bound) for stage in plan.proof.stages}
    timer.tell("done", len(plan.starts), stages)
    if options.deterministic:
        return plan
    return plan.model_copy(update={"timings_s": timer.laps()})


def search_and_place(
    read: Facts,
    options: Options,
    limits: Limits,
    timer: Timer,
    built: Callable[[], object] = lambda: None,
) -> Round:
    """Counts, then names, until nothing is left that is worth another look.

    `built` is called whenever a model is built and its search begins.
    """
    ledger = Ledger(read)
    rest = read
    outcome: Round | None = None
    for _ in range(MAX_PARTS):
        problem, model, solution = count_and_place(rest, ledger, options, limits, timer, built)
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


def with_preemption(read: Facts, outcome: Round, thresholds: Thresholds) -> Round:
    """The round after running work has made room, where rules and budgets let it."""
    candidates = relevant(read)
    if not candidates:
        return outcome
    everyone_gone = classify(without_victims(read, candidates), thresholds, NONE, NONE)
    return replace(
        outcome,
        relieved=make_room(read, outcome.ledger, outcome.shape_of, candidates),
        open_model=build(everyone_gone),
    )


def count_and_place(
    read: Facts,
    ledger: Ledger,
    options: Options,
    limits: Limits,
    timer: Timer,
    built: Callable[[], object],
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


@cache
def _installed(package: str) -> str:
    """Its version; to look it up takes milliseconds, as long as a small round's search."""
    return version(package)


class Timer:
    """Wall time by step, and who hears of it."""

    def __init__(self, progress: Callable[[Progress], None] | None = None) -> None:
        self._began = self._last = time.monotonic()
        self._laps: dict[str, float] = {}
        self._progress = progress

    def tell(self, step: Step, started: int = 0, stages: dict[str, Stage] | None = None) -> None:
        """Tells the listener, if there is one."""
        if self._progress is not None:
            seconds = time.monotonic() - self._began
            self._progress(Progress(step, seconds, started, stages or {}))

    def lap(self, name: str) -> None:
        """Books the time since the last lap."""
        now = time.monotonic()
        self._laps[name] = self._laps.get(name, 0.0) + now - self._last
        self._last = now

    def laps(self) -> dict[str, float]:
        """Seconds by step, rounded to milliseconds."""
        return {name: round(seconds, 3) for name, seconds in self._laps.items()}


__all__ = ["InternalError", "Options", "solve"]
