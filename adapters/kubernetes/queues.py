"""Decides which queues there are in the end: those of the documents, and what jobs need beside."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from trencadis.adapters.kubernetes.fields import down, listed, mapping, name, quantity
from trencadis.adapters.kubernetes.objects import Object
from trencadis.adapters.kubernetes.resources import GPU
from trencadis.adapters.slurm.report import Report
from trencadis.models.queues import Limits, Queue, Quota


def gpu_quota(gpus: Fraction | None) -> Quota:
    """A quota in GPUs, in thousandths where it isn't a whole number; none where None."""
    if gpus is None or gpus < 0:
        return Quota()
    if gpus.denominator == 1:
        return Quota(gpus=down(gpus))
    return Quota(gpu_milli=down(gpus * 1_000))


def gpus_in(table: object) -> Fraction | None:
    """The GPUs of a table of resources; None where it names none."""
    value = mapping(table).get(GPU)
    return None if value is None else quantity(value)


def namespace_queues(quotas: list[Object], used: Iterable[str]) -> list[Queue]:
    """A queue for each namespace that jobs use, limited by its ResourceQuota."""
    limits: dict[str, Fraction] = {}
    for entry in quotas:
        hard = mapping(entry.spec.get("hard"))
        if listed(mapping(entry.spec.get("scopeSelector")).get("matchExpressions")):
            continue
        value = quantity(hard.get(f"requests.{GPU}"))
        if value is not None:
            limits[entry.namespace] = min(value, limits.get(entry.namespace, value))
    return [
        Queue(name=queue, limit=Limits(quota=gpu_quota(limits.get(queue))))
        for queue in sorted(set(used))
    ]


def complete(queues: list[Queue], used: Iterable[str], report: Report) -> tuple[Queue, ...]:
    """All queues: parents that are named and not listed are made; of two of one name the first."""
    found: dict[str, Queue] = {}
    for queue in queues:
        found.setdefault(queue.name, queue)
    for queue in list(found.values()):
        parent = queue.parent
        if parent is not None and parent not in found:
            report.warn("queues", f"parent queue {parent} isn't listed: one without quota is made")
            found[parent] = Queue(name=parent)
    for queue_name in sorted(set(used) - found.keys()):
        report.warn("queues", "jobs name queues that aren't listed: each is made, without quota")
        found[queue_name] = Queue(name=queue_name)
    return tuple(found[key] for key in sorted(found))


def leaf(queue: str, queues: list[Queue], made: dict[str, Queue]) -> str:
    """The queue that takes jobs of `queue`: itself, or a leaf below it if it has children."""
    if any(entry.parent == queue for entry in queues):
        below = name(f"{queue}/jobs", "jobs")
        made.setdefault(below, Queue(name=below, parent=queue))
        return below
    return queue
