"""Whether a decision may be carried out; written by itself, so that no policy judges its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.models.base import seconds
from trencadis.whatif.books import Books
from trencadis.whatif.cluster import ClusterState
from trencadis.whatif.decisions import StartAction, model_of
from trencadis.whatif.placing import Placer
from trencadis.whatif.runs import MICRO, JobRun, State


class IllegalDecisionError(RuntimeError):
    """A policy asked for what the rules forbid: a fault of the policy, never carried out."""


class Judge:
    """Checks starts against capacity, admission, gangs, topology and limits."""

    def __init__(self, snapshot: Snapshot, placer: Placer, gangs: bool = True) -> None:
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.placer = placer
        self.gangs = gangs

    def start(
        self,
        run: JobRun,
        action: StartAction,
        state: ClusterState,
        books: Books,
        now: int,
        victims: Mapping[str, JobRun],
        keeping: Sequence[JobRun] = (),
        present: frozenset[str] = frozenset(),
    ) -> list[str]:
        """What is wrong with a start; `state` and `books` are those before it.

        `victims`: those it waits for. `keeping`: all draining jobs, and holds for delayed starts.
        `present`: nodes on which it ran until now, if it only changes its tasks.
        """
        if run.state not in (State.WAITING, State.HOLDING):
            return [f"it is {run.state}, not waiting"]
        if run.job.not_before is not None and seconds(run.job.not_before) > now:
            return ["it may not start yet"]
        found = list(self.form(run, action.allocation))
        if not found:
            for name in action.waits_for:
                if name not in victims:
                    found.append(f"it waits for {name}, which is not being stopped")
            found += self.places(run, action.allocation, state, now, victims, keeping, present)
            found += self.gang(run, action.allocation, now)
            model = model_of(state, action.allocation)
            first = run.state is State.WAITING
            if not books.allows(run.job, len(action.allocation), model, starts=first):
                found.append("it would break a limit")
        return found

    def form(self, run: JobRun, allocation: tuple[TaskAllocation, ...]) -> Iterator[str]:
        """Number of tasks, known nodes, GPUs that exist, one model that the job allows."""
        job = run.job
        count = len(allocation) + (len(run.allocation) if run.state is State.HOLDING else 0)
        if self.gangs and not job.minimum <= count <= job.tasks:
            yield f"{count} tasks instead of {job.minimum} to {job.tasks}"
        if not 1 <= count <= job.tasks:
            yield f"{count} tasks instead of at most {job.tasks}"
        models = set()
        width = 1 if job.request.share is not None else job.request.gpus
        for task in (*allocation, *run.allocation):
            node = self.nodes.get(task.node)
            if node is None:
                yield f"there is no node {task.node}"
                return
            gpus = task.gpus or ()
            healthy = node.healthy_gpus()
            if len(set(gpus)) != width or len(gpus) != width:
                yield f"{len(gpus)} GPUs for a task that needs {width}"
            if not set(gpus) <= healthy.keys():
                yield f"node {node.name} has no healthy GPUs {gpus}"
                return
            models |= {healthy[gpu] for gpu in gpus}
            if task.share != job.request.share:
                yield "another share than it asks for"
        if len(models) > 1:
            yield f"GPUs of several models: {', '.join(sorted(models))}"
        if job.gpu_models and not models <= set(job.gpu_models):
            yield f"GPU model {', '.join(sorted(models))} is not allowed"

    def places(
        self,
        run: JobRun,
        allocation: tuple[TaskAllocation, ...],
        state: ClusterState,
        now: int,
        victims: Mapping[str, JobRun],
        keeping: Sequence[JobRun],
        present: frozenset[str],
    ) -> Iterator[str]:
        """Admission; room once the victims are gone, and still when other holds are started."""
        job = _as_left(run)
        after, later = state.copy(), state.copy()
        for victim in victims.values():
            after.release(victim.job, victim.allocation)
        for other in keeping:
            if other.state is State.HELD:
                after.release(other.job, other.allocation)
            else:
                later.release(other.job, other.allocation)
        usable = self.placer.open_to(after, job, now)
        after.take(job, allocation)
        later.take(job, allocation)
        for name in sorted({task.node for task in allocation}):
            row = state.row[name]
            if not usable[row] and name not in present:
                yield f"it may not use node {name}"
            elif any(s.overbooked([TaskAllocation(node=name)]) for s in (after, later)):
                yield f"node {name} has no room for it"
            elif job.request.share is not None and (
                (after.sharers[row] > after.most_sharers[row]).any()
            ):
                yield f"too many jobs share a GPU of node {name}"

    def gang(self, run: JobRun, allocation: tuple[TaskAllocation, ...], now: int) -> Iterator[str]:
        """What the tasks of one job must keep together."""
        job = run.job
        tasks = (*run.allocation, *allocation) if run.state is State.HOLDING else allocation
        per_node = Counter(task.node for task in tasks)
        if job.max_tasks_per_node and max(per_node.values()) > job.max_tasks_per_node:
            yield f"more than {job.max_tasks_per_node} tasks on a node"
        fabric = self.placer.fabric
        if self.gangs and len(tasks) > 1:
            depth = fabric.required_depth(job, now - run.submit)
            if fabric.common_depth(tasks) < depth:
                yield "its tasks are further apart than its topology allows"
        if job.nvlink_required and not self.placer.linked(tasks):
            yield "NVLink does not join its GPUs"


def _as_left(run: JobRun) -> Job:
    """The job with what is left of its estimate."""
    if not run.starts or run.estimate_left is None:
        return run.job
    left = max(1, -(-run.estimate_left // MICRO))
    return run.job.model_copy(update={"runtime_seconds": left})


def may_stop(run: JobRun) -> str | None:
    """Why a job may not be preempted, or None."""
    if run.state is not State.RUNNING:
        return f"it is {run.state}, not running"
    if not (run.job.preemptible and run.job.requeueable):
        return "it may not be preempted"
    return None
