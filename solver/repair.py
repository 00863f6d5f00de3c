"""Broken gangs: what they lack waits as a job of its own; its start is the gang's repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

from trencadis.models import (
    Hold,
    Job,
    Missing,
    Pending,
    Plan,
    Repair,
    Snapshot,
    Start,
    TaskAllocation,
)
from trencadis.models.base import seconds
from trencadis.models.broken import (
    Breakage,
    as_start,
    breakage,
    is_broken,
    lost_tasks,
    missing_name,
    standing,
    useful_holds,
)
from trencadis.models.preconditions import DELAYED_REPAIR_PRECONDITIONS, REPAIR_PRECONDITIONS
from trencadis.models.spares import TOLERATION
from trencadis.solver.capacity import running_model
from trencadis.solver.fabric import Tree, required_depth, tree
from trencadis.solver.spares import with_spares


def as_read(snapshot: Snapshot) -> Snapshot:
    """The snapshot as rounds read it: spares marked, broken gangs as two jobs each."""
    return with_missing(with_spares(snapshot))


def with_missing(snapshot: Snapshot) -> Snapshot:
    """The snapshot with each broken gang read as two jobs (problem.md, 12): one that runs with the
    tasks that are left, and one that waits with those that it lacks."""
    if not snapshot.policy.repairs:
        return snapshot
    broken = breakage(snapshot)
    jobs: list[Job] = []
    waiting: list[Job] = []
    fabric: Tree | None = None
    names = {job.name for job in snapshot.jobs}
    for job in snapshot.jobs:
        if job.state != "running" or (len(job.allocation) >= job.minimum and not broken):
            jobs.append(job)
            continue
        left = standing(job, broken)
        if not is_broken(job, left):
            jobs.append(job)
            continue
        fabric = fabric or tree(snapshot)
        rest = job.model_copy(update={"allocation": left, "tasks": len(left), "min_tasks": None})
        jobs.append(rest)
        missing = _missing(snapshot, job, rest, fabric)
        if missing is not None and missing.name not in names:
            waiting.append(missing)
    if (
        len(jobs) == len(snapshot.jobs)
        and not waiting
        and all(new is old for new, old in zip(jobs, snapshot.jobs, strict=True))
    ):
        return snapshot
    return snapshot.model_copy(
        update={"jobs": (*jobs, *waiting), "holds": _holds(snapshot, {job.name for job in waiting})}
    )


def _missing(snapshot: Snapshot, job: Job, rest: Job, fabric: Tree) -> Missing | None:
    """What the gang lacks; None where nothing may be added to it."""
    nodes = [task.node for task in rest.allocation]
    required = required_depth(snapshot, job, fabric)
    if job.segments is not None or fabric.common_depth(nodes) < required:
        return None
    near: set[str] | None = None
    if required > fabric.depth:
        near = {nodes[0]}
    elif required:
        domain = fabric.path[nodes[0]][:required]
        near = {name for name, path in fabric.path.items() if path[:required] == domain}
    if near is not None and job.required_nodes:
        near &= set(job.required_nodes)
    if near is not None and not near:
        return None
    lacks = job.minimum - len(nodes)
    most = job.max_tasks_per_node
    full = [n for n, has in Counter(nodes).items() if most is not None and has + lacks > most]
    cap = job.max_tasks_per_domain
    if cap is not None:
        if lacks > cap.tasks:
            return None
        depth = fabric.depth_of(cap.level)
        there = Counter(fabric.path[node][:depth] for node in nodes)
        full += [
            name
            for name, path in fabric.path.items()
            if there[path[:depth]] and there[path[:depth]] + lacks > cap.tasks
        ]
    model = running_model(rest, {node.name: node for node in snapshot.nodes})
    values: dict[str, Any] = {name: getattr(job, name) for name in Job.model_fields}
    values |= {
        "name": missing_name(job.name),
        "state": "pending",
        "start": None,
        "drain_ends": None,
        "allocation": (),
        "tasks": lacks,
        "min_tasks": None,
        "gpu_models": job.gpu_models if model is None else (model,),
        "required_nodes": job.required_nodes if near is None else tuple(sorted(near)),
        "excluded_nodes": tuple(sorted({*job.excluded_nodes, *full})),
        "max_tasks_per_domain": None,
        "tolerations": (*job.tolerations, TOLERATION),
        "group": None,
        "after": (),
        "not_before": None,
        "array": None,
        "licences": {},
        "runtime_seconds": _rest(snapshot, job),
        "gang": job.name,
        "gang_tasks": job.minimum,
        "beside": tuple(sorted(set(nodes))),
    }
    return Missing.model_construct(**values)


def _rest(snapshot: Snapshot, job: Job) -> int | None:
    """Seconds that the gang has still to run, by its estimate."""
    if job.runtime_seconds is None or job.start is None:
        return job.runtime_seconds
    return max(1, job.runtime_seconds - max(0, seconds(snapshot.now) - seconds(job.start)))


def _holds(snapshot: Snapshot, missing: set[str]) -> tuple[Hold, ...]:
    """Holds for a gang are for what it lacks."""
    return tuple(
        hold.model_copy(update={"job": name})
        if (name := missing_name(hold.job)) in missing
        else hold
        for hold in useful_holds(snapshot)
    )


def as_repairs(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan with what starts for a gang as the gang's repair. `snapshot`: as it came."""
    lacking = lost_tasks(snapshot) if snapshot.policy.repairs else {}
    if not lacking:
        return plan
    broken = breakage(snapshot)
    gangs = {missing_name(job.name): job for job in snapshot.jobs if job.name in lacking}
    for job in snapshot.jobs:  # a job of that name takes the place of the repair
        gangs.pop(job.name, None)
    repairs, starts = [], []
    for start in plan.starts:
        gang = gangs.get(start.job)
        if gang is None:
            starts.append(start)
            continue
        gone = Counter(gang.allocation) - Counter(standing(gang, broken))
        repairs.append(_repair(gang.name, start, tuple(gone.elements())))
    stopped = {stop.job for stop in plan.preempts}

    def name(job: str) -> str:
        return gangs[job].name if job in gangs else job

    def named(jobs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(map(name, jobs)))

    return plan.model_copy(
        update={
            "starts": tuple(starts),
            "repairs": tuple(repairs),
            "preempts": tuple(
                stop.model_copy(update={"makes_room_for": named(stop.makes_room_for)})
                for stop in plan.preempts
            ),
            "resizes": tuple(
                resize.model_copy(update={"makes_room_for": named(resize.makes_room_for)})
                for resize in plan.resizes
            ),
            "moves": tuple(
                move.model_copy(update={"lets_in": tuple(map(name, move.lets_in))})
                for move in plan.moves
            ),
            "pending": tuple(
                _said(entry, gangs, broken)
                for entry in plan.pending
                if not (entry.job in gangs and name(entry.job) in stopped)
            ),
        }
    )


def starts_of(plan: Plan) -> tuple[Start, ...]:
    """What the plan starts, repairs as the starts of what gangs lack."""
    repairs = (as_start(repair) for repair in plan.repairs)
    return (*plan.starts, *repairs)


def _repair(gang: str, start: Start, replaces: tuple[TaskAllocation, ...]) -> Repair:
    return Repair(
        job=gang,
        at=start.at,
        add=start.allocation,
        replaces=replaces,
        level=start.level,
        domain=start.domain,
        waiting_saved=start.waiting_saved,
        spread_cost=start.spread_cost,
        waits_for=start.waits_for,
        preconditions=DELAYED_REPAIR_PRECONDITIONS if start.waits_for else REPAIR_PRECONDITIONS,
    )


def _said(entry: Pending, gangs: Mapping[str, Job], broken: Breakage) -> Pending:
    """Why a job waits, or a gang stays broken; in words that name gangs."""
    sentence, evidence = entry.sentence, dict(entry.evidence)
    for name in (name for name in gangs if name in sentence):
        sentence = sentence.replace(name, f"the repair of {gangs[name].name}")
    for key, value in evidence.items():
        if isinstance(value, str):
            evidence[key] = ", ".join(
                gangs[part].name if part in gangs else part for part in value.split(", ")
            )
    said = entry.model_copy(update={"sentence": sentence, "evidence": evidence})
    return _waiting(gangs[entry.job], broken, said) if entry.job in gangs else said


def _waiting(gang: Job, broken: Breakage, entry: Pending) -> Pending:
    """Why the gang stays broken."""
    lost = gang.minimum - len(standing(gang, broken))
    text = f"lost {lost} of its {gang.minimum} tasks, and their repair waits: {entry.sentence}"
    return entry.model_copy(update={"job": gang.name, "sentence": text})


def stops_gang(job: Job, stopped: Container[str]) -> bool:
    """Whether the job is what a gang lacks that is itself stopped."""
    return isinstance(job, Missing) and job.gang in stopped
