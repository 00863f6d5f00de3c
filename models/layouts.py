"""MIG layouts of nodes after a plan."""

from __future__ import annotations

from collections.abc import Sequence

from trencadis.models.cluster import MigGpu, MigInstance, Node
from trencadis.models.instances import Held, held_instances
from trencadis.models.plan import Move, Reconfigure
from trencadis.models.snapshot import Snapshot


class PlanMismatchError(ValueError):
    """The plan was made for another snapshot, or names what this one does not have."""


def with_left(
    nodes: tuple[Node, ...], snapshot: Snapshot, moves: Sequence[Move]
) -> tuple[Node, ...]:
    """The nodes with the instances that moved jobs leave: they stay, idle."""
    gone = {move.job for move in moves}
    held = held_instances(snapshot)
    touched = {
        (task.node, gpu)
        for job in snapshot.jobs
        if job.name in gone
        for task in job.allocation
        if task.mig
        for gpu in task.gpus or ()
    }
    if not touched:
        return nodes

    def entry_of(node: Node, entry: MigGpu) -> MigGpu:
        key = node.name, entry.gpu
        if key not in touched:
            return entry
        there = {*entry.instances, *held.get(key, ())}
        return MigGpu(gpu=entry.gpu, instances=tuple(sorted(there, key=_start)))

    return tuple(
        node.model_copy(update={"mig": tuple(entry_of(node, entry) for entry in node.mig)})
        if any((node.name, entry.gpu) in touched for entry in node.mig)
        else node
        for node in nodes
    )


def with_layouts(
    nodes: tuple[Node, ...], changes: Sequence[Reconfigure], held: Held
) -> tuple[Node, ...]:
    """The nodes with new MIG layouts, one change after the other.

    Raises PlanMismatchError where a change starts from another layout than there is.
    """
    wanted: dict[str, list[Reconfigure]] = {}
    for change in sorted(changes, key=lambda change: change.step):
        wanted.setdefault(change.node, []).append(change)
    changed = []
    for node in nodes:
        here = wanted.pop(node.name, None)
        changed.append(node if here is None else _changed(node, here, held))
    if wanted:
        raise PlanMismatchError(f"the plan changes unknown nodes: {', '.join(sorted(wanted)[:5])}")
    return tuple(changed)


def _changed(node: Node, changes: Sequence[Reconfigure], held: Held) -> Node:
    mig = {
        entry.gpu: {*entry.instances, *held.get((node.name, entry.gpu), ())} for entry in node.mig
    }
    listed = {entry.gpu: entry.instances for entry in node.mig}
    for change in changes:
        where = f"GPU {change.gpu} of node {node.name}"
        present = mig.get(change.gpu)
        if present is None and not change.turn_on:
            raise PlanMismatchError(f"{where} is not in MIG mode")
        if present is not None and (set(change.before) != present or change.turn_on):
            raise PlanMismatchError(f"the plan changes {where} from another MIG layout")
        if change.turn_off:
            if change.after:
                raise PlanMismatchError(
                    f"the plan turns MIG off on {where}, and keeps instances there"
                )
            del mig[change.gpu], listed[change.gpu]
        else:
            mig[change.gpu], listed[change.gpu] = set(change.after), change.after
    entries = tuple(MigGpu(gpu=gpu, instances=listed[gpu]) for gpu in sorted(listed))
    return node.model_copy(update={"mig": entries})


def _start(instance: MigInstance) -> int:
    return instance.start
