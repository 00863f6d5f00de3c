"""Whether Slurm's own preemption acts in scope: two that stop jobs would fight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trencadis.adapters.live.config import Scope
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.live.qos import preempting

Partition = Mapping[str, str]


def objections(
    settings: Mapping[str, str],
    partitions: Sequence[Partition],
    qos: Callable[[], str | None],
    scope: Scope,
) -> list[str]:
    """A sentence for each way in which Slurm would stop jobs, or hand their GPUs to others."""
    names = [partition.get("PartitionName", "") for partition in partitions]
    found = [
        f"partition {pool} of the scope is not there; there are {', '.join(names)}"
        for pool in scope.pools
        if pool not in names
    ]
    kind = settings.get("PreemptType", "preempt/none")
    mode = settings.get("PreemptMode", "OFF").upper()
    if kind == "preempt/none" or mode == "OFF":
        return found
    if kind == "preempt/qos":
        table = qos()
        if table is None:
            return [*found, "PreemptType=preempt/qos, and sacctmgr doesn't tell which QOS preempt"]
        return found + [
            f"QOS {name} preempts others (PreemptType=preempt/qos). Maybe clear its Preempt list"
            for name in preempting(table)
        ]
    return found + _by_partition(partitions, mode, scope)


def _by_partition(partitions: Sequence[Partition], mode: str, scope: Scope) -> list[str]:
    found = []
    mine = [p for p in partitions if scope.has_pools([p.get("PartitionName", "")])]
    for low in partitions:
        own = low.get("PreemptMode", mode).upper()
        if own == "OFF":
            continue
        for high in partitions:
            if _tier(high) <= _tier(low) or not (low in mine or high in mine):
                continue
            shared = _nodes(low) & _nodes(high)
            if any(scope.has_node(node) for node in shared):
                found.append(
                    f"jobs of partition {high['PartitionName']} preempt those of"
                    f" {low['PartitionName']} (PriorityTier, PreemptMode={own})."
                    f" Maybe set PreemptMode=OFF for {low['PartitionName']}"
                )
    return found


def _tier(partition: Partition) -> int:
    text = partition.get("PriorityTier", "1")
    return int(text) if text.isdecimal() else 1


def _nodes(partition: Partition) -> set[str]:
    try:
        return set(expand(partition.get("Nodes", "")))
    except HostlistError:
        return set()
