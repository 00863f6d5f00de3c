"""Trencadis itself: a snapshot of the replay's moment, solved, and the plan as a decision."""

from __future__ import annotations

from collections import Counter

from trencadis.models import Plan, Snapshot
from trencadis.models.base import seconds
from trencadis.solver.round import Options, solve
from trencadis.whatif.decisions import (
    Decision,
    PreemptAction,
    ResizeAction,
    StartAction,
    View,
    model_of,
)
from trencadis.whatif.policies.moment import Moments
from trencadis.whatif.policies.outlook import Outlook
from trencadis.whatif.runs import JobRun


class Solver:
    """Solves each round in deterministic mode, so that a replay can be repeated.

    `effort` is the measure of work that stands for the time limit there. A round is not solved
    where its answer is known: nobody fits, nobody may be stopped or shrunk for anybody, and no
    running job can grow.
    """

    name = "trencadis"

    def __init__(self, effort: float = 0.5, seed: int = 0) -> None:
        self._options = Options(time_limit_s=effort, deterministic=True, seed=seed)
        self._moments = Moments()

    def decide(self, view: View) -> Decision:
        """Solves, unless nothing can come of it."""
        self.observe(view)
        outlook = Outlook.of(view)
        if not outlook.worth_solving:
            return Decision(wake=outlook.wake)
        return decision_of(solve(self.snapshot(view), self._options), view, outlook.wake)

    def snapshot(self, view: View) -> Snapshot:
        """The moment as the solver sees it."""
        return self._moments.snapshot(view)

    def observe(self, view: View) -> None:
        """Brings what it remembers of the past up to now."""
        self._moments.observe(view)


def decision_of(plan: Plan, view: View, wake: int | None = None) -> Decision:
    """The plan's actions. Shrinks come before growth, as that may use what they leave.

    The solver's limits don't count delayed starts of earlier rounds, those of a replay do: a start
    that would break one stays out, with the victims that nobody else needs.
    """
    running = {run.name: run for run in view.running}
    kept, dropped = _within_limits(plan, view, running)
    needed = {name for start in kept for name in start.waits_for}
    spared = {name for start in dropped for name in start.waits_for} - needed
    resizes = []
    for resize in sorted(plan.resizes, key=lambda entry: (bool(entry.add), entry.job)):
        if resize.job in spared:
            continue
        left = Counter(running[resize.job].allocation)
        left.subtract(Counter(resize.remove))
        resizes.append(ResizeAction(resize.job, (*left.elements(), *resize.add)))
    # What an elastic job gives up is free at once: nobody waits for it.
    stopped = {entry.job for entry in plan.preempts}
    return Decision(
        preempts=tuple(
            PreemptAction(entry.job, max(0, seconds(entry.gpus_free_at) - view.now))
            for entry in plan.preempts
            if entry.job not in spared
        ),
        resizes=tuple(resizes),
        starts=tuple(
            StartAction(
                start.job,
                start.allocation,
                tuple(name for name in start.waits_for if name in stopped),
            )
            for start in kept
        ),
        wake=wake,
    )


def _within_limits(
    plan: Plan, view: View, running: dict[str, JobRun]
) -> tuple[list[StartAction], list[StartAction]]:
    """Starts that keep all limits with the plan's victims gone, and those that don't."""
    books, state = view.books.copy(), view.state
    for entry in plan.preempts:
        run = running[entry.job]
        books.clear(run.job, len(run.allocation), model_of(state, run.allocation))
    for resize in plan.resizes:
        run = running[resize.job]
        if resize.remove:
            model = model_of(state, resize.remove)
            books.clear(run.job, len(resize.remove), model, ends=False)
    jobs = {run.name: run.job for run in view.pending}
    kept: list[StartAction] = []
    dropped: list[StartAction] = []
    for start in plan.starts:
        action = StartAction(start.job, start.allocation, start.waits_for)
        job, count = jobs[start.job], len(start.allocation)
        model = model_of(state, start.allocation)
        if books.allows(job, count, model):
            books.book(job, count, model)
            kept.append(action)
        else:
            dropped.append(action)
    return kept, dropped
