"""Decides which pods of an openb trace run where (best fit, nothing moved) and which wait."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from trencadis.instances.openb_csv import NodeRow, PodRow, read_nodes, read_pods
from trencadis.models.base import GPU_MILLI
from trencadis.models.cluster import GpuGroup, Node
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.jobs import Job, Request, Share, TaskAllocation
from trencadis.models.queues import Queue
from trencadis.models.snapshot import Snapshot

# LS is latency-sensitive, BE best effort; the other two are Kubernetes' own classes, of which
# Guaranteed reserves what it may use and Burstable does not.
TIER_OF_QOS = {"LS": "high", "Guaranteed": "high", "Burstable": "normal", "BE": "low"}

DEFAULT_NOW = datetime(2024, 1, 1, tzinfo=UTC)
"""The trace has no dates, only seconds since its start."""


@dataclass(frozen=True, slots=True)
class OpenbSample:
    """A snapshot of a trace, and the pods that best fit found no room for."""

    snapshot: Snapshot
    skipped: tuple[str, ...]


def read_openb(
    nodes_csv: Path,
    pods_csv: Path,
    running: int = 0,
    pending: int | None = None,
    *,
    now: datetime | None = None,
    seed: int | None = None,
    queue_by: Literal["one", "qos"] = "one",
    span_seconds: int | None = 21_600,
) -> Snapshot:
    """The snapshot of `sample_openb`, for callers who need not know what was skipped."""
    return sample_openb(
        nodes_csv,
        pods_csv,
        running,
        pending,
        now=now,
        seed=seed,
        queue_by=queue_by,
        span_seconds=span_seconds,
    ).snapshot


def sample_openb(
    nodes_csv: Path,
    pods_csv: Path,
    running: int = 0,
    pending: int | None = None,
    *,
    now: datetime | None = None,
    seed: int | None = None,
    queue_by: Literal["one", "qos"] = "one",
    span_seconds: int | None = 21_600,
) -> OpenbSample:
    """The first `running` pods placed by best fit, the next `pending` (None: all the rest) waiting.

    A seed shuffles the pods first. A pod that fits nowhere is skipped, not left waiting, as in
    the published protocol. Tiers come from the qos column: LS and Guaranteed are `high`,
    Burstable `normal`, BE `low`; the policy's default without the column. `queue_by` gives one
    queue, `default`, or one per qos. The pod created last was submitted at `now`; the others
    before it in proportion, the first `span_seconds` earlier, or at the trace's own distances with
    None: it covers 149 days, in which waiting alone would lift every pod to the top tier.

    Raises InvalidInputError with a fault per wrong line (`file:line`).
    """
    faults: list[Fault] = []
    nodes, pods = read_nodes(nodes_csv, faults), read_pods(pods_csv, faults)
    for name, value in (("running", running), ("pending", pending), ("span_seconds", span_seconds)):
        if value is not None and value < 0:
            faults.append(Fault(name, f"{value} is negative"))
    if faults:
        raise InvalidInputError(faults)
    if seed is not None:
        random.Random(seed).shuffle(pods)
    first = pods[:running]
    rest = pods[running:] if pending is None else pods[running : running + pending]
    places = _place(nodes, first)
    clock = _Clock([*first, *rest], now or DEFAULT_NOW, span_seconds)
    started = [pod for pod in first if pod.name in places]
    jobs = [_job(pod, clock, queue_by, places.get(pod.name)) for pod in (*started, *rest)]
    queues = sorted({job.queue for job in jobs}) or ["default"]
    snapshot = Snapshot(
        now=clock.now,
        nodes=tuple(_nodes(nodes, (*first, *rest))),
        queues=tuple(Queue(name=name) for name in queues),
        jobs=tuple(jobs),
    )
    return OpenbSample(snapshot, tuple(pod.name for pod in first if pod.name not in places))


class _Room:
    """What is left of a node."""

    __slots__ = ("cpu", "gpus", "memory", "model", "whole")

    def __init__(self, node: NodeRow) -> None:
        self.cpu = node.cpu_milli
        self.memory = node.memory_mib
        self.model = node.model
        self.gpus = [GPU_MILLI] * node.gpus
        self.whole = node.gpus
        """GPUs that nobody uses."""


def _place(nodes: Sequence[NodeRow], pods: Iterable[PodRow]) -> dict[str, TaskAllocation]:
    """Best fit in order: the node, and the shared GPU, on which the least is left over.

    GPUs decide before CPU, CPU before memory, then the order of the table.
    """
    rooms = [_Room(node) for node in nodes]
    places: dict[str, TaskAllocation] = {}
    for pod in pods:
        best: tuple[int, ...] | None = None
        for position, room in enumerate(rooms):
            score = _score(pod, room, position)
            if score is not None and (best is None or score < best):
                best = score
        if best is None:
            continue
        room = rooms[best[-1]]
        gpus = _take(pod, room)
        places[pod.name] = TaskAllocation(
            node=nodes[best[-1]].name,
            gpus=gpus,
            share=Share(gpu_milli=pod.share) if pod.share else None,
        )
    return places


def _score(pod: PodRow, room: _Room, position: int) -> tuple[int, ...] | None:
    """What would be left, most important first; None where the pod doesn't fit."""
    cpu, memory = room.cpu - pod.cpu_milli, room.memory - pod.memory_mib
    if cpu < 0 or memory < 0:
        return None
    if pod.gpus == 0:
        return (room.whole, cpu, memory, position)
    if pod.models and room.model not in pod.models:
        return None
    if pod.share:
        left = [free - pod.share for free in room.gpus if free >= pod.share]
        return (min(left), room.whole, cpu, memory, position) if left else None
    left_whole = room.whole - pod.gpus
    return (left_whole, cpu, memory, position) if left_whole >= 0 else None


def _take(pod: PodRow, room: _Room) -> tuple[int, ...]:
    """Uses up the pod's part of the node; the GPUs it gets."""
    room.cpu -= pod.cpu_milli
    room.memory -= pod.memory_mib
    if pod.share:
        fitting = (i for i, free in enumerate(room.gpus) if free >= pod.share)
        chosen = (min(fitting, key=lambda i: (room.gpus[i], i)),)
        room.whole -= room.gpus[chosen[0]] == GPU_MILLI
        room.gpus[chosen[0]] -= pod.share
        return chosen
    idle = [i for i, free in enumerate(room.gpus) if free == GPU_MILLI][: pod.gpus]
    for gpu in idle:
        room.gpus[gpu] = 0
    room.whole -= len(idle)
    return tuple(idle)


class _Clock:
    """Maps seconds of the trace to instants, in order."""

    def __init__(self, pods: Sequence[PodRow], now: datetime, span: int | None) -> None:
        created = [pod.created for pod in pods if pod.created is not None]
        self.now = now
        self.last = max(created, default=0)
        self.length = self.last - min(created, default=0)
        self.span = self.length if span is None else span

    def submit(self, pod: PodRow) -> datetime:
        if pod.created is None or self.length == 0:
            return self.now
        return self.now - timedelta(seconds=(self.last - pod.created) * self.span // self.length)


def _nodes(rows: Iterable[NodeRow], pods: Sequence[PodRow]) -> Iterable[Node]:
    smallest = min((pod.share for pod in pods if pod.share), default=0)
    # Room for as many of the smallest share as a GPU holds, so that only milli-GPUs bind.
    most = GPU_MILLI // smallest if smallest else 1
    for row in rows:
        yield Node(
            name=row.name,
            gpus=(GpuGroup(model=row.model, count=row.gpus),) if row.gpus else (),
            cpu_milli=row.cpu_milli,
            memory_mib=row.memory_mib,
            shareable=bool(smallest and row.gpus),
            max_jobs_per_gpu=most if row.gpus else 1,
        )


def request_of(pod: PodRow) -> Request:
    """What the pod asks for."""
    return Request(
        gpus=0 if pod.share else pod.gpus,
        share=Share(gpu_milli=pod.share) if pod.share else None,
        cpu_milli=pod.cpu_milli,
        memory_mib=pod.memory_mib,
    )


def _job(pod: PodRow, clock: _Clock, queue_by: str, place: TaskAllocation | None) -> Job:
    submit = clock.submit(pod)
    return Job(
        name=pod.name,
        queue=pod.qos if queue_by == "qos" and pod.qos else "default",
        priority=TIER_OF_QOS.get(pod.qos),
        submit=submit,
        request=request_of(pod),
        gpu_models=pod.models if pod.gpus else (),
        runtime_seconds=pod.runtime,
        state="pending" if place is None else "running",
        start=None if place is None else submit,
        allocation=() if place is None else (place,),
    )
