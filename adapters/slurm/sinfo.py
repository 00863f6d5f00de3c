"""Decides what the grouped records of a newer `sinfo --json` say about each node of a group."""

from __future__ import annotations

from typing import Any

from trencadis.adapters.slurm.fields import Record, number, text, words
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.report import Report


def node_records(
    groups: list[Record], document: str, report: Report
) -> list[tuple[str, dict[str, Any]]]:
    """Records like those of `scontrol show nodes`, one per node, with where each comes from.

    sinfo lists a node once per partition and puts nodes that look alike into one record, with sums
    for what is in use. A node's own part of a sum is known only where the record has one node
    (`sinfo -N --json`); elsewhere only the jobs tell what is in use.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for index, group in enumerate(groups):
        path = f"{document}:$.sinfo[{index}]"
        names = _names(path, group, report)
        partition = _partition(group)
        for name in names:
            if name not in found:
                found[name] = (path, _record(name, group, len(names)))
                if len(names) > 1 and number(_get(group, "cpus", "allocated")):
                    report.warn(
                        f"{path}.cpus",
                        "sinfo tells what is in use for the group only: give sinfo -N --json or"
                        " scontrol show nodes --json if the job document may lack jobs",
                    )
            if partition and partition not in found[name][1]["partitions"]:
                found[name][1]["partitions"].append(partition)
    return list(found.values())


def _names(path: str, group: Record, report: Report) -> list[str]:
    listed = _get(group, "nodes", "nodes")
    try:
        names = [name for entry in words_of(listed) for name in expand(entry)]
    except HostlistError as error:
        report.fault(f"{path}.nodes.nodes", str(error))
        return []
    # A partition without nodes has a record of its own, with no names and a total of 0.
    if not names and number(_get(group, "nodes", "total")) != 0:
        report.fault(f"{path}.nodes.nodes", "the names of the nodes are missing")
    return names


def words_of(value: Any) -> list[str]:
    """A list as it is; a string whole, since its commas may be inside brackets."""
    return [value] if isinstance(value, str) else words(value)


def _partition(group: Record) -> str:
    partition = group.get("partition")
    if isinstance(partition, dict):
        partition = partition.get("name") or partition.get("partition")
    return text(partition).rstrip("*")


def _record(name: str, group: Record, size: int) -> dict[str, Any]:
    # The smallest of the group: with `-e` all are equal, and without it nothing is promised twice.
    cpus = _get(group, "cpus", "minimum")
    if cpus is None:
        cpus = _get(group, "cpus", "total") if size == 1 else None
    record: dict[str, Any] = {
        "name": name,
        "cpus": cpus,
        "real_memory": _get(group, "memory", "minimum"),
        "state": _get(group, "node", "state", default=group.get("state")),
        "gres": _get(group, "gres", "total"),
        "features": _get(group, "features", "total"),
        "active_features": _get(group, "features", "active"),
        "reservation": group.get("reservation"),
        "partitions": [],
    }
    if size == 1:
        record |= {
            "gres_used": _get(group, "gres", "used"),
            "alloc_cpus": _get(group, "cpus", "allocated"),
            "alloc_memory": _get(group, "memory", "allocated"),
        }
    return record


def _get(value: Any, *keys: str, default: Any = None) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value
