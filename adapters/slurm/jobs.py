"""Decides what a job of Slurm's is in the schema, once its state and the cluster are known."""

from __future__ import annotations

from typing import Any

from trencadis.adapters.slurm.constraints import exclusive, partitions_of, read_constraints
from trencadis.adapters.slurm.context import Context
from trencadis.adapters.slurm.dependencies import JobIndex, group_owner, read_dependency
from trencadis.adapters.slurm.drafts import Draft
from trencadis.adapters.slurm.fields import count, infinite, instant, name, number, text, truth
from trencadis.adapters.slurm.licences import LicenceError, licences_in, read_request
from trencadis.adapters.slurm.placements import as_tasks
from trencadis.adapters.slurm.requests import Shape, UnmappableError, read_shape
from trencadis.models.base import MAX_COUNT
from trencadis.models.jobs import ArrayRef, Job, Request

DEFAULT_QUEUE = "default"
"""Queue of jobs without an account, or a partition."""

TOP_WEIGHT_MILLI = 4_000
"""Weight of the job of the highest priority, with `use_priority`; 1,000 is the lowest's."""


def read_jobs(drafts: list[Draft], index: JobIndex, context: Context) -> list[Job]:
    """The jobs of all drafts, in the order of the document."""
    largest: dict[str, int] = {"": context.largest(())}
    for node in context.nodes.values():
        for group in node.node.gpus:
            if group.model not in largest:
                largest[group.model] = context.largest((group.model,))
    parts: dict[str, int] = {}
    for node in context.nodes.values():
        # The fewest parts per GPU make the largest share, so a share is never read too small.
        for kind, amount in node.parts.items():
            parts[kind] = min(amount, parts.get(kind, amount))
    jobs: list[Job] = []
    for draft in drafts:
        fields = _common(draft, context)
        if draft.phase in ("running", "draining"):
            fields |= _running(draft, context)
        else:
            fields |= _waiting(draft, largest, parts, context)
        held = fields["state"]
        for job, task in draft.jobs:
            state = held
            after: tuple[str, ...] = ()
            if draft.phase not in ("running", "draining"):
                after, blocked = _after(draft, job, task, index, context)
                state = "held" if blocked else held
            jobs.append(Job(**fields | {"name": job, "after": after, "state": state}))
    return jobs


def _common(draft: Draft, context: Context) -> dict[str, Any]:
    record, options = draft.record, context.options
    partitions = partitions_of(record)
    queue = record.get("account") if options.queue_by == "account" else partitions[:1]
    qos = name(record.get("qos"), "") or None
    tier = options.tiers.get(qos or "")
    if tier is None and any(entry.name == qos for entry in options.policy.tiers):
        tier = qos
    het = count(record.get("het_job_id"))
    try:
        licences = read_request(licences_in(record))
    except LicenceError as error:
        licences = {}
        if draft.phase == "pending":
            draft.phase = "held"
        context.report.warn(f"{draft.path}.licenses", f"held: {error}")
    grace = [context.partitions[p].grace_seconds for p in partitions if p in context.partitions]
    return {
        "queue": name(queue[0] if isinstance(queue, list) and queue else queue, DEFAULT_QUEUE),
        "user": draft.user,
        "qos": qos,
        "priority": tier,
        "submit": draft.submit,
        "runtime_seconds": _runtime(draft, partitions, context),
        "requeueable": truth(record.get("requeue", True)),
        "grace_seconds": grace[0] if grace and grace[0] else None,
        # The components of a heterogeneous job start together.
        "group": f"het-{het}" if het and draft.phase in ("pending", "held") else None,
        "array": None
        if draft.throttle is None
        else ArrayRef(name=str(draft.array), throttle=draft.throttle),
        "licences": licences,
        "state": draft.phase,
    }


def _runtime(draft: Draft, partitions: list[str], context: Context) -> int | None:
    """The whole run: to its end where it runs, else the limit, else the partition's default."""
    record = draft.record
    end = instant(record.get("end_time"))
    if (
        draft.phase == "running"
        and draft.start is not None
        and end is not None
        and end > draft.start
    ):
        return min(int((end - draft.start).total_seconds()), MAX_COUNT)
    minutes = number(record.get("time_limit"))
    known = [context.partitions[p] for p in partitions if p in context.partitions]
    if minutes is None and known:
        limits = [partition.max_minutes for partition in known]
        if not infinite(record.get("time_limit")) and known[0].default_minutes:
            minutes = known[0].default_minutes
        elif None not in limits:
            minutes = max(limit or 0 for limit in limits)
    return min(minutes * 60, MAX_COUNT) if minutes and minutes > 0 else None


def _running(draft: Draft, context: Context) -> dict[str, Any]:
    found = as_tasks(draft.occupied, context.nodes)
    for note in found.notes:
        context.report.warn(f"{draft.path}.gres_detail", note)
    resources = draft.record.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    whole = isinstance(nodes, dict) and truth(nodes.get("whole"))
    return {
        "tasks": len(found.allocation),
        "request": found.request,
        "allocation": found.allocation,
        "start": draft.start,
        "exclusive": whole or exclusive(draft.path, draft.record, context),
        "group": None,
    }


def _waiting(
    draft: Draft, largest: dict[str, int], parts: dict[str, int], context: Context
) -> dict[str, Any]:
    path, record, report = draft.path, draft.record, context.report
    state = draft.phase
    try:
        shape = read_shape(record, largest, parts)
    except UnmappableError as error:
        report.warn(path, f"held: {error}")
        shape, state = Shape(1, Request()), "held"
    if shape.note:
        report.warn(path, shape.note)
    place = read_constraints(path, record, shape.tasks, shape.max_per_node, context)
    for reason in place.blocked:
        report.warn(path, f"held: {reason}")
        state = "held"
    begin = instant(record.get("eligible_time"))
    later = [at for at in (begin, place.not_before) if at is not None and at > context.now]
    fields: dict[str, Any] = {
        "tasks": shape.tasks,
        "request": shape.request,
        "gpu_models": shape.models,
        "max_tasks_per_node": shape.max_per_node,
        "node_selector": place.selector,
        "required_nodes": place.required,
        "excluded_nodes": place.excluded,
        "tolerations": place.tolerations,
        "exclusive": place.exclusive,
        "topology": place.topology,
        "segments": place.segments,
        "not_before": max(later) if later else None,
        "state": state,
    }
    if shape.licences:
        fields["licences"] = shape.licences
    return fields


def _after(
    draft: Draft, job: str, task: int | None, index: JobIndex, context: Context
) -> tuple[tuple[str, ...], bool]:
    waits = read_dependency(
        text(draft.record.get("dependency")),
        job,
        index,
        reason=text(draft.record.get("state_reason")),
        owner=group_owner(draft.record, draft.user),
        number=draft.number,
        task=task,
    )
    path = f"{draft.path}.dependency"
    if waits.blocked:
        context.report.warn(path, f"held: {waits.blocked}")
    if waits.note:
        context.report.warn(path, waits.note)
    return waits.after, bool(waits.blocked)


def weigh(jobs: list[Job], priorities: dict[str, int]) -> list[Job]:
    """Waiting jobs weighted by Slurm's priority, evenly from 1 for the lowest to 4 for the highest.

    Off by default: that number holds age and fair share, which the plan counts by itself, and only
    its order has a meaning, not its size.
    """
    waiting = [priorities[job.name] for job in jobs if not job.on_nodes and job.name in priorities]
    low, high = min(waiting, default=0), max(waiting, default=0)
    if low == high:
        return jobs
    span = TOP_WEIGHT_MILLI - 1_000
    return [
        job
        if job.on_nodes or job.name not in priorities
        else job.model_copy(
            update={"weight_milli": 1_000 + span * (priorities[job.name] - low) // (high - low)}
        )
        for job in jobs
    ]


__all__ = ["DEFAULT_QUEUE", "read_jobs", "weigh"]
