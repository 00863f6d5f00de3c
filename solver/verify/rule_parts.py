"""Whether slices and shares are where the tables and the nodes allow them, and layouts follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trencadis.models import MigInstance, Plan
from trencadis.models.plan import Reconfigure
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.second import Instance, Mig, Shared, legal, names
from trencadis.solver.verify.supply import NodeState
from trencadis.solver.verify.verdict import Violation


def one_use(facts: Facts, _: Plan) -> Iterable[Violation]:
    """A GPU that was whole is used in one way: whole, in MIG mode, or shared."""
    for name, tasks in facts.by_node.items():
        uses: dict[int, set[str]] = {}
        for entry, task in tasks:
            kind = "whole" if entry.ask.whole else "MIG" if entry.ask.slices else "shared"
            for gpu in task.gpus or ():
                uses.setdefault(gpu, set()).add(kind)
        for gpu, kinds in uses.items():
            if len(kinds) > 1:
                text = " and ".join(sorted(kinds))
                yield Violation("one-use", f"GPU {gpu} of {name} is used {text} at once")


def slices(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Instances are on open GPUs, legal beside the pinned ones, and given once."""
    for (name, gpu), new in _new(facts).items():
        state = facts.situation.states[name]
        where = f"GPU {gpu} of {name}"
        here = state.second.gpus.get(gpu)
        model = state.models[gpu]
        if len(set(new)) < len(new):
            yield Violation("slices", f"{where}: an instance is given twice")
        elif isinstance(here, Mig):
            if here.fixed and not here.idle.issuperset(new):
                yield Violation("slices", f"{where}: its layout may not be changed")
            elif not legal(facts.situation.knife.tables[model], [*here.used, *new]):
                yield Violation("slices", f"{where}: {_text(here.used | set(new))} is not legal")
        elif here is not None or gpu not in state.idle:
            yield Violation("slices", f"{where} takes no MIG instances")
        elif model not in state.second.turn_on:
            yield Violation("slices", f"{where}: MIG may not be turned on there")
        elif not legal(facts.situation.knife.tables[model], new):
            yield Violation("slices", f"{where}: {_text(set(new))} is not legal")


def shares(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Shares fit the GPU that they share, which may be shared."""
    for name, tasks in facts.by_node.items():
        state = facts.situation.states[name]
        asked: dict[int, list[tuple[int, int]]] = {}
        for entry, task in tasks:
            if not entry.ask.whole and not entry.ask.slices:
                for gpu in task.gpus or ():
                    asked.setdefault(gpu, []).append(entry.ask.share)
        for gpu, wanted in asked.items():
            yield from _share(state, name, gpu, wanted)


def _share(
    state: NodeState, name: str, gpu: int, wanted: list[tuple[int, int]]
) -> Iterable[Violation]:
    where, second = f"GPU {gpu} of {name}", state.second
    here = second.gpus.get(gpu)
    if here is None and gpu in state.idle:
        model = state.models[gpu]
        here = Shared(model, 1_000, dict(second.memory).get(model), second.slots)
    if not isinstance(here, Shared):
        yield Violation("shares", f"{where} takes no shares")
        return
    milli = sum(part for part, _ in wanted)
    memory = sum(part for _, part in wanted)
    if len(wanted) > here.slots:
        yield Violation("shares", f"{where} takes {here.slots} more shares, not {len(wanted)}")
    if milli > here.milli:
        yield Violation("shares", f"{where} has {here.milli} milli-GPU left, not {milli}")
    if here.memory is not None and memory > here.memory:
        yield Violation("shares", f"{where} has {here.memory} MiB left, not {memory}")


def layouts(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Layouts change where new instances need it, keep what is in nobody's way, in a safe order."""
    changes: dict[tuple[str, int], Reconfigure] = {}
    resets = True
    for number, change in enumerate(plan.reconfigures, start=1):
        key = change.node, change.gpu
        if key in changes:
            yield Violation("layouts", f"GPU {change.gpu} of {change.node} changes twice")
        if change.step != number:
            yield Violation("layouts", f"step {number} is called {change.step}")
        if change.reset and not resets:
            yield Violation("layouts", f"GPU {change.gpu} of {change.node} is reset too late")
        resets = change.reset
        changes[key] = change
    for (name, gpu), new in _new(facts).items():
        found = changes.pop((name, gpu), None)
        before = facts.situation.states[name].second.gpus.get(gpu)
        if isinstance(before, Mig) and before.idle.issuperset(new):
            if found is not None:
                yield Violation("layouts", f"GPU {gpu} of {name} need not change")
        elif found is None:
            yield Violation("layouts", f"GPU {gpu} of {name} must change and does not")
        else:
            yield from _change(facts, found, before, set(new))
    for name, gpu, off in _whole(facts):
        found = changes.pop((name, gpu), None)
        if found is None:
            yield Violation("layouts", f"GPU {gpu} of {name} is in MIG mode, and stays so")
        else:
            yield from _off(facts, found, off)
    for name, gpu in changes:
        yield Violation("layouts", f"GPU {gpu} of {name} changes for nobody")


def _whole(facts: Facts) -> Iterator[tuple[str, int, Mig]]:
    """GPUs in MIG mode that starts get as whole ones; those that may not be are told elsewhere."""
    for name, tasks in facts.by_node.items():
        offs = facts.situation.states[name].second.offs()
        for gpu in {g for entry, task in tasks if entry.ask.gpus for g in task.gpus or ()}:
            if gpu in offs:
                yield name, gpu, offs[gpu]


def _off(facts: Facts, change: Reconfigure, before: Mig) -> Iterable[Violation]:
    where = f"GPU {change.gpu} of {change.node}"
    table = facts.situation.knife.tables[before.model]
    if names(change.before) != before.idle or not _sorted(change.before):
        yield Violation("layouts", f"{where} has not the layout that the plan starts from")
    if change.turn_on or not change.turn_off or change.after:
        yield Violation("layouts", f"{where}: MIG must be turned off, and nothing stays")
    if change.reset != (table.mode_change == "reset"):
        yield Violation("layouts", f"{where}: reset is wrong")
    if change.idle_gpu_seconds != before.off:
        yield Violation("layouts", f"{where}: turning MIG off costs {before.off} GPU-s")


def _change(
    facts: Facts, change: Reconfigure, before: Mig | Shared | None, new: set[Instance]
) -> Iterable[Violation]:
    where = f"GPU {change.gpu} of {change.node}"
    state = facts.situation.states[change.node]
    table = facts.situation.knife.tables.get(state.models[change.gpu])
    if table is None:
        return
    used = before.used if isinstance(before, Mig) else frozenset[Instance]()
    idle = before.idle if isinstance(before, Mig) else frozenset[Instance]()
    after = names(change.after)
    if len(after) != len(change.after) or not legal(table, after):
        yield Violation("layouts", f"{where}: {_text(after)} is not legal")
    if names(change.before) != used | idle or not _sorted(change.before, change.after):
        yield Violation("layouts", f"{where} has not the layout that the plan starts from")
    if not used | new <= after <= used | new | idle:
        yield Violation("layouts", f"{where}: the layout is not what runs, starts and stays")
    for instance in idle - new - after:
        if legal(table, after | {instance}):
            yield Violation("layouts", f"{where}: {_text({instance})} need not be destroyed")
    turned_on = not isinstance(before, Mig)
    if change.turn_off or change.turn_on != turned_on or change.reset != (
        turned_on and table.mode_change == "reset"
    ):
        yield Violation("layouts", f"{where}: turn_on or reset is wrong")
    policy = facts.situation.snapshot.policy.mig
    cost = policy.reconfigure_seconds + (policy.mode_seconds if turned_on else 0)
    if change.idle_gpu_seconds != cost:
        yield Violation("layouts", f"{where}: the change costs {cost} GPU-s")


def _sorted(*layouts: tuple[MigInstance, ...]) -> bool:
    return all(
        list(layout) == sorted(layout, key=lambda instance: instance.start) for layout in layouts
    )


def _new(facts: Facts) -> dict[tuple[str, int], list[Instance]]:
    """Instances that starts get, by node and GPU."""
    found: dict[tuple[str, int], list[Instance]] = {}
    for name, tasks in facts.by_node.items():
        for _, task in tasks:
            for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
                found.setdefault((name, gpu), []).append((instance.profile, instance.start))
    return found


def _text(layout: Iterable[Instance]) -> str:
    return ", ".join(f"{name}@{start}" for name, start in sorted(layout, key=lambda i: i[1]))


RULES = (one_use, slices, shares, layouts)
