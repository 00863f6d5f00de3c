"""Running jobs that a plan moves, by the verifier's own reckoning (problem.md, 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trencadis.models import Job, Move, Plan
from trencadis.models.broken import missing_name
from trencadis.solver.verify.preempted import forbidden, seconds_lost
from trencadis.solver.verify.situation import Placed, Situation, place
from trencadis.solver.verify.supply import NodeState, survey

States = dict[str, NodeState]


def in_turn(plan: Plan) -> list[Move]:
    """The moves in the order in which they are carried out."""
    return sorted(plan.moves, key=lambda move: (move.step, move.job))


def fixed(situation: Situation, job: Job) -> str:
    """Why the job may not be moved; empty if it may."""
    reason = forbidden(situation, job)
    if not reason and missing_name(job.name) in situation.jobs:
        reason = "it lacks tasks"
    if not reason and job.segments is not None and len(job.allocation) > 1:
        reason = "its segments would have to be found anew"
    return reason


def idle_gpu_seconds(situation: Situation, job: Job, move: Move) -> int:
    """What a move costs: the work since the last checkpoint, the grace and the restart."""
    there = job.model_copy(update={"allocation": move.to})
    return seconds_lost(situation, there) * len(move.to) * job.request.gpus


def moved(situation: Situation, job: Job, move: Move) -> Placed:
    """The job where the move takes it."""
    nodes = {name: state.node for name, state in situation.states.items()}
    return place(job, situation.asks[job.name], move.to, nodes, situation.levels)


def states_with(situation: Situation, jobs: Mapping[str, Job], nodes: Iterable[str]) -> States:
    """These nodes with other allocations of some running jobs; one without tasks is nowhere."""
    wanted = set(nodes)
    bare = situation.snapshot.model_copy(
        update={"nodes": tuple(situation.states[name].node for name in sorted(wanted))}
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


def after(situation: Situation, moves: Sequence[Move]) -> States:
    """All nodes once these moves are done."""
    jobs = {
        move.job: situation.jobs[move.job].model_copy(update={"allocation": move.to})
        for move in moves
    }
    states = dict(situation.states)
    states.update(states_with(situation, jobs, touched(situation, moves)))
    return states


def before_step(situation: Situation, plan: Plan, move: Move) -> States:
    """The nodes of a move as it finds them: without itself, with all that goes at once with it
    both where it was and where it goes."""
    jobs: dict[str, Job] = {}
    for other in plan.moves:
        job = situation.jobs[other.job]
        if other.job == move.job:
            jobs[job.name] = job.model_copy(update={"allocation": ()})
        elif other.step < move.step:
            jobs[job.name] = job.model_copy(update={"allocation": other.to})
        elif other.step == move.step:
            both = (*job.allocation, *(t for t in other.to if t not in job.allocation))
            jobs[job.name] = job.model_copy(update={"allocation": both})
    return states_with(situation, jobs, {task.node for task in move.to})
