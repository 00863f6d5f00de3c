"""Allocations of slices and shares, and the new MIG layouts that they take, in a safe order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trencadis.models import Job, MigInstance, Node, TaskAllocation
from trencadis.models.instances import held_instances
from trencadis.models.mig import MigTable
from trencadis.models.plan import Reconfigure
from trencadis.solver.fragmentation import reconfiguration
from trencadis.solver.model.problem import Facts
from trencadis.solver.pieces import Piece
from trencadis.solver.score import Left, Placement
from trencadis.solver.slices import Cutter


def sliced_task(node: str, job: Job, pieces: Sequence[tuple[int, int, Piece]]) -> TaskAllocation:
    """The allocation of a task that has slices or a share."""
    placed = sorted(pieces)
    return TaskAllocation(
        node=node,
        gpus=tuple(gpu for gpu, _, _ in placed),
        mig=tuple(
            MigInstance(profile=piece.profile, start=start)
            for _, start, piece in placed
            if piece.profile
        ),
        share=job.request.share,
    )


def reconfigures(
    facts: Facts,
    placements: Mapping[str, Placement],
    after: Mapping[str, Left],
    nodes: Mapping[str, Node],
) -> tuple[Reconfigure, ...]:
    """The GPUs whose layout changes. No running job is touched, so any order is safe in itself;
    GPUs to be reset come first, while nothing has started on their nodes."""
    wanted: defaultdict[tuple[str, int], list[MigInstance]] = defaultdict(list)
    for placement in placements.values():
        for task in placement.tasks:
            for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
                wanted[(task.node, gpu)].append(instance)
    knife = facts.capacity.cutter
    found: list[Reconfigure] = []
    held = held_instances(facts.snapshot) if wanted else {}
    states = {state.name: state for state in facts.capacity.states}
    for (name, gpu), new in sorted(wanted.items()):
        node = nodes[name]
        model = node.healthy_gpus()[gpu]
        present = next((entry.instances for entry in node.mig if entry.gpu == gpu), None)
        before = {*(present or ()), *held.get((name, gpu), ())}
        state = states[name]
        idle: set[MigInstance] = set()
        if present is not None:
            cut = dict(zip(state.cut_gpus, state.cuts, strict=True))[gpu]
            table = knife.tables[model]
            standing = getattr(cut, "idle", ())
            idle = {MigInstance(profile=table.profiles[p].name, start=s) for s, p in standing}
        pinned = sorted(before - idle, key=_start)
        layout = keep_idle(knife, model, [*pinned, *new], sorted(idle - set(new), key=_start))
        if present is not None and set(layout) == before:
            continue
        found.append(
            Reconfigure(
                node=name,
                gpu=gpu,
                step=0,
                before=tuple(sorted(before, key=_start)),
                after=layout,
                turn_on=present is None,
                reset=present is None and knife.tables[model].mode_change == "reset",
                idle_gpu_seconds=reconfiguration(after[name].cuts[gpu]),
            )
        )
    found += _turned_off(facts, placements, after, nodes)
    found.sort(key=lambda entry: (not entry.reset, entry.node, entry.gpu))
    return tuple(
        entry.model_copy(update={"step": step}) for step, entry in enumerate(found, start=1)
    )


def _turned_off(
    facts: Facts,
    placements: Mapping[str, Placement],
    after: Mapping[str, Left],
    nodes: Mapping[str, Node],
) -> Iterator[Reconfigure]:
    """The GPUs in MIG mode that whole-GPU tasks get: nobody has an instance there."""
    knife = facts.capacity.cutter
    for placement in placements.values():
        for task in placement.tasks:
            left = after[task.node].cuts
            for gpu in task.gpus or () if placement.job.request.gpus else ():
                cut = left.get(gpu)
                if cut is None:
                    continue
                (entry,) = (entry for entry in nodes[task.node].mig if entry.gpu == gpu)
                yield Reconfigure(
                    node=task.node,
                    gpu=gpu,
                    step=0,
                    before=tuple(sorted(entry.instances, key=_start)),
                    after=(),
                    turn_off=True,
                    reset=knife.tables[cut.model].mode_change == "reset",
                    idle_gpu_seconds=reconfiguration(cut),
                )


def keep_idle(
    knife: Cutter, model: str, used: Sequence[MigInstance], idle: Sequence[MigInstance]
) -> tuple[MigInstance, ...]:
    """The layout with what is used, and as many idle instances as may stay beside it, from low
    starts: only what is in the way is destroyed."""
    layout = list(used)
    for instance in idle:
        if is_legal(knife.tables[model], [*layout, instance]):
            layout.append(instance)
    return tuple(sorted(layout, key=_start))


def is_legal(table: MigTable, layout: Sequence[MigInstance]) -> bool:
    """Whether the table allows a layout."""
    taken = 0
    engines: defaultdict[str, int] = defaultdict(int)
    for profile in table.profiles:
        mine = [instance for instance in layout if instance.profile == profile.name]
        if len(mine) > profile.most:
            return False
        for instance in mine:
            bits = ((1 << profile.memory_slices) - 1) << instance.start
            if instance.start not in profile.starts or taken & bits:
                return False
            taken |= bits
            for engine, amount in profile.engines.items():
                engines[engine] += amount
    known = {profile.name for profile in table.profiles}
    return all(instance.profile in known for instance in layout) and all(
        amount <= table.engines.get(engine, amount) for engine, amount in engines.items()
    )


def _start(instance: MigInstance) -> int:
    return instance.start
