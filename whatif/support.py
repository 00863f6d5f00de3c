"""What a replay can't do yet: a fault for each, so that nothing is quietly left out."""

from __future__ import annotations

from collections.abc import Iterator

from trencadis.models import Fault, InvalidInputError, Job, Queue, Snapshot
from trencadis.models.trace import Trace
from trencadis.models.units import asks_for_mig
from trencadis.whatif.placing import TASK_MARK


def with_queues(trace: Trace, snapshot: Snapshot) -> Snapshot:
    """The cluster of a replay: without jobs, with every queue that the trace names."""
    known = {queue.name for queue in snapshot.queues}
    new = sorted({entry.job.queue for entry in trace.jobs} - known)
    queues = (*snapshot.queues, *(Queue(name=name) for name in new))
    return snapshot.model_copy(update={"jobs": (), "holds": (), "queues": queues})


def check_replay(trace: Trace, snapshot: Snapshot) -> None:
    """Raises InvalidInputError with all that keeps this trace from being replayed there."""
    faults = list(_cluster(snapshot))
    levels = {level.name for level in snapshot.fabric.levels} | {"node"}
    tiers = {tier.name for tier in snapshot.policy.tiers}
    qos = {entry.name for entry in snapshot.qos}
    licences = {entry.name for entry in snapshot.licences}
    parents = {queue.parent for queue in snapshot.queues}
    for position, entry in enumerate(trace.jobs):
        job = entry.job
        where = f"jobs[{position}]"
        faults += [Fault(where, f"job {job.name}: {text}") for text in _job(job)]
        if job.queue in parents:
            faults.append(Fault(where, f"job {job.name}: queue {job.queue} has queues below it"))
        if job.priority is not None and job.priority not in tiers:
            faults.append(Fault(where, f"job {job.name}: the policy has no tier {job.priority}"))
        if job.topology is not None and job.topology.level not in levels:
            faults.append(Fault(where, f"job {job.name}: no fabric level {job.topology.level}"))
        if job.qos is not None and job.qos not in qos:
            faults.append(Fault(where, f"job {job.name}: the cluster has no QOS {job.qos}"))
        for name in sorted(job.licences.keys() - licences):
            faults.append(Fault(where, f"job {job.name}: the cluster has no licence {name}"))
    if faults:
        raise InvalidInputError(faults)


def _cluster(snapshot: Snapshot) -> Iterator[Fault]:
    for position, node in enumerate(snapshot.nodes):
        if node.precision == "node":
            message = f"node {node.name}: a replay places tasks on GPUs; its precision is node"
            yield Fault(f"$.nodes[{position}]", message)
    for position, queue in enumerate(snapshot.queues):
        if queue.order == "strict_fifo":
            message = f"queue {queue.name}: a replay doesn't keep strict_fifo yet"
            yield Fault(f"$.queues[{position}].order", message)
        if queue.lending_limit is not None:
            message = f"queue {queue.name}: a replay doesn't keep lending limits yet"
            yield Fault(f"$.queues[{position}].lending_limit", message)


def _job(job: Job) -> Iterator[str]:
    if asks_for_mig(job.request):
        yield "a replay doesn't place MIG instances yet; the switch no-mig gives it whole GPUs"
    if job.segments is not None:
        yield "a replay doesn't keep segments yet"
    if job.max_tasks_per_domain is not None:
        yield "a replay doesn't keep tasks of a job apart by domain yet"
    if job.group is not None:
        yield "a replay doesn't keep groups of jobs yet"
    if TASK_MARK in job.name:
        yield f"a name in a replay has no {TASK_MARK!r}"
