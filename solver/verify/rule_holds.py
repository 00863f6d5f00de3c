"""Starts of jobs that a hold keeps their places for (problem.md, 8)."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Pending, Plan
from trencadis.solver.verify.situation import Situation
from trencadis.solver.verify.verdict import Violation


def held(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Such a job starts on exactly what is kept, not before its time, with no one left there."""
    holds = {hold.job: hold for hold in situation.snapshot.delayed}
    busy = {
        (task.node, gpu)
        for entry in situation.running
        for task in entry.tasks
        for gpu in task.gpus or ()
    }
    for start in plan.starts:
        hold = holds.get(start.job)
        if hold is None:
            continue
        name = start.job
        if situation.jobs[name].state != "pending":
            yield Violation("holds", f"job {name} is not one whose start was delayed")
        if start.allocation != hold.allocation or start.waits_for or start.further:
            yield Violation("holds", f"job {name} starts elsewhere than on what is held for it")
        if hold.at > plan.now or start.at != plan.now:
            yield Violation("holds", f"job {name} starts at {hold.at}, not at {start.at}")
        for task in start.allocation:
            state = situation.states.get(task.node)
            if state is None or state.node.down or state.node.cordoned:
                yield Violation("holds", f"job {name}: node {task.node} takes no work")
            if any((task.node, gpu) in busy for gpu in task.gpus or ()):
                yield Violation("holds", f"job {name}: a GPU held on {task.node} is still busy")


def without_held(situation: Situation, plan: Plan) -> Plan:
    """The plan as far as the round decides it: what is held was decided before."""
    held_jobs = {hold.job for hold in situation.snapshot.delayed}
    begun = [start.job for start in plan.starts if start.job in held_jobs]
    if not begun:
        return plan
    # For the rule that all who wait have a reason, they count as waiting for their start.
    reasons = tuple(Pending(job=name, code="starts", sentence="") for name in begun)
    return plan.model_copy(
        update={
            "starts": tuple(start for start in plan.starts if start.job not in held_jobs),
            "pending": plan.pending + reasons,
        }
    )
