"""Decides what objects say of themselves: gates, pins, owners, and the marks that we left."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trencadis.adapters.kubernetes.fields import at, instant, listed, mapping, text, whole

NODE = "trencadis.io/node"
"""Annotation of a pod: the node that a start named. Its selector says the same."""
START = "trencadis.io/start"
"""Annotation of a pod: when it was named. Pods of one start have the same."""
SUSPENDED = "trencadis.io/suspended"
"""Annotation of an owner that we have suspended, and when: only such are resumed."""
RESUMING = "resuming"
"""How its value begins while a Command resumes it: until that is carried out it is suspended."""
GROUP = "trencadis.io/group"
"""Annotation of a Volcano job that we have suspended: the PodGroup that its pods had."""
HOSTNAME = "kubernetes.io/hostname"
OVER = ("Succeeded", "Failed")


def namespace(record: Mapping[str, Any]) -> str:
    """`metadata.namespace`."""
    return text(at(record, "metadata", "namespace")) or "default"


def name(record: Mapping[str, Any]) -> str:
    """`metadata.name`."""
    return text(at(record, "metadata", "name"))


def uid(record: Mapping[str, Any]) -> str:
    """`metadata.uid`."""
    return text(at(record, "metadata", "uid"))


def version(record: Mapping[str, Any]) -> str:
    """`metadata.resourceVersion`."""
    return text(at(record, "metadata", "resourceVersion"))


def annotation(record: Mapping[str, Any], key: str) -> str:
    """An annotation; empty where there is none."""
    return text(mapping(at(record, "metadata", "annotations")).get(key))


def node(pod: Mapping[str, Any]) -> str:
    """Where the pod is bound."""
    return text(at(pod, "spec", "nodeName"))


def gates(pod: Mapping[str, Any]) -> list[str]:
    """Names of the scheduling gates."""
    return [text(gate.get("name")) for gate in listed(at(pod, "spec", "schedulingGates"))]


def pin(pod: Mapping[str, Any]) -> str:
    """The node that a start of ours named for the pod; empty where none did.

    An annotation that came with the pod's template names nothing: the selector must say it as well.
    """
    named = annotation(pod, NODE)
    return named if named and HOSTNAME in mapping(at(pod, "spec", "nodeSelector")) else ""


def deleted(record: Mapping[str, Any]) -> datetime | None:
    """`metadata.deletionTimestamp`: when its grace is over."""
    return instant(at(record, "metadata", "deletionTimestamp"))


def phase(pod: Mapping[str, Any]) -> str:
    """`status.phase`."""
    return text(at(pod, "status", "phase"))


def living(pod: Mapping[str, Any]) -> bool:
    """Whether it waits or runs, and isn't being deleted."""
    return phase(pod) not in OVER and deleted(pod) is None


def controller(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The owner that controls it; empty where there is none."""
    owners = listed(at(record, "metadata", "ownerReferences"))
    return next((owner for owner in owners if owner.get("controller")), {})


def ready(pod: Mapping[str, Any]) -> bool:
    """Whether it counts for a disruption budget."""
    conditions = listed(at(pod, "status", "conditions"))
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def conditions(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions that hold, by type."""
    found = listed(at(record, "status", "conditions"))
    return {text(c.get("type")): c for c in found if c.get("status") == "True"}


def order(pod: Mapping[str, Any]) -> tuple[int, str]:
    """Pods of a gang in order: by the index that their Job gave them, then by name."""
    index = whole(annotation(pod, "batch.kubernetes.io/job-completion-index"))
    return (0 if index is None else index, name(pod))
