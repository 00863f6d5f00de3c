"""Decides in which order Kubernetes objects are read, and puts the snapshot together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from trencadis.adapters.kubernetes import kai, volcano
from trencadis.adapters.kubernetes.claims import read_claims
from trencadis.adapters.kubernetes.collect import Groups, collect
from trencadis.adapters.kubernetes.context import Context, Options
from trencadis.adapters.kubernetes.fields import at, instant, listed
from trencadis.adapters.kubernetes.jobs import Pod, priority_of, read_jobs
from trencadis.adapters.kubernetes.kueue import GROUP as KUEUE
from trencadis.adapters.kubernetes.kueue import read_kueue
from trencadis.adapters.kubernetes.nodes import KubeNode, read_nodes
from trencadis.adapters.kubernetes.objects import Objects, read_objects
from trencadis.adapters.kubernetes.pods import read_pods
from trencadis.adapters.kubernetes.priorities import make_tiers, read_priorities
from trencadis.adapters.kubernetes.queues import complete, leaf, namespace_queues
from trencadis.adapters.kubernetes.resources import Sharing
from trencadis.adapters.kubernetes.topology import read_levels
from trencadis.adapters.kubernetes.workloads import read_workloads
from trencadis.adapters.slurm.report import Report
from trencadis.models.faults import Fault, InvalidInputError, from_pydantic
from trencadis.models.jobs import Job
from trencadis.models.policy import Policy
from trencadis.models.queues import Queue
from trencadis.models.snapshot import Snapshot

Documents = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class Imported:
    """A snapshot with what it can't hold itself."""

    snapshot: Snapshot
    warnings: list[Fault]
    pods: dict[str, tuple[Pod, ...]]
    """Pods of each job, in no order; a job whose pods aren't made has those without a UID."""
    uuids: dict[tuple[str, int], str]
    """UUIDs of GPUs by node and index, where HAMi tells them."""
    groups: dict[tuple[str, int], str]
    """KAI's names for GPUs that are shared, by node and index."""


def read_kubernetes(
    documents: Documents,
    *,
    now: datetime | None = None,
    gangs: Literal["group", "owner"] = "group",
    gates: Iterable[str] = (),
    levels: Iterable[str] = (),
    policy: Policy | None = None,
) -> Imported:
    """The snapshot of named documents: what `kubectl get -o json` prints, or KAI's snapshot.

    Read are nodes, pods, PriorityClasses, PodDisruptionBudgets, ResourceQuotas, Jobs, JobSets,
    Deployments and StatefulSets, Volcano's Queues, PodGroups and HyperNodes, Kueue's queues,
    Cohorts, ResourceFlavors, Topologies and Workloads, KAI's Queues, PodGroups, BindRequests and
    Topologies, and DRA's slices, claims and templates. Unknown kinds and fields are passed over.
    `now` defaults to the latest time in the documents. `gangs`: whether pods of one Job start
    together too; `gates`: scheduling gates that wait for us; `levels`: node labels of the fabric,
    widest first.

    Nodes have precision `node`, as kubelet and device plugin choose the GPUs; `gpu` under HAMi,
    `mig` under DRA. Where GPUs are shared or in slices that a device plugin counts, they have
    numbers of ours and precision `gpu` or `mig`; layouts are fixed while a pod has GPUs. A pod that
    asks for what the schema can't say is held, with a warning. Raises InvalidInputError with a
    fault per missing or unreadable essential, at `DOCUMENT:$.path`.
    """
    report = Report()
    objects = read_objects(documents)
    options = Options(gangs=gangs, gates=tuple(gates), levels=tuple(levels), policy=policy)
    kueue = read_kueue(objects, report)
    shareable = objects.kai or any(
        "gpu-fraction" in pod.annotations or "gpu-memory" in pod.annotations
        for pod in objects.of("", "Pod")
    )
    nodes = read_nodes(objects.of("", "Node"), report, shareable=shareable)
    claims = read_claims(objects, nodes, report)
    topologies = [*objects.of(KUEUE, "Topology"), *objects.of("kai.scheduler", "Topology")]
    hyper_nodes = objects.of(volcano.TOPOLOGY_GROUP, "HyperNode")
    read = read_levels(topologies, hyper_nodes, nodes, report, options.levels, kueue.topology)
    context = Context(
        options=options,
        now=now or _clock(objects, report),
        nodes=nodes,
        levels=read,
        priorities=read_priorities(
            objects.of("scheduling.k8s.io", "PriorityClass"),
            objects.of(KUEUE, "WorkloadPriorityClass"),
        ),
        claims=claims,
        sharing=_sharing(nodes),
        report=report,
    )
    volcano_queues, closed = volcano.read_queues(objects, report)
    queues = [*kueue.queues, *volcano_queues, *kai.read_queues(objects, report)]
    pod_groups = [
        *volcano.read_pod_groups(objects, read, context.priorities, report),
        *kai.read_pod_groups(objects, read, context.priorities, report),
    ]
    groups = Groups(
        pod_groups={(group.namespace, group.name): group for group in pod_groups},
        workloads=read_workloads(objects),
        kueue=kueue,
        unreclaimable=volcano.unreclaimable(objects),
        closed=closed,
    )
    tasks = read_pods(objects, context)
    report.stop()
    found = collect(tasks, groups, context)
    tiers = make_tiers(
        {priority_of(gang, context) for gang in found}, context.priorities, policy, report
    )
    budgets = objects.of("policy", "PodDisruptionBudget")
    try:
        made = read_jobs(found, budgets, tiers.of, context)
        report.stop()
        jobs, all_queues = _queues(made.jobs, queues, objects, report)
        _settle(nodes, jobs, report)
        snapshot = Snapshot(
            now=context.now,
            nodes=tuple(node.node for node in nodes.values()),
            fabric=read.fabric,
            queues=all_queues,
            jobs=tuple(jobs),
            policy=tiers.policy
            if policy
            # Lost pods are made anew by their owners: those wait as jobs of their own.
            else tiers.policy.model_copy(update={"repairs": False}),
        )
    except ValidationError as error:
        raise InvalidInputError(from_pydantic(error)) from None
    if not nodes:
        report.warn(
            "nodes", "the documents list no nodes. Maybe kubectl get nodes,pods -A -o json?"
        )
    uuids = {
        (node.name, index): uuid
        for node in nodes.values()
        for uuid, index in node.devices.uuids.items()
    }
    return Imported(snapshot, report.warnings(), made.pods, uuids, made.groups)


def _clock(objects: Objects, report: Report) -> datetime:
    """The latest time that an object tells: when the documents were made, about."""
    told: list[datetime] = []
    for entry in objects:
        times = [at(entry.record, "metadata", "creationTimestamp"), entry.status.get("startTime")]
        for condition in listed(entry.status.get("conditions")):
            times.extend([condition.get("lastHeartbeatTime"), condition.get("lastTransitionTime")])
        told.extend(found for found in map(instant, times) if found is not None)
    if told:
        return max(told)
    report.warn("now", "the documents don't tell their time: the clock of this machine is taken")
    return datetime.now(UTC)


def _sharing(nodes: dict[str, KubeNode]) -> Sharing:
    devices = [node.devices for node in nodes.values() if node.devices.groups]
    shared = [entry for entry in devices if entry.plugin_replicas > 1]
    memory = [entry.memory_mib for entry in devices if entry.memory_mib]
    return Sharing(
        # The fewest replicas make the largest share, so that none is read too small.
        parts=min((entry.plugin_replicas for entry in shared), default=0),
        all_shared=bool(shared) and len(shared) == len(devices),
        memory_mib=min(memory, default=0),
    )


def _queues(
    jobs: list[Job], queues: list[Queue], objects: Objects, report: Report
) -> tuple[list[Job], tuple[Queue, ...]]:
    """Queues for all jobs; those whose queue has queues below it get a leaf."""
    listed_names = {queue.name for queue in queues}
    namespaces = {pod.namespace for pod in objects.of("", "Pod")}
    namespaces |= {entry.namespace for entry in objects.of("batch", "Job")}
    namespaces |= {entry.namespace for entry in objects.of("apps", "Deployment")}
    used = {job.queue for job in jobs}
    own = (used - listed_names) & namespaces
    queues = [*queues, *namespace_queues(objects.of("", "ResourceQuota"), own)]
    complete_queues = list(complete(queues, used, report))
    made: dict[str, Queue] = {}
    moved = [
        job
        if (target := leaf(job.queue, complete_queues, made)) == job.queue
        else job.model_copy(update={"queue": target})
        for job in jobs
    ]
    found = {queue.name: queue for queue in [*complete_queues, *made.values()]}
    return moved, tuple(found[key] for key in sorted(found))


def _settle(nodes: dict[str, KubeNode], jobs: list[Job], report: Report) -> None:
    """Nodes that are down run nothing in the schema; those with pods still hold what is there.

    Which slices pods really have is only known where they have none: layouts change there alone.
    """
    busy = {task.node for job in jobs for task in job.allocation}
    on_gpus = {t.node for job in jobs for t in job.allocation if t.gpus != () or t.mig}
    for node in nodes.values():
        if node.node.mig and node.numbered and node.name in on_gpus:
            node.set(mig_reconfigure="forbid")
        if node.node.down and node.name in busy:
            node.set(down=False, cordoned=True)
            report.warn(node.path, "not ready, yet pods are on it: read as cordoned")


__all__ = ["Imported", "read_kubernetes"]
