"""Whether slices that move find their place, and layouts follow them (problem.md, 10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from trencadis.models import MigInstance, Plan
from trencadis.models.mig import MigTable
from trencadis.models.plan import Reconfigure
from trencadis.solver.verify.moved import in_turn, layouts_before, tasks_before
from trencadis.solver.verify.second import Instance, Mig, legal, names
from trencadis.solver.verify.situation import Placed, Situation
from trencadis.solver.verify.supply import NodeState
from trencadis.solver.verify.verdict import Violation

Instances = set[MigInstance]


def room_for_slices(
    tables: Mapping[str, MigTable], entry: Placed, name: str, state: NodeState
) -> str:
    """Why the slices of a moved job don't fit on a node; empty if they do."""
    wanted: dict[int, list[Instance]] = {}
    for task in entry.tasks:
        if task.node == name:
            for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
                wanted.setdefault(gpu, []).append((instance.profile, instance.start))
    for gpu, new in wanted.items():
        here = state.second.gpus.get(gpu)
        if not isinstance(here, Mig):
            return f"has no slices to give on GPU {gpu}"
        if here.fixed and not here.idle.issuperset(new):
            return f"may not change the layout of GPU {gpu}"
        if len(set(new)) < len(new) or not legal(tables[here.model], [*here.used, *new]):
            return f"has no legal place for these slices on GPU {gpu}"
    return ""


def relayouts(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """In each step exactly the GPUs change on which a slice comes to where no instance is; what
    jobs have stays, and so does what is in nobody's way."""
    changes: dict[tuple[int, str, int], Reconfigure] = {}
    last = 0
    for change in plan.reconfigures:
        key = change.step, change.node, change.gpu
        if key in changes or change.step < last:
            yield Violation("layouts", f"GPU {change.gpu} of {change.node}: twice, or too late")
        changes[key] = change
        last = change.step
    for step in sorted({move.step for move in plan.moves}):
        layouts = layouts_before(situation, plan, step)
        used, new = _in_step(situation, plan, step)
        for (node, gpu), wanted in sorted(new.items()):
            there = layouts.get((node, gpu), frozenset())
            found = changes.pop((step, node, gpu), None)
            if wanted <= there:
                if found is not None:
                    yield Violation("layouts", f"GPU {gpu} of {node} need not change")
            elif found is None:
                yield Violation("layouts", f"GPU {gpu} of {node} must change in step {step}")
            else:
                kept = used.get((node, gpu), set()) | wanted
                yield from _change(situation, found, there, kept)
    for step, node, gpu in changes:
        yield Violation("layouts", f"GPU {gpu} of {node} changes for nobody in step {step}")


def _in_step(
    situation: Situation, plan: Plan, step: int
) -> tuple[dict[tuple[str, int], Instances], dict[tuple[str, int], Instances]]:
    """Instances that jobs have as a step begins, and those that they come to in it."""
    earlier = {move.job: move.to for move in in_turn(plan) if move.step < step}
    used: dict[tuple[str, int], Instances] = {}
    tasks = [
        task
        for job in situation.snapshot.jobs
        if job.on_nodes
        for task in earlier.get(job.name, job.allocation)
    ]
    tasks += [task for hold in situation.snapshot.delayed for task in hold.allocation]
    for task in tasks:
        for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
            used.setdefault((task.node, gpu), set()).add(instance)
    new: dict[tuple[str, int], Instances] = {}
    for move in plan.moves:
        if move.step == step:
            fresh = Counter(move.to) - Counter(tasks_before(situation, plan, move))
            for task in fresh:
                for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
                    new.setdefault((task.node, gpu), set()).add(instance)
    return used, new


def _change(
    situation: Situation, change: Reconfigure, there: frozenset[MigInstance], kept: Instances
) -> Iterable[Violation]:
    where = f"GPU {change.gpu} of {change.node} in step {change.step}"
    state = situation.states[change.node]
    table = situation.knife.tables.get(state.models.get(change.gpu, ""))
    if table is None:
        yield Violation("layouts", f"{where}: it has no table")
        return
    after = set(change.after)
    if set(change.before) != there:
        yield Violation("layouts", f"{where} has not the layout that the plan starts from")
    if len(after) != len(change.after) or not legal(table, names(after)):
        yield Violation("layouts", f"{where}: the new layout is not legal")
    elif not kept <= after <= kept | there:
        yield Violation("layouts", f"{where}: the layout is not what runs, comes and stays")
    elif any(legal(table, names(after | {instance})) for instance in there - after):
        yield Violation("layouts", f"{where}: an instance need not be destroyed")
    for layout in (change.before, change.after):
        if list(layout) != sorted(layout, key=lambda instance: instance.start):
            yield Violation("layouts", f"{where}: instances are not in order of their starts")
    if change.turn_on or change.turn_off or change.reset:
        yield Violation("layouts", f"{where}: MIG mode doesn't change in moves")
    cost = situation.snapshot.policy.mig.reconfigure_seconds
    if change.idle_gpu_seconds != cost:
        yield Violation("layouts", f"{where}: the change costs {cost} GPU-s")
