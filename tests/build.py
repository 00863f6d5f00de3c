"""Small snapshots and plans that read like their description.

    snap = snapshot(
        node("n1", 8, "H100", fabric=("leaf1",)),
        queue("red", guarantee=8),
        job("a", gpus=4, tasks=2, queue="red", waited=600),
        running("b", at("n1", 0, 1)),
        levels=("leaf",),
        horizon_seconds=1_000,
    )
    plan_of(snap, start("a", at("n1", 2, 3, 4, 5), at("n2", 0, 1, 2, 3)))

Every builder passes further keywords on to the record it makes, so each field of the schema can be
set by its own name. Instants may be given in seconds relative to NOW.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from trencadis.models import (
    DemandEntry,
    Fabric,
    FabricLevel,
    GpuGroup,
    Hold,
    Job,
    Licence,
    Limits,
    MigGpu,
    Node,
    NvLink,
    Pending,
    Plan,
    Policy,
    Proof,
    Qos,
    Queue,
    Quota,
    Request,
    Snapshot,
    StageProof,
    Start,
    Status,
    Taint,
    TaskAllocation,
    Toleration,
    Topology,
)
from trencadis.models.plan import Made

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
"""The instant of every snapshot unless it says otherwise."""

MAIN = "main"
"""The queue of a job that names none; it is made where a snapshot lacks it."""


def ago(seconds: int) -> datetime:
    """So many seconds before NOW (after it, if negative)."""
    return NOW - timedelta(seconds=seconds)


# Nodes


def node(
    name: str,
    gpus: int | Mapping[str, int] = 8,
    model: str = "H100",
    *,
    unhealthy: Iterable[int] = (),
    links: Iterable[tuple[int, int]] = (),
    nvswitch: bool = False,
    taints: Iterable[Taint | str] = (),
    mig: Iterable[int | MigGpu] = (),
    free_for: int | None = None,
    **fields: Any,
) -> Node:
    """A node with `gpus` GPUs of a model, or `{model: count}`; no CPUs and no memory unless given.

    `unhealthy` are node-wide indices; `taints` are records or `key`, `key=value` strings;
    `mig` are GPUs in MIG mode; `free_for` is `free_until` in seconds after NOW.
    """
    counts = {model: gpus} if isinstance(gpus, int) else dict(gpus)
    groups, first, broken = [], 0, set(unhealthy)
    for kind, count in counts.items():
        if count:
            mine = tuple(sorted(i for i in broken if first <= i < first + count))
            groups.append(GpuGroup(model=kind, count=count, unhealthy=mine))
        first += count
    pairs = tuple(links)
    if pairs:
        fields["nvlink"] = NvLink(kind="links", links=pairs)
    elif nvswitch:
        fields["nvlink"] = NvLink(kind="nvswitch")
    if free_for is not None:
        fields["free_until"] = ago(-free_for)
    return Node(
        name=name,
        gpus=tuple(groups),
        taints=tuple(taint(t) if isinstance(t, str) else t for t in taints),
        mig=tuple(MigGpu(gpu=g) if isinstance(g, int) else g for g in mig),
        **fields,
    )


def nodes(count: int, *args: Any, first: int = 1, **fields: Any) -> tuple[Node, ...]:
    """`count` equal nodes: n1, n2, …; arguments as of `node` after the name."""
    return tuple(node(f"n{i}", *args, **fields) for i in range(first, first + count))


def taint(text: str, effect: str = "NoSchedule") -> Taint:
    """`key` or `key=value` as a taint."""
    key, _, value = text.partition("=")
    return Taint(key=key, value=value, effect=effect)  # type: ignore[arg-type]


# Jobs


def job(
    name: str,
    gpus: int = 1,
    tasks: int = 1,
    *,
    queue: str = MAIN,
    models: Iterable[str] = (),
    waited: int = 0,
    cpu_milli: int = 0,
    memory_mib: int = 0,
    resources: Mapping[str, int] | None = None,
    request: Request | None = None,
    required: str | None = None,
    preferred: str | None = None,
    relax_after: int | None = None,
    tolerations: Iterable[Toleration | str] = (),
    **fields: Any,
) -> Job:
    """A pending job of `tasks` tasks with `gpus` GPUs each, submitted `waited` seconds before NOW.

    `request` replaces gpus, CPU, memory and resources. `required` and `preferred` name a topology
    level; `relax_after` goes with `required`. `tolerations` are records or taint keys.
    """
    if required or preferred:
        fields["topology"] = Topology(
            level=required or preferred or "",
            mode="required" if required else "preferred",
            relax_after_seconds=relax_after,
        )
    fields.setdefault("submit", ago(waited))
    return Job(
        name=name,
        queue=queue,
        tasks=tasks,
        request=request
        or Request(
            gpus=gpus, cpu_milli=cpu_milli, memory_mib=memory_mib, resources=dict(resources or {})
        ),
        gpu_models=tuple(models),
        tolerations=tuple(Toleration(key=t) if isinstance(t, str) else t for t in tolerations),
        **fields,
    )


def jobs(count: int, prefix: str, *args: Any, **fields: Any) -> tuple[Job, ...]:
    """`count` equal jobs: prefix1, prefix2, …; arguments as of `job` after the name."""
    return tuple(job(f"{prefix}{i}", *args, **fields) for i in range(1, count + 1))


def running(
    name: str, *allocation: TaskAllocation, ran: int = 0, gpus: int | None = None, **fields: Any
) -> Job:
    """A running job, a task per allocation entry, started `ran` seconds before NOW.

    `gpus` per task is read off the first entry's indices where it isn't given. For a draining
    job add `state="draining"`.
    """
    if gpus is None:
        gpus = len(allocation[0].gpus or ())
    fields.setdefault("state", "running")
    fields.setdefault("tasks", len(allocation))
    fields.setdefault("start", ago(ran))
    fields.setdefault("waited", ran)
    return job(name, gpus, allocation=allocation, **fields)


def at(node_name: str, *gpus: int) -> TaskAllocation:
    """A task on these GPUs of a node; for a task without GPUs leave them out."""
    return TaskAllocation(node=node_name, gpus=gpus)


def somewhere(node_name: str, **fields: Any) -> TaskAllocation:
    """A task on a node, GPU indices unknown."""
    return TaskAllocation(node=node_name, gpus=None, **fields)


def hold(job_name: str, *allocation: TaskAllocation, **fields: Any) -> Hold:
    """GPUs kept for a job."""
    fields.setdefault("at", ago(-300))
    return Hold(job=job_name, allocation=allocation, **fields)


# Queues


def quota(value: int | Quota | None = None, **by_model: int) -> Quota:
    """GPUs in all, and by model: `quota(8, H100=4)`."""
    return value if isinstance(value, Quota) else Quota(gpus=value, by_model=by_model)


def queue(
    name: str,
    parent: str | None = None,
    *,
    guarantee: int | Quota | None = None,
    limit: int | Quota | Limits | None = None,
    lending: int | Quota | None = None,
    **fields: Any,
) -> Queue:
    """A queue; `guarantee`, `limit` and `lending` in GPUs, or as records."""
    return Queue(
        name=name,
        parent=parent,
        guarantee=quota(guarantee),
        limit=limit if isinstance(limit, Limits) else Limits(quota=quota(limit)),
        lending_limit=None if lending is None else quota(lending),
        **fields,
    )


def fabric(*levels: str | FabricLevel) -> Fabric:
    """The levels, widest first; a name that ends in `!` is a boundary."""
    return Fabric(
        levels=tuple(
            FabricLevel(name=entry.removesuffix("!"), boundary=entry.endswith("!"))
            if isinstance(entry, str)
            else entry
            for entry in levels
        )
    )


def demand(gpus: int = 1, weight: int = 1, **fields: Any) -> DemandEntry:
    """An entry of the demand profile."""
    return DemandEntry(request=Request(gpus=gpus), weight=weight, **fields)


# Snapshots

Part = Node | Job | Queue | Qos | Licence | Hold
FIELD_OF = {
    Node: "nodes",
    Job: "jobs",
    Queue: "queues",
    Qos: "qos",
    Licence: "licences",
    Hold: "holds",
}


def snapshot(
    *parts: Part | Iterable[Part],
    levels: Iterable[str | FabricLevel] = (),
    policy: Policy | None = None,
    now: datetime = NOW,
    **policy_fields: Any,
) -> Snapshot:
    """A snapshot of these parts, sorted by kind; further keywords are fields of the policy.

    Queues that jobs name and nobody made are added with their defaults.
    """
    found: dict[str, list[Any]] = {field: [] for field in FIELD_OF.values()}
    for part in parts:
        for record in (part,) if isinstance(part, tuple(FIELD_OF)) else part:
            found[FIELD_OF[type(record)]].append(record)
    known = {entry.name for entry in found["queues"]}
    for name in dict.fromkeys(entry.queue for entry in found["jobs"]):
        if name not in known:
            found["queues"].append(queue(name))
    return Snapshot(
        now=now,
        fabric=fabric(*levels),
        policy=policy or Policy(**policy_fields),
        **{field: tuple(records) for field, records in found.items()},
    )


# Plans


def start(job_name: str, *allocation: TaskAllocation, **fields: Any) -> Start:
    """Start a job on these places; what the start claims about itself is left at its defaults."""
    fields.setdefault("at", NOW)
    return Start(job=job_name, allocation=allocation, **fields)


def pending(job_name: str, code: str = "no-capacity") -> Pending:
    """A reason why a job waits."""
    return Pending(job=job_name, code=code, sentence="It waits.")


def stage(
    name: str, objective: int, bound: int | None = None, do_nothing: int | None = None
) -> StageProof:
    """A stage's proof; optimal unless a lower bound is given."""
    bound = objective if bound is None else bound
    do_nothing = objective if do_nothing is None else do_nothing
    unit = "milli-GPU" if name.startswith("guarantee") else "weighted GPU-s"
    if name == "fragmentation":
        unit = "GPU-s"
    gap = 0.0 if do_nothing == bound else (objective - bound) / (do_nothing - bound)
    return StageProof(
        name=name,
        unit=unit,  # type: ignore[arg-type]
        objective=objective,
        bound=bound,
        do_nothing=do_nothing,
        gap=gap,
        status=Status.OPTIMAL if objective == bound else Status.FEASIBLE,
    )


def plan_of(snap: Snapshot, *starts: Start, stages: Iterable[StageProof] = ()) -> Plan:
    """A plan with these starts, an entry in `pending` for the other pending jobs, and a proof."""
    proofs = tuple(stages)
    started = {entry.job for entry in starts}
    gap = max((s.gap for s in proofs if s.name != "fragmentation"), default=0.0)
    return Plan(
        snapshot=snap.fingerprint(),
        now=snap.now,
        starts=starts,
        pending=tuple(
            pending(entry.name)
            for entry in snap.jobs
            if entry.state == "pending" and entry.name not in started
        ),
        proof=Proof(
            stages=proofs, gap=gap, status=Status.OPTIMAL if gap == 0.0 else Status.FEASIBLE
        ),
        made=Made(trencadis="0", ortools="0", seed=0, deterministic=True, workers=1),
    )
