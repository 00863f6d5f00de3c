"""Decides nothing itself: what the modules that read jobs share of the cluster and the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from trencadis.adapters.slurm.fields import name
from trencadis.adapters.slurm.nodes import SlurmNode
from trencadis.adapters.slurm.partitions import Partition
from trencadis.adapters.slurm.report import Report
from trencadis.adapters.slurm.reservations import Reservation
from trencadis.adapters.slurm.topology import Placement
from trencadis.models.policy import Policy


@dataclass(frozen=True, slots=True)
class Options:
    """What the documents leave to the caller."""

    queue_by: Literal["account", "partition"] = "account"
    tiers: Mapping[str, str] = field(default_factory=dict)
    """Tier by QOS; a QOS called like a tier needs no entry."""
    policy: Policy = field(default_factory=Policy)
    held: Literal["held", "pending"] = "held"
    """`pending`: jobs that a user or administrator holds count as waiting, for those who start
    jobs by releasing them."""
    array_tasks: int = 1_000
    """Pending tasks of one array that are read; the rest is left out."""
    switch_wait_seconds: int = 300
    """How long a job insists on its switches where the document gives no time: Slurm's default."""


@dataclass(slots=True)
class Context:
    """The cluster that the jobs are read against."""

    options: Options
    now: datetime
    nodes: dict[str, SlurmNode]
    placement: Placement
    partitions: dict[str, Partition]
    reservations: dict[str, Reservation]
    knows_reservations: bool
    report: Report
    _members: dict[str, int] = field(default_factory=dict)

    def mark(self, label: str, belongs: Callable[[SlurmNode], bool]) -> dict[str, str]:
        """A selector for exactly the nodes that belong, by a label that they get; maybe none do.

        Equal labels must mean the same nodes: they are looked for once.
        """
        key = name(label, "label")
        if key not in self._members:
            members = [node for node in self.nodes.values() if belongs(node)]
            for node in members:
                node.set(labels={**node.node.labels, key: "yes"})
            self._members[key] = len(members)
        return {key: "yes"}

    def anywhere(self, selector: dict[str, str]) -> bool:
        """Whether any node has the label that `mark` gave."""
        return all(self._members.get(key, 0) for key in selector)

    def largest(self, models: tuple[str, ...]) -> int:
        """The most healthy GPUs of one of the models on a node; any model where none is named."""
        most = 0
        for node in self.nodes.values():
            counts: dict[str, int] = {}
            for model in node.node.healthy_gpus().values():
                counts[model] = counts.get(model, 0) + 1
            most = max(most, *(n for m, n in counts.items() if not models or m in models), 0, 0)
        return most
