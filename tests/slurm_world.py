"""Slurm documents read as a snapshot, with its parts at hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from slurm_docs import NOW, document, node

from trencadis.adapters.slurm import read_slurm
from trencadis.models import (
    Fault,
    InvalidInputError,
    Job,
    Snapshot,
    load_snapshot,
)

AT = datetime.fromtimestamp(NOW, tz=UTC)


class World:
    """A snapshot with its warnings, and its parts by name."""

    def __init__(self, snapshot: Snapshot, warnings: list[Fault]) -> None:
        self.snapshot = snapshot
        self.warnings = [str(warning) for warning in warnings]
        self.jobs: dict[str, Job] = {entry.name: entry for entry in snapshot.jobs}
        self.nodes = {entry.name: entry for entry in snapshot.nodes}

    def warned(self, text: str) -> bool:
        return any(text in line for line in self.warnings)

    def may_run_on(self, name: str) -> set[str]:
        """Nodes that the job's selector, lists and tolerations leave."""
        entry = self.jobs[name]
        return {
            n.name
            for n in self.snapshot.nodes
            if all(n.labels.get(k) == v for k, v in entry.node_selector.items())
            and n.name not in entry.excluded_nodes
            and (not entry.required_nodes or n.name in entry.required_nodes)
            and all(any(t.key == taint.key for t in entry.tolerations) for taint in n.taints)
            and not (n.down or n.cordoned)
        }


def read(
    shape: str, jobs: list[dict[str, Any]], nodes: list[dict[str, Any]] | None = None, **more: Any
) -> World:
    nodes = [node(shape, f"g{i}") for i in range(1, 5)] if nodes is None else nodes
    topology = more.pop("topology", None)
    more.setdefault("now", AT)
    snapshot, warnings = read_slurm(
        document(shape, "jobs", *jobs), document(shape, "nodes", *nodes), topology, **more
    )
    # What the importer makes must be what the loader takes.
    assert load_snapshot(snapshot.model_dump_json())[0] == snapshot
    return World(snapshot, warnings)


def faults(jobs: str | bytes, nodes: str | bytes, **more: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read_slurm(jobs, nodes, **more)
    assert all("\n" not in str(fault) for fault in caught.value.faults)
    return [str(fault) for fault in caught.value.faults]


def partition(name: str, nodes: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "nodes": {"configured": nodes}, "partition": {"state": ["UP"]}} | more
