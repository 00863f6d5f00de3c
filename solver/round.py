"""solve(): one round, from a snapshot to a verified plan."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version

from trencadis.models import Plan, Snapshot
from trencadis.models.check import check
from trencadis.models.collector import paused_collector
from trencadis.models.order import in_order
from trencadis.models.plan import Made, Status
from trencadis.models.reckoned import as_told, reckoned
from trencadis.solver.again import Beginning, Earlier, shares
from trencadis.solver.clock import Clock, Limits
from trencadis.solver.model.problem import Facts, Thresholds, facts
from trencadis.solver.progress import Progress, Stage
from trencadis.solver.repair import as_repairs
from trencadis.solver.report import Round, make_plan
from trencadis.solver.reserve.due import with_due
from trencadis.solver.reserve.passes import with_reservations
from trencadis.solver.timer import Timer
from trencadis.solver.trade import searched
from trencadis.solver.verify import Prepared, prepare, verify
from trencadis.solver.verify.verdict import Violation

AFTER_SEARCH = 3.0
"""Report and verification, and the reading itself, in times of the reading."""
GOOD = (Status.OPTIMAL, Status.GAP)
SPARING = 4
"""Rounds that are solved again because the verifier found room beside victims; then all stay."""
AGAIN = 0.4
"""Part of the time left that mending the last plan may take."""


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
        # By index even where the owner of a node chooses the GPUs: see docs/decisions/074.
        plan = _solve(reckoned(snapshot), options, stop, Timer(progress), earlier)
        return as_told(plan, snapshot)


def _solve(
    snapshot: Snapshot,
    options: Options,
    stop: threading.Event,
    timer: Timer,
    earlier: Earlier | None,
) -> Plan:
    warnings = check(snapshot)
    snapshot = in_order(snapshot)
    if warnings:
        # Faults are told at their places in the input, warnings whatever its order.
        warnings = check(snapshot)
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
        decider = _Decider(snapshot, plain, read, options.thresholds, timer, prepared, made, told)
        if earlier is not None and not options.deterministic:
            for share in shares(earlier, read, options.thresholds.again):
                try:
                    mended = decider.plan(limits.part(AGAIN), Beginning(earlier, share))
                except InternalError:
                    # What was kept breaks a rule: a beginning is a hint, never a reason to fail.
                    break
                plan = better(plan, mended)
                if plan.proof.status in GOOD or limits.over():
                    break
        if plan is None or not (plan.proof.status in GOOD or limits.over()):
            plan = better(plan, decider.plan(limits))
    stages = {stage.name: Stage(stage.objective, stage.bound) for stage in plan.proof.stages}
    timer.tell("done", len(plan.starts), stages)
    if options.deterministic:
        return plan
    return plan.model_copy(update={"timings_s": timer.laps()})


@dataclass(frozen=True, slots=True)
class _Decider:
    """Searches, reports and verifies."""

    snapshot: Snapshot
    plain: Facts
    read: Facts
    """The facts with the reservations that are due."""
    thresholds: Thresholds
    timer: Timer
    prepared: Callable[[], Future[Prepared]]
    made: Made
    told: tuple[str, ...]
    """Warnings."""

    def plan(self, limits: Limits, beginning: Beginning | None = None) -> Plan:
        """A plan that keeps all rules. Raises InternalError if it keeps breaking one."""
        plan, broken = self._attempt(limits, beginning, frozenset())
        spared: frozenset[str] = frozenset()
        for number in range(SPARING):
            # The verifier looks further for room beside a victim than the starter did.
            if not broken or not all(violation.victim for violation in broken):
                break
            spared |= {violation.victim for violation in broken}
            if number == SPARING - 1:
                spared = frozenset(job.name for job in self.snapshot.jobs)
            plan, broken = self._attempt(limits, None, spared)
        if broken:
            raise InternalError("; ".join(map(str, broken[:5])))
        return plan

    def _attempt(
        self, limits: Limits, beginning: Beginning | None, spared: frozenset[str]
    ) -> tuple[Plan, tuple[Violation, ...]]:
        """A plan, and the rules that it breaks. `spared`: jobs that may not be stopped."""
        timer, prepared = self.timer, self.prepared

        def again(kept: Facts, beginning: Beginning | None = None) -> Round:
            return searched(kept, self.thresholds, limits, timer, prepared, beginning, spared)

        first = again(self.read, beginning)
        kept, outcome = with_reservations(self.plain, self.read, first, again)
        timer.lap("reserve")
        plan = make_plan(
            kept,
            outcome,
            self.plain,
            limits,
            fingerprint=prepared().result().fingerprint,
            made=self.made,
            warnings=self.told,
        )
        plan = as_repairs(self.snapshot, plan)
        timer.lap("report")
        verdict = verify(self.snapshot, plan, prepared().result())
        timer.lap("verify")
        return plan, verdict.violations


def better(one: Plan | None, other: Plan) -> Plan:
    """The one that is good enough by proof; else the one that costs less where they first differ.

    A hair less in an upper stage may have cost any amount in those below.
    """
    if one is None or other.proof.status in GOOD:
        return other
    costs = [[stage.objective for stage in plan.proof.stages] for plan in (one, other)]
    return other if costs[1] < costs[0] else one


@cache
def _installed(package: str) -> str:
    """Its version; to look it up takes milliseconds, as long as a small round's search."""
    return version(package)


__all__ = ["InternalError", "Options", "solve"]
