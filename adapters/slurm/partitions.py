"""Decides which nodes a partition has, whether it starts jobs, and for how long they may run."""

from __future__ import annotations

from dataclasses import dataclass

from trencadis.adapters.slurm.fields import (
    Record,
    count,
    entries,
    name,
    number,
    states,
    text,
)
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.nodes import SlurmNode
from trencadis.adapters.slurm.report import Report

# A partition that drains takes no new submissions, but starts what is queued.
_CLOSED = frozenset({"DOWN", "INACTIVE"})


@dataclass(frozen=True, slots=True)
class Partition:
    """What matters here of a partition."""

    name: str
    open: bool = True
    default_minutes: int | None = None
    max_minutes: int | None = None
    grace_seconds: int = 0
    exclusive: bool = False
    """Gives out whole nodes only."""


def read_partitions(
    doc: Record, document: str, nodes: dict[str, SlurmNode], report: Report
) -> dict[str, Partition]:
    """The partitions by name; their nodes get the label `partition/NAME`."""
    found: dict[str, Partition] = {}
    for index, record in enumerate(entries(doc, "partitions", document)):
        path = f"{document}:$.partitions[{index}]"
        partition = name(record.get("name"), "")
        if not partition:
            report.fault(f"{path}.name", "required field is missing")
            continue
        configured = record.get("nodes")
        if isinstance(configured, dict):
            configured = configured.get("configured")
        try:
            members = expand(text(configured))
        except HostlistError as error:
            report.fault(f"{path}.nodes", str(error))
            continue
        for member in members:
            if member in nodes:
                node = nodes[member]
                node.partitions |= {partition}
                node.set(labels={**node.node.labels, f"partition/{partition}"[:253]: "yes"})
        state = _inside(record, "partition").get("state", record.get("state"))
        found[partition] = Partition(
            name=partition,
            open=not states(state) & _CLOSED,
            default_minutes=number(_inside(record, "defaults").get("time")),
            max_minutes=number(_inside(record, "maximums").get("time")),
            grace_seconds=count(record.get("grace_time")),
            # Slurm's number for OverSubscribe=EXCLUSIVE; NO is 1.
            exclusive=number(_inside(record, "maximums").get("shares")) == 0,
        )
    return found


def _inside(record: Record, key: str) -> Record:
    value = record.get(key)
    return value if isinstance(value, dict) else {}
