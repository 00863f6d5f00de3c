"""What is idle and free on each node, before and after starts (§3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from oracle.facts import Facts, uses_gpus
from oracle.parts import Part, can_share, closed, is_whole, may_turn_on, parts_after, parts_of
from trencadis.models import Job, Node, Request, TaskAllocation


class NodeState(NamedTuple):
    """What is left on a node. On a counted node the indices only stand for how many there are."""

    counted: bool
    idle: tuple[tuple[str, tuple[int, ...]], ...]
    """Idle GPUs by model, ascending."""
    free: tuple[tuple[str, int], ...]
    """CPU, memory and resources by name, at least 0."""
    busy: bool
    """A job runs, drains, is held or starts here."""
    closed: bool
    """An exclusive job runs, drains or starts here."""
    parts: tuple[Part, ...]
    """GPUs in MIG mode, and shared ones."""
    ready: tuple[tuple[str, bool, bool], ...]
    """By model: whether idle GPUs can be put in MIG mode, and be shared."""

    def idle_of(self, model: str) -> tuple[int, ...]:
        return dict(self.idle).get(model, ())


Ground = tuple[NodeState, ...]
"""The state of every node, in the snapshot's order."""


class Placed(tuple[TaskAllocation, ...]):
    """Where the tasks of a starting job are, and on which model (None without GPUs)."""

    model: str | None

    @classmethod
    def on(cls, model: str | None, tasks: Iterable[TaskAllocation]) -> Placed:
        placed = cls(tasks)
        placed.model = model
        return placed


def needs(request: Request) -> dict[str, int]:
    """CPU, memory and resources of one task."""
    wanted = {"cpu": request.cpu_milli, "memory": request.memory_mib}
    wanted.update({f"resource {name}": count for name, count in request.resources.items()})
    return wanted


def capacity(node: Node) -> dict[str, int]:
    total = {"cpu": node.cpu_milli, "memory": node.memory_mib}
    total.update({f"resource {name}": count for name, count in node.resources.items()})
    return total


def tasks_on(facts: Facts, node: Node) -> list[tuple[Job, TaskAllocation]]:
    """Tasks that run, drain or are held on the node."""
    found = []
    for job in sorted(facts.on_nodes, key=lambda job: job.name):
        found += [(job, task) for task in job.allocation if task.node == node.name]
    for hold in sorted(facts.snapshot.delayed, key=lambda hold: hold.job):
        job = facts.job[hold.job]
        found += [(job, task) for task in hold.allocation if task.node == node.name]
    return found


def lacks_indices(job: Job, task: TaskAllocation) -> bool:
    """Whether the task has whole GPUs of which only the count is known."""
    return job.request.gpus > 0 and task.gpus is None


def is_counted(facts: Facts, node: Node) -> bool:
    return node.precision == "node" or any(
        lacks_indices(job, task) for job, task in tasks_on(facts, node)
    )


def ground_now(facts: Facts) -> Ground:
    """The state of every node with what runs, drains and is held."""
    return tuple(_state_now(facts, node) for node in facts.snapshot.nodes)


def _state_now(facts: Facts, node: Node) -> NodeState:
    here = tasks_on(facts, node)
    idle = node.healthy_gpus()
    for entry in node.mig:
        idle.pop(entry.gpu, None)
    for _, task in here:
        for index in task.gpus or ():
            idle.pop(index, None)
    for job, task in here:
        if lacks_indices(job, task):
            for index in _taken_somewhere(facts, job, idle):
                del idle[index]
    free = capacity(node)
    for job, _ in here:
        for name, count in needs(job.request).items():
            free[name] = free.get(name, 0) - count
    running = {job.name for job in facts.on_nodes}
    return NodeState(
        counted=is_counted(facts, node),
        idle=_by_model(idle),
        free=tuple(sorted((name, max(0, count)) for name, count in free.items())),
        busy=bool(here),
        closed=any(job.exclusive and job.name in running for job, _ in here),
        **_second(facts, node, here, counted=is_counted(facts, node)),
    )


def _second(
    facts: Facts, node: Node, here: list[tuple[Job, TaskAllocation]], *, counted: bool
) -> dict[str, Any]:
    models = sorted({group.model for group in node.gpus})
    if counted:
        return {"parts": (), "ready": tuple((model, False, False) for model in models)}
    return {
        "parts": parts_of(facts, node, here),
        "ready": tuple(
            (model, may_turn_on(facts, node, model, here), can_share(node, here))
            for model in models
        ),
    }


def _taken_somewhere(facts: Facts, job: Job, idle: dict[int, str]) -> list[int]:
    """GPUs that stand for those of a task of unknown indices."""
    groups = dict(_by_model(idle))
    models = sorted(groups.keys() & facts.allowed_models(job), key=lambda m: (-len(groups[m]), m))
    in_order = [index for model in models for index in groups[model]]
    return in_order[: job.request.gpus]


def _by_model(idle: dict[int, str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    models = sorted(set(idle.values()))
    return tuple(
        (model, tuple(index for index in sorted(idle) if idle[index] == model)) for model in models
    )


def empty_ground(facts: Facts, *, mig_stays: bool = False) -> Ground:
    """Every node with no job or hold on it, and with no MIG unless that stays."""
    return tuple(
        NodeState(
            counted=node.precision == "node",
            idle=_by_model(
                {
                    gpu: model
                    for gpu, model in node.healthy_gpus().items()
                    if not (mig_stays and gpu in {entry.gpu for entry in node.mig})
                }
            ),
            free=tuple(sorted(capacity(node).items())),
            busy=False,
            closed=False,
            # What isn't in MIG mode is idle above, and no part besides.
            **_second(facts, node, [], counted=node.precision == "node")
            | ({} if mig_stays else {"parts": ()}),
        )
        for node in facts.snapshot.nodes
    )


def occupy(facts: Facts, ground: Ground, job: Job, placed: Placed) -> Ground:
    """The ground once the job has started there."""
    after = []
    for node, state in zip(facts.snapshot.nodes, ground, strict=True):
        mine = [task for task in placed if task.node == node.name]
        if not mine:
            after.append(state)
            continue
        idle, parts = dict(state.idle), state.parts
        if placed.model is not None and not is_whole(job.request):
            parts = parts_after(facts, node, parts, mine, placed.model)
        elif placed.model is not None:
            parts = closed(parts, {index for task in mine for index in task.gpus or ()})
        if placed.model is not None:
            chips = idle.get(placed.model, ())
            if state.counted:
                left = chips[: len(chips) - job.request.gpus * len(mine)]
            else:
                taken = {index for task in mine for index in task.gpus or ()}
                left = tuple(index for index in chips if index not in taken)
            idle[placed.model] = left
        wanted = needs(job.request)
        after.append(
            NodeState(
                counted=state.counted,
                idle=tuple((model, chips) for model, chips in sorted(idle.items()) if chips),
                free=tuple((n, count - len(mine) * wanted.get(n, 0)) for n, count in state.free),
                busy=True,
                closed=state.closed or job.exclusive,
                parts=parts,
                ready=state.ready,
            )
        )
    return tuple(after)


def is_linked(node: Node, counted: bool, gpus: Sequence[int] | None) -> bool:
    """Whether a set of two or more GPUs is linked; None: indices unknown."""
    if node.nvlink.kind == "nvswitch":
        return True
    if node.nvlink.kind == "none" or counted or gpus is None:
        return False
    reached = {gpus[0]}
    while True:
        more = {
            index
            for pair in node.nvlink.links
            for index in pair
            if set(pair) & reached and set(pair) <= set(gpus)
        }
        if more <= reached:
            return reached == set(gpus)
        reached |= more


def model_of_plan(facts: Facts, job: Job, tasks: Sequence[TaskAllocation]) -> str | None:
    """The model of a starting job. Raises ValueError where its allocation doesn't tell."""
    if not uses_gpus(job.request):
        return None
    if isinstance(tasks, Placed):
        return tasks.model
    common = set.intersection(*(facts.task_models(job, task) for task in tasks))
    if len(common) != 1:
        raise ValueError(f"job {job.name} may be on any of {sorted(common)}")
    return next(iter(common))
