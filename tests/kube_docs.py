"""Kubernetes objects as kubectl prints them, built in a line each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from trencadis.adapters.kubernetes import read_kubernetes
from trencadis.adapters.kubernetes.snapshot import Imported
from trencadis.models import Job, load_snapshot

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CREATED = "2026-03-01T11:00:00Z"
Doc = dict[str, Any]


def deep(base: Doc, more: Doc) -> Doc:
    """`base` with `more` laid over it, objects merged."""
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = deep(old, value) if both else value
    return merged


def thing(kind: str, name: str, version: str = "v1", **more: Any) -> Doc:
    meta = {"name": name, "creationTimestamp": CREATED, **more.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def node(name: str, gpus: int = 8, labels: Doc | None = None, **more: Any) -> Doc:
    offered = {"cpu": "96", "memory": "1Ti", "pods": "110"}
    if gpus:
        offered["nvidia.com/gpu"] = str(gpus)
    own = {"kubernetes.io/hostname": name}
    if gpus:
        own |= {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    made = thing("Node", name, metadata={"labels": own | (labels or {})})
    made["status"] = {"allocatable": offered, "capacity": dict(offered)}
    return deep(made, more)


def pod(name: str, gpus: int = 1, on: str = "", **more: Any) -> Doc:
    requests = {"cpu": "4", "memory": "16Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    made = thing(
        "Pod", name, metadata={"namespace": "ml", "uid": f"uid-{name}"},
        spec={"containers": [{"name": "c", "resources": {"requests": requests}}]},
        status={"phase": "Running" if on else "Pending"},
    )  # fmt: skip
    if on:
        made["spec"]["nodeName"] = on
        made["status"]["startTime"] = CREATED
    return deep(made, more)


def listing(*objects: Doc) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


class Read:
    """An import with its parts by name."""

    def __init__(self, found: Imported) -> None:
        # What the importer makes must be what the loader takes.
        assert load_snapshot(found.snapshot.model_dump_json())[0] == found.snapshot
        self.snapshot, self.pods = found.snapshot, found.pods
        self.warnings = [str(warning) for warning in found.warnings]
        self.jobs: dict[str, Job] = {job.name: job for job in found.snapshot.jobs}
        self.nodes = {entry.name: entry for entry in found.snapshot.nodes}
        self.queues = {queue.name: queue for queue in found.snapshot.queues}

    def warned(self, words: str) -> bool:
        return any(words in line for line in self.warnings)

    def may_run_on(self, name: str) -> set[str]:
        job = self.jobs[name]
        return {
            entry.name
            for entry in self.snapshot.nodes
            if all(entry.labels.get(k) == v for k, v in job.node_selector.items())
        }


def read(*objects: Doc, **options: Any) -> Read:
    options.setdefault("now", NOW)
    return Read(read_kubernetes([("list", listing(*objects))], **options))
