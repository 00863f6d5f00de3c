"""apply(snapshot, plan): the next snapshot, as a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trencadis.models.broken import Breakage, breakage, standing, useful_holds
from trencadis.models.instances import held_instances
from trencadis.models.jobs import Hold, Job
from trencadis.models.layouts import PlanMismatchError, with_layouts, with_left
from trencadis.models.plan import Move, Plan, Preempt, Repair, Resize
from trencadis.models.policy import BudgetUse
from trencadis.models.snapshot import Snapshot


def apply(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot right after the plan's actions.

    Raises PlanMismatchError if the plan's fingerprint is not this snapshot's. Says nothing about
    whether the plan keeps the rules: `trencadis.solver.verify` does.
    """
    if plan.snapshot != snapshot.fingerprint():
        raise PlanMismatchError(
            "the plan was made for another snapshot: its fingerprint is "
            f"{plan.snapshot[:12]}, this snapshot's is {snapshot.fingerprint()[:12]}"
        )
    starts = {start.job: start for start in plan.starts}
    stops = {preempt.job: preempt for preempt in plan.preempts}
    sizes = {resize.job: resize for resize in plan.resizes}
    # A service may move in several steps: where it is in the end is what counts.
    moves = {move.job: move for move in sorted(plan.moves, key=lambda move: move.step)}
    repairs = {repair.job: repair for repair in plan.repairs}
    _check_states(snapshot, plan)
    broken = breakage(snapshot) if repairs else {}
    jobs: list[Job] = []
    begun = starts.keys() | repairs.keys()
    holds = [hold for hold in _promised(snapshot, plan) if hold.job not in begun]
    for job in snapshot.jobs:
        if job.name in sizes:
            job = _resized(job, sizes.pop(job.name))  # noqa: PLW2901
        start, stop = starts.pop(job.name, None), stops.pop(job.name, None)
        if start is not None and start.waits_for:
            holds.append(Hold(job=job.name, at=start.at, allocation=start.allocation))
            jobs.append(job)
        elif start is not None:
            running = {"state": "running", "start": start.at, "allocation": start.allocation}
            jobs.append(job.model_copy(update=running))
        elif stop is not None:
            jobs.append(job.model_copy(update=_stopping(job, stop)))
        elif job.name in repairs:
            repair = repairs.pop(job.name)
            if repair.waits_for:
                holds.append(Hold(job=job.name, at=repair.at, allocation=repair.add))
            jobs.append(job if repair.waits_for else _repaired(job, repair, broken))
        elif job.name in moves:
            jobs.append(_moved(job, moves.pop(job.name), plan))
        else:
            jobs.append(job)
    if starts or stops or sizes or moves or repairs:
        unknown = ", ".join(sorted([*starts, *stops, *sizes, *moves, *repairs])[:5])
        raise PlanMismatchError(
            "the plan starts, stops, resizes, repairs or moves jobs that are unknown or gone: "
            f"{unknown}"
        )
    nodes = snapshot.nodes
    if plan.moves:
        nodes = with_left(nodes, snapshot, plan.moves)
    if plan.reconfigures:
        nodes = with_layouts(nodes, plan.reconfigures, held_instances(snapshot))
    return snapshot.model_copy(
        update={
            "nodes": nodes,
            "jobs": tuple(jobs),
            "holds": tuple(holds),
            "budget_use": _used(snapshot, plan),
        }
    )


def _check_states(snapshot: Snapshot, plan: Plan) -> None:
    """Refuses starts of what doesn't wait, the same job twice, and all else of what doesn't run."""
    waits = {job.name: job.state in ("pending", "held") for job in snapshot.jobs}
    first = [start.job for start in plan.starts]
    wrong = {name for name in first if not waits.get(name, True)}
    wrong |= {name for name, number in Counter(first).items() if number > 1}
    others: tuple[Preempt | Resize | Repair | Move, ...]
    others = (*plan.preempts, *plan.resizes, *plan.repairs, *plan.moves)
    wrong |= {action.job for action in others if waits.get(action.job, False)}
    if wrong:
        raise PlanMismatchError(
            "the plan starts jobs that don't wait, or twice, or stops or changes jobs that don't "
            f"run: {', '.join(sorted(wrong)[:5])}"
        )


def _promised(snapshot: Snapshot, plan: Plan) -> Iterator[Hold]:
    """Holds so far, with the plan's reservations in place of earlier ones; moves leave them."""
    if plan.purpose != "round":
        yield from snapshot.holds
        return
    yield from (hold for hold in useful_holds(snapshot) if hold.kind == "delayed_start")
    for entry in plan.reserves:
        yield Hold(job=entry.job, kind="reservation", at=entry.at, allocation=entry.allocation)


def _stopping(job: Job, stop: Preempt) -> dict[str, object]:
    """A victim drains until its GPUs are free; without grace it is pending at once."""
    counted = {"preempted": job.preempted + 1, "preempted_at": stop.at}
    if stop.gpus_free_at > stop.at:
        return {**counted, "state": "draining", "drain_ends": stop.gpus_free_at}
    return {**counted, "state": "pending", "start": None, "allocation": ()}


def _repaired(job: Job, repair: Repair, broken: Breakage) -> Job:
    """The gang with its new tasks beside those that still run."""
    return job.model_copy(update={"allocation": (*standing(job, broken), *repair.add)})


def _moved(job: Job, move: Move, plan: Plan) -> Job:
    """The job elsewhere: saved as it left, or begun anew where it saves nothing."""
    update: dict[str, object] = {"allocation": move.to}
    if job.min_replicas:
        # A service goes on: only some of its replicas restart.
        return job.model_copy(update=update)
    if job.checkpoint is None:
        update["start"] = plan.now
    else:
        update["checkpoint"] = job.checkpoint.model_copy(update={"last": plan.now})
    return job.model_copy(update=update)


def _resized(job: Job, resize: Resize) -> Job:
    """The job with more tasks, or fewer."""
    left = list(job.allocation)
    for task in resize.remove:
        if task not in left:
            raise PlanMismatchError(
                f"the plan takes a task from job {job.name} on node {task.node} that isn't there"
            )
        left.remove(task)
    return job.model_copy(update={"allocation": (*left, *resize.add)})


def _used(snapshot: Snapshot, plan: Plan) -> BudgetUse:
    """What the sliding windows have seen with this plan; whoever keeps them lets entries expire."""
    used = snapshot.budget_use
    sizes = {job.name: len(job.allocation) * job.request.gpus for job in snapshot.jobs}
    return used.model_copy(
        update={
            "preempted_gpus_last_hour": used.preempted_gpus_last_hour
            + sum(sizes[stop.job] for stop in plan.preempts),
            "preempted_jobs_last_day": used.preempted_jobs_last_day + len(plan.preempts),
            "moves_last_hour": used.moves_last_hour + len(plan.moves),
            "lost_gpu_seconds_last_day": used.lost_gpu_seconds_last_day
            + sum(stop.lost_gpu_seconds for stop in plan.preempts)
            + sum(resize.lost_gpu_seconds for resize in plan.resizes)
            + sum(move.idle_gpu_seconds for move in plan.moves),
        }
    )
