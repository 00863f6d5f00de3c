"""solve(): one round, from a snapshot to a verified plan."""

from __future__ import annotations

import threading
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
from trencadis.models.plan import Made, Status
from trencadis.solver.again import Beginning, Earlier, shares
from trencadis.solver.clock import Clock, Limits
from trencadis.solver.greedy import complete, order
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.build import Model, build
from trencadis.solver.model.problem import Facts, Problem, Thresholds, classify, facts
from trencadis.solver.place import place
from trencadis.solver.preempt.exchange import make_room, relevant, without_victims
from trencadis.solver.progress import Progress, Stage
from trencadis.solver.report import Round, make_plan
from trencadis.solver.residual import residual
from trencadis.solver.search import Solution, find_counts
from trencadis.solver.stages import FRAGMENTATION
from trencadis.solver.timer import Timer
from trencadis.solver.verify import prepare, verify

NONE: frozenset[str] = frozenset()
AFTER_SEARCH = 3.0
"""Report and verification, and the reading itself, in times of the reading."""
MAX_SPOILED = 200
"""Clusters of more nodes are not searched again only because tasks without GPUs spread badly."""
GOOD = (Status.OPTIMAL, Status.GAP)
AGAIN = 0.4
"""Part of the time left that mending the last plan may take."""
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
    earlier: Earlier | None = None,
) -> Plan:
    """Decides one round.

    Returns a plan that has passed the verifier, with bounds. Setting `stop` from another thread
    ends the search early; the plan is then the best one found. `progress` hears how far it is, in
    the thread of the caller; what it raises ends the round.
    `earlier`: what the last round left; if its starts, mended, are good enough by proof, nothing
    else is searched. It is not used in deterministic mode.
    Raises InvalidInputError if the snapshot contradicts itself, InternalError if the plan fails
    verification.
    """
    options = options or Options()
    stop = stop or threading.Event()
    with paused_collector():
        return _solve(snapshot, options, stop, Timer(progress), earlier)


def _solve(
    snapshot: Snapshot,
    options: Options,
    stop: threading.Event,
    timer: Timer,
    earlier: Earlier | None,
) -> Plan:
    warnings = check(snapshot)
    snapshot = in_order(snapshot)
    limit = options.time_limit_s or snapshot.policy.time_limit_seconds
    read = facts(snapshot)
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
        hear=timer.hear(),
    )
    made = Made(
        trencadis=_installed("trencadis"),
        ortools=_installed("ortools"),
        seed=options.seed,
        deterministic=options.deterministic,
        workers=1 if options.deterministic else options.workers,
    )
    told = tuple(sorted(fault.message for fault in warnings))
    plan: Plan | None = None
    with ThreadPoolExecutor(1) as beside:
        # The verifier reads the snapshot by itself, while the search leaves a core idle.
        prepared = cache(lambda: beside.submit(prepare, snapshot))

        def decided(limits: Limits, beginning: Beginning | None = None) -> Plan:
            outcome = search_and_place(read, options, limits, timer, prepared, beginning)
            outcome = with_preemption(read, outcome, options.thresholds)
            timer.lap("preempt")
            fingerprint = prepared().result().fingerprint
            plan = make_plan(
                read, outcome, limits, fingerprint=fingerprint, made=made, warnings=told
            )
            timer.lap("report")
            verdict = verify(snapshot, plan, prepared().result())
            timer.lap("verify")
            if verdict.violations:
                raise InternalError("; ".join(map(str, verdict.violations[:5])))
            return plan

        if earlier is not None and not options.deterministic:
            for share in shares(earlier, read, options.thresholds.again):
                try:
                    mended = decided(limits.part(AGAIN), Beginning(earlier, share))
                except InternalError:
                    # What was kept breaks a rule: a beginning is a hint, never a reason to fail.
                    break
                plan = better(plan, mended)
                if plan.proof.status in GOOD or limits.over():
                    break
        if plan is None or not (plan.proof.status in GOOD or limits.over()):
            plan = better(plan, decided(limits))
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
    beginning: Beginning | None = None,
) -> Round:
    """Counts, then names, until nothing is left that is worth another look.

    `built` is called whenever a model is built and its search begins.
    """
    ledger = Ledger(read)
    rest = read
    outcome: Round | None = None
    if beginning is not None:
        problem = classify(read, options.thresholds, NONE, NONE)
        timer.lap("classify")
        outcome = _round(problem, build(problem), ledger, Solution([], {}))
        timer.lap("build")
        beginning.enter(ledger, outcome.shape_of.__getitem__)
        timer.lap("keep")
        rest = residual(read, ledger)
    for _ in range(MAX_PARTS):
        problem, model, solution = count_and_place(rest, ledger, options, limits, timer, built)
        if outcome is None:
            outcome = _round(problem, model, ledger, solution)
        if not solution.partial or limits.over():
            break
        rest = residual(read, ledger)
    assert outcome is not None
    complete(ledger, outcome.shape_of.__getitem__, order(read))
    timer.lap("complete")
    return outcome


def _round(problem: Problem, model: Model, ledger: Ledger, solution: Solution) -> Round:
    shapes = problem.demand.shapes
    shape_of = {name: shapes[index] for name, index in problem.demand.shape_of.items()}
    return Round(model, ledger, solution, shape_of)


def better(one: Plan | None, other: Plan) -> Plan:
    """The plan that costs less in the first stage in which two differ; the first if none does."""
    if one is None:
        return other
    costs = [[stage.objective for stage in plan.proof.stages] for plan in (one, other)]
    return other if costs[1] < costs[0] else one


def with_preemption(read: Facts, outcome: Round, thresholds: Thresholds) -> Round:
    """The round after running work has made room, where rules and budgets let it."""
    if read.values.eligible.keys() <= outcome.ledger.started.keys():
        return outcome  # everybody starts: by the reprieve, nobody may be stopped
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


__all__ = ["InternalError", "Options", "solve"]
