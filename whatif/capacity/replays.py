"""The cheapest mix found on which replays of a trace meet the targets: a search, no proof.

Where a burst kind is given, each mix is tried without it and with it, and what burst nodes cost is
part of the price: then more nodes than the least may be cheaper.

Waits aren't monotone in nodes: a node more changes who goes first, and a gang may wait longer for
it. So below the least number that was found, as many neighbours as asked for are replayed too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from trencadis.models import Snapshot
from trencadis.models.trace import Trace, in_order
from trencadis.whatif.burst import BurstKind, BurstUse, mean_use
from trencadis.whatif.capacity.offers import Mix, Offer, price_of
from trencadis.whatif.capacity.target import Target
from trencadis.whatif.engine import Sample
from trencadis.whatif.replay import Replayed, Setting, replay
from trencadis.whatif.statistics import quantile
from trencadis.whatif.sweep import sweep

GALLOP = 1.25
"""From a number of nodes that is too small to the next."""
MEDIAN, HIGH = 0.5, 0.9


@dataclass(frozen=True, slots=True)
class ReplaySearch:
    """What is looked for, and how hard."""

    trace: Trace
    offers: tuple[Offer, ...]
    targets: tuple[Target, ...]
    cluster: Callable[[Mix], Snapshot]
    """The cluster of a mix, without jobs."""
    policy: str = "backfill"
    seeds: int = 1
    """Replays of a mix: the trace as it is, and with its jobs dealt to its arrivals anew."""
    setting: Setting = field(default_factory=Setting)
    neighbours: int = 3
    """Numbers of nodes below one that meets the targets that must fail in a row."""
    tries: int = 60
    """Mixes replayed, at most."""
    processes: int | None = None
    burst: BurstKind | None = None
    """Where preempted jobs that wait may go."""

    @property
    def span_seconds(self) -> int:
        """Of the load: what burst nodes cost is spread over it."""
        trace = self.trace
        return max(1, trace.span_seconds, *(entry.seconds for entry in trace.jobs))


@dataclass(frozen=True, slots=True)
class Trial:
    """A mix, replayed with each seed."""

    mix: Mix
    price_milli: int
    """Of its nodes, an hour."""
    median: dict[str, float]
    """By measure: P50 over the seeds."""
    high: dict[str, float]
    """P90 over the seeds (nearest rank): what the targets are held against."""
    met: bool
    burst: BurstUse | None
    """On the mean of the seeds, rounded up; None: without burst nodes."""
    burst_milli: int
    """What these cost on average in an hour of the load."""
    busy: tuple[Sample, ...] = field(repr=False)
    """The rounds of the trace as it is."""

    @property
    def total_milli(self) -> int:
        """Of nodes and burst nodes, an hour."""
        return self.price_milli + self.burst_milli


@dataclass(frozen=True, slots=True)
class TraceFound:
    """What came of it."""

    best: Trial | None
    trials: tuple[Trial, ...]
    complete: bool
    """Whether the search ended by itself, not by its tries."""
    without: Trial | None = None
    """The cheapest without burst nodes, where they were asked for."""


def cheapest_replayed(
    wanted: ReplaySearch, told: Callable[[Trial], None] | None = None
) -> TraceFound:
    """The cheapest mix that was found: of each kind alone, then with others put in its place.

    With a burst kind: without it, then with it, so many tries each. Raises InvalidInputError where
    trace or cluster have what a replay can't do.
    """
    plain = _Searcher(replace(wanted, burst=None), told).run()
    if wanted.burst is None:
        return plain
    helped = _Searcher(wanted, told).run()
    found = [trial for trial in (plain.best, helped.best) if trial is not None]
    return TraceFound(
        best=min(found, key=lambda trial: trial.total_milli, default=None),
        trials=(*plain.trials, *helped.trials),
        complete=plain.complete and helped.complete,
        without=plain.best,
    )


def dealt_anew(trace: Trace, seed: int) -> Trace:
    """The same jobs and the same arrivals, who comes when by chance; seed 0: as it is."""
    if seed == 0:
        return trace
    arrivals = [entry.job.submit for entry in trace.jobs]
    random.Random(seed).shuffle(arrivals)
    jobs = (
        replace(entry, job=entry.job.model_copy(update={"submit": submit}))
        for entry, submit in zip(trace.jobs, arrivals, strict=True)
    )
    return replace(trace, jobs=in_order(jobs))


def measured(done: Replayed, targets: Sequence[Target]) -> dict[str, float]:
    """The measures of the targets. Jobs that never start wait for ever."""
    m = done.measures
    never = m.jobs["all"] - len(done.waits)
    waits = [*map(float, done.waits), *[math.inf] * never]
    values = {
        "mean_wait": sum(waits) / len(waits) if waits else 0.0,
        "median_wait": quantile(waits, 0.5) if waits else 0.0,
        "p95_wait": quantile(waits, 0.95) if waits else 0.0,
        "p95_completion": m.completion.p95 if m.jobs["done"] == m.jobs["all"] else math.inf,
        "fragmentation": m.fragmentation,
        "preemption_ratio": m.preemption_ratio,
        "unfinished": float(m.jobs["all"] - m.jobs["done"]),
    }
    return {target.measure: values[target.measure] for target in targets}


class _Searcher:
    def __init__(self, wanted: ReplaySearch, told: Callable[[Trial], None] | None) -> None:
        self.wanted, self.told = wanted, told
        self.tried: dict[Mix, Trial] = {}
        self.best: Trial | None = None
        self.traces = [dealt_anew(wanted.trace, seed) for seed in range(wanted.seeds)]

    def run(self) -> TraceFound:
        try:
            for position in range(len(self.wanted.offers)):
                self._alone(position)
            if self.best is not None:
                self._exchange()
        except _OutOfTriesError:
            return TraceFound(self.best, tuple(self.tried.values()), complete=False)
        return TraceFound(self.best, tuple(self.tried.values()), complete=True)

    def _alone(self, position: int) -> None:
        """The fewest nodes of one kind: up until it works, halve the way back, then neighbours."""
        offer = self.wanted.offers[position]
        count, low = min(offer.most, self._load(position)), 0
        while not self._trial(self._only(position, count)).met:
            if count == offer.most:
                return
            low, count = count, min(offer.most, max(count + 1, math.ceil(count * GALLOP)))
        high = count
        while high - low > 1:
            middle = (low + high) // 2
            if self._trial(self._only(position, middle)).met:
                high = middle
            else:
                low = middle
        below, failed = high - 1, 0
        while below > 0 and failed < self.wanted.neighbours:
            failed = 0 if self._trial(self._only(position, below)).met else failed + 1
            below -= 1
        if self.wanted.burst is not None:
            self._more(position, high + 1)

    def _more(self, position: int, count: int) -> None:
        """More nodes, that fewer burst hours may pay for, until neighbours in a row don't."""
        offer, dearer = self.wanted.offers[position], 0
        while count <= offer.most and dearer < max(1, self.wanted.neighbours):
            mix = self._only(position, count)
            assert self.best is not None
            if price_of(self.wanted.offers, mix) >= self.best.total_milli:
                return  # even without any burst hour
            dearer = 0 if self._trial(mix) is self.best else dearer + 1
            count += 1

    def _exchange(self) -> None:
        """Nodes of the best mix given for nodes of another kind, as many as cost less."""
        better = True
        while better:
            better = False
            assert self.best is not None
            start = self.best
            for mix in self._swaps(start):
                if self._trial(mix).met and self.best is not start:
                    better = True
                    break

    def _swaps(self, start: Trial) -> list[Mix]:
        offers = self.wanted.offers
        found: dict[Mix, None] = {}
        for given, offer in enumerate(offers):
            for number in range(1, min(self.wanted.neighbours, start.mix[given]) + 1):
                for taken, other in enumerate(offers):
                    if taken == given or not other.price_milli:
                        continue
                    room = min(
                        (number * offer.price_milli - 1) // other.price_milli,
                        other.most - start.mix[taken],
                    )
                    if room > 0:
                        mix = list(start.mix)
                        mix[given] -= number
                        mix[taken] += room
                        found[tuple(mix)] = None
        return sorted(found, key=lambda mix: price_of(offers, mix))

    def _load(self, position: int) -> int:
        """Nodes of the kind that the mean load of the trace would keep busy."""
        (node,) = self.wanted.offers[position].first(1)
        busy = self.wanted.trace.gpu_seconds / self.wanted.span_seconds
        return max(1, round(busy / max(1, node.gpu_count)))

    def _only(self, position: int, count: int) -> Mix:
        return tuple(count if i == position else 0 for i in range(len(self.wanted.offers)))

    def _trial(self, mix: Mix) -> Trial:
        if mix in self.tried:
            return self.tried[mix]
        wanted = self.wanted
        if len(self.tried) >= wanted.tries:
            raise _OutOfTriesError
        done = self._replayed(mix)
        values = [measured(entry, wanted.targets) for entry in done]

        def over_seeds(part: float) -> dict[str, float]:
            return {
                target.measure: quantile([value[target.measure] for value in values], part)
                for target in wanted.targets
            }

        high = over_seeds(HIGH)
        burst = mean_use([entry.measures.burst for entry in done])
        hourly = 0.0 if burst is None else burst.cost * 3_600 / wanted.span_seconds
        trial = Trial(
            mix=mix,
            price_milli=price_of(wanted.offers, mix),
            median=over_seeds(MEDIAN),
            high=high,
            met=all(target.met(high[target.measure]) for target in wanted.targets),
            burst=burst,
            burst_milli=math.ceil(hourly * 1_000),
            busy=done[0].samples,
        )
        self.tried[mix] = trial
        if trial.met and (self.best is None or trial.total_milli < self.best.total_milli):
            self.best = trial
        if self.told is not None:
            self.told(trial)
        return trial

    def _replayed(self, mix: Mix) -> list[Replayed]:
        wanted = self.wanted
        place = wanted.cluster(mix)
        tasks = []
        for seed, trace in enumerate(self.traces):
            options = replace(wanted.setting.options, seed=seed, burst=wanted.burst)
            setting = replace(wanted.setting, options=options)
            tasks.append(partial(replay, trace, place, wanted.policy, setting))
        done: dict[int, Replayed] = {}
        for outcome in sweep(tasks, wanted.processes):
            if outcome.result is None:
                assert outcome.error is not None
                raise outcome.error
            done[outcome.index] = outcome.result
        return [done[seed] for seed in range(len(tasks))]


class _OutOfTriesError(Exception):
    """Enough mixes were replayed."""
