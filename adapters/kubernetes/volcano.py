"""Decides what Volcano's objects mean: queues with their hierarchy, PodGroups as gangs."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from trencadis.adapters.kubernetes.fields import at, listed, mapping, name, quantity, text, whole
from trencadis.adapters.kubernetes.objects import Object, Objects
from trencadis.adapters.kubernetes.priorities import Priorities
from trencadis.adapters.kubernetes.queues import gpu_quota, gpus_in
from trencadis.adapters.kubernetes.topology import Levels
from trencadis.adapters.slurm.report import Report
from trencadis.models.jobs import Segments, Topology
from trencadis.models.queues import Limits, Queue

GROUP = "scheduling.volcano.sh"
TOPOLOGY_GROUP = "topology.volcano.sh"
GROUP_NAMES = (f"{GROUP}/group-name", "scheduling.k8s.io/group-name")
"""Pod annotations that name the PodGroup."""

_OPEN = ("", "Open", "Unknown")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A gang as its own object says it, for Volcano and KAI alike."""

    path: str
    name: str
    namespace: str
    queue: str
    minimum: int | None
    priority: int | None = None
    topology: Topology | None = None
    segments: Segments | None = None
    preemptible: bool = True
    held: str = ""
    minimum_resources: dict[str, object] = field(default_factory=dict)
    """What the minimum needs in all, where the pods aren't made yet."""


def read_queues(objects: Objects, report: Report) -> tuple[list[Queue], set[str]]:
    """Volcano's queues, and those that are closed."""
    queues: dict[str, Queue] = {}
    closed: set[str] = set()
    for entry in objects.of(GROUP, "Queue"):
        spec = entry.spec
        if text(entry.status.get("state")) not in _OPEN:
            closed.add(entry.name)
        guarantee = gpus_in(at(spec, "guarantee", "resource"))
        deserved = gpus_in(spec.get("deserved"))
        promised = max((q for q in (guarantee, deserved) if q is not None), default=None)
        lending = None
        if guarantee is not None and promised is not None:
            # What is guaranteed is kept free for the queue; only what it deserves beyond is lent.
            lending = gpu_quota(promised - guarantee)
        parent = text(spec.get("parent"))
        parent, weight = _hierarchy(entry, parent, queues)
        queues[entry.name] = Queue(
            name=name(entry.name, "queue"),
            parent=None if parent in ("", entry.name) else name(parent, "root"),
            weight=weight,
            guarantee=gpu_quota(promised),
            limit=Limits(quota=gpu_quota(gpus_in(spec.get("capability")))),
            lending_limit=lending,
        )
        if spec.get("reclaimable") is False:
            report.warn(
                f"{entry.path}.spec.reclaimable",
                "a queue that may not be reclaimed: its jobs are read as not preemptible",
            )
    names = set(queues)
    # The root is the cluster itself unless it is listed with a quota of its own.
    found = [
        queue.model_copy(update={"parent": None})
        if queue.parent == "root" and "root" not in names
        else queue
        for queue in queues.values()
    ]
    return found, closed


def _hierarchy(entry: Object, parent: str, queues: dict[str, Queue]) -> tuple[str, int]:
    """Parent and weight; an older annotation gives the path with a weight for each step."""
    own = whole(entry.spec.get("weight"))
    steps = [part for part in entry.annotations.get("volcano.sh/hierarchy", "").split("/") if part]
    weights = entry.annotations.get("volcano.sh/hierarchy-weights", "").split("/")
    if parent or len(steps) < 2:
        return parent, max(1, own or 1)
    numbers = [max(1, whole(word) or 1) for word in weights] + [1] * len(steps)
    above = ""
    for depth in range(1, len(steps) - 1):
        node = "/".join(steps[: depth + 1])
        queues.setdefault(
            node, Queue(name=name(node, "queue"), parent=above or None, weight=numbers[depth])
        )
        above = name(node, "queue")
    return above, numbers[len(steps) - 1]


def unreclaimable(objects: Objects) -> set[str]:
    """Queues whose jobs nobody may reclaim."""
    return {q.name for q in objects.of(GROUP, "Queue") if q.spec.get("reclaimable") is False}


def read_pod_groups(
    objects: Objects, levels: Levels, priorities: Priorities, report: Report
) -> list[PodGroup]:
    """Volcano's PodGroups that aren't over."""
    found = []
    for entry in objects.of(GROUP, "PodGroup"):
        if text(entry.status.get("phase")) == "Completed":
            continue
        spec = entry.spec
        minimum = whole(spec.get("minMember"))
        if minimum is None:
            report.fault(
                f"{entry.path}.spec.minMember", f"PodGroup {entry.name}: required number is missing"
            )
            continue
        topology, held = _topology(mapping(spec.get("networkTopology")), levels)
        segments, why = _segments(entry, minimum, levels)
        class_name = text(spec.get("priorityClassName"))
        found.append(
            PodGroup(
                path=entry.path,
                name=entry.name,
                namespace=entry.namespace,
                queue=text(spec.get("queue")) or "default",
                minimum=max(1, minimum),
                priority=priorities.value(class_name, None) if class_name else None,
                topology=topology,
                segments=segments,
                preemptible=entry.annotations.get("volcano.sh/preemptable") != "false",
                held=held or why,
                minimum_resources=dict(mapping(spec.get("minResources"))),
            )
        )
    return found


def _topology(wanted: object, levels: Levels) -> tuple[Topology | None, str]:
    tier = whole(at(wanted, "highestTierAllowed"))
    hard = text(at(wanted, "mode")) != "soft"
    if tier is None:
        return None, ""
    level = levels.within_tier(tier)
    if level is None:
        return None, f"no HyperNode tells what tier {tier} is" if hard else ""
    return Topology(level=level, mode="required" if hard else "preferred"), ""


def _segments(entry: Object, minimum: int, levels: Levels) -> tuple[Segments | None, str]:
    """Subgroups of one size that must be near to each other."""
    policies = listed(entry.spec.get("subGroupPolicy"))
    near = [policy for policy in policies if policy.get("networkTopology")]
    if not near:
        return None, ""
    size = whole(near[0].get("subGroupSize"))
    topology, held = _topology(mapping(near[0].get("networkTopology")), levels)
    if held or topology is None or topology.mode != "required":
        return None, held
    if len(policies) > 1 or size is None or size < 1 or minimum % size:
        return None, "its subgroups are not all of one size"
    return Segments(tasks=size, level=topology.level), ""


def minimum_request(group: PodGroup) -> dict[str, Fraction]:
    """The part of one member in what the minimum needs."""
    found: dict[str, Fraction] = {}
    for key, value in group.minimum_resources.items():
        number = quantity(value)
        if number is not None and key not in ("pods", "count/pods"):
            found[key.removeprefix("requests.")] = number / (group.minimum or 1)
    return found
