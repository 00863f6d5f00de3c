"""The cheapest mix on which a round meets its targets: from the lower bound up, each solved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from trencadis.models import Plan, Snapshot
from trencadis.models import Status as PlanStatus
from trencadis.solver.clock import Clock, Limits
from trencadis.solver.round import Options, solve
from trencadis.whatif.capacity.offers import Mix, Offer, price_of, with_mix
from trencadis.whatif.capacity.relaxed import Candidate, Relaxation, Waits
from trencadis.whatif.capacity.target import Target
from trencadis.whatif.capacity.verdict import (
    Attempt,
    Load,
    Verdict,
    is_best,
    load_of,
    measured,
    missed_by,
)

FEW = 32
"""Jobs so few that a node for each task is a good first guess."""
SPARE = 8
"""Nodes beyond those that all waiting GPUs would fill."""
STEP = 1.1
"""Once tries run out, each further one costs at least so many times as much."""
FURTHER = 40
"""Tries at growing prices, at most."""



class Status(StrEnum):
    """How a search ended."""

    PROVEN = "proven"
    """Every cheaper mix is refuted."""
    RANGE = "range"
    """A mix was found; one down to the lower bound is not excluded."""
    IMPOSSIBLE = "impossible"
    """No mix of up to so many nodes of each kind meets the targets: proven."""
    OPEN = "open"
    """None was found, and none is excluded from the lower bound on."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for, and how hard."""

    base: Snapshot
    offers: tuple[Offer, ...]
    targets: tuple[Target, ...]
    options: Options = field(default_factory=Options)
    tries: int = 40
    """Rounds solved in order of price, before prices are raised in steps."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it."""

    status: Status
    best: Attempt | None
    lower_milli: int
    """No mix below this price meets the targets."""
    attempts: tuple[Attempt, ...]
    excluded_milli: int
    """On mixes below this price no plan at all meets the targets, by the counting model alone."""
    why: str = ""
    """Where nothing meets the targets: what is in the way."""


def cheapest(
    wanted: Search,
    stop: threading.Event | None = None,
    told: Callable[[Attempt], None] | None = None,
) -> Found:
    """The cheapest mix on which the round meets all targets.

    Candidates come in order of price from a relaxation that excludes, as a whole, mixes on which no
    plan could. `told` hears of each attempt. Raises InvalidInputError for a base that contradicts
    itself.
    """
    return _Searcher(wanted, stop or threading.Event(), told).run()


class _Searcher:
    def __init__(
        self,
        wanted: Search,
        stop: threading.Event,
        told: Callable[[Attempt], None] | None,
    ) -> None:
        self.wanted, self.stop, self.told = wanted, stop, told
        self.load = load_of(wanted.base)
        self.attempts: list[Attempt] = []
        self.excluded = 0
        self.have = _first_guess(wanted, self.load)
        self.open_from: int | None = None
        """Price from which on not all cheaper mixes are refuted."""
        self.relaxed = self._relaxation()

    def run(self) -> Found:
        floor, last = 0, 0
        for tried in range(self.wanted.tries + FURTHER):
            if tried >= self.wanted.tries:
                floor = max(floor + 1, int(floor * STEP))
                self._not_all_refuted(last)
            candidate = self._candidate(floor)
            if candidate.mix is None:
                return self._nothing(candidate)
            price = price_of(self.wanted.offers, candidate.mix)
            if not self.attempts:
                self.excluded = candidate.bound_milli
            if candidate.bound_milli < price:
                self._not_all_refuted(max(candidate.bound_milli, last))
            attempt = self._attempt(candidate.mix, price)
            if attempt.verdict is Verdict.MET:
                return self._found(attempt)
            if attempt.verdict is Verdict.OPEN:
                self._not_all_refuted(price)
            self.relaxed.refuse(candidate.mix)
            floor = last = price
            if self.stop.is_set():
                break
        self._not_all_refuted(floor)
        return Found(Status.OPEN, None, self.open_from or 0, tuple(self.attempts), self.excluded)

    def _not_all_refuted(self, price: int) -> None:
        if self.open_from is None or price < self.open_from:
            self.open_from = price

    def _found(self, best: Attempt) -> Found:
        lower = best.price_milli if self.open_from is None else self.open_from
        status = Status.PROVEN if lower >= best.price_milli else Status.RANGE
        return Found(status, best, lower, tuple(self.attempts), self.excluded)

    def _nothing(self, candidate: Candidate) -> Found:
        if candidate.exhausted and self.open_from is None:
            why = self.attempts[-1].why if self.attempts else self._why_not()
            tried, bound = tuple(self.attempts), candidate.bound_milli
            return Found(Status.IMPOSSIBLE, None, bound, tried, self.excluded, why)
        lower = candidate.bound_milli if self.open_from is None else self.open_from
        return Found(Status.OPEN, None, lower, tuple(self.attempts), self.excluded)

    def _candidate(self, floor: int) -> Candidate:
        """The next mix; the model is given more nodes until more of them could not be cheaper."""
        while True:
            candidate = self.relaxed.cheapest(floor, self._limits())
            offers = self.wanted.offers
            if candidate.exhausted:
                need = [have * 4 for have in self.have]
            elif candidate.mix is None:
                return candidate
            else:
                price = price_of(offers, candidate.mix)
                need = [price // offer.price_milli if offer.price_milli else offer.most
                        for offer in offers]
            need = [min(offer.most, count) for offer, count in zip(offers, need, strict=True)]
            if all(count <= have for count, have in zip(need, self.have, strict=True)):
                return candidate
            self.have = [max(pair) for pair in zip(need, self.have, strict=True)]
            self.relaxed = self._relaxation()
            for attempt in self.attempts:
                self.relaxed.refuse(attempt.mix)

    def _relaxation(self) -> Relaxation:
        wanted = self.wanted
        waits = Waits(
            jobs=_least(wanted.targets, "pending", 1),
            gpu_milli=_least(wanted.targets, "pending_gpus", 1_000),
        )
        if waits == Waits():
            return Relaxation.free(wanted.offers, [offer.most for offer in wanted.offers])
        thresholds = wanted.options.thresholds
        return Relaxation.serving(wanted.base, wanted.offers, self.have, waits, thresholds)

    def _limits(self) -> Limits:
        options, policy = self.wanted.options, self.wanted.base.policy
        seconds = options.time_limit_s or policy.time_limit_seconds
        clock = Clock(seconds, options.deterministic)
        return Limits(clock, options.workers, options.seed, 0.0, self.stop)

    def _attempt(self, mix: Mix, price: int) -> Attempt:
        for gap in (self.wanted.options.gap, 0.0):
            plan = self._solved(mix, gap)
            values = measured(plan, self.wanted.targets, self.load)
            missed = [t for t in self.wanted.targets if not t.met(values[t.measure])]
            proven = is_best(plan)
            if not missed or proven or plan.proof.status is not PlanStatus.GAP:
                break  # a search to the end has nothing to add
        verdict = Verdict.MET
        if missed:
            verdict = Verdict.REFUTED if proven else Verdict.OPEN
        why = missed_by(plan, missed, values, self.load)
        attempt = Attempt(mix, price, verdict, values, why, plan)
        self.attempts.append(attempt)
        if self.told is not None:
            self.told(attempt)
        return attempt

    def _solved(self, mix: Mix, gap: float | None) -> Plan:
        snapshot = with_mix(self.wanted.base, self.wanted.offers, mix)
        return solve(snapshot, replace(self.wanted.options, gap=gap), self.stop)

    def _why_not(self) -> str:
        """What keeps jobs waiting though there are many nodes of each kind."""
        mix = tuple(_first_guess(self.wanted, self.load))
        plan = self._solved(mix, self.wanted.options.gap)
        values = measured(plan, self.wanted.targets, self.load)
        return missed_by(plan, self.wanted.targets, values, self.load)


def _least(targets: Sequence[Target], measure: str, scale: int) -> int | None:
    """The strictest of the targets of a measure, in its units times `scale`."""
    limits = [replace(t, limit=t.limit * scale).most for t in targets if t.measure == measure]
    return min(limits, default=None)


def _first_guess(wanted: Search, load: Load) -> list[int]:
    """Nodes of each offer that may well be enough; the search asks for more where they aren't."""
    jobs = [job for job in wanted.base.jobs if job.name in load.eligible]
    tasks = sum(job.minimum for job in jobs)
    gpus = sum(job.minimum * max(1, job.request.gpus) for job in jobs)
    found = []
    for offer in wanted.offers:
        node = next(iter(offer.first(1)), None)
        size = 1 if node is None else max(1, node.gpu_count)
        guess = tasks if tasks <= FEW else -(-gpus // size) + SPARE
        found.append(min(offer.most, max(1, guess)))
    return found
