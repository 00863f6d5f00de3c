"""Decides what the import is to believe: our marks undone, what was sent as if it were there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from trencadis.adapters.kubernetes.fields import at, listed, mapping, text, whole
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Json
from trencadis.adapters.kubernetes.live.lists import JOBS, NODES, PODS, Lists
from trencadis.adapters.kubernetes.live.owners import WORKLOADS, Owner, Owners
from trencadis.adapters.kubernetes.live.promised import promise
from trencadis.adapters.kubernetes.live.taints import without_ours


@dataclass(slots=True)
class Prepared:
    """The lists for the import, and the objects as they really are."""

    lists: Lists
    owners: Owners
    pods: dict[str, Json] = field(default_factory=dict)
    """All pods, by UID."""
    by_controller: dict[str, list[Json]] = field(default_factory=dict)
    """All pods, by their controller's UID."""
    promised: dict[str, Json] = field(default_factory=dict)
    """Pods that aborted owners will make, by a UID of ours."""
    hostnames: dict[str, str] = field(default_factory=dict)
    """The hostname label of each node, by the node's name."""


def prepare(lists: Lists, gate: str, now: datetime) -> Prepared:
    """Reads all objects once; `lists` is changed for the import."""
    by_controller: defaultdict[str, list[Json]] = defaultdict(list)
    owners = Owners.of(lists)
    prepared = Prepared(lists, owners)
    for pod in lists.of(PODS):
        prepared.pods[records.uid(pod)] = pod
        by_controller[text(records.controller(pod).get("uid"))].append(pod)
    prepared.by_controller = dict(by_controller)
    for node in lists.of(NODES):
        labels = mapping(at(node, "metadata", "labels"))
        prepared.hostnames[records.name(node)] = text(labels.get(records.HOSTNAME)) or records.name(
            node
        )
    prepared.promised = promise(lists, by_controller)
    sent = _sent(by_controller, gate)
    beside = _beside(by_controller)
    lists.replace(
        PODS,
        [
            _pod(pod, owners.of_pod(pod), sent=sent, beside=beside, now=now)
            for pod in prepared.pods.values()
        ]
        + list(prepared.promised.values()),
    )
    lists.replace(JOBS, [_job(job, by_controller[records.uid(job)]) for job in lists.of(JOBS)])
    lists.replace(WORKLOADS, [_active(workload) for workload in lists.of(WORKLOADS)])
    lists.replace(NODES, [without_ours(node) for node in lists.of(NODES)])
    return prepared


def _sent(by_controller: dict[str, list[Json]], gate: str) -> set[str]:
    """UIDs of pods that count as being where we sent them.

    Those without our gate, and those that still have it while a sibling of the same start has gone:
    a start that was cut off in the middle is one start all the same.
    """
    found: set[str] = set()
    for controller, pods in by_controller.items():
        pinned = [pod for pod in pods if records.pin(pod) and records.living(pod)]
        gone = [pod for pod in pinned if gate not in records.gates(pod)]
        starts = {records.annotation(pod, records.START) for pod in gone if controller}
        found.update(
            records.uid(pod)
            for pod in pinned
            if pod in gone or records.annotation(pod, records.START) in starts
        )
    return found


def _beside(by_controller: dict[str, list[Json]]) -> set[str]:
    """UIDs of controllers that have pods on nodes: they can't make others anew without those."""
    return {
        controller
        for controller, pods in by_controller.items()
        if any(records.node(pod) and records.living(pod) for pod in pods)
    }


def _changed(record: Json, part: str, **changes: Any) -> Json:
    """A copy with other fields in `spec`, `metadata` or `status`."""
    return {**record, part: {**mapping(record.get(part)), **changes}}


def _pod(pod: Json, owner: Owner, *, sent: set[str], beside: set[str], now: datetime) -> Json:
    bound = records.node(pod)
    if records.phase(pod) in records.OVER:
        return pod
    if bound:
        suspended = owner.suspended or (
            owner.way == "suspend" and bool(at(owner.record, "spec", "suspend"))
        )
        if suspended and records.deleted(pod) is None:
            # Its controller is about to delete it.
            grace = whole(at(pod, "spec", "terminationGracePeriodSeconds"))
            leaves = now + timedelta(seconds=30 if grace is None else grace)
            return _changed(pod, "metadata", deletionTimestamp=leaves.isoformat())
        return pod
    pinned = records.pin(pod)
    if not pinned:
        return pod
    if records.uid(pod) in sent:
        started = _changed(pod, "status", startTime=now.isoformat())
        return _changed(started, "spec", nodeName=pinned)
    if owner.way == "bare" or text(records.controller(pod).get("uid")) in beside:
        return pod  # nobody makes it anew: it can go nowhere else
    selector = dict(mapping(at(pod, "spec", "nodeSelector")))
    selector.pop(records.HOSTNAME)
    return _changed(pod, "spec", nodeSelector=selector)


def succeeded(job: Json, pods: Iterable[Json]) -> int:
    """Pods of a Job that are done, whether its controller has counted them already or not."""
    told = whole(at(job, "status", "succeeded")) or 0
    return max(told, sum(records.phase(pod) == "Succeeded" for pod in pods))


def done(job: Json, pods: Iterable[Json]) -> bool:
    """Whether a Job has all its completions, though its controller may not have said so yet."""
    wanted = whole(at(job, "spec", "completions"))
    return wanted is not None and succeeded(job, pods) >= wanted


def _job(job: Json, pods: list[Json]) -> Json:
    changed = job
    wanted = whole(at(job, "spec", "completions"))
    if wanted is not None:
        # What is left to do may be less than what runs side by side at first.
        parallel = whole(at(job, "spec", "parallelism"))
        left = max(1, wanted - succeeded(job, pods))
        changed = _changed(job, "spec", parallelism=min(1 if parallel is None else parallel, left))
        if done(job, pods):
            complete = {"type": "Complete", "status": "True"}
            told = [*listed(at(job, "status", "conditions")), complete]
            changed = _changed(changed, "status", conditions=told)
    if records.annotation(job, records.SUSPENDED):
        changed = _changed(changed, "spec", suspend=False)
    return changed


def _active(workload: Json) -> Json:
    if records.annotation(workload, records.SUSPENDED):
        return _changed(workload, "spec", active=True)
    return workload
