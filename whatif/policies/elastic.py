"""Elastic jobs: more tasks where GPUs would stay idle, fewer where others need them."""

from __future__ import annotations

from collections.abc import Sequence

from trencadis.models import TaskAllocation
from trencadis.whatif.decisions import Draft, ResizeAction, StartAction, View, model_of
from trencadis.whatif.placing import Ranking
from trencadis.whatif.runs import JobRun

WORTH_RESTARTS = 4
"""A running job grows only if what is left of it lasts so many restarts."""


def grow(draft: Draft, ranking: Ranking) -> None:
    """Gives idle GPUs to elastic jobs: first to those that start now, then to the longest."""
    view = draft.view
    started = {run.name: run for run in view.pending if run.index in draft.gone}
    for position, action in enumerate(draft.starts):
        run = started.get(action.job)
        if run is not None and not action.waits_for and len(action.allocation) < run.job.tasks:
            more = _more(draft, run, action.allocation, ranking)
            draft.starts[position] = StartAction(run.name, (*action.allocation, *more))
    elastic = [
        run
        for run in view.running
        if len(run.allocation) < run.job.tasks and run.index not in draft.gone
    ]
    for run in sorted(elastic, key=lambda run: (-run.work_left // run.rate, run.index)):
        if not pays_to_grow(run, view):
            continue
        more = _more(draft, run, run.allocation, ranking)
        if more:
            draft.resizes.append(ResizeAction(run.name, (*run.allocation, *more)))
            draft.gone.add(run.index)


def pays_to_grow(run: JobRun, view: View) -> bool:
    """Whether what is left of a running job lasts long enough for a restart to pay."""
    restart = view.snapshot.policy.preemption.restart_seconds_multi_node
    end = run.expected_end(view.now)
    return end is None or end - view.now >= WORTH_RESTARTS * restart


def shrink_for(draft: Draft, run: JobRun, candidates: Sequence[JobRun], ranking: Ranking) -> bool:
    """Starts the job on what elastic jobs have above their minimum, if that is enough."""
    view = draft.view
    elastic = [v for v in candidates if len(v.allocation) > v.job.minimum]
    if not elastic:
        return False
    state, kept = draft.state.copy(), dict[int, tuple[TaskAllocation, ...]]()
    for victim in elastic:
        allocation = victim.allocation
        while len(allocation) > victim.job.minimum:
            state.release(victim.job, allocation[-1:])
            allocation = allocation[:-1]
            kept[victim.index] = allocation
            found = view.placer.place(state, run.job, view.now, ranking)
            if found is None:
                continue
            for other in elastic:
                if other.index in kept:
                    _resize(draft, other, kept[other.index])
            draft.start(run, found)
            return True
    return False


def _resize(draft: Draft, run: JobRun, allocation: tuple[TaskAllocation, ...]) -> None:
    gone = run.allocation[len(allocation) :]
    draft.state.release(run.job, gone)
    draft.books.clear(run.job, len(gone), model_of(draft.state, gone), ends=False)
    draft.resizes.append(ResizeAction(run.name, allocation))
    draft.gone.add(run.index)


def _more(
    draft: Draft, run: JobRun, allocation: tuple[TaskAllocation, ...], ranking: Ranking
) -> tuple[TaskAllocation, ...]:
    """Further tasks, on GPUs of the same model; booked in the draft."""
    view, job = draft.view, run.job
    if job.topology is not None and job.topology.mode == "required":
        return ()
    if job.max_tasks_per_node is not None or view.placer.fabric.boundary:
        return ()
    model = model_of(draft.state, allocation)
    one = job.model_copy(update={"gpu_models": (model,) if model else (), "min_tasks": 1})
    more: list[TaskAllocation] = []
    while len(allocation) + len(more) < job.tasks:
        found = view.placer.place(draft.state, one, view.now, ranking, tasks=1)
        if found is None or not draft.books.allows(job, 1, model, starts=False):
            break
        draft.state.take(job, found)
        draft.books.book(job, 1, model, starts=False)
        more.extend(found)
    return tuple(more)
