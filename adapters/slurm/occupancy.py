"""Decides what holds where running jobs and nodes disagree: gaps, overlaps, missing nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from trencadis.adapters.slurm.drafts import Draft
from trencadis.adapters.slurm.fields import name
from trencadis.adapters.slurm.nodes import UNTYPED, SlurmNode, resource_keys
from trencadis.adapters.slurm.placements import OnNode
from trencadis.adapters.slurm.report import Report
from trencadis.models.base import MAX_COUNT
from trencadis.models.cluster import GpuGroup, Node
from trencadis.models.jobs import Job, Request, TaskAllocation

UNSEEN = "unseen"
"""Queue of what nodes say is in use and no job accounts for; the jobs are `unseen/NODE`."""


def add_missing_nodes(drafts: list[Draft], nodes: dict[str, SlurmNode], report: Report) -> None:
    """Nodes that jobs run on and the document lacks: cordoned, as large as what is in use there."""
    stand_ins: dict[str, SlurmNode] = {}
    for draft in drafts:
        for place in draft.occupied:
            if place.node not in nodes:
                report.warn(
                    f"{draft.path}.nodes",
                    "runs on a node that the node document lacks: a cordoned one stands for it",
                )
                node = Node(name=place.node, cordoned=True, precision="node")
                nodes[place.node] = stand_ins[place.node] = SlurmNode(draft.path, node)
            if place.node in stand_ins:
                _grow(stand_ins[place.node], place)


def _grow(node: SlurmNode, place: OnNode) -> None:
    """Makes room on a stand-in for what one more job has there."""
    before = node.node
    highest = max(place.indices, default=-1) + 1 if place.indices else 0
    gpus = min(64, max(highest, before.gpu_count + (0 if place.indices else place.gpus)))
    model = next((model for model in place.models if model), UNTYPED)
    model = before.gpus[0].model if before.gpus else model
    resources = dict(before.resources)
    for key, amount in place.resources.items():
        resources[key] = min(MAX_COUNT, resources.get(key, 0) + amount)
    node.devices = tuple(range(gpus))
    node.set(
        cpu_milli=min(MAX_COUNT, before.cpu_milli + place.cpus * 1_000),
        memory_mib=min(MAX_COUNT, before.memory_mib + place.memory_mib),
        gpus=(GpuGroup(model=name(model, UNTYPED), count=gpus),) if gpus else (),
        resources=resources,
    )


@dataclass(slots=True)
class _Use:
    """What the jobs have on a node."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    whole: dict[int, str] = field(default_factory=dict)
    """Job by GPU index."""
    shared: dict[int, int] = field(default_factory=dict)
    """Parts by GPU index."""
    resources: dict[str, int] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)


def settle(
    jobs: list[Job], nodes: dict[str, SlurmNode], now: datetime, report: Report
) -> list[Job]:
    """The jobs with one owner per GPU, and stand-ins for what no job accounts for."""
    uses = {where: _Use() for where in nodes}
    settled = [_own(job, uses, nodes, report) if job.on_nodes else job for job in jobs]
    settled = [_place_parts(job, uses, nodes) if job.request.share else job for job in settled]
    settled = _exclusive(settled, uses, nodes, report)
    for node in nodes.values():
        if node.node.down and uses[node.name].jobs:
            # Down nodes run nothing in the schema; these still hold what is there.
            node.set(down=False, cordoned=True)
            report.warn(f"{node.path}.state", "down, yet jobs are on it: read as cordoned")
        unseen = _unseen(node, uses[node.name], now)
        if unseen is not None:
            report.warn(
                node.path,
                "more is in use than the jobs account for: kept by a job unseen/NODE. Maybe the job"
                " document shows only some users' jobs",
            )
            settled.append(unseen)
    return settled


def _own(job: Job, uses: dict[str, _Use], nodes: dict[str, SlurmNode], report: Report) -> Job:
    """Notes what the job uses; takes away indices that another job has already."""
    allocation = []
    for task in job.allocation:
        use, node = uses[task.node], nodes[task.node]
        use.cpu += job.request.cpu_milli
        use.memory += job.request.memory_mib
        use.gpus += job.request.gpus
        for key, amount in job.request.resources.items():
            use.resources[key] = use.resources.get(key, 0) + amount
        if not use.jobs or use.jobs[-1] is not job:
            use.jobs.append(job)
        kept = task
        if task.gpus and job.request.gpus:
            taken = any(gpu in use.whole or gpu >= node.node.gpu_count for gpu in task.gpus)
            if taken:
                report.warn(
                    node.path, "two jobs list the same GPU, or one the node lacks: only counted"
                )
                kept = task.model_copy(update={"gpus": None})
            else:
                use.whole.update(dict.fromkeys(task.gpus, job.name))
        allocation.append(kept)
    return job.model_copy(update={"allocation": tuple(allocation)})


def _place_parts(job: Job, uses: dict[str, _Use], nodes: dict[str, SlurmNode]) -> Job:
    """Chooses GPUs for parts of unknown place: those that hold parts by the node's own word, else
    each a GPU of its own as far as there are any, so that none that may be shared looks idle."""
    allocation = []
    for task in job.allocation:
        use, node = uses[task.node], nodes[task.node]
        known = [i for e in node.used for i, used in enumerate(e.per_gpu) if used]
        free = [i for i in known or range(node.node.gpu_count) if i not in use.whole]
        gpus = task.gpus
        if gpus is None or gpus[0] in use.whole or gpus[0] >= node.node.gpu_count:
            load = use.shared
            best = min(free, key=lambda i: (load.get(i, 0), i), default=None)
            gpus = None if best is None else (best,)
        if gpus is not None:
            use.shared[gpus[0]] = use.shared.get(gpus[0], 0) + 1
        allocation.append(task.model_copy(update={"gpus": gpus}))
    return job.model_copy(update={"allocation": tuple(allocation)})


def _exclusive(
    jobs: list[Job], uses: dict[str, _Use], nodes: dict[str, SlurmNode], report: Report
) -> list[Job]:
    """Exclusive jobs that share a node after all (a user's own may): cordoned nodes instead."""
    dropped: set[str] = set()
    for where, use in uses.items():
        owners = [job.name for job in use.jobs if job.exclusive]
        if owners and len(use.jobs) > 1:
            dropped.update(owners)
            nodes[where].set(cordoned=True)
            report.warn(nodes[where].path, "exclusive jobs share it: cordoned")
    # The other nodes of such a job lose their protection with the flag, so they are cordoned too.
    for job in jobs:
        if job.name in dropped:
            for task in job.allocation:
                nodes[task.node].set(cordoned=True)
    return [j.model_copy(update={"exclusive": False}) if j.name in dropped else j for j in jobs]


def _unseen(node: SlurmNode, use: _Use, now: datetime) -> Job | None:
    used_gpus = sum(entry.count for entry in node.used if entry.is_gpu)
    gpus = max(0, min(used_gpus, node.node.gpu_count) - use.gpus)
    resources = {}
    for entry in node.used:
        if entry.is_gpu or not entry.count or entry.per_gpu:
            continue
        for key in resource_keys(entry):
            if key in node.node.resources:
                more = min(entry.count, node.node.resources[key]) - use.resources.get(key, 0)
                if more > 0:
                    resources[key] = more
    cpu = max(0, (node.used_cpu or 0) * 1_000 - use.cpu)
    memory = max(0, (node.used_memory_mib or 0) - use.memory)
    if not (gpus or resources or cpu or memory) or node.node.down:
        return None
    if any(job.exclusive for job in use.jobs):
        return None  # nothing starts there anyway
    indices = _spare(node, use, gpus)
    return Job(
        name=f"{UNSEEN}/{node.name}"[:253],
        queue=UNSEEN,
        submit=now,
        start=now,
        state="running",
        request=Request(
            gpus=gpus,
            cpu_milli=min(cpu, MAX_COUNT),
            memory_mib=min(memory, MAX_COUNT),
            resources=resources,
        ),
        preemptible=False,
        requeueable=False,
        allocation=(TaskAllocation(node=node.name, gpus=indices),),
    )


def _spare(node: SlurmNode, use: _Use, gpus: int) -> tuple[int, ...] | None:
    """The indices that the node says are in use and no job has; None if they don't add up."""
    if gpus == 0:
        return ()
    listed: Iterable[int] = [i for e in node.used if e.is_gpu for i in e.indices or ()]
    found = node.gpus_at(listed) or ()
    spare = tuple(sorted(set(found) - use.whole.keys()))
    return spare if len(spare) == gpus else None
