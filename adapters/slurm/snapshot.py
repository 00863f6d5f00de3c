"""Decides in which order Slurm's documents are read, and puts the snapshot together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, TypeVar

from pydantic import ValidationError

from trencadis.adapters.slurm.context import Context, Options
from trencadis.adapters.slurm.drafts import Draft, index_of, read_drafts
from trencadis.adapters.slurm.fields import Record, document, entries, instant, number
from trencadis.adapters.slurm.jobs import read_jobs, weigh
from trencadis.adapters.slurm.licences import licences_of, read_pools
from trencadis.adapters.slurm.nodes import read_nodes
from trencadis.adapters.slurm.occupancy import add_missing_nodes, settle
from trencadis.adapters.slurm.partitions import read_partitions
from trencadis.adapters.slurm.report import Report
from trencadis.adapters.slurm.reservations import apply_reservations, read_reservations
from trencadis.adapters.slurm.topology import Placement, read_topology
from trencadis.models.cluster import Fabric
from trencadis.models.faults import Fault, InvalidInputError, from_pydantic
from trencadis.models.jobs import Job
from trencadis.models.policy import Policy
from trencadis.models.queues import Qos, Queue
from trencadis.models.snapshot import Snapshot

T = TypeVar("T")
Text = str | bytes | Record
"""A JSON document, or what it holds."""


def read_slurm(
    jobs_json: Text,
    nodes_json: Text,
    topology_conf: str | None = None,
    *,
    partitions_json: Text | None = None,
    reservations_json: Text | None = None,
    licenses_json: Text | None = None,
    now: datetime | None = None,
    queue_by: Literal["account", "partition"] = "account",
    tiers: Mapping[str, str] | None = None,
    policy: Policy | None = None,
    queues: Iterable[Queue] = (),
    qos: Iterable[Qos] = (),
    held: Literal["held", "pending"] = "held",
    use_priority: bool = False,
    array_tasks: int = 1_000,
    switch_wait_seconds: int = 300,
    block_kind: str = "nvl72",
) -> tuple[Snapshot, list[Fault]]:
    """The snapshot, and a line for each kind of thing that is not carried over as it stands.

    Reads `squeue --json`, `sinfo --json` or `scontrol show nodes --json`, and slurmrestd's
    documents, of Slurm 21.08 to 25.11. `topology_conf` is topology.conf (tree or block) or what
    `scontrol show topology` prints. `now` defaults to the later of the documents' `last_update`.
    `tiers` gives a tier by QOS; `queues` and `qos` add guarantees and limits, which the documents
    don't tell, by name. Nodes have precision `node`: Slurm chooses the GPU indices itself.

    A job that asks for what the schema can't say is held, with a warning; it never starts where
    Slurm would not have it. Raises InvalidInputError with a fault per missing or unreadable
    essential, at `DOCUMENT:$.path`.
    """
    report = Report()
    options = Options(
        queue_by=queue_by,
        tiers=dict(tiers or {}),
        # Nothing adds a task to a job that runs; who lost one is requeued by Slurm.
        policy=policy or Policy(repairs=False),
        held=held,
        array_tasks=array_tasks,
        switch_wait_seconds=switch_wait_seconds,
    )
    _check(options, report)
    jobs_doc = _try(report, lambda: document(jobs_json, "jobs"))
    nodes_doc = _try(report, lambda: document(nodes_json, "nodes"))
    records = (
        _try(
            report, lambda: entries({"jobs": []} if jobs_doc is None else jobs_doc, "jobs", "jobs")
        )
        or []
    )
    nodes = (
        _try(
            report,
            lambda: read_nodes({"nodes": []} if nodes_doc is None else nodes_doc, "nodes", report),
        )
        or {}
    )
    placement = Placement()
    if topology_conf is not None:
        read = _try(report, lambda: read_topology(topology_conf, block_kind=block_kind))
        placement = read or placement
    instant_now = now or _clock(jobs_doc or {}, nodes_doc or {}, report)
    partitions = _optional(
        report,
        partitions_json,
        "partitions",
        lambda d: read_partitions(d, "partitions", nodes, report),
    )
    reservations = _optional(
        report,
        reservations_json,
        "reservations",
        lambda d: read_reservations(d, "reservations", instant_now, report),
    )
    pools = _optional(
        report, licenses_json, "licenses", lambda d: read_pools(d, "licenses", report)
    )
    report.stop()
    context = Context(
        options,
        instant_now,
        nodes,
        placement,
        partitions or {},
        reservations or {},
        reservations is not None,
        report,
    )
    known = reservations is not None
    active = [entry for entry in context.reservations.values() if entry.active(instant_now)]
    apply_reservations(context.reservations.values(), nodes, instant_now, known, report)
    fabric = _place(context)
    drafts = read_drafts(records, "jobs", context)
    report.stop()
    add_missing_nodes(drafts, nodes, report)
    try:
        jobs = settle(read_jobs(drafts, index_of(drafts), context), nodes, instant_now, report)
        jobs = weigh(jobs, _priorities(drafts)) if use_priority else jobs
        snapshot = Snapshot(
            now=instant_now,
            nodes=tuple(node.node for node in nodes.values()),
            fabric=fabric,
            queues=_queues(jobs, tuple(queues)),
            qos=_qos(jobs, tuple(qos)),
            licences=licences_of(pools or {}, jobs, active, "jobs", report),
            jobs=tuple(jobs),
            policy=options.policy,
        )
    except ValidationError as error:
        raise InvalidInputError(from_pydantic(error)) from None
    return snapshot, report.warnings()


def _try(report: Report, read: Callable[[], T]) -> T | None:
    """What `read` gives; its faults join the others, so that all are told at once."""
    try:
        return read()
    except InvalidInputError as error:
        report.faults.extend(error.faults)
        return None


def _optional(
    report: Report, text: Text | None, name: str, read: Callable[[Record], T]
) -> T | None:
    return None if text is None else _try(report, lambda: read(document(text, name)))


def _check(options: Options, report: Report) -> None:
    known = [tier.name for tier in options.policy.tiers]
    for qos, tier in options.tiers.items():
        if tier not in known:
            report.fault("tiers", f"QOS {qos} is in tier {tier}; the tiers are {', '.join(known)}")


def _clock(jobs: Record, nodes: Record, report: Report) -> datetime:
    """When the documents were made, as far as they tell."""
    told = [instant(doc.get("last_update")) for doc in (jobs, nodes)]
    known = [at for at in told if at is not None]
    if known:
        return max(known)
    report.warn("now", "the documents don't tell their time: the clock of this machine is taken")
    return datetime.now(UTC)


def _place(context: Context) -> Fabric:
    """Gives nodes their path; those that the topology lacks are domains of their own."""
    placement = context.placement
    levels = placement.fabric.levels
    for warning in placement.warnings:
        context.report.warn(warning.path, warning.message)
    alone = False
    for node in context.nodes.values():
        path = placement.paths.get(node.name)
        if path is None and levels:
            alone = True
            context.report.warn(node.path, "not in the topology: no job spans it and another node")
            path = (f"only/{node.name}"[:253],) * len(levels)
        if path is not None:
            node.set(fabric=path)
    if alone:
        levels = (levels[0].model_copy(update={"boundary": True}), *levels[1:])
    return Fabric(levels=levels)


def _queues(jobs: list[Job], given: tuple[Queue, ...]) -> tuple[Queue, ...]:
    named = {queue.name for queue in given}
    used = sorted({job.queue for job in jobs} - named)
    return (*given, *(Queue(name=name) for name in used))


def _qos(jobs: list[Job], given: tuple[Qos, ...]) -> tuple[Qos, ...]:
    named = {entry.name for entry in given}
    used = sorted({job.qos for job in jobs if job.qos is not None} - named)
    return (*given, *(Qos(name=name) for name in used))


def _priorities(drafts: list[Draft]) -> dict[str, int]:
    found: dict[str, int] = {}
    for draft in drafts:
        priority = number(draft.record.get("priority"))
        if priority is not None:
            found.update({job: priority for job, _ in draft.jobs})
    return found


__all__ = ["read_slurm"]
