"""The baseline and its scenarios side by side: each solved, each with its gap."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trencadis.models import Plan, Snapshot
from trencadis.models.broken import breakage, standing
from trencadis.solver.model.problem import facts
from trencadis.solver.round import Options, solve
from trencadis.whatif.clusters import price_per_hour_milli
from trencadis.whatif.prices import PriceList
from trencadis.whatif.scenario import Scenario, changed, waiting_again

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Side:
    """A snapshot, as it is or changed, and the round that was solved for it."""

    name: str
    snapshot: Snapshot
    plan: Plan


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue with a guarantee, after the plan."""

    queue: str
    guarantee_milli: int
    target_milli: int
    """The part of the guarantee that its jobs could use on the empty cluster."""
    has_milli: int
    """What it has once all starts have begun and all victims have left."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One side in numbers."""

    name: str
    nodes: int
    gpus: int
    """Healthy, on nodes that are up."""
    starts: int
    delayed: int
    """Of the starts: those that wait for victims to leave."""
    preempts: int
    lost_gpu_seconds: int
    waits: int
    """Jobs that wait after the plan, by `waits_by_reason`."""
    waits_by_reason: dict[str, int]
    used_gpus: int
    utilization: float
    fragmentation: float
    """F of the idle GPUs that are left, 0 to 1."""
    shortfall_milli: int
    """What queues lack of what they are guaranteed and ask for."""
    queues: tuple[QueueFigures, ...]
    cost_per_hour: float | None
    """On demand, in the currency of the price list; None where a node has no price."""
    gap: float
    status: str
    bound_scope: str


def sides(
    snapshot: Snapshot,
    scenarios: Sequence[Scenario],
    prices: PriceList,
    options: Options | None = None,
    stop: threading.Event | None = None,
) -> list[Side]:
    """The baseline first, then the scenarios in order, each solved from scratch.

    Raises InvalidInputError for a change that can't be made, before anything is solved.
    """
    variants = [(BASELINE, snapshot)]
    variants += [(entry.name, changed(snapshot, entry, prices)) for entry in scenarios]
    return [Side(name, variant, solve(variant, options, stop)) for name, variant in variants]


def figures(side: Side, prices: PriceList, fabric: str | None = None) -> Figures:
    """The side in numbers; `fabric`: the network that each node pays for, if any."""
    plan, metrics = side.plan, side.plan.metrics
    cost = price_per_hour_milli(side.snapshot, prices, fabric)
    stages = {stage.name: stage for stage in plan.proof.stages}
    shortfall = stages.get("guarantee")
    return Figures(
        name=side.name,
        nodes=len(side.snapshot.nodes),
        gpus=metrics.gpus,
        starts=len(plan.starts),
        delayed=sum(1 for start in plan.starts if start.waits_for),
        preempts=len(plan.preempts),
        lost_gpu_seconds=sum(entry.lost_gpu_seconds for entry in plan.preempts),
        waits=len(plan.pending) + len(plan.preempts),
        waits_by_reason=_reasons(plan),
        used_gpus=metrics.used_after,
        utilization=metrics.used_after / metrics.gpus if metrics.gpus else 0.0,
        fragmentation=metrics.fragmentation_after_milli / 1_000,
        shortfall_milli=0 if shortfall is None else shortfall.objective,
        queues=_queues(side),
        cost_per_hour=None if cost is None else cost / 1_000,
        gap=plan.proof.gap,
        status=plan.proof.status.value,
        bound_scope=plan.proof.bound_scope,
    )


def _reasons(plan: Plan) -> dict[str, int]:
    codes = Counter(entry.code for entry in plan.pending)
    if plan.preempts:
        codes["preempted"] = len(plan.preempts)
    return dict(sorted(codes.items(), key=lambda entry: (-entry[1], entry[0])))


def settled(side: Side) -> Snapshot:
    """The snapshot once all that the plan starts runs and all that it stops waits again."""
    starts = {start.job: start for start in side.plan.starts}
    repairs = {repair.job: repair for repair in side.plan.repairs}
    broken = breakage(side.snapshot) if repairs else {}
    stops = {entry.job for entry in side.plan.preempts}
    jobs = []
    for job in side.snapshot.jobs:
        start = starts.get(job.name)
        if job.name in repairs:
            tasks = (*standing(job, broken), *repairs[job.name].add)
            jobs.append(job.model_copy(update={"allocation": tasks}))
        elif start is not None:
            update = {"state": "running", "start": start.at, "allocation": start.allocation}
            jobs.append(job.model_copy(update=update))
        else:
            jobs.append(waiting_again(job) if job.name in stops else job)
    return side.snapshot.model_copy(update={"jobs": tuple(jobs), "holds": ()})


def _queues(side: Side) -> tuple[QueueFigures, ...]:
    if not any(queue.guarantee.total_milli() for queue in side.snapshot.queues):
        return ()
    read = facts(settled(side))
    unit, sizes = read.values.rates.unit, read.values.rates.sizes
    has: Counter[str] = Counter()
    for job in read.snapshot.jobs:
        if job.on_nodes:
            for name in read.values.tree.chain(job.queue):
                has[name] += sizes.job(job)
    return tuple(
        QueueFigures(
            queue=target.queue,
            guarantee_milli=target.guarantee * 1_000 // unit,
            target_milli=(target.missing + has[target.queue]) * 1_000 // unit,
            has_milli=has[target.queue] * 1_000 // unit,
        )
        for target in read.guarantees
        if not target.model
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """What a scenario changes for jobs that are in both snapshots, or only in the scenario."""

    starts: tuple[str, ...]
    """Jobs that start, or still run, and would have waited."""
    waits: tuple[str, ...]
    """Jobs that wait and would have started, or run."""
    lost: tuple[str, ...]
    """Jobs that are no longer there."""


def difference(baseline: Side, other: Side) -> Difference:
    """Which jobs fare better or worse than in the baseline."""
    before, after = _placed(baseline), _placed(other)
    return Difference(
        starts=tuple(sorted(name for name, on in after.items() if on and not before.get(name))),
        waits=tuple(sorted(name for name, on in after.items() if not on and before.get(name))),
        lost=tuple(sorted(before.keys() - after.keys())),
    )


def _placed(side: Side) -> dict[str, bool]:
    """By job: whether it has its place after the plan."""
    return {job.name: job.on_nodes for job in settled(side).jobs}


def report(
    done: Sequence[Side], prices: PriceList, fabric: str | None = None
) -> dict[str, Any]:
    """For `--json` and the service; the baseline is the first side."""
    baseline = done[0]
    entries = []
    for side in done:
        entry: dict[str, Any] = asdict(figures(side, prices, fabric))
        entry["started"] = [start.job for start in side.plan.starts]
        entry["waiting"] = [
            {"job": p.job, "code": p.code, "sentence": p.sentence} for p in side.plan.pending
        ]
        entry["preempted"] = [stop.job for stop in side.plan.preempts]
        entry["stages"] = [
            {
                "name": stage.name,
                "objective": stage.objective,
                "bound": stage.bound,
                "gap": stage.gap,
            }
            for stage in side.plan.proof.stages
        ]
        if side is not baseline:
            entry["against_baseline"] = asdict(difference(baseline, side))
        entries.append(entry)
    return {
        "snapshot": baseline.snapshot.fingerprint(),
        "now": baseline.snapshot.now.isoformat(),
        "prices": {"as_of": prices.as_of, "currency": prices.currency},
        "sides": entries,
    }
