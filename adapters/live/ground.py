"""Whether what an action of a plan supposes still holds: its preconditions, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from trencadis.adapters.live.choices import Choices
from trencadis.adapters.live.cluster import JobView, Reading
from trencadis.adapters.live.config import Scope
from trencadis.adapters.live.parts import Parts
from trencadis.models import Job, Snapshot, Start, TaskAllocation
from trencadis.models.plan import Move, Preempt
from trencadis.models.preconditions import Precondition
from trencadis.solver.capacity import Capacity, capacity, vector


class Ground:
    """What is idle now. Each start that passes takes its part, so that none is promised twice."""

    def __init__(self, snapshot: Snapshot, scope: Scope) -> None:
        self._capacity: Capacity = capacity(snapshot)
        self._scope = scope
        self._parts = Parts(snapshot)
        self._choices = Choices(snapshot)
        self._jobs = {job.name: job for job in snapshot.jobs}
        self._idle = {
            state.name: {model: set(indices) for model, indices in state.idle.items()}
            for state in self._capacity.states
        }
        self._counted = {state.name: state.counted for state in self._capacity.states}
        self._free = {state.name: list(state.free) for state in self._capacity.states}
        self._vacant = {state.name for state in self._capacity.states if state.vacant}

    def start(
        self,
        job: str,
        allocation: Iterable[TaskAllocation],
        view: JobView | None,
        wanted: Iterable[Precondition],
    ) -> str | None:
        """Why the start must not be sent; None if it may, and then its part is taken."""
        preconditions = set(wanted)
        record = self._jobs.get(job)
        if view is None or record is None:
            return "the job is no longer there"
        if not view.managed:
            return "the job is not ours to start: out of scope, or not handed over"
        if Precondition.JOB_PENDING in preconditions and view.state != "waiting":
            return f"the job is {view.state}"
        tasks = list(allocation)
        for node in sorted({task.node for task in tasks}):
            if not self._scope.has_node(node):
                return f"node {node} is out of scope"
            if node not in self._idle and Precondition.NODE_SCHEDULABLE in preconditions:
                return f"node {node} takes no work now"
        return self._take(record, tasks, preconditions)

    def _take(
        self, job: Job, tasks: list[TaskAllocation], preconditions: set[Precondition]
    ) -> str | None:
        need = vector(job, self._capacity.resources)
        number = Counter(task.node for task in tasks)
        names = ("CPU", "memory", *self._capacity.resources)
        for node, count in number.items():
            for name, amount, free in zip(names, need, self._free.get(node, ()), strict=False):
                if Precondition.CPU_MEMORY_FREE in preconditions and amount * count > free:
                    return f"node {node} has too little {name} left"
            if job.exclusive and node not in self._vacant:
                return f"node {node} is not empty"
        chosen: dict[str, dict[str, set[int]]] = {}
        for task in tasks if job.request.gpus else ():
            taken = self._gpus(job, task, chosen)
            if taken is None:
                if Precondition.GPUS_IDLE in preconditions:
                    return f"node {task.node} has too few idle GPUs"
                continue
            model, indices = taken
            chosen.setdefault(task.node, {}).setdefault(model, set()).update(indices)
        if Precondition.GPUS_IDLE in preconditions:
            blocked = self._choices.take(job, tasks) or self._parts.take(job, tasks)
            if blocked is not None:
                return blocked
        for node, models in chosen.items():
            for model, indices in models.items():
                self._idle[node][model] -= indices
        for node, count in number.items():
            self._vacant.discard(node)
            if node in self._free:
                before = self._free[node]
                self._free[node] = [f - a * count for f, a in zip(before, need, strict=True)]
        return None

    def _gpus(
        self, job: Job, task: TaskAllocation, chosen: dict[str, dict[str, set[int]]]
    ) -> tuple[str, set[int]] | None:
        wanted = job.request.gpus
        mine = chosen.get(task.node, {})
        for model, idle in sorted(self._idle.get(task.node, {}).items()):
            left = idle - mine.get(model, set())
            if job.gpu_models and model not in job.gpu_models:
                continue
            if task.gpus is not None and not self._counted[task.node]:
                if set(task.gpus) <= left:
                    return model, set(task.gpus)
            elif len(left) >= wanted:
                return model, set(sorted(left)[:wanted])
        return None


def may_start(ground: Ground, start: Start, reading: Reading) -> str | None:
    """Why a start of a plan must not be sent; None if it may."""
    view = reading.jobs.get(start.job)
    return ground.start(start.job, start.allocation, view, start.preconditions)


def may_stop(
    action: Preempt | Move,
    before: Job | None,
    view: JobView | None,
    scope: Scope,
    decided: datetime,
) -> str | None:
    """Why a job must not be stopped; None if it may.

    `before` is the job in the snapshot that the plan was made for, or in a later one where that is
    gone; `decided`: the instant that the plan was made for. Another run is another job.
    """
    if view is None or before is None:
        return "the job is no longer there"
    if view.state != "running" and Precondition.JOB_RUNNING_THERE in action.preconditions:
        return f"the job is {view.state}"
    if not view.stoppable:
        return "the job can't be stopped: out of scope, or unable to start again"
    outside = [node for node in view.nodes if not scope.has_node(node)]
    if outside:
        return f"node {outside[0]} is out of scope"
    younger = view.start is not None and view.start > decided
    moved = {task.node for task in before.allocation} != set(view.nodes)
    if younger or moved or view.start != before.start:
        return "the job has been started anew since"
    return None


def may_move(
    move: Move, before: Job | None, view: JobView | None, scope: Scope, decided: datetime
) -> str | None:
    """Why a job must not be stopped to go on elsewhere; None if it may. See `may_stop`."""
    blocked = may_stop(move, before, view, scope, decided)
    if blocked is not None or view is None:
        return blocked
    if any(task.mig for task in move.to):
        return "slices aren't moved here: which one a job gets isn't ours to say"
    if before is not None and before.min_replicas:
        return "it is a service: no replica is moved by itself here"
    to = sorted({task.node for task in move.to})
    outside = [node for node in to if not scope.has_node(node)]
    if outside:
        return f"node {outside[0]} is out of scope"
    if set(to) == set(view.nodes):
        return "it stays on its nodes, where the scheduler chooses the GPUs"
    return None
