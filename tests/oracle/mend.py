"""Broken gangs as two jobs: one that runs with what is left, one that waits (§12)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from trencadis.models import Job, Missing, Node, Snapshot, TaskAllocation
from trencadis.models.broken import missing_name
from trencadis.models.spares import TOLERATION, with_mark


def two_jobs(snapshot: Snapshot) -> Snapshot:
    """The snapshot, read so."""
    if not snapshot.policy.repairs:
        return snapshot
    snapshot = _marked(snapshot)
    node = {entry.name: entry for entry in snapshot.nodes}
    jobs: list[Job] = []
    for job in snapshot.jobs:
        left = [task for task in job.allocation if _works(node[task.node], task)]
        least = job.tasks if job.min_tasks is None else job.min_tasks
        if job.state != "running" or not left or len(left) >= least:
            jobs.append(job)
            continue
        jobs.append(
            job.model_copy(
                update={"allocation": tuple(left), "tasks": len(left), "min_tasks": None}
            )
        )
        jobs += _waiting(snapshot, job, left, least)
    return snapshot.model_copy(update={"jobs": tuple(jobs)})


def _marked(snapshot: Snapshot) -> Snapshot:
    """The snapshot with its spares marked."""
    levels = ["cluster"] + [level.name for level in snapshot.fabric.levels]
    used = {task.node for job in snapshot.jobs for task in job.allocation}
    used |= {task.node for hold in snapshot.delayed for task in hold.allocation}
    spare: list[str] = []
    for depth in reversed(range(len(levels))):
        for number in (e.nodes for e in snapshot.policy.spares if e.level == levels[depth]):
            groups: dict[object, list[str]] = {}
            for node in snapshot.nodes:
                if node.name in used or not _kept_for_repairs(snapshot, node, depth):
                    continue
                kind = tuple(sorted((group.model, group.count) for group in node.gpus))
                groups.setdefault((node.fabric[:depth], kind), []).append(node.name)
            for names in groups.values():
                there = [name for name in names if name in spare]
                others = sorted(name for name in names if name not in spare)
                spare += others[: max(0, number - len(there))]
    nodes = [with_mark(node) if node.name in spare else node for node in snapshot.nodes]
    return snapshot.model_copy(update={"nodes": tuple(nodes)})


def _kept_for_repairs(snapshot: Snapshot, node: Node, depth: int) -> bool:
    stays = not node.down and not node.cordoned and not node.free_until and not node.maintenance
    whole = node.gpus and not any(group.unhealthy for group in node.gpus)
    well = node.health_score_milli >= snapshot.policy.poor_health_milli
    return bool(stays and whole and well and len(node.fabric) >= depth)


def _works(node: Node, task: TaskAllocation) -> bool:
    broken = [gpu for group in node.gpus for gpu in group.unhealthy]
    return not node.down and not any(gpu in broken for gpu in task.gpus or ())


def _waiting(snapshot: Snapshot, job: Job, left: list[TaskAllocation], least: int) -> list[Missing]:
    lost = least - len(left)
    node = {entry.name: entry for entry in snapshot.nodes}
    home = {task.node for task in left}
    ran = 0 if job.start is None else max(0, int((snapshot.now - job.start).total_seconds()))
    depth = _required(snapshot, job)
    deepest = len(snapshot.fabric.levels) + 1
    if job.segments is not None or not _together(node, home, depth, deepest):
        return []
    required = list(job.required_nodes)
    if depth:
        required = [
            name
            for name in node
            if (not required or name in required) and _together(node, {*home, name}, depth, deepest)
        ]
        if not required:
            return []
    excluded = set(job.excluded_nodes)
    if job.max_tasks_per_node is not None:
        there = Counter(task.node for task in left)
        excluded |= {name for name, n in there.items() if n + lost > job.max_tasks_per_node}
    cap = job.max_tasks_per_domain
    if cap is not None:
        if lost > cap.tasks:
            return []
        level = [entry.name for entry in snapshot.fabric.levels].index(cap.level) + 1
        for name in node:
            has = sum(_together(node, {t.node, name}, level, deepest) for t in left)
            if has and has + lost > cap.tasks:
                excluded.add(name)
    fields: dict[str, Any] = {name: getattr(job, name) for name in Job.model_fields}
    model = _model(node, job, left)
    fields.update(
        name=missing_name(job.name),
        state="pending",
        start=None,
        allocation=(),
        tasks=lost,
        min_tasks=None,
        gpu_models=job.gpu_models if model is None else (model,),
        required_nodes=tuple(required),
        excluded_nodes=tuple(excluded),
        max_tasks_per_domain=None,
        tolerations=(*job.tolerations, TOLERATION),
        group=None,
        after=(),
        not_before=None,
        array=None,
        licences={},
        runtime_seconds=(
            None if job.runtime_seconds is None else max(1, job.runtime_seconds - ran)
        ),
        gang=job.name,
        gang_tasks=least,
        beside=tuple(sorted(home)),
    )
    return [Missing.model_construct(**fields)]


def _required(snapshot: Snapshot, job: Job) -> int:
    names = [level.name for level in snapshot.fabric.levels] + ["node"]
    depths = [i for i, level in enumerate(snapshot.fabric.levels, 1) if level.boundary]
    wish = job.topology
    waited = max(0, int((snapshot.now - job.submit).total_seconds()))
    if wish is not None and wish.mode == "required":
        relax = wish.relax_after_seconds
        depths += [names.index(wish.level) + 1] if relax is None or waited < relax else []
    return max(depths, default=0)


def _together(node: dict[str, Node], names: set[str], depth: int, deepest: int) -> bool:
    """Whether the nodes share a domain of this depth."""
    if depth == 0 or len(names) == 1:
        return True
    paths = [node[name].fabric for name in names]
    if depth == deepest or any(len(path) < depth for path in paths):
        return False
    return len({path[:depth] for path in paths}) == 1


def _model(node: dict[str, Node], job: Job, left: list[TaskAllocation]) -> str | None:
    request = job.request
    parts = request.mig or request.mig_memory_mib or request.mig_compute_milli or request.share
    if not (request.gpus or parts):
        return None
    for task in left:
        models = [group.model for group in node[task.node].gpus for _ in range(group.count)]
        if task.gpus:
            return models[task.gpus[0]]
        if len(set(models)) == 1:
            return models[0]
    return job.gpu_models[0] if len(set(job.gpu_models)) == 1 else None
