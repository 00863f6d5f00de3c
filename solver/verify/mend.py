"""Broken gangs as the verifier reads them: two jobs each, one that runs and one that waits
(problem.md, 12); and a plan's repairs as starts of the latter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from trencadis.models import Hold, Job, Missing, Node, Pending, Plan, Snapshot
from trencadis.models.base import seconds
from trencadis.models.broken import as_start, missing_name
from trencadis.models.jobs import TaskAllocation
from trencadis.models.spares import TOLERATION, is_spare, with_mark
from trencadis.solver.verify.fabric import common, domain, levels_of
from trencadis.solver.verify.verdict import Violation

Tasks = tuple[TaskAllocation, ...]


def alive(job: Job, nodes: Mapping[str, Node]) -> Tasks:
    """The tasks on healthy GPUs of nodes that are up."""
    found = []
    for task in job.allocation:
        node = nodes[task.node]
        bad = {gpu for group in node.gpus for gpu in group.unhealthy}
        if not node.down and not bad.intersection(task.gpus or ()):
            found.append(task)
    return tuple(found)


def lacking(job: Job, nodes: Mapping[str, Node]) -> int:
    """How many tasks a running gang lacks; 0 if none, or if none of it is left."""
    if job.state != "running":
        return 0
    left = len(alive(job, nodes))
    return max(0, job.minimum - left) if left else 0


def mended(snapshot: Snapshot) -> Snapshot:
    """The snapshot with broken gangs as two jobs each, and its spares marked."""
    if not snapshot.policy.repairs:
        return snapshot
    snapshot = _with_spares(snapshot)
    nodes = {node.name: node for node in snapshot.nodes}
    sound = not any(node.down or any(g.unhealthy for g in node.gpus) for node in snapshot.nodes)
    lost = {
        job.name: number
        for job in snapshot.jobs
        if not (sound and len(job.allocation) >= job.minimum) and (number := lacking(job, nodes))
    }
    if not lost and not any(hold.kind == "delayed_start" for hold in snapshot.holds):
        return snapshot
    present = {job.name for job in snapshot.jobs}
    jobs, waiting = list[Job](), list[Job]()
    for job in snapshot.jobs:
        if job.name not in lost:
            jobs.append(job)
            continue
        left = alive(job, nodes)
        jobs.append(
            job.model_copy(update={"allocation": left, "tasks": len(left), "min_tasks": None})
        )
        if missing_name(job.name) not in present:
            waiting += _lack(snapshot, job, left, lost[job.name])
    return snapshot.model_copy(
        update={
            "jobs": tuple(jobs + waiting),
            "holds": tuple(_holds(snapshot, lost, {job.name for job in waiting})),
        }
    )


def _with_spares(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a mark on each node that is kept for repairs."""
    if not snapshot.policy.spares or any(is_spare(node) for node in snapshot.nodes):
        return snapshot
    taken = {task.node for job in snapshot.jobs if job.on_nodes for task in job.allocation}
    for hold in snapshot.delayed:
        taken.update(task.node for task in hold.allocation)
    free = [
        node
        for node in sorted(snapshot.nodes, key=lambda node: node.name)
        if node.name not in taken
        and node.gpus
        and not (node.down or node.cordoned or node.free_until or node.maintenance)
        and not any(group.unhealthy for group in node.gpus)
        and node.health_score_milli >= snapshot.policy.poor_health_milli
    ]
    kept: set[str] = set()
    depths = {"cluster": 0}
    depths |= {level.name: i for i, level in enumerate(snapshot.fabric.levels, 1)}
    for depth, number in sorted(
        ((depths[entry.level], entry.nodes) for entry in snapshot.policy.spares),
        key=lambda entry: -entry[0],
    ):
        have: Counter[object] = Counter()
        placed = [node for node in free if len(node.fabric) >= depth]
        for node in sorted(placed, key=lambda node: node.name not in kept):
            kind = sorted((group.model, group.count) for group in node.gpus)
            where = (node.fabric[:depth], tuple(kind))
            if node.name in kept or have[where] < number:
                have[where] += 1
                kept.add(node.name)
    nodes = tuple(with_mark(node) if node.name in kept else node for node in snapshot.nodes)
    return snapshot.model_copy(update={"nodes": nodes})


def _holds(snapshot: Snapshot, lost: Mapping[str, int], waiting: set[str]) -> Iterable[Hold]:
    running = {job.name for job in snapshot.jobs if job.state == "running"}
    for hold in snapshot.holds:
        if hold.job in running and lost.get(hold.job) != len(hold.allocation):
            continue
        name = missing_name(hold.job)
        yield hold.model_copy(update={"job": name}) if name in waiting else hold


def _lack(snapshot: Snapshot, job: Job, left: Tasks, number: int) -> Iterable[Missing]:
    """What the gang lacks, as a job; nothing where it can't be told where that may go."""
    levels, nodes = levels_of(snapshot), {node.name: node for node in snapshot.nodes}
    here = Counter(task.node for task in left)
    waited = max(0, seconds(snapshot.now) - seconds(job.submit))
    needed = levels.required(job, waited)
    depth, _ = common(levels, [nodes[name] for name in here])
    if job.segments is not None or depth < needed:
        return
    required = set(job.required_nodes)
    if needed:
        home = domain(levels, nodes[left[0].node], needed)
        inside = {name for name, node in nodes.items() if domain(levels, node, needed) == home}
        required = inside & required if required else inside
        if not required:
            return
    most = job.max_tasks_per_node or job.minimum
    full = {name for name, has in here.items() if has + number > most}
    cap = job.max_tasks_per_domain
    if cap is not None:
        if number > cap.tasks:
            return
        level = levels.depth(cap.level)
        near = Counter(domain(levels, nodes[task.node], level) for task in left)
        full |= {
            name
            for name, node in nodes.items()
            if (has := near[domain(levels, node, level)]) and has + number > cap.tasks
        }
    model = _model(job, left, nodes)
    runtime = job.runtime_seconds
    if runtime is not None and job.start is not None:
        runtime = max(1, runtime - max(0, seconds(snapshot.now) - seconds(job.start)))
    values: dict[str, Any] = {name: getattr(job, name) for name in Job.model_fields}
    values.update(
        name=missing_name(job.name),
        state="pending",
        start=None,
        drain_ends=None,
        allocation=(),
        tasks=number,
        min_tasks=None,
        gpu_models=(model,) if model else job.gpu_models,
        required_nodes=tuple(sorted(required)),
        excluded_nodes=tuple(sorted(full.union(job.excluded_nodes))),
        max_tasks_per_domain=None,
        tolerations=(*job.tolerations, TOLERATION),
        group=None,
        after=(),
        not_before=None,
        array=None,
        licences={},
        runtime_seconds=runtime,
        gang=job.name,
        gang_tasks=job.minimum,
        beside=tuple(sorted(here)),
    )
    yield Missing.model_construct(**values)


def _model(job: Job, left: Tasks, nodes: Mapping[str, Node]) -> str | None:
    """The GPU model that the rest of the gang is on; None without GPUs, or where unknown."""
    request = job.request
    if not (
        request.gpus
        or request.share
        or request.mig
        or request.mig_memory_mib
        or request.mig_compute_milli
    ):
        return None
    known = [(nodes[task.node], task.gpus) for task in left]
    for node, gpus in known:
        models = [group.model for group in node.gpus for _ in range(group.count)]
        if gpus:
            return models[gpus[0]]
        if len(set(models)) == 1:
            return models[0]
    return job.gpu_models[0] if len(job.gpu_models) == 1 else None


def as_starts(snapshot: Snapshot, plan: Plan) -> tuple[Plan, tuple[Violation, ...]]:
    """The plan with its repairs as starts of what gangs lack; what is wrong about the repairs.

    `snapshot`: the one that `mended` made of the plan's.
    """
    gangs = {job.gang: job for job in snapshot.jobs if isinstance(job, Missing)}
    if not gangs and not plan.repairs:
        return plan, ()
    broken: list[Violation] = []
    starts = list(plan.starts)
    stopped = {stop.job for stop in plan.preempts}
    seen: set[str] = set()
    for start in plan.starts:
        if any(start.job == job.name for job in gangs.values()):
            broken.append(Violation("jobs", f"job {start.job} is not in the snapshot"))
    for repair in plan.repairs:
        if repair.job not in gangs or repair.job in seen or repair.job in stopped:
            text = f"job {repair.job} is no broken gang, is repaired twice, or stopped"
            broken.append(Violation("repairs", text))
            continue
        seen.add(repair.job)
        starts.append(as_start(repair))

    def name(job: str) -> str:
        return gangs[job].name if job in seen else job

    def waiting(job: str) -> str:
        return gangs[job].name if job in gangs else job

    def told(entry: Pending) -> Pending:
        if entry.job not in gangs:
            return entry
        return entry.model_copy(update={"job": gangs[entry.job].name})

    # Of a gang that is stopped nothing is left to be repaired.
    ended = tuple(
        Pending(job=job.name, code="stopped", sentence="")
        for gang, job in gangs.items()
        if gang in stopped
    )
    update = {
        "starts": tuple(starts),
        "repairs": plan.repairs if plan.purpose == "defrag" else (),
        "moves": tuple(
            move.model_copy(update={"lets_in": tuple(map(waiting, move.lets_in))})
            for move in plan.moves
        ),
        "pending": (*map(told, plan.pending), *ended),
        "preempts": tuple(
            stop.model_copy(update={"makes_room_for": tuple(map(name, stop.makes_room_for))})
            for stop in plan.preempts
        ),
        "resizes": tuple(
            size.model_copy(update={"makes_room_for": tuple(map(name, size.makes_room_for))})
            for size in plan.resizes
        ),
    }
    return plan.model_copy(update=update), tuple(broken)


def replaced(snapshot: Snapshot, plan: Plan) -> Iterable[Violation]:
    """A repair names just those tasks as replaced that are lost and still listed."""
    nodes = {node.name: node for node in snapshot.nodes}
    jobs = {job.name: job for job in snapshot.jobs}
    for repair in plan.repairs:
        job = jobs.get(repair.job)
        if job is not None:
            lost = Counter(job.allocation) - Counter(alive(job, nodes))
            if lost != Counter(repair.replaces):
                yield Violation("repairs", f"job {repair.job} replaces tasks that it did not lose")
