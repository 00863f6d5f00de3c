"""Scenarios: what if nodes came or went, guarantees were others, jobs were there as well."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, ValidationError

from trencadis.models import Fault, InvalidInputError, Job, Queue, Quota, Snapshot
from trencadis.models.base import ByName, Count, Name, Names, Record
from trencadis.models.check import check
from trencadis.models.faults import from_pydantic
from trencadis.models.load import decode, duplicate_keys
from trencadis.whatif.clusters import MOST_NODES
from trencadis.whatif.kinds import more_nodes
from trencadis.whatif.prices import PriceList


class Addition(Record):
    """Nodes of one kind that come."""

    kind: Name
    """A kind of the price list, MODEL-GPUS, or the name of a node: more like that one."""
    count: Annotated[int, Field(strict=True, ge=1, le=MOST_NODES)] = 1
    fabric: tuple[Name, ...] | None = None
    """Where in the fabric; new leaf switches where absent (see `kinds.more_nodes`)."""


class Scenario(Record):
    """Changes to a snapshot, carried out in the order of the fields."""

    name: Name = "scenario"
    remove: Names = ()
    """Nodes that go; what runs there waits again, what may not be requeued is lost."""
    drain: Names = ()
    """Nodes that take no new work; what runs there goes on."""
    add: tuple[Addition, ...] = ()
    guarantee: ByName[Count] = Field(default_factory=dict)
    """By queue: its guarantee from now on, GPUs in all."""
    jobs: tuple[Job, ...] = ()
    """Jobs that wait as well; submitted at the snapshot's instant where the file doesn't say."""


def load_scenario(text: str | bytes, snapshot: Snapshot, *, toml: bool, name: str) -> Scenario:
    """A scenario from JSON or TOML; `name` where it has none. Raises InvalidInputError."""
    try:
        decoded = decode(text)
        content: Any = tomllib.loads(decoded) if toml else json.loads(decoded)
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:
        form = "TOML" if toml else "JSON"
        raise InvalidInputError([Fault("$", f"Invalid {form}: {error}")]) from None
    if not toml and (doubled := duplicate_keys(decoded)):
        raise InvalidInputError(doubled)
    if not isinstance(content, dict):
        raise InvalidInputError([Fault("$", "a scenario is a table of changes")])
    content.setdefault("name", name)
    jobs = content.get("jobs")
    for job in jobs if isinstance(jobs, list) else ():
        if isinstance(job, dict):
            job.setdefault("submit", snapshot.now.isoformat())
    try:  # by way of JSON, in which lists are tuples and instants are text
        return Scenario.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        raise InvalidInputError(from_pydantic(error)) from None


def changed(snapshot: Snapshot, scenario: Scenario, prices: PriceList) -> Snapshot:
    """The snapshot with the changes made. Raises InvalidInputError with every fault found."""
    faults = [
        *_unknown("remove", scenario.remove, (node.name for node in snapshot.nodes), "node"),
        *_unknown("drain", scenario.drain, (node.name for node in snapshot.nodes), "node"),
        *_unknown("guarantee", scenario.guarantee, (q.name for q in snapshot.queues), "queue"),
        *(
            Fault(f"$.drain[{index}]", f"node {name} is removed as well")
            for index, name in enumerate(scenario.drain)
            if name in scenario.remove
        ),
        *_taken(snapshot, scenario),
    ]
    base = without_nodes(snapshot, scenario.remove)
    for index, entry in enumerate(scenario.add):
        try:
            extra = more_nodes(base, entry.kind, entry.count, prices, fabric=entry.fabric)
        except InvalidInputError as error:
            message = error.faults[0].message
            faults.append(Fault(f"$.add[{index}].kind", message))
            continue
        base = base.model_copy(update={"nodes": (*base.nodes, *extra)})
    if faults:
        raise InvalidInputError(faults)
    drained = set(scenario.drain)
    result = base.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"cordoned": True}) if node.name in drained else node
                for node in base.nodes
            ),
            "queues": tuple(_guaranteed(queue, scenario) for queue in base.queues),
            "jobs": (*base.jobs, *scenario.jobs),
        }
    )
    check(result)
    return result


def without_nodes(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The snapshot without these nodes. Jobs that ran there wait again, or are lost."""
    gone = set(names)
    if not gone:
        return snapshot
    jobs = []
    for job in snapshot.jobs:
        if not any(task.node in gone for task in job.allocation):
            jobs.append(job)
        elif job.requeueable and job.state == "running":
            jobs.append(waiting_again(job))
    there = {job.name for job in jobs}
    return snapshot.model_copy(
        update={
            "nodes": tuple(node for node in snapshot.nodes if node.name not in gone),
            "jobs": tuple(jobs),
            "holds": tuple(
                hold
                for hold in snapshot.holds
                if hold.job in there and not any(task.node in gone for task in hold.allocation)
            ),
        }
    )


def waiting_again(job: Job) -> Job:
    """A running job, back in the queue with the time of its submission."""
    return job.model_copy(
        update={"state": "pending", "start": None, "drain_ends": None, "allocation": ()}
    )


def _guaranteed(queue: Queue, scenario: Scenario) -> Queue:
    if queue.name not in scenario.guarantee:
        return queue
    quota = Quota(gpus=scenario.guarantee[queue.name], by_model=queue.guarantee.by_model)
    return queue.model_copy(update={"guarantee": quota})


def _unknown(field: str, names: Iterable[str], there: Iterable[str], what: str) -> list[Fault]:
    known = set(there)
    faults = []
    for index, name in enumerate(names):
        path = f"$.{field}.{name}" if field == "guarantee" else f"$.{field}[{index}]"
        if name not in known:
            faults.append(Fault(path, f"there is no {what} {name!r} in the snapshot"))
    return faults


def _taken(snapshot: Snapshot, scenario: Scenario) -> list[Fault]:
    there = {job.name for job in snapshot.jobs}
    queues = {queue.name for queue in snapshot.queues}
    often = Counter(job.name for job in scenario.jobs)
    faults = []
    for index, job in enumerate(scenario.jobs):
        path = f"$.jobs[{index}]"
        if job.name in there or often[job.name] > 1:
            faults.append(Fault(f"{path}.name", f"there is a job {job.name!r} already"))
        if job.queue not in queues:
            faults.append(
                Fault(f"{path}.queue", f"there is no queue {job.queue!r} in the snapshot")
            )
        if job.state != "pending":
            faults.append(Fault(f"{path}.state", f"a job that is added waits (got {job.state!r})"))
    return faults
