"""Decides whether others preempt here by themselves: two that stop jobs would fight."""

from __future__ import annotations

from trencadis.adapters.kubernetes.fields import at, text, whole
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Api, MissingError, listing
from trencadis.adapters.kubernetes.live.lists import KUEUE, PRIORITIES, Lists, read_versions
from trencadis.adapters.live.cluster import RefusedError, UnavailableError
from trencadis.adapters.live.config import Scope


def objections(api: Api, scope: Scope, *, allow: bool) -> list[str]:
    """A sentence for each namespace that is missing, and each way in which others preempt."""
    try:
        lists = Lists(versions=read_versions(api))
        found = [
            f"namespace {namespace} of the scope is not there"
            for namespace in scope.pools
            if not _exists(api, namespace)
        ]
        return found if allow else [*found, *_classes(api, lists), *_kueue(api, lists)]
    except RefusedError as error:
        raise UnavailableError(str(error)) from None


def _exists(api: Api, namespace: str) -> bool:
    try:
        api.get(f"/api/v1/namespaces/{namespace}")
    except MissingError:
        return False
    return True


def _classes(api: Api, lists: Lists) -> list[str]:
    """PriorityClasses whose pods kube-scheduler makes room for, at the cost of lower ones."""
    classes = [
        record
        for record in listing(api, lists.path(PRIORITIES))["items"]
        if not records.name(record).startswith("system-")
    ]
    default = next((whole(c.get("value")) for c in classes if c.get("globalDefault")), 0)
    lowest = min([default or 0, *(whole(c.get("value")) or 0 for c in classes)])
    return [
        f"pods of PriorityClass {records.name(record)} preempt others."
        " Maybe preemptionPolicy: Never?"
        for record in classes
        if record.get("preemptionPolicy") != "Never" and (whole(record.get("value")) or 0) > lowest
    ]


def _kueue(api: Api, lists: Lists) -> list[str]:
    if KUEUE not in lists.versions:
        return []
    found = []
    for queue in listing(api, lists.path((KUEUE, "clusterqueues")))["items"]:
        for key in ("withinClusterQueue", "reclaimWithinCohort"):
            value = text(at(queue, "spec", "preemption", key))
            if value not in ("", "Never"):
                found.append(f"ClusterQueue {records.name(queue)} preempts others ({key}: {value})")
    return found
