"""Decides which gangs there are whose pods are not made, or not alone: Workloads, Jobs, JobSets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from trencadis.adapters.kubernetes.fields import (
    Json,
    at,
    instant,
    listed,
    mapping,
    name,
    text,
    texts,
    whole,
)
from trencadis.adapters.kubernetes.kueue import GROUP, QUEUE_LABEL
from trencadis.adapters.kubernetes.objects import Object, Objects
from trencadis.adapters.kubernetes.topology import Levels
from trencadis.models.jobs import Segments, Topology

PRIORITY_BOOST = f"{GROUP}/priority-boost"
_TOPOLOGY = {
    f"{GROUP}/podset-required-topology": "required",
    f"{GROUP}/podset-preferred-topology": "preferred",
}


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods alike of one workload."""

    name: str
    count: int
    minimum: int
    template: Json
    nodes: tuple[str, ...] = ()
    """Where its pods are by the topology assignment, a name each; empty where none is given."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A gang as an object of its own."""

    path: str
    name: str
    namespace: str
    queue: str
    """The local queue."""
    pod_sets: tuple[PodSet, ...]
    created: datetime | None
    owners: frozenset[str] = field(default_factory=frozenset)
    """UIDs of the objects that its pods may belong to."""
    owner_name: str = ""
    cluster_queue: str = ""
    """Where it is admitted."""
    admitted: datetime | None = None
    held: str = ""
    priority_class: str = ""
    priority: int | None = None
    boost: int = 0
    runtime_seconds: int | None = None
    alone: bool = False
    """Whether each pod starts by itself: a Deployment's."""


def topology_of(
    annotations: dict[str, str], request: Json, levels: Levels
) -> tuple[Topology | None, Segments | None, str]:
    """How near the pods of a set must be, by annotations or a Workload's request; or why not."""
    wanted = [(text(request.get("required")), "required")]
    wanted.append((text(request.get("preferred")), "preferred"))
    wanted.extend((annotations.get(key, ""), mode) for key, mode in _TOPOLOGY.items())
    topology = None
    for label, mode in wanted:
        if not label or topology is not None:
            continue
        level = levels.names.get(label)
        if level is None and mode == "required":
            return None, None, f"its required topology {label} is no level of the fabric"
        if level is not None:
            topology = Topology.model_validate({"level": level, "mode": mode})
    slice_label = text(request.get("podSetSliceRequiredTopology")) or annotations.get(
        f"{GROUP}/podset-slice-required-topology", ""
    )
    size = whole(request.get("podSetSliceSize")) or whole(
        annotations.get(f"{GROUP}/podset-slice-size")
    )
    if not slice_label or not size:
        return topology, None, ""
    level = levels.names.get(slice_label)
    if level is None:
        return None, None, f"its slices' topology {slice_label} is no level of the fabric"
    return topology, Segments(tasks=size, level=level), ""


def read_workloads(objects: Objects) -> list[Workload]:
    """Kueue's Workloads that aren't over, then Jobs, JobSets, Deployments without one."""
    found = list(_kueue_workloads(objects))
    covered = {uid for workload in found for uid in workload.owners}
    for entry in objects.of("jobset.x-k8s.io", "JobSet"):
        if not _covered(entry, covered) and not _finished(entry):
            found.append(_job_set(entry))
    for entry in objects.of("batch", "Job"):
        if not _covered(entry, covered) and not _finished(entry):
            found.append(_job(entry))
    for kind in ("Deployment", "StatefulSet"):
        for entry in objects.of("apps", kind):
            if not _covered(entry, covered):
                found.append(_replicas(entry))
    return found


def _covered(entry: Object, covered: set[str]) -> bool:
    """Whether a Workload or an owner stands for it already."""
    return bool(entry.owner) or (bool(entry.uid) and entry.uid in covered)


def _kueue_workloads(objects: Objects) -> Iterator[Workload]:
    for entry in objects.of(GROUP, "Workload"):
        conditions = {
            text(c.get("type")): c
            for c in listed(entry.status.get("conditions"))
            if c.get("status") == "True"
        }
        if "Finished" in conditions:
            continue
        admission = mapping(entry.status.get("admission"))
        reserved = conditions.get("Admitted") or conditions.get("QuotaReserved")
        assignments = {
            text(row.get("name")): row for row in listed(admission.get("podSetAssignments"))
        }
        admitted = None
        if admission and reserved is not None:
            from_condition = at(reserved, "lastTransitionTime")
            admitted = instant(from_condition) or entry.created
        owner = entry.owner
        yield Workload(
            path=entry.path,
            name=entry.name,
            namespace=entry.namespace,
            queue=text(entry.spec.get("queueName")),
            pod_sets=tuple(
                _pod_set(row, assignments.get(text(row.get("name")), {}))
                for row in listed(entry.spec.get("podSets"))
            ),
            created=entry.created,
            owners=frozenset(filter(None, [text(owner.get("uid")), entry.uid])),
            owner_name=text(owner.get("name")),
            cluster_queue=text(admission.get("clusterQueue")),
            admitted=admitted,
            held="" if entry.spec.get("active", True) else "its Workload is not active",
            priority_class=text(at(entry.spec, "priorityClassRef", "name"))
            or text(entry.spec.get("priorityClassName")),
            priority=whole(entry.spec.get("priority")),
            boost=whole(entry.annotations.get(PRIORITY_BOOST)) or 0,
            runtime_seconds=whole(entry.spec.get("maximumExecutionTimeSeconds")),
        )


def _pod_set(row: Json, assignment: Json) -> PodSet:
    count = max(1, whole(assignment.get("count")) or whole(row.get("count")) or 1)
    template = dict(mapping(row.get("template")))
    template["topologyRequest"] = mapping(row.get("topologyRequest"))
    nodes = _assigned(mapping(assignment.get("topologyAssignment")))
    return PodSet(
        name=text(row.get("name")) or "main",
        count=count,
        minimum=min(count, max(1, whole(row.get("minCount")) or count)),
        template=template,
        nodes=nodes if len(nodes) == count else (),
    )


def _assigned(assignment: Json) -> tuple[str, ...]:
    """Node names, one for each pod, if the lowest level is the node: slices, or domains."""
    levels = assignment.get("levels")
    if not isinstance(levels, list) or not levels or levels[-1] != "kubernetes.io/hostname":
        return ()
    found: list[str] = []
    for domain in listed(assignment.get("domains")):
        values = domain.get("values")
        if isinstance(values, list) and values:
            found.extend([str(values[-1])] * min(whole(domain.get("count")) or 0, 100_000))
    for row in listed(assignment.get("slices")):
        number = min(whole(row.get("domainCount")) or 0, 100_000)
        per_level = listed(row.get("valuesPerLevel"))
        names = _per_domain(per_level[-1] if per_level else {}, number)
        counts = _per_domain(mapping(row.get("podCounts")), number)
        for domain_name, pods in zip(names, counts, strict=True):
            found.extend([domain_name] * min(whole(pods) or 0, 100_000))
    return tuple(name(entry, "node") for entry in found if entry)


def _per_domain(values: Json, number: int) -> list[str]:
    """A value for each domain: one for all, or its own, names without prefix and suffix."""
    if "universal" in values:
        return [str(values["universal"])] * number
    individual = values.get("individual")
    if isinstance(individual, list):
        return [str(entry) for entry in individual][:number] + [""] * (number - len(individual))
    roots = at(individual, "roots")
    roots = roots if isinstance(roots, list) else []
    before, after = text(at(individual, "prefix")), text(at(individual, "suffix"))
    return [f"{before}{root}{after}" for root in roots][:number] + [""] * (number - len(roots))


def _finished(entry: Object) -> bool:
    return any(
        c.get("type") in ("Complete", "Failed", "Completed") and c.get("status") == "True"
        for c in listed(entry.status.get("conditions"))
    )


def _job_pods(spec: Json, label: str, times: int = 1) -> PodSet:
    parallel = whole(spec.get("parallelism"))
    count = max(1, (1 if parallel is None else parallel) * times)
    return PodSet(label, count, count, mapping(spec.get("template")))


def _bare(entry: Object, pod_sets: tuple[PodSet, ...], *, alone: bool = False) -> Workload:
    queue = entry.labels.get(QUEUE_LABEL, "")
    # Under Kueue a job is suspended until it is admitted; without it somebody has suspended it.
    suspended = bool(entry.spec.get("suspend")) and not queue
    return Workload(
        path=entry.path,
        name=entry.name,
        namespace=entry.namespace,
        queue=queue,
        pod_sets=pod_sets,
        created=entry.created,
        owners=frozenset({entry.uid}) if entry.uid else frozenset(),
        owner_name=entry.name,
        held="it is suspended" if suspended else "",
        priority_class=entry.labels.get(f"{GROUP}/priority-class", ""),
        runtime_seconds=whole(entry.spec.get("activeDeadlineSeconds")),
        alone=alone,
    )


def _job(entry: Object) -> Workload:
    return _bare(entry, (_job_pods(entry.spec, "main"),))


def _job_set(entry: Object) -> Workload:
    return _bare(
        entry,
        tuple(
            _job_pods(
                mapping(at(row, "template", "spec")),
                text(row.get("name")) or "main",
                max(1, whole(row.get("replicas")) or 1),
            )
            for row in listed(entry.spec.get("replicatedJobs"))
        ),
    )


def _replicas(entry: Object) -> Workload:
    replicas = whole(entry.spec.get("replicas"))
    count = 1 if replicas is None else replicas
    sets = (PodSet("main", count, 1, mapping(entry.spec.get("template"))),) if count > 0 else ()
    return _bare(entry, sets, alone=True)


def template_parts(pod_set: PodSet) -> tuple[Json, dict[str, str], dict[str, str]]:
    """Spec, labels and annotations of a template."""
    meta = mapping(pod_set.template.get("metadata"))
    return (
        mapping(pod_set.template.get("spec")),
        texts(meta.get("labels")),
        texts(meta.get("annotations")),
    )
