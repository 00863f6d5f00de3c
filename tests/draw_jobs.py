"""Tiny jobs: what runs and drains with valid allocations, what waits, and holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from draw_cluster import MODELS, NOW, PROFILES, Cluster
from pen import Pen

from trencadis.models import (
    ArrayRef,
    Hold,
    Job,
    Policy,
    Request,
    Segments,
    Share,
    TaskAllocation,
    Toleration,
    Topology,
)


def ago(seconds: int) -> datetime:
    return NOW - timedelta(seconds=seconds)


def draw_running(
    pen: Pen, cluster: Cluster, policy: Policy, leaves: Sequence[str]
) -> tuple[Job, ...]:
    jobs: list[Job] = []
    for i in range(pen.between(0, 3) if pen.has("running") else 0):
        fields = _fields(pen, cluster, policy, leaves)
        tasks = pen.of(1, 1, 2) if fields["request"].gpus < 4 else 1
        order = pen.of(cluster.names, cluster.names[::-1])
        free_nodes = [name for name in order if not _used(jobs, name)]
        if fields.get("exclusive"):
            order = tuple(free_nodes)
        order = tuple(name for name in order if not _exclusive_on(jobs, name))
        allocation = cluster.take(fields["request"], tasks, fields["gpu_models"], order)
        if not allocation:
            continue
        min_tasks = 1 if tasks > 1 and pen.some("elastic", 2) else None
        elapsed = pen.of(0, 600, 3_000, 90_000)
        fields |= {
            "name": f"r{i}",
            "submit": min(fields["submit"], ago(elapsed)),
            "start": ago(elapsed),
            "tasks": tasks,
            "min_tasks": min_tasks,
            "allocation": allocation,
            "state": pen.of("running", "running", "running", "draining"),
            "runtime_seconds": pen.of(None, 3_600, 60, 100_000),
        }
        jobs.append(Job(**fields))
    jobs += _mig_jobs(pen, cluster, leaves)
    return tuple(jobs)


def _mig_jobs(pen: Pen, cluster: Cluster, leaves: Sequence[str]) -> list[Job]:
    """Jobs on some of the instances; now and then shares of another GPU."""
    jobs = []
    for node in cluster.nodes():
        for entry in node.mig:
            for i, instance in enumerate(entry.instances):
                if pen.of(True, False):
                    known = pen.between(1, 20) < 20
                    where = TaskAllocation(
                        node=node.name,
                        gpus=(entry.gpu,) if known else None,
                        mig=(instance,) if known else (),
                    )
                    request = Request(mig=(instance.profile,))
                    name = f"m-{node.name}-{entry.gpu}-{i}"
                    jobs.append(_odd_running(name, leaves[0], request, where))
        left = cluster.gpus[node.name]
        wanted = pen.some("mig", 4) or pen.some("shares", 2)
        if left and node.name not in cluster.by_count and wanted:
            for i in range(pen.of(1, 2)):
                share = Share(gpu_milli=pen.of(500, 300), memory_mib=pen.of(0, 10_000))
                where = TaskAllocation(node=node.name, gpus=(max(left),), share=share)
                name = f"s-{node.name}-{i}"
                jobs.append(_odd_running(name, leaves[-1], Request(share=share), where))
            del left[max(left)]
    return jobs


def _odd_running(name: str, queue: str, request: Request, where: TaskAllocation) -> Job:
    return Job(
        name=name,
        queue=queue,
        submit=ago(600),
        start=ago(600),
        request=request,
        allocation=(where,),
        state="running",
    )


def _used(jobs: Sequence[Job], node: str) -> bool:
    return any(task.node == node for job in jobs for task in job.allocation)


def _exclusive_on(jobs: Sequence[Job], node: str) -> bool:
    return any(job.exclusive and _used([job], node) for job in jobs)


def draw_pending(
    pen: Pen, cluster: Cluster, policy: Policy, leaves: Sequence[str]
) -> tuple[Job, ...]:
    return tuple(
        _pending(pen, cluster, policy, leaves, f"j{i}") for i in range(pen.of(3, 2, 4, 5, 1, 6, 0))
    )


def _pending(pen: Pen, cluster: Cluster, policy: Policy, leaves: Sequence[str], name: str) -> Job:
    fields = _fields(pen, cluster, policy, leaves)
    tasks = pen.of(2, 1, 4, 3, 2) if pen.has("gangs") else pen.of(1, 1, 1, 2, 3)
    if fields["request"].gpus * tasks > cluster.supply and pen.between(1, 10) < 10:
        tasks = max(1, cluster.supply // fields["request"].gpus)
    min_tasks = None
    if tasks > 1 and pen.some("elastic", 2):
        min_tasks = pen.between(1, tasks - 1)
    least = min_tasks or tasks
    segments = None
    if least > 1 and pen.some("segments", 1):
        sizes = [s for s in (2, 3, 4, 1) if least % s == 0 and tasks % s == 0]
        segments = Segments(tasks=pen.of(*sizes), level=pen.of(*cluster.levels()))
    if pen.some("mig", 5) or (pen.has("slices") and pen.between(1, 3) < 3) or pen.some("shares", 2):
        fields["request"] = _piece(pen, cluster, fields["request"])
        fields["nvlink_required"] = False
        if pen.between(1, 4) < 4:
            fields["communicates"] = False
    fields |= {
        "name": name,
        "tasks": tasks,
        "min_tasks": min_tasks,
        "segments": segments,
        "runtime_seconds": pen.of(None, 600, 3_600, 20) if pen.of(True, False) else None,
        "group": pen.of("g0", "g0", "g1") if pen.some("groups", 2) else None,
        "array": ArrayRef(name="arr", throttle=pen.of(2, 1, 2)) if pen.some("arrays", 2) else None,
    }
    if pen.some("states", 3):
        kind = pen.between(0, 5)
        fields |= (
            {"state": "held"},
            {"not_before": NOW + timedelta(seconds=1)},
            {"not_before": NOW},
            {"after": ("gone",)},
            {"after": ("r0",)},
            {"after": ("j0",)} if name != "j0" else {},
        )[kind]
    return Job(**fields)


def _piece(pen: Pen, cluster: Cluster, whole: Request) -> Request:
    """A request for a slice, slices or a share in place of whole GPUs, with the same CPUs."""
    piece: dict[str, Any] = {"gpus": 0}
    share = pen.has("shares") and (not pen.has("slices") or pen.of(True, False))
    kind = 6 if share else pen.of(0, 0, 0, 1, 2, 3) if pen.has("slices") else pen.of(0, 2, 6)
    profiles = PROFILES[pen.of(*(cluster.models or MODELS[:1]))]
    if kind == 0:
        piece["mig"] = (pen.of(*profiles),)
    elif kind == 1:
        piece["mig"] = (pen.of(*profiles[:3]), pen.of(*profiles[:3]))
    elif kind == 2:
        piece["mig_memory_mib"] = pen.of(5, 10_240, 12_288, 20_480, 100_000)
    elif kind == 3:
        piece["mig_compute_milli"] = pen.of(100, 285, 286, 500)
        piece["mig_memory_mib"] = pen.of(0, 8_000)
    else:
        piece["share"] = Share(
            gpu_milli=pen.of(250, 500, 300, 1_000), memory_mib=pen.of(0, 0, 20_000, 50_000)
        )
    return whole.model_copy(update=piece)


def _fields(pen: Pen, cluster: Cluster, policy: Policy, leaves: Sequence[str]) -> dict[str, Any]:
    """What running and pending jobs have in common."""
    gpus = pen.of(1, 2, 1, 2, 3, 4, 0) if not pen.has("gangs") else pen.of(1, 1, 2, 1, 2, 0)
    if gpus > cluster.largest and pen.between(1, 10) < 10:
        gpus = cluster.largest
    resources = {"nic": 1} if pen.some("resources", 3) else {}
    request = Request(
        gpus=gpus,
        cpu_milli=pen.of(0, 500, 1_000, 2_000, 3_000) if pen.has("cpu") else 0,
        memory_mib=pen.of(0, 0, 700, 2_000) if pen.has("cpu") else 0,
        resources=resources,
    )
    models: tuple[str, ...] = ()
    if cluster.models and gpus and pen.some("models", 2):
        models = pen.subset(cluster.models)
    topology = None
    if pen.some("topology", 2):
        mode: Literal["required", "preferred"] = pen.of("required", "preferred")
        topology = Topology(
            level=pen.of(*cluster.levels()),
            mode=mode,
            relax_after_seconds=pen.of(None, 600, 601) if mode == "required" else None,
        )
    names = cluster.names
    limited = pen.between(1, 4) if pen.has("names") else 0
    return {
        "queue": pen.of(*leaves),
        "user": pen.of("ann", "bob") if pen.has("users") else "unknown",
        "qos": "gold" if pen.some("qos", 2) else None,
        "priority": pen.of(None, *(tier.name for tier in policy.tiers)),
        "weight_milli": pen.of(1_000, 2_000, 1_500) if pen.has("weights") else 1_000,
        "submit": ago(pen.of(600, 0, 3_600, 14_400, 90_000, 180_000, -60)),
        "request": request,
        "gpu_models": models,
        "speed_milli": {"h100": 1_500} if gpus and pen.some("models", 3) else {},
        "node_selector": {"zone": pen.of("east", "west")} if pen.some("labels", 2) else {},
        "excluded_nodes": (pen.of(*names),) if limited == 4 else (),
        "required_nodes": pen.subset(names) if limited == 3 else (),
        "tolerations": _tolerations(pen),
        "max_tasks_per_node": pen.of(1, 2) if pen.some("gangs", 5) else None,
        "exclusive": pen.some("exclusive", 3),
        "nvlink_required": pen.some("nvlink", 3),
        "communicates": not pen.some("gangs", 4),
        "topology": topology,
        "licences": {"lic": pen.of(1, 2)} if pen.some("licences", 2) else {},
    }


def _tolerations(pen: Pen) -> tuple[Toleration, ...]:
    if not pen.some("taints", 2):
        return ()
    return (
        Toleration(
            key=pen.of(None, "team", "spot"),
            value=pen.of(None, None, "x", ""),
            effect=pen.of(None, None, "NoSchedule", "NoExecute"),
        ),
    )


def draw_hold(pen: Pen, cluster: Cluster, job: Job, running: Sequence[Job]) -> Hold | None:
    """Now and then, GPUs kept for a pending job: idle ones, or those that a like job will leave."""
    odd = job.request.mig or job.request.mig_memory_mib or job.request.share is not None
    if odd or job.state != "pending" or job.exclusive or not pen.some("holds", 3):
        return None
    least = job.minimum
    like = [
        other
        for other in running
        if not (other.request.mig or other.request.share)
        and other.request.gpus == job.request.gpus
        and len(other.allocation) == least
    ]
    if like and not job.gpu_models and pen.of(False, True):
        leaves = pen.of(*like)
        return Hold(
            job=job.name,
            kind="delayed_start" if leaves.state == "draining" else "reservation",
            at=NOW + timedelta(seconds=60),
            allocation=leaves.allocation,
        )
    allocation = cluster.take(job.request, least, job.gpu_models, cluster.names)
    if not allocation:
        return None
    return Hold(
        job=job.name,
        kind=pen.of("delayed_start", "reservation"),
        at=NOW + timedelta(seconds=60),
        allocation=allocation,
    )
