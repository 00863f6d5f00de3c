"""Switches that take one thing away from any policy: gangs, grace, slices, elasticity."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from trencadis.models import Job
from trencadis.models.trace import Trace
from trencadis.whatif.decisions import (
    Around,
    Decision,
    PreemptAction,
    SchedulingPolicy,
    StartAction,
    View,
    model_of,
)
from trencadis.whatif.placing import TASK_MARK
from trencadis.whatif.runs import JobRun, Spent, State

SWITCHES = ("no-gang", "kill", "no-mig", "no-elastic")
HOLD_SECONDS = 3_600
"""Without gangs: tasks give their GPUs back after waiting so long for the others."""


class Kill(Around):
    """Jobs are stopped without grace and without a signal."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        super().__init__(policy, "+kill")

    def decide(self, view: View) -> Decision:
        """The same decision, at once."""
        decision = self._policy.decide(view)
        preempts = (PreemptAction(entry.job, 0, signal=False) for entry in decision.preempts)
        return replace(decision, preempts=tuple(preempts))


class NoGang(Around):
    """Each task is scheduled by itself; a job works once its last task is there.

    Tasks that are placed hold their GPUs meanwhile, at most `HOLD_SECONDS`: without that two jobs
    that wait for each other would do so forever. Single tasks of a gang stop nobody.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        super().__init__(policy, "+no-gang")

    def decide(self, view: View) -> Decision:
        """Lets the policy see tasks as jobs, and gathers its starts by job."""
        late = [run for run in view.holding if view.now - run.began >= HOLD_SECONDS]
        missing = [run for run in view.holding if run not in late]
        waiting = sorted([*view.pending, *missing], key=lambda run: (run.submit, run.index))
        tasks: dict[str, JobRun] = {}
        seen: list[JobRun] = []
        for run in waiting:
            if run.job.minimum == 1:
                seen.append(run)
                continue
            for part in _tasks(view, run):
                tasks[part.name] = run
                seen.append(part)
        decision = self._policy.decide(replace(view, pending=seen))
        released = tuple(run.name for run in late)
        starts = _gathered(view, decision, tasks)
        deadlines = [run.began + HOLD_SECONDS for run in missing]
        gangs = {run.name for run in tasks.values()}
        if any(action.job in gangs for action in starts):
            deadlines.append(view.now + HOLD_SECONDS)
        return replace(
            decision,
            preempts=_without_tasks(decision, tasks),
            starts=starts,
            releases=released,
            wake=min(deadlines, default=None) if not released else view.now + 1,
        )


def _tasks(view: View, run: JobRun) -> list[JobRun]:
    """The missing tasks of a gang as jobs of one task."""
    model = model_of(view.state, run.allocation)
    return [
        replace(
            run,
            job=run.job.model_copy(
                update={
                    "name": f"{run.name}{TASK_MARK}{number}",
                    "tasks": 1,
                    "min_tasks": None,
                    "topology": None,
                    "gpu_models": (model,) if model else run.job.gpu_models,
                }
            ),
            # A shape of its own: a task fits where its gang does not.
            shape=-1 - run.index,
            state=State.WAITING,
            allocation=(),
            spent=Spent(),
            waits_for=set(),
        )
        for number in range(len(run.allocation), run.job.minimum)
    ]


def _gathered(view: View, decision: Decision, tasks: dict[str, JobRun]) -> tuple[StartAction, ...]:
    starts: dict[str, StartAction] = {}
    for action in decision.starts:
        run = tasks.get(action.job)
        if run is None:
            starts[action.job] = action
            continue
        if action.waits_for:
            continue
        before = starts.get(run.name, StartAction(run.name, ()))
        together = (*before.allocation, *action.allocation)
        everywhere = (*run.allocation, *together)
        model = model_of(view.state, everywhere[:1])
        most = run.job.max_tasks_per_node or run.job.tasks
        crowded = max(Counter(task.node for task in everywhere).values()) > most
        if model_of(view.state, action.allocation) == model and not crowded:
            starts[run.name] = StartAction(run.name, together)
    return tuple(starts.values())


def _without_tasks(decision: Decision, tasks: dict[str, JobRun]) -> tuple[PreemptAction, ...]:
    """Only victims of whole jobs."""
    needed, wanted = set[str](), set[str]()
    for action in decision.starts:
        (wanted if action.job in tasks else needed).update(action.waits_for)
    spared = wanted - needed
    return tuple(entry for entry in decision.preempts if entry.job not in spared)


def without_slices(trace: Trace) -> Trace:
    """Who asks for a share or MIG instances of a GPU gets whole GPUs."""

    def whole(job: Job) -> Job:
        request = job.request
        sliced = request.mig_memory_mib or request.mig_compute_milli or request.share is not None
        count = len(request.mig) or (1 if sliced else 0)
        if not count:
            return job
        update = {
            "gpus": count,
            "mig": (),
            "mig_memory_mib": 0,
            "mig_compute_milli": 0,
            "share": None,
        }
        return job.model_copy(update={"request": request.model_copy(update=update)})

    return trace.changed(whole)


def without_elasticity(trace: Trace) -> Trace:
    """All jobs run with all their tasks or not at all."""
    return trace.changed(lambda job: job.model_copy(update={"min_tasks": None}))
