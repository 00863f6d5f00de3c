"""Whether nodes, fabric and licences agree: names, GPU indices, places in the fabric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trencadis.models.cluster import Node
from trencadis.models.faults import Fault
from trencadis.models.snapshot import Snapshot

NODE_LEVEL = "node"
"""What `topology.level` calls the level below the fabric's finest."""


def check_cluster(snapshot: Snapshot) -> list[Fault]:
    """Faults of the cluster itself, jobs and queues aside."""
    faults = [
        *duplicates("$.nodes", "node", (node.name for node in snapshot.nodes)),
        *duplicates("$.licences", "licence", (entry.name for entry in snapshot.licences)),
        *_levels(snapshot),
        *_spares(snapshot),
    ]
    depth = len(snapshot.fabric.levels)
    for number, node in enumerate(snapshot.nodes):
        if len(node.fabric) > depth:
            faults.append(_too_deep(number, node, snapshot))
        if any(group.unhealthy for group in node.gpus):
            faults.extend(_unhealthy(number, node))
        if node.nvlink.links:
            faults.extend(_links(number, node))
        if node.mig:
            faults.extend(_mig(number, node))
    return faults


def duplicates(path: str, what: str, names: Iterable[str]) -> Iterator[Fault]:
    """A fault for each name that an earlier entry of the list has."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        before = first.setdefault(name, index)
        if before != index:
            yield Fault(
                f"{path}[{index}].name",
                f"there are two {what}s named {name}: entries {before} and {index}",
            )


def indices(count: int) -> str:
    """The GPU indices of a node with so many GPUs, in words."""
    if count == 0:
        return "it has no GPUs"
    return "it has GPU 0 only" if count == 1 else f"it has GPUs 0 to {count - 1}"


def _levels(snapshot: Snapshot) -> Iterator[Fault]:
    levels = snapshot.fabric.levels
    yield from duplicates("$.fabric.levels", "level", (level.name for level in levels))
    for index, level in enumerate(levels):
        if level.name == NODE_LEVEL:
            yield Fault(
                f"$.fabric.levels[{index}].name",
                "no level may be named node: that is what the level below the finest is called",
            )


def _spares(snapshot: Snapshot) -> Iterator[Fault]:
    levels = ("cluster", *(level.name for level in snapshot.fabric.levels))
    for index, entry in enumerate(snapshot.policy.spares):
        if entry.level not in levels:
            yield Fault(
                f"$.policy.spares[{index}].level",
                f"spares are kept by level {entry.level}; the levels are {', '.join(levels)}",
            )


def _too_deep(number: int, node: Node, snapshot: Snapshot) -> Fault:
    levels = [level.name for level in snapshot.fabric.levels]
    if levels:
        has = f"the fabric has {len(levels)} levels ({', '.join(levels)})"
    else:
        has = "the snapshot's fabric has no levels. Maybe fabric.levels is missing"
    return Fault(
        f"$.nodes[{number}].fabric",
        f"node {node.name} gives {len(node.fabric)} domains ({'/'.join(node.fabric)}); {has}",
    )


def _unhealthy(number: int, node: Node) -> Iterator[Fault]:
    first = 0
    for position, group in enumerate(node.gpus):
        path = f"$.nodes[{number}].gpus[{position}].unhealthy"
        last = first + group.count - 1
        seen: set[int] = set()
        for entry, gpu in enumerate(group.unhealthy):
            if not first <= gpu <= last:
                hint = ""
                if gpu < node.gpu_count:
                    hint = ". Maybe list it in its own group: indices run on from group to group"
                yield Fault(
                    f"{path}[{entry}]",
                    f"GPU {gpu} of node {node.name} isn't in this group ({group.model}), "
                    f"whose indices are {first} to {last}{hint}",
                )
            elif gpu in seen:
                yield Fault(f"{path}[{entry}]", f"GPU {gpu} of node {node.name} is listed twice")
            seen.add(gpu)
        first = last + 1


def _links(number: int, node: Node) -> Iterator[Fault]:
    count = node.gpu_count
    for entry, pair in enumerate(node.nvlink.links):
        path = f"$.nodes[{number}].nvlink.links[{entry}]"
        for gpu in sorted(set(pair)):
            if gpu >= count:
                yield Fault(path, f"node {node.name} has no GPU {gpu}: {indices(count)}")
        if pair[0] == pair[1]:
            yield Fault(path, f"GPU {pair[0]} of node {node.name} is linked to itself")


def _mig(number: int, node: Node) -> Iterator[Fault]:
    count = node.gpu_count
    seen: set[int] = set()
    for entry, gpu in enumerate(node.mig):
        path = f"$.nodes[{number}].mig[{entry}]"
        if gpu.gpu >= count:
            message = f"node {node.name} has no GPU {gpu.gpu}: {indices(count)}"
            yield Fault(f"{path}.gpu", message)
        elif gpu.gpu in seen:
            yield Fault(f"{path}.gpu", f"GPU {gpu.gpu} of node {node.name} is listed twice")
        seen.add(gpu.gpu)
        starts = [instance.start for instance in gpu.instances]
        if len(set(starts)) != len(starts):
            yield Fault(
                f"{path}.instances",
                f"two MIG instances of GPU {gpu.gpu} of node {node.name} start at the same slice",
            )
