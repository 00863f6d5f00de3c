"""Running jobs that a plan moves, by the verifier's own reckoning (problem.md, 10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trencadis.models import Job, MigGpu, MigInstance, Move, Node, Plan, TaskAllocation
from trencadis.models.broken import missing_name
from trencadis.solver.verify.preempted import forbidden, seconds_lost
from trencadis.solver.verify.situation import Placed, Situation, place
from trencadis.solver.verify.supply import NodeState, survey
from trencadis.solver.verify.units import has_mig

States = dict[str, NodeState]
Tasks = tuple[TaskAllocation, ...]
Layouts = dict[tuple[str, int], frozenset[MigInstance]]
"""Instances by node and GPU, whoever has them."""


def in_turn(plan: Plan) -> list[Move]:
    """The moves in the order in which they are carried out."""
    return sorted(plan.moves, key=lambda move: (move.step, move.job))


def fixed(situation: Situation, job: Job) -> str:
    """Why the job may not be moved; empty if it may."""
    reason = forbidden(situation, job, moves=True)
    if not reason and missing_name(job.name) in situation.jobs:
        reason = "it lacks tasks"
    if not reason and job.segments is not None and len(job.allocation) > 1:
        reason = "its segments would have to be found anew"
    if not reason and job.request.share is not None:
        reason = "it runs on a share"
    slices = has_mig(job.request)
    if not reason and slices and not all(_has_instances(task) for task in job.allocation):
        reason = "nobody says which instances it has"
    if not reason and job.max_tasks_per_domain is not None and (slices or job.min_replicas):
        reason = "its tasks are kept apart"
    if not reason and job.min_replicas >= len(job.allocation):
        reason = "it is a service with no replica to spare"
    return reason


def _has_instances(task: TaskAllocation) -> bool:
    return bool(task.mig) and len(task.gpus or ()) == len(task.mig)


def leaving(before: Tasks, move: Move) -> int:
    """How many tasks are elsewhere after the move."""
    return sum((Counter(before) - Counter(move.to)).values())


def idle_gpu_seconds(situation: Situation, job: Job, move: Move, before: Tasks) -> int:
    """What a move costs: the work since the last checkpoint, the grace and the restart. Of a
    service only what moves stands still."""
    tasks = move.to
    if job.min_replicas:
        tasks = tuple((Counter(move.to) - Counter(before)).elements())
    there = job.model_copy(update={"allocation": tasks})
    units = situation.asks[job.name].units * len(tasks)
    return -(-seconds_lost(situation, there) * units // situation.scale.unit)


def moved(situation: Situation, job: Job, move: Move) -> Placed:
    """The job where the move takes it."""
    nodes = {name: state.node for name, state in situation.states.items()}
    return place(job, situation.asks[job.name], move.to, nodes, situation.levels)


def where(moves: Iterable[Move]) -> dict[str, Tasks]:
    """Where the jobs of these moves are once they are done, in this order."""
    return {move.job: move.to for move in moves}


def tasks_before(situation: Situation, plan: Plan, move: Move) -> Tasks:
    """Where the job of a move is as its step begins."""
    earlier = [other for other in in_turn(plan) if other.step < move.step]
    return where(earlier).get(move.job, situation.jobs[move.job].allocation)


def layouts_before(situation: Situation, plan: Plan, step: int) -> Layouts:
    """The instances of GPUs in MIG mode as a step begins: what a job leaves stays, idle."""
    found: Layouts = {
        (state.node.name, entry.gpu): frozenset(entry.instances)
        for state in situation.states.values()
        for entry in state.node.mig
    }
    for job in situation.snapshot.jobs:
        for task in job.allocation if job.on_nodes else ():
            for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
                if (task.node, gpu) in found:
                    found[task.node, gpu] |= {instance}
    for change in sorted(plan.reconfigures, key=lambda change: change.step):
        if change.step < step and (change.node, change.gpu) in found:
            found[change.node, change.gpu] = frozenset(change.after)
    return found


def _with(node: Node, layouts: Layouts) -> Node:
    if not node.mig:
        return node
    mig = tuple(
        MigGpu(
            gpu=entry.gpu,
            instances=tuple(sorted(layouts[node.name, entry.gpu], key=lambda i: i.start)),
        )
        for entry in node.mig
    )
    return node.model_copy(update={"mig": mig})


def states_with(
    situation: Situation, jobs: Mapping[str, Job], nodes: Iterable[str], layouts: Layouts
) -> States:
    """These nodes with other allocations of some running jobs; one without tasks is nowhere."""
    wanted = set(nodes)
    bare = situation.snapshot.model_copy(
        update={
            "nodes": tuple(
                _with(situation.states[name].node, layouts) for name in sorted(wanted)
            )
        }
    )
    there = [
        jobs.get(job.name, job)
        for job in situation.snapshot.jobs
        if job.on_nodes and wanted & {task.node for task in jobs.get(job.name, job).allocation}
    ]
    found = survey(bare, there, situation.asks, situation.scale.tables)
    return {
        name: replace(
            found[name], counted=found[name].counted or situation.states[name].counted
        )
        for name in wanted
    }


def touched(situation: Situation, moves: Sequence[Move]) -> set[str]:
    """Nodes that the moved jobs leave or come to."""
    names = {task.node for move in moves for task in move.to}
    return names | {t.node for move in moves for t in situation.jobs[move.job].allocation}


def after(situation: Situation, plan: Plan, moves: Sequence[Move]) -> States:
    """All nodes once these moves are done, the first of the plan in order."""
    jobs = {
        name: situation.jobs[name].model_copy(update={"allocation": tasks})
        for name, tasks in where(moves).items()
    }
    states = dict(situation.states)
    # Layouts change as a step begins.
    layouts = layouts_before(situation, plan, moves[-1].step + 1 if moves else 0)
    states.update(states_with(situation, jobs, touched(situation, moves), layouts))
    return states


def before_step(situation: Situation, plan: Plan, move: Move) -> States:
    """The nodes of a move as it finds them: without itself, with all that goes at once with it
    both where it was and where it goes."""
    jobs: dict[str, Job] = {}
    for other in in_turn(plan):
        job = situation.jobs[other.job]
        if other.step < move.step:
            jobs[job.name] = job.model_copy(update={"allocation": other.to})
        elif other.step == move.step and other.job != move.job:
            here = jobs.get(job.name, job).allocation
            both = (*here, *(Counter(other.to) - Counter(here)).elements())
            jobs[job.name] = job.model_copy(update={"allocation": both})
    own = situation.jobs[move.job].model_copy(update={"allocation": ()})
    jobs[move.job] = own
    layouts = layouts_before(situation, plan, move.step)
    return states_with(situation, jobs, {task.node for task in move.to}, layouts)
