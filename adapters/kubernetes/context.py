"""Decides nothing itself: what the modules that read pods share of the cluster and the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from trencadis.adapters.kubernetes.claims import Claims
from trencadis.adapters.kubernetes.nodes import KubeNode
from trencadis.adapters.kubernetes.priorities import Priorities
from trencadis.adapters.kubernetes.resources import Sharing
from trencadis.adapters.kubernetes.topology import Levels
from trencadis.adapters.slurm.report import Report
from trencadis.models.policy import Policy

KUEUE_GATES = ("kueue.x-k8s.io/topology", "kueue.x-k8s.io/admission")


@dataclass(frozen=True, slots=True)
class Options:
    """What the documents leave to the caller."""

    gangs: Literal["group", "owner"] = "group"
    """`group`: pods of a PodGroup or Workload start together; `owner`: those of a Job as well."""
    gates: tuple[str, ...] = ()
    """Scheduling gates that wait for us: pods that have others are held."""
    levels: tuple[str, ...] = ()
    """Node labels of the fabric, widest first; found out where empty."""
    policy: Policy | None = None


@dataclass(slots=True)
class Context:
    """The cluster that the pods are read against."""

    options: Options
    now: datetime
    nodes: dict[str, KubeNode]
    levels: Levels
    priorities: Priorities
    claims: Claims
    sharing: Sharing
    report: Report
    _marks: dict[str, bool] = field(default_factory=dict)

    def mark(self, label: str, belongs: Callable[[KubeNode], bool]) -> dict[str, str]:
        """A selector for exactly the nodes that belong, by a label that they get.

        Equal labels must mean the same nodes: they are looked for once.
        """
        if label not in self._marks:
            members = [node for node in self.nodes.values() if belongs(node)]
            for node in members:
                node.label(label, "yes")
            self._marks[label] = bool(members)
        return {label: "yes"}

    def select(self, wanted: dict[str, str]) -> dict[str, str]:
        """A selector by labels of the cluster's own; the nodes of the schema get those labels."""
        for key, value in wanted.items():
            mark = f"\0{key}\0{value}"
            if mark not in self._marks:
                self._marks[mark] = True
                for node in self.nodes.values():
                    if node.labels.get(key) == value:
                        node.label(key, value)
        return wanted
