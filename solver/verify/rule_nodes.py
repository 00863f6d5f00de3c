"""Whether each started task may be on its node and finds what it asks for there."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Plan
from trencadis.solver.verify.admission import end_of, refusal, wish_of
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.linked import is_linked
from trencadis.solver.verify.situation import Placed, installed
from trencadis.solver.verify.supply import NodeState, take
from trencadis.solver.verify.verdict import Violation


def admission(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Labels, taints, cordons, maintenance, health, nodes that the job names."""
    situation = facts.situation
    policy = situation.snapshot.policy
    for entry in facts.starts:
        wish = wish_of(entry.job, end_of(entry.job, situation.now), policy)
        for name in {task.node for task in entry.tasks}:
            reason = refusal(wish, situation.states[name].node, policy, situation.now)
            if reason is not None:
                yield Violation("admission", f"job {entry.job.name}: node {name} {reason}")


def gpus(facts: Facts, _: Plan) -> Iterable[Violation]:
    """GPUs are idle, and given once."""
    for name, tasks in facts.by_node.items():
        state = facts.situation.states[name]
        left, idle = dict(state.gpus), set(state.idle) | state.second.offs().keys()
        for entry, task in tasks:
            if state.counted:
                allowed = (entry.model,) if entry.model else entry.job.gpu_models
                taken = take(left, allowed, entry.ask.gpus)
                missing = entry.ask.gpus - sum(taken.values())
                if missing:
                    yield Violation(
                        "gpus", f"job {entry.job.name} lacks {missing} idle GPUs on node {name}"
                    )
                continue
            for gpu in task.gpus or () if entry.ask.whole else ():
                if gpu not in idle:
                    given = gpu in state.idle or gpu in state.second.offs()
                    why = "it is given twice" if given else _why(state, gpu)
                    yield Violation("gpus", f"job {entry.job.name}, GPU {gpu} of {name}: {why}")
                idle.discard(gpu)


def _why(state: NodeState, gpu: int) -> str:
    if gpu >= state.node.gpu_count:
        return "there is none with that index"
    if gpu not in state.models:
        return "it is unhealthy"
    return "it is not idle"


def model(facts: Facts, _: Plan) -> Iterable[Violation]:
    """All tasks of a job are on one allowed GPU model."""
    for entry in facts.starts:
        allowed = entry.job.gpu_models
        if not entry.ask.on_gpus:
            continue
        if len(_models_possible(facts, entry)) != 1:
            yield Violation("model", f"job {entry.job.name} is on no single GPU model")
        elif entry.model is not None and allowed and entry.model not in allowed:
            yield Violation("model", f"job {entry.job.name} doesn't allow {entry.model}")


def _models_possible(facts: Facts, entry: Placed) -> set[str]:
    """Models of the GPUs named, or, where they are only counted, of those installed and allowed."""
    states, allowed = facts.situation.states, entry.job.gpu_models
    named: set[str] = set()
    possible: set[str] | None = None
    for task in entry.tasks:
        state = states[task.node]
        if state.counted:
            here = {g.model for g in state.node.gpus if not allowed or g.model in allowed}
            possible = here if possible is None else possible & here
        else:
            named.update(model for gpu in task.gpus or () if (model := installed(state.node, gpu)))
    if possible is None:
        return named or {""}
    return possible & named if len(named) == 1 else named or possible


def capacity(facts: Facts, _: Plan) -> Iterable[Violation]:
    """CPUs, memory and named resources are free."""
    for name, tasks in facts.by_node.items():
        state = facts.situation.states[name]
        free = {"CPU": state.cpu_milli, "memory": state.memory_mib, **state.resources}
        wanted: dict[str, int] = {}
        for entry, _task in tasks:
            ask = entry.ask
            for thing, amount in (
                ("CPU", ask.cpu_milli),
                ("memory", ask.memory_mib),
                *ask.resources,
            ):
                if amount:
                    wanted[thing] = wanted.get(thing, 0) + amount
        for thing, amount in wanted.items():
            if amount > free.get(thing, 0):
                has = free.get(thing, 0)
                text = f"node {name}: starts ask for {amount} of {thing}, {has} is free"
                yield Violation("capacity", text)


def tasks_per_node(facts: Facts, _: Plan) -> Iterable[Violation]:
    """At most `max_tasks_per_node` tasks of a job on a node."""
    for entry in facts.starts:
        most = entry.job.max_tasks_per_node
        if most is None:
            continue
        here: dict[str, int] = {}
        for task in entry.tasks:
            here[task.node] = here.get(task.node, 0) + 1
        for name, count in here.items():
            if count > most:
                yield Violation(
                    "tasks-per-node",
                    f"job {entry.job.name}: {count} tasks on node {name}, at most {most} allowed",
                )


def exclusive(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Exclusive jobs are alone on their nodes."""
    for name, tasks in facts.by_node.items():
        state = facts.situation.states[name]
        jobs = {entry.job.name: entry.job for entry, _ in tasks}
        alone = [job.name for job in jobs.values() if job.exclusive]
        if state.exclusive:
            yield Violation("exclusive", f"node {name} is taken by an exclusive job")
        elif alone and state.occupied:
            yield Violation("exclusive", f"job {alone[0]} is not alone on node {name}")
        elif alone and len(jobs) > 1:
            yield Violation("exclusive", f"job {alone[0]} shares node {name} with other starts")


def nvlink(facts: Facts, _: Plan) -> Iterable[Violation]:
    """The GPUs of each task are linked where the job requires it."""
    for entry in facts.starts:
        if not entry.job.nvlink_required or entry.ask.gpus < 2:
            continue
        for task in entry.tasks:
            state = facts.situation.states[task.node]
            if not is_linked(state.node, state.counted, task.gpus or None):
                yield Violation(
                    "nvlink", f"job {entry.job.name}: GPUs on node {task.node} are not linked"
                )


RULES = (admission, gpus, model, capacity, tasks_per_node, exclusive, nvlink)
