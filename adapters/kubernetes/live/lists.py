"""Decides which lists of the API server are read: what the import knows, where it is served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trencadis.adapters.kubernetes.live.api import Api, Json, MissingError, listing

BATCH, CORE, KUEUE = "batch", "", "kueue.x-k8s.io"
JOB_SET, VOLCANO_JOB, VOLCANO_BUS = "jobset.x-k8s.io", "batch.volcano.sh", "bus.volcano.sh"
JOBS = (BATCH, "jobs")
NODES = (CORE, "nodes")
PODS = (CORE, "pods")
BIND_REQUESTS = ("scheduling.run.ai", "bindrequests")
BUDGETS = ("policy", "poddisruptionbudgets")
PRIORITIES = ("scheduling.k8s.io", "priorityclasses")

_LISTS: dict[str, tuple[str, ...]] = {
    # Owners before their pods: a pod whose owner is already over is read as one of its own.
    BATCH: ("jobs",),
    JOB_SET: ("jobsets",),
    VOLCANO_JOB: ("jobs",),
    CORE: ("nodes", "pods", "resourcequotas"),
    "policy": ("poddisruptionbudgets",),
    "scheduling.k8s.io": ("priorityclasses",),
    KUEUE: (
        "clusterqueues", "localqueues", "cohorts", "resourceflavors", "topologies", "workloads",
        "workloadpriorityclasses",
    ),
    "scheduling.volcano.sh": ("queues", "podgroups"),
    "topology.volcano.sh": ("hypernodes",),
    "scheduling.run.ai": ("queues", "podgroups", "bindrequests"),
    "kai.scheduler": ("topologies",),
    "resource.k8s.io": ("resourceslices", "resourceclaims", "resourceclaimtemplates"),
}  # fmt: skip


_VERSIONS = {"queues": "v2", "podgroups": "v2alpha2", "bindrequests": "v1alpha2"}
"""Of KAI's group, whose kinds have versions of their own."""


@dataclass(slots=True)
class Lists:
    """The objects of one reading, by group and resource."""

    found: dict[tuple[str, str], Json] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    """Group and version, as paths have it, by group."""

    def of(self, kind: tuple[str, str]) -> list[Json]:
        """The objects of one kind; none where it isn't served."""
        items = self.found.get(kind, {}).get("items", [])
        return [item for item in items if isinstance(item, dict)]

    def replace(self, kind: tuple[str, str], items: Iterable[Json]) -> None:
        """Puts other objects in their place."""
        if kind in self.found:
            self.found[kind] = {**self.found[kind], "items": list(items)}

    def path(self, kind: tuple[str, str], namespace: str = "", name: str = "") -> str:
        """The path of a list, of a namespace's part of it, or of one object."""
        group, resource = kind
        version = self.versions[group] if group else ""
        if group == BIND_REQUESTS[0]:
            version = f"{group}/{_VERSIONS[resource]}"
        root = f"/apis/{version}" if group else "/api/v1"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{within}/{resource}" + (f"/{name}" if name else "")


def read_versions(api: Api) -> dict[str, str]:
    """The preferred version of each API group that is served."""
    return {
        str(group["name"]): str(group["preferredVersion"]["groupVersion"])
        for group in api.get("/apis").get("groups") or []
    }


def read_lists(api: Api) -> Lists:
    """All of them. Kinds that aren't served are left out."""
    lists = Lists(versions=read_versions(api))
    for kind in _kinds(lists):
        try:
            lists.found[kind] = listing(api, lists.path(kind))
        except MissingError:
            continue
    return lists


def _kinds(lists: Lists) -> Iterator[tuple[str, str]]:
    for group, resources in _LISTS.items():
        if not group or group in lists.versions:
            for resource in resources:
                yield group, resource
