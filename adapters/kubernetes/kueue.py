"""Decides what Kueue's objects mean: ClusterQueues and cohorts as queues, flavors as nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from trencadis.adapters.kubernetes.fields import (
    Json,
    at,
    listed,
    mapping,
    name,
    quantity,
    text,
    texts,
)
from trencadis.adapters.kubernetes.objects import Object, Objects
from trencadis.adapters.kubernetes.queues import gpu_quota
from trencadis.adapters.kubernetes.resources import GPU
from trencadis.adapters.slurm.report import Report
from trencadis.models.queues import Limits, Queue

GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = f"{GROUP}/queue-name"


@dataclass(slots=True)
class Flavors:
    """Where jobs of one queue may run, by its flavors."""

    terms: list[dict[str, str]] = field(default_factory=list)
    """Node labels, one table a flavor; an empty table is anywhere."""
    tolerations: list[Json] = field(default_factory=list)


@dataclass(slots=True)
class Kueue:
    """Kueue's queues."""

    queues: list[Queue] = field(default_factory=list)
    local: dict[tuple[str, str], str] = field(default_factory=dict)
    """Cluster queue by namespace and local queue."""
    flavors: dict[str, Flavors] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    topology: str = ""
    """The Topology that most flavors name."""

    def queue_of(self, namespace: str, local: str) -> str | None:
        """The cluster queue behind a local one; None where it isn't listed."""
        return self.local.get((namespace, local))


def read_kueue(objects: Objects, report: Report) -> Kueue:
    """The queues and what binds their jobs to nodes."""
    kueue = Kueue()
    flavors = {entry.name: entry for entry in objects.of(GROUP, "ResourceFlavor")}
    named: dict[str, int] = {}
    for flavor in flavors.values():
        topology = text(flavor.spec.get("topologyName"))
        if topology:
            named[topology] = named.get(topology, 0) + 1
    kueue.topology = min(named, key=lambda key: (-named[key], key), default="")
    for entry in objects.of(GROUP, "Cohort"):
        kueue.queues.append(
            Queue(name=_cohort(entry.name), parent=_parent(entry.spec.get("parentName")))
        )
    cohorts = {queue.name for queue in kueue.queues}
    for entry in objects.of(GROUP, "ClusterQueue"):
        queue = _cluster_queue(entry, flavors, kueue, report)
        kueue.queues.append(queue)
        if queue.parent is not None and queue.parent not in cohorts:
            # A cohort needs no object of its own.
            cohorts.add(queue.parent)
            kueue.queues.append(Queue(name=queue.parent))
    for entry in objects.of(GROUP, "LocalQueue"):
        target = name(entry.spec.get("clusterQueue"), "")
        if not target:
            report.fault(f"{entry.path}.spec.clusterQueue", "required field is missing")
            continue
        kueue.local[entry.namespace, entry.name] = target
        if text(entry.spec.get("stopPolicy")) in ("Hold", "HoldAndDrain"):
            kueue.stopped.add(f"{entry.namespace}/{entry.name}")
    return kueue


def _cohort(cohort: str) -> str:
    # A cohort may have the name of a queue.
    return name(f"cohort/{cohort}", "cohort")


def _parent(value: object) -> str | None:
    return _cohort(text(value)) if text(value) else None


def _cluster_queue(
    entry: Object, flavors: dict[str, Object], kueue: Kueue, report: Report
) -> Queue:
    spec = entry.spec
    queue = name(entry.name, "queue")
    if text(spec.get("stopPolicy")) in ("Hold", "HoldAndDrain"):
        kueue.stopped.add(queue)
    nominal: Fraction | None = None
    borrow: Fraction | None = Fraction(0)
    lend: Fraction | None = Fraction(0)
    used: dict[str, None] = {}
    for group in listed(spec.get("resourceGroups")):
        for flavor in listed(group.get("flavors")):
            for resource in listed(flavor.get("resources")):
                if resource.get("name") != GPU:
                    continue
                used[text(flavor.get("name"))] = None
                quota = quantity(resource.get("nominalQuota"))
                if quota is None:
                    report.fault(
                        f"{entry.path}.spec.resourceGroups", f"{queue}: nominalQuota is missing"
                    )
                    quota = Fraction(0)
                nominal = (nominal or Fraction(0)) + quota
                borrow = _plus(borrow, quantity(resource.get("borrowingLimit")))
                lend = _plus(lend, quantity(resource.get("lendingLimit")))
        kinds = [kind for kind in _strings(group.get("coveredResources")) if kind != GPU]
        if kinds:
            report.warn(
                f"{entry.path}.spec.resourceGroups",
                f"quotas of other resources than {GPU} are not carried over",
            )
        if GPU not in _strings(group.get("coveredResources")) and not used:
            used = {text(flavor.get("name")): None for flavor in listed(group.get("flavors"))}
    kueue.flavors[queue] = _flavors(entry, list(used), flavors, report)
    parent = _parent(spec.get("cohortName") or spec.get("cohort"))
    limit = nominal
    if parent is not None and nominal is not None:
        limit = None if borrow is None else nominal + borrow
    return Queue(
        name=queue,
        parent=parent,
        weight=_weight(spec),
        guarantee=gpu_quota(nominal),
        limit=Limits(quota=gpu_quota(limit)),
        lending_limit=None if lend is None or nominal is None else gpu_quota(lend),
        order="strict_fifo" if spec.get("queueingStrategy") == "StrictFIFO" else "best_effort",
    )


def _plus(total: Fraction | None, more: Fraction | None) -> Fraction | None:
    return None if total is None or more is None else total + more


def _strings(value: object) -> list[str]:
    return [text(entry) for entry in value] if isinstance(value, list) else []


def _weight(spec: Json) -> int:
    """`fairSharing.weight`, a quantity; 1 where absent."""
    weight = quantity(at(spec, "fairSharing", "weight"))
    return max(1, min(1_000_000, round(weight))) if weight is not None else 1


def _flavors(entry: Object, used: list[str], flavors: dict[str, Object], report: Report) -> Flavors:
    found = Flavors()
    for key in used:
        flavor = flavors.get(key)
        if flavor is None:
            report.warn(
                f"{entry.path}.spec.resourceGroups",
                f"flavor {key} isn't listed: its queue may use any node",
            )
            found.terms.append({})
            continue
        found.terms.append(texts(flavor.spec.get("nodeLabels")))
        found.tolerations.extend(listed(flavor.spec.get("tolerations")))
    if len(found.terms) > 1:
        # Tolerations of one flavor hold on that flavor's nodes only.
        found.tolerations = [
            entry
            for entry in found.tolerations
            if all(
                entry in listed(mapping(flavors[key].spec).get("tolerations"))
                for key in used
                if key in flavors
            )
        ]
    return found


__all__ = ["GROUP", "QUEUE_LABEL", "Flavors", "Kueue", "read_kueue"]
