"""What the planning commands start from: prices, a cluster, the jobs of a trace."""

from __future__ import annotations

import zlib
from pathlib import Path

import typer

from trencadis.instances.traces.read import read_trace
from trencadis.models import Fault, InvalidInputError, Job, Snapshot, load_policy
from trencadis.models.trace import Trace
from trencadis.views import io
from trencadis.views.session import Session
from trencadis.whatif.burst import BurstKind, burst_kind
from trencadis.whatif.clusters import cluster_of, parse_mix, price_per_hour_milli
from trencadis.whatif.prices import PriceList, example_prices, load_prices


def list_of_prices(context: typer.Context, source: str | None) -> PriceList:
    """The price list in the file, or the example."""
    if source is None:
        return example_prices()
    text = Session(context).text(source)
    with io.source_named(source):
        return load_prices(text)


def burst_of(prices: PriceList, name: str | None) -> BurstKind | None:
    """The burst kind of this name, if one is asked for. Raises InvalidInputError."""
    return None if name is None else burst_kind(name, prices)


def is_mix(text: str) -> bool:
    """Whether a cluster is given by kinds of node, not as a file."""
    return text != io.STANDARD and not Path(text).exists() and not text.endswith(".json")


def cluster_for(
    context: typer.Context, text: str, prices: PriceList, fabric: str, policy: str | None
) -> Snapshot:
    """The cluster of `8xh100-8`, or of a snapshot."""
    session = Session(context)
    if not is_mix(text):
        return session.snapshot(text, policy)
    rules = None
    if policy is not None:
        with io.source_named(policy):
            rules = load_policy(session.text(policy), toml=policy.endswith(".toml"))
    return cluster_of(parse_mix(text, prices), prices, fabric, rules)


def gpu_count(place: Snapshot) -> int:
    """Healthy GPUs on nodes that are up."""
    return sum(len(node.healthy_gpus()) for node in place.nodes if not node.down)


def price_of(place: Snapshot, prices: PriceList, text: str, fabric: str) -> float | None:
    """What a GPU-hour costs on average; None where not all nodes have a price."""
    total = price_per_hour_milli(place, prices, fabric if is_mix(text) else None)
    gpus = gpu_count(place)
    return None if total is None or not gpus else total / 1_000 / gpus


def jobs_for(
    path: Path,
    place: Snapshot,
    *,
    form: str | None,
    timezone: str,
    throughputs: Path | None,
    between: tuple[int, int] | None,
    factor: float | None,
    load: float | None,
    queues: int,
) -> Trace:
    """The trace, cut to a window, shaped for the nodes, its arrivals scaled."""
    with io.source_named(str(path)):
        trace = read_trace(path, form, timezone=timezone, throughputs=throughputs)
        for warning in trace.warnings:
            io.tell(f"trencadis: {io.clean(str(path))}: {warning}")
        if between is not None:
            trace = trace.between(*between)
            if not trace.jobs:
                raise InvalidInputError([Fault("window", "no job of the trace arrives then")])
    size = max((len(node.healthy_gpus()) for node in place.nodes), default=0)
    trace = trace.shaped_for(size)
    if load is not None:
        if not trace.span_seconds or not trace.gpu_seconds:
            message = "all jobs arrive at once, or ask for no GPU: there is no load to scale"
            raise InvalidInputError([Fault("load", message)])
        factor = load / trace.offered_load(gpu_count(place))
    if factor is not None:
        trace = trace.faster(factor)
    return dealt(trace, queues) if queues else trace


def dealt(trace: Trace, count: int) -> Trace:
    """Jobs of the queue `default` in `count` queues: by user, or by name where that is unknown."""

    def assigned(job: Job) -> Job:
        if job.queue != "default":
            return job
        key = job.name if job.user == "unknown" else job.user
        number = zlib.crc32(key.encode()) % count + 1
        return job.model_copy(update={"queue": f"queue-{number}"})

    return trace.changed(assigned)
