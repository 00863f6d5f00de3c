"""Trencadis itself: a snapshot of the replay's moment, solved, and the plan as a decision."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from trencadis.models import Hold, Job, Plan, Snapshot
from trencadis.models.base import seconds
from trencadis.solver.round import Options, solve
from trencadis.whatif.decisions import (
    Decision,
    PreemptAction,
    ResizeAction,
    StartAction,
    View,
)
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.runs import MICRO, JobRun, State

HALF_LIFE_S = 7 * 86_400
"""Past usage counts half after a week, as Slurm's PriorityDecayHalfLife does by default."""


class Solver:
    """Solves each round in deterministic mode, so that a replay can be repeated.

    `effort` is the measure of work that stands for the time limit there. A round in which no
    waiting job fits on what is idle is not solved: this version of the solver only starts jobs on
    idle GPUs, so its answer is known.
    """

    name = "trencadis"

    def __init__(self, effort: float = 0.5, seed: int = 0) -> None:
        self._options = Options(time_limit_s=effort, deterministic=True, seed=seed)
        self._records: dict[str, tuple[tuple[object, ...], Job]] = {}
        self._usage: dict[str, float] = {}
        """GPU-hours by queue, decayed to `_usage_at`."""
        self._usage_at: int | None = None

    def decide(self, view: View) -> Decision:
        """Solves, unless nothing fits."""
        self.observe(view)
        draft = view.draft()
        ranking = BestFit()
        if not any(draft.fit(run, ranking) is not None for run in view.pending):
            return Decision()
        return decision_of(solve(self.snapshot(view), self._options), view)

    def snapshot(self, view: View) -> Snapshot:
        """The moment as the solver sees it."""
        base = view.snapshot
        nodes = tuple(
            node
            if view.state.up[row] == (not node.down)
            else node.model_copy(update={"down": not view.state.up[row]})
            for row, node in enumerate(base.nodes)
        )
        queues = tuple(
            queue.model_copy(
                update={
                    "past_usage_gpu_hours": queue.past_usage_gpu_hours
                    + int(self._usage.get(queue.name, 0))
                }
            )
            for queue in base.queues
        )
        runs = (*view.running, *view.draining, *view.pending, *view.waiting_elsewhere, *view.held)
        # Without gangs: tasks that wait on their GPUs for the others, as jobs of their own.
        partial = tuple(
            run.job.model_copy(
                update={
                    "state": "running",
                    "start": datetime.fromtimestamp(run.began, UTC),
                    "tasks": len(run.allocation),
                    "min_tasks": None,
                    "allocation": run.allocation,
                }
            )
            for run in view.holding
        )
        return base.model_copy(
            update={
                "now": datetime.fromtimestamp(view.now, UTC),
                "nodes": nodes,
                "queues": queues,
                "jobs": (*(self._record(run, base) for run in runs), *partial),
                "holds": tuple(
                    Hold(
                        job=run.name,
                        at=datetime.fromtimestamp(view.now, UTC),
                        allocation=run.allocation,
                    )
                    for run in view.held
                ),
            }
        )

    def _record(self, run: JobRun, base: Snapshot) -> Job:
        key = (run.state, run.epoch, run.preemptions, run.failures)
        known = self._records.get(run.name)
        if known is None or known[0] != key:
            known = (key, _record(run, base))
            self._records[run.name] = known
        return known[1]

    def observe(self, view: View) -> None:
        """Brings the past usage up to now."""
        if self._usage_at is not None:
            span = view.now - self._usage_at
            fade = 0.5 ** (span / HALF_LIFE_S)
            used = Counter[str]()
            for run in view.running:
                used[run.job.queue] += run.milli * min(span, view.now - run.began)
            for name in sorted(self._usage.keys() | used.keys()):
                hours = used[name] / 1_000 / 3_600
                self._usage[name] = self._usage.get(name, 0.0) * fade + hours
        self._usage_at = view.now


def _record(run: JobRun, base: Snapshot) -> Job:
    if not run.starts and run.state in (State.WAITING, State.HELD):
        return run.job
    preemption = base.policy.preemption
    update: dict[str, object] = {"preempted": run.preemptions}
    if run.last_preempted is not None:
        update["preempted_at"] = datetime.fromtimestamp(run.last_preempted, UTC)
    estimate = run.job.runtime_seconds
    if run.state in (State.RUNNING, State.DRAINING):
        update["state"] = "running" if run.state is State.RUNNING else "draining"
        update["start"] = datetime.fromtimestamp(run.began, UTC)
        update["allocation"] = run.allocation
        if run.state is State.DRAINING:
            update["drain_ends"] = datetime.fromtimestamp(run.began + run.restart, UTC)
        elif run.estimate_left is not None:
            estimate = run.restart + -(-run.estimate_left // run.rate)
    elif run.estimate_left is not None:
        estimate = preemption.restart_seconds + -(-run.estimate_left // MICRO)
    update["runtime_seconds"] = None if estimate is None else max(1, estimate)
    return run.job.model_copy(update=update)


def decision_of(plan: Plan, view: View) -> Decision:
    """The plan's actions."""
    running = {run.name: run for run in view.running}
    resizes = []
    for resize in plan.resizes:
        left = Counter(running[resize.job].allocation)
        left.subtract(Counter(resize.remove))
        resizes.append(ResizeAction(resize.job, (*left.elements(), *resize.add)))
    moves = sorted(plan.moves, key=lambda move: (move.step, move.job))
    return Decision(
        preempts=tuple(
            PreemptAction(entry.job, max(0, seconds(entry.gpus_free_at) - view.now))
            for entry in plan.preempts
        ),
        resizes=(*resizes, *(ResizeAction(move.job, move.to) for move in moves)),
        starts=tuple(
            StartAction(start.job, start.allocation, start.waits_for) for start in plan.starts
        ),
    )
