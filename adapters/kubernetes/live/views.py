"""Decides whose each job is, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trencadis.adapters.kubernetes.fields import at, instant, listed, text
from trencadis.adapters.kubernetes.jobs import Pod
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Json
from trencadis.adapters.kubernetes.live.config import KubernetesConfig
from trencadis.adapters.kubernetes.live.lists import JOBS, Lists
from trencadis.adapters.kubernetes.live.owners import Owner
from trencadis.adapters.kubernetes.live.prepare import Prepared, done
from trencadis.adapters.live.cluster import JobView, State
from trencadis.models import Job, Snapshot


@dataclass(frozen=True, slots=True)
class Gang:
    """A job with the objects that it consists of."""

    namespace: str
    pods: tuple[Json, ...]
    """As they were read, in their order; none where its owner has made none."""
    owner: Owner
    tasks: int = 1
    mixed: bool = False
    """Whether its owner makes pods of other jobs as well."""


def make_gangs(
    jobs: Iterable[Job], found: Mapping[str, tuple[Pod, ...]], prepared: Prepared
) -> dict[str, Gang]:
    """The gang of each job of the import."""
    gangs = {}
    for job in jobs:
        rows = found[job.name]
        pods = [prepared.pods[row.uid] for row in rows if row.uid in prepared.pods]
        pods.sort(key=records.order)
        place = rows[0].namespace, rows[0].name
        owners = prepared.owners
        promised = prepared.promised.get(rows[0].uid)
        first = pods[0] if pods else promised
        owner = owners.of_name(*place) if first is None else owners.of_pod(first)
        gangs[job.name] = Gang(place[0], tuple(pods), owner, job.tasks, job.group is not None)
    return gangs


def make_views(
    snapshot: Snapshot, gangs: Mapping[str, Gang], prepared: Prepared, config: KubernetesConfig
) -> dict[str, JobView]:
    """A view of each job, and of those that are over but still listed."""
    views = {job.name: _view(job, gangs[job.name], config) for job in snapshot.jobs}
    for name, view in _ended(prepared.lists, prepared):
        views.setdefault(name, view)
    return views


def _view(job: Job, gang: Gang, config: KubernetesConfig) -> JobView:
    options = config.kubernetes
    state = _state(job, gang, options.gate)
    ours = config.live.scope.has_pools([gang.namespace]) and not _off(gang, options.opt_out)
    gated = all(options.gate in records.gates(pod) for pod in gang.pods)
    handed = (bool(gang.pods) and gated) or gang.owner.suspended
    if config.live.mode == "shadow":
        managed = ours and state == "released" and job.state == "pending"
    else:
        managed = ours and state == "waiting" and handed and job.state == "pending"
    return JobView(
        name=job.name,
        state=state,
        title=job.name.partition("/")[2],
        managed=managed,
        stoppable=ours and _stoppable(gang.owner, bare=options.evict_bare_pods),
        nodes=tuple(sorted({n for pod in gang.pods if (n := records.node(pod))})),
        submit=job.submit,
        start=job.start,
        reason="" if job.on_nodes else _reason(gang),
        terms={"schedulingGates": options.gate} if managed else {},
    )


def _state(job: Job, gang: Gang, gate: str) -> State:
    if job.state == "draining":
        return "leaving"
    if gang.owner.suspended:
        # Its pods, if there are any, are about to go; it starts with others.
        return "leaving" if gang.pods else "waiting"
    if job.state == "running":
        return "running" if all(records.node(pod) for pod in gang.pods) else "released"
    ungated = any(gate not in records.gates(pod) for pod in gang.pods)
    return "released" if ungated else "waiting"


def _off(gang: Gang, key: str) -> bool:
    found = [*gang.pods, *([gang.owner.record] if gang.owner.record else [])]
    return any(records.annotation(record, key) for record in found)


def _stoppable(owner: Owner, *, bare: bool) -> bool:
    return owner.suspendable or owner.way == "evict" or (owner.way == "bare" and bare)


def _reason(gang: Gang) -> str:
    """What the scheduler says of a pod that it can't place."""
    for pod in gang.pods:
        for condition in listed(at(pod, "status", "conditions")):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return text(condition.get("message")) or text(condition.get("reason"))
    return ""


def _ended(lists: Lists, prepared: Prepared) -> list[tuple[str, JobView]]:
    found = []
    for job in lists.of(JOBS):
        held = records.conditions(job)
        over = held.get("Complete") or held.get("Failed")
        if over is None or records.controller(job):
            continue
        pods = prepared.by_controller.get(records.uid(job), [])
        began = [instant(at(pod, "status", "startTime")) for pod in pods]
        view = JobView(
            name=f"{records.namespace(job)}/{records.name(job)}",
            state="ended",
            title=records.name(job),
            nodes=tuple(sorted({node for pod in pods if (node := records.node(pod))})),
            start=min((at_ for at_ in began if at_ is not None), default=None),
            end=_when(over),
            reason=text(over.get("reason")),
            finished="Complete" in held or done(job, pods),
        )
        found.append((view.name, view))
    for pod in prepared.by_controller.get("", []):
        if records.phase(pod) in records.OVER:
            view = JobView(
                name=f"{records.namespace(pod)}/{records.name(pod)}",
                state="ended",
                title=records.name(pod),
                nodes=(records.node(pod),) if records.node(pod) else (),
                start=instant(at(pod, "status", "startTime")),
                reason=text(at(pod, "status", "reason")),
                finished=records.phase(pod) == "Succeeded",
            )
            found.append((view.name, view))
    return found


def _when(condition: Mapping[str, Any]) -> datetime | None:
    return instant(condition.get("lastTransitionTime"))
