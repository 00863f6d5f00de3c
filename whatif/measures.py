"""What a replay achieved, in numbers: use of GPUs, waits, fairness, guarantees, money."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from trencadis.whatif.burst import BurstUse
from trencadis.whatif.engine import Engine
from trencadis.whatif.policies.size_queues import SIZES, size_class
from trencadis.whatif.runs import MICRO, JobRun, Spent, State
from trencadis.whatif.statistics import Spread, jain, quantile, spread
from trencadis.whatif.watch import Shortfall

HOUR = 3_600


@dataclass(frozen=True, slots=True)
class GpuHours:
    """Where the cluster's GPU time went; `capacity` is the sum of all others."""

    capacity: float
    useful: float
    idle: float
    held: float
    """Kept for delayed starts."""
    spread: float
    restart: float
    rework: float
    grace: float
    gang_wait: float

    @property
    def allocated(self) -> float:
        """Occupied by jobs, usefully or not."""
        return self.useful + self.lost

    @property
    def lost(self) -> float:
        """Occupied in vain."""
        return self.spread + self.restart + self.rework + self.grace + self.gang_wait


@dataclass(frozen=True, slots=True)
class Measures:
    """One policy on one trace and cluster."""

    policy: str
    jobs: dict[str, int]
    """By how they ended."""
    makespan_seconds: int
    rounds: int
    gpu_hours: GpuHours
    allocation: float
    """Part of the GPU time that jobs occupied."""
    utilization: float
    """Part that was useful: without waits for gang members, lost work, restarts, distance."""
    fragmentation: float
    """F of all idle GPU time: the part of it that the expected task could not use."""
    wait: Spread
    completion: Spread
    wait_by: dict[str, dict[str, Spread]]
    """By queue, tier and size."""
    preemptions: int
    preemption_ratio: float
    """Part of the started jobs that were preempted at least once."""
    lost_to_preemption_gpu_hours: float
    """Rework, restarts and grace."""
    shortfall_gpu_hours: dict[str, dict[str, float]]
    """By queue: in all, beyond the grace, and of that what could not be avoided."""
    finish_time_fairness: dict[str, float]
    """Completion over what it would be on an equal part of the cluster (Themis, NSDI 2020)."""
    jain: float
    """Of the queues' mean slowdowns; of users' where there is one queue."""
    cost: float | None
    """Of the cluster, and of burst nodes."""
    cost_per_useful_gpu_hour: float | None
    cost_per_million_tokens: float | None
    tokens: int
    burst: BurstUse | None = None
    """Nodes beside the cluster; all other figures of GPU time are the cluster's alone."""

    def record(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def measure(engine: Engine, name: str, price_per_gpu_hour: float | None = None) -> Measures:
    """Reads a finished replay."""
    runs = engine.runs
    started = [run for run in runs if run.first_start is not None]
    done = [run for run in runs if run.state is State.DONE]
    hours = _gpu_hours(engine)
    preempted = sum(1 for run in started if run.preemptions)
    tokens = sum((run.entry.tokens_per_second or 0) * run.entry.seconds for run in done)
    cost = None if price_per_gpu_hour is None else hours.capacity * price_per_gpu_hour
    burst = None if engine.pool is None else engine.pool.use(runs, engine.now)
    useful = hours.useful
    if burst is not None:
        cost = None if cost is None else cost + burst.cost
        useful += burst.useful_gpu_hours
    node_milli = engine.state.node_milli
    victims = [run for run in runs if run.preemptions]
    return Measures(
        policy=name,
        jobs=_ends(runs),
        makespan_seconds=engine.now - engine.began,
        rounds=engine.rounds,
        gpu_hours=hours,
        allocation=_part(hours.allocated, hours.capacity),
        utilization=_part(hours.useful, hours.capacity),
        fragmentation=_part(engine.fragment_time, engine.idle_time_seen),
        wait=_waits(started),
        completion=_completions(done),
        wait_by={
            "queue": _grouped(started, lambda run: run.job.queue),
            "tier": _grouped(started, lambda run: _tier(engine, run)),
            "size": _grouped(started, lambda run: size_name(run, node_milli)),
        },
        preemptions=sum(run.preemptions for run in runs),
        preemption_ratio=_part(preempted, len(started)),
        lost_to_preemption_gpu_hours=_hours(
            sum(
                entry.rework + entry.restart + entry.grace
                for r in victims
                for entry in (r.spent, r.away)
            ),
            MICRO,
        ),
        shortfall_gpu_hours=_shortfalls(engine.guarantees.short),
        finish_time_fairness=_finish_times(engine, done),
        jain=jain(_slowdowns(done)),
        cost=cost,
        cost_per_useful_gpu_hour=None if not cost or not useful else cost / useful,
        cost_per_million_tokens=None if not cost or not tokens else cost / tokens * 1e6,
        tokens=tokens,
        burst=burst,
    )


def size_name(run: JobRun, node_milli: int) -> str:
    """`small`: at most a GPU; `medium`: at most a node; `large`: more."""
    return SIZES[size_class(run.entry, node_milli)]


def _gpu_hours(engine: Engine) -> GpuHours:
    time = engine.gpu_time
    spent = {
        part.name: _hours(sum(getattr(run.spent, part.name) for run in engine.runs), MICRO)
        for part in fields(Spent)
    }
    return GpuHours(
        capacity=_hours(time.capacity, 1_000),
        idle=_hours(time.idle, 1_000),
        held=_hours(time.held, 1_000),
        **spent,
    )


def _hours(amount: int, scale: int) -> float:
    return amount / scale / HOUR


def _part(value: float, whole: float) -> float:
    return value / whole if whole else 0.0


def _ends(runs: Sequence[JobRun]) -> dict[str, int]:
    counts = {"all": len(runs), "done": 0, "unfinished": 0, "lost": 0, "rejected": 0}
    for run in runs:
        known = run.state in (State.DONE, State.LOST, State.REJECTED)
        counts[run.state.value if known else "unfinished"] += 1
    return counts


def _waits(runs: Sequence[JobRun]) -> Spread:
    """From submission to the first start."""
    waits = [float((run.first_start or 0) - run.submit) for run in runs]
    return spread(waits, [run.entry.gpu_milli / 1_000 for run in runs])


def _completions(runs: Sequence[JobRun]) -> Spread:
    times = [float((run.end or 0) - run.submit) for run in runs]
    return spread(times, [run.entry.gpu_milli / 1_000 for run in runs])


def _grouped(runs: Iterable[JobRun], key: Callable[[JobRun], str]) -> dict[str, Spread]:
    groups: defaultdict[str, list[JobRun]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return {name: _waits(groups[name]) for name in sorted(groups)}


def _tier(engine: Engine, run: JobRun) -> str:
    return engine.snapshot.policy.tiers[run.tier].name


def _shortfalls(short: dict[str, Shortfall]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "total": _hours(entry.total, 1_000),
            "beyond_grace": _hours(entry.beyond_grace, 1_000),
            "unavoidable": _hours(entry.unavoidable, 1_000),
        }
        for name, entry in sorted(short.items())
    }


def _finish_times(engine: Engine, done: Sequence[JobRun]) -> dict[str, float]:
    """rho = completion / (runtime on 1/n of the cluster), n the number of queues with jobs."""
    queues = {run.job.queue for run in done}
    part = engine.state.healthy / max(1, len(queues))
    ratios = []
    for run in done:
        stretch = max(1.0, run.entry.gpu_milli / 1_000 / part) if part else 1.0
        ratios.append(((run.end or 0) - run.submit) / (run.entry.seconds * stretch))
    if not ratios:
        return {"mean": 0.0, "p95": 0.0, "largest": 0.0}
    return {
        "mean": sum(ratios) / len(ratios),
        "p95": quantile(ratios, 0.95),
        "largest": max(ratios),
    }


def _slowdowns(done: Sequence[JobRun]) -> list[float]:
    """Mean of completion over runtime by queue, or by user where there is only one queue."""
    queues = {run.job.queue for run in done}
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for run in done:
        name = run.job.queue if len(queues) > 1 else run.job.user
        groups[name].append(((run.end or 0) - run.submit) / run.entry.seconds)
    return [sum(values) / len(values) for _, values in sorted(groups.items())]
