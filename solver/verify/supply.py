"""What is idle and free on each node, before and after starts (problem.md, 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.models.mig import MigTable
from trencadis.solver.verify.knife import Knife
from trencadis.solver.verify.second import Second, second_of
from trencadis.solver.verify.units import Ask

NOTHING = Second()


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node and what is left of it."""

    node: Node
    counted: bool
    """Only how many GPUs of each model are idle is known."""
    models: Mapping[int, str]
    """Healthy GPUs: index -> model."""
    idle: frozenset[int]
    """Idle GPUs by index; means nothing where counted."""
    gpus: Mapping[str, int]
    """Idle GPUs by model."""
    cpu_milli: int
    memory_mib: int
    resources: Mapping[str, int]
    occupied: bool = False
    """A job runs, drains, is held or starts here."""
    exclusive: bool = False
    """An exclusive job runs, drains or starts here."""
    second: Second = NOTHING
    """GPUs in MIG mode, and shared ones."""

    def idle_of(self, model: str) -> frozenset[int]:
        """Indices of idle GPUs of a model."""
        return frozenset(gpu for gpu in self.idle if self.models[gpu] == model)


Tenant = tuple[Job | None, Ask | None, TaskAllocation, bool]
"""A task on a node: job and request where known, its places, and whether it is only held."""


def survey(
    snapshot: Snapshot,
    on_nodes: Iterable[Job],
    asks: Mapping[str, Ask],
    tables: Mapping[str, MigTable],
) -> dict[str, NodeState]:
    """The state of each node before any start; `on_nodes` are the jobs that run or drain."""
    tenants: dict[str, list[Tenant]] = defaultdict(list)
    for job in on_nodes:
        ask = asks[job.name]
        for task in job.allocation:
            tenants[task.node].append((job, ask, task, False))
    jobs = {job.name: job for job in snapshot.jobs} if snapshot.holds else {}
    for hold in snapshot.delayed:
        for task in hold.allocation:
            tenants[task.node].append((jobs.get(hold.job), asks.get(hold.job), task, True))
    healthy = Healthy()
    states: dict[str, NodeState] = {}
    for node in snapshot.nodes:
        here = tenants.get(node.name, [])
        state = _state(node, here, healthy)
        second = second_of(
            snapshot,
            tables,
            node,
            [(job, task) for job, _, task, _ in here],
            counted=state.counted,
        )
        states[node.name] = replace(state, second=second)
    return states


def empty(snapshot: Snapshot) -> dict[str, NodeState]:
    """Each node with no job, hold or MIG; GPUs counted only where the node's precision says so."""
    healthy = Healthy()
    return {
        node.name: _state(node.model_copy(update={"mig": ()}) if node.mig else node, (), healthy)
        for node in snapshot.nodes
    }


def empty_in_parts(
    snapshot: Snapshot, tables: Mapping[str, MigTable]
) -> dict[str, NodeState]:
    """Each node with no job or hold, for slices and shares: what is in MIG mode stays so."""
    bare = snapshot.model_copy(update={"jobs": (), "holds": ()})
    return survey(bare, (), {}, tables)


def lacks_indices(task: TaskAllocation, ask: Ask | None) -> bool:
    """Whether a task holds GPUs that nobody named; one without whole GPUs never does."""
    return task.gpus is None and (ask is None or ask.gpus > 0)


class Healthy:
    """Healthy GPUs by index and model; equal nodes share one answer."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[dict[int, str], frozenset[int]]] = {}

    def of(self, node: Node) -> tuple[Mapping[int, str], frozenset[int]]:
        """Index -> model, and the indices."""
        key = tuple((group.model, group.count, group.unhealthy) for group in node.gpus)
        known = self._known.get(key)
        if known is None:
            models = node.healthy_gpus()
            known = self._known[key] = (models, frozenset(models))
        return known


def _state(node: Node, tenants: Iterable[Tenant], healthy: Healthy) -> NodeState:
    models, whole = healthy.of(node)
    idle = set(whole)
    if node.mig:
        idle.difference_update(entry.gpu for entry in node.mig)
    cpu, memory = node.cpu_milli, node.memory_mib
    resources = dict(node.resources)
    counted = node.precision == "node"
    occupied = exclusive = False
    unknown: list[tuple[tuple[str, ...], int]] = []
    for job, ask, task, held in tenants:
        occupied = True
        exclusive = exclusive or (job is not None and job.exclusive and not held)
        if task.gpus is not None:
            idle.difference_update(task.gpus)
        elif lacks_indices(task, ask):
            counted = True
            if job is not None and ask is not None:
                unknown.append((job.gpu_models, ask.gpus))
        if ask is not None:
            cpu -= ask.cpu_milli
            memory -= ask.memory_mib
            for name, amount in ask.resources:
                resources[name] = resources.get(name, 0) - amount
    gpus: dict[str, int] = {}
    if len(node.gpus) == 1:
        gpus[node.gpus[0].model] = len(idle)
    else:
        for gpu in idle:
            gpus[models[gpu]] = gpus.get(models[gpu], 0) + 1
    for allowed, amount in unknown:
        take(gpus, allowed, amount)
    return NodeState(
        node=node,
        counted=counted,
        models=models,
        idle=frozenset(idle),
        gpus=gpus,
        cpu_milli=max(0, cpu),
        memory_mib=max(0, memory),
        resources={name: max(0, left) for name, left in resources.items()},
        occupied=occupied,
        exclusive=exclusive,
    )


def take(gpus: dict[str, int], allowed: Iterable[str], amount: int) -> dict[str, int]:
    """Take GPUs of unknown index: most idle first, then by name; returns what came from where."""
    names = set(allowed) or set(gpus)
    taken: dict[str, int] = {}
    for model in sorted(names & set(gpus), key=lambda name: (-gpus[name], name)):
        part = min(amount, gpus[model])
        if part:
            taken[model] = part
            gpus[model] -= part
            amount -= part
    return taken


def with_tasks(
    state: NodeState, tasks: Sequence[tuple[Job, Ask, str | None, TaskAllocation]], knife: Knife
) -> NodeState:
    """The node after these starts; a task is (job, request, GPU model if known, places)."""
    parts = [task for _, ask, _, task in tasks if not ask.whole]
    second = state.second.turned_off(
        gpu for _, ask, _, task in tasks if ask.gpus for gpu in task.gpus or ()
    )
    idle, gpus = set(state.idle), dict(state.gpus)
    cpu, memory, resources = state.cpu_milli, state.memory_mib, dict(state.resources)
    exclusive = state.exclusive
    for job, ask, model, task in tasks:
        exclusive = exclusive or job.exclusive
        if state.counted:
            take(gpus, (model,) if model else job.gpu_models, ask.gpus)
        else:
            for gpu in task.gpus or ():
                if gpu in idle:
                    idle.remove(gpu)
                    gpus[state.models[gpu]] -= 1
        cpu -= ask.cpu_milli
        memory -= ask.memory_mib
        for name, amount in ask.resources:
            resources[name] = resources.get(name, 0) - amount
    return replace(
        state,
        idle=frozenset(idle),
        gpus=gpus,
        cpu_milli=max(0, cpu),
        memory_mib=max(0, memory),
        resources={name: max(0, left) for name, left in resources.items()},
        occupied=True,
        exclusive=exclusive,
        second=knife.taken(second, parts, state.models) if parts else second,
    )
