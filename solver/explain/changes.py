"""The snapshot after a remedy: what would be if the change were made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from trencadis.models import Job, Limits, MigInstance, Node, Quota, Snapshot, TaskAllocation
from trencadis.models.explanation import Raise, Remedy
from trencadis.models.instances import held_instances


def with_remedy(snapshot: Snapshot, job: str, remedy: Remedy) -> Snapshot:
    """The snapshot with the remedy carried out for a job, which still waits in it.

    Stopped jobs are held if they may be requeued, else they are gone. With `wait` the clock moves
    on and all ends that is estimated to end by then.
    """
    snapshot = with_raises(snapshot, remedy.raises)
    if remedy.stop:
        snapshot = stopped(snapshot, remedy.stop)
    if remedy.move:
        to = {entry.job: entry.to for entry in remedy.move}
        snapshot = _with_jobs(
            snapshot,
            (
                entry.model_copy(update={"allocation": to[entry.name]})
                if entry.name in to
                else entry
                for entry in snapshot.jobs
            ),
        )
        snapshot = _with_layouts(snapshot, {entry.job: entry.to for entry in remedy.move})
    if remedy.at is not None:
        snapshot = at_time(snapshot, remedy.at)
    if remedy.ask is not None:
        ask = remedy.ask
        snapshot = _with_jobs(
            snapshot, (ask if entry.name == job else entry for entry in snapshot.jobs)
        )
    if remedy.like is not None:
        snapshot = with_nodes(snapshot, remedy.like, remedy.add)
    return snapshot


def _with_layouts(
    snapshot: Snapshot, moved: Mapping[str, Sequence[TaskAllocation]]
) -> Snapshot:
    """The snapshot with MIG layouts as moved slices take them: idle instances go from where they
    come to."""
    touched = {
        (task.node, gpu)
        for to in moved.values()
        for task in to
        if task.mig
        for gpu in task.gpus or ()
    }
    if not touched:
        return snapshot
    held = held_instances(snapshot)

    def relaid(node: Node) -> Node:
        if not any((node.name, entry.gpu) in touched for entry in node.mig):
            return node
        layouts = (
            entry.model_copy(
                update={"instances": tuple(sorted(held[(node.name, entry.gpu)], key=_start))}
            )
            if (node.name, entry.gpu) in touched
            else entry
            for entry in node.mig
        )
        return node.model_copy(update={"mig": tuple(layouts)})

    return snapshot.model_copy(update={"nodes": tuple(relaid(node) for node in snapshot.nodes)})


def _start(instance: MigInstance) -> int:
    return instance.start


def _with_jobs(snapshot: Snapshot, jobs: Iterable[Job]) -> Snapshot:
    return snapshot.model_copy(update={"jobs": tuple(jobs)})


def stopped(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    """The snapshot after these jobs were stopped, and held so that they don't come back first."""
    gone = set(names)
    jobs = []
    for job in snapshot.jobs:
        if job.name not in gone:
            jobs.append(job)
        elif job.requeueable:
            update = {"state": "held", "group": None, "start": None, "allocation": ()}
            jobs.append(job.model_copy(update=update))
    return _with_jobs(snapshot, jobs)


def end_of(job: Job) -> datetime | None:
    """When a job that runs or drains is estimated to leave its nodes; None where unknown."""
    if job.state == "draining" and job.drain_ends is not None:
        return job.drain_ends
    if job.start is None or job.runtime_seconds is None:
        return None
    return job.start + timedelta(seconds=job.runtime_seconds)


def hold_ends(snapshot: Snapshot) -> dict[str, datetime | None]:
    """By job: when the job that GPUs are held for is estimated to have run and left."""
    jobs = {job.name: job for job in snapshot.jobs}
    ends: dict[str, datetime | None] = {}
    for hold in snapshot.holds:
        runtime = jobs[hold.job].runtime_seconds
        end = None if runtime is None else hold.at + timedelta(seconds=runtime)
        known = ends.get(hold.job, end)
        ends[hold.job] = None if end is None or known is None else max(end, known)
    return ends


def at_time(snapshot: Snapshot, instant: datetime) -> Snapshot:
    """The snapshot at a later instant if nothing starts: what was to end by then is gone.

    Jobs past their estimate are not relied on: they stay. So does what is held, until the job that
    it is held for has run.
    """
    held = hold_ends(snapshot)
    over = {name for name, end in held.items() if end is not None and end <= instant}
    jobs = [
        job
        for job in snapshot.jobs
        if job.name not in over and not (job.on_nodes and _left(snapshot, job, instant))
    ]
    return snapshot.model_copy(
        update={
            "now": instant,
            "jobs": tuple(jobs),
            "holds": tuple(hold for hold in snapshot.holds if hold.job not in over),
        }
    )


def _left(snapshot: Snapshot, job: Job, instant: datetime) -> bool:
    end = end_of(job)
    return end is not None and snapshot.now < end <= instant


def with_nodes(snapshot: Snapshot, like: str, count: int) -> Snapshot:
    """The snapshot with more nodes, empty and healthy, each beside the one that it is like."""
    model = next(node for node in snapshot.nodes if node.name == like)
    return snapshot.model_copy(
        update={"nodes": (*snapshot.nodes, *(new_node(model, i) for i in range(1, count + 1)))}
    )


def new_node(model: Node, number: int) -> Node:
    """An empty, healthy node of the same kind."""
    groups = tuple(group.model_copy(update={"unhealthy": ()}) for group in model.gpus)
    return model.model_copy(
        update={
            "name": f"{model.name}+{number}",
            "gpus": groups,
            "mig": (),
            "cordoned": False,
            "down": False,
            "free_until": None,
            "maintenance": (),
            "health_score_milli": 1_000,
        }
    )


def without_nodes(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The snapshot in which these nodes take no further work."""
    if not names:
        return snapshot
    nodes = tuple(
        node.model_copy(update={"cordoned": True}) if node.name in names else node
        for node in snapshot.nodes
    )
    return snapshot.model_copy(update={"nodes": nodes})


def with_raises(snapshot: Snapshot, raises: Sequence[Raise]) -> Snapshot:
    """The snapshot with larger limits."""
    for entry in raises:
        snapshot = _raised(snapshot, entry)
    return snapshot


def _raised(snapshot: Snapshot, entry: Raise) -> Snapshot:
    if entry.owner == "array":
        return _with_jobs(
            snapshot,
            (
                job.model_copy(
                    update={"array": job.array.model_copy(update={"throttle": entry.needed})}
                )
                if job.array is not None and job.array.name == entry.name
                else job
                for job in snapshot.jobs
            ),
        )
    if entry.owner == "budget":
        rules = snapshot.policy.preemption
        budget = rules.budget.model_copy(update={"jobs": entry.needed})
        rules = rules.model_copy(update={"budget": budget})
        policy = snapshot.policy.model_copy(update={"preemption": rules})
        return snapshot.model_copy(update={"policy": policy})
    if entry.owner == "licence":
        pools = tuple(
            pool.model_copy(update={"total": entry.needed}) if pool.name == entry.name else pool
            for pool in snapshot.licences
        )
        return snapshot.model_copy(update={"licences": pools})
    field = "queues" if entry.owner == "queue" else "qos"
    owners = tuple(
        owner.model_copy(update={"limit": _limit(owner.limit, entry)})
        if owner.name == entry.name
        else owner
        for owner in getattr(snapshot, field)
    )
    return snapshot.model_copy(update={field: owners})


def _limit(limit: Limits, entry: Raise) -> Limits:
    user = "_per_user" if entry.per_user else ""
    if entry.what == "jobs":
        return limit.model_copy(update={f"jobs{user}": entry.needed})
    quota: Quota = getattr(limit, f"quota{user}")
    if entry.what == "gpu_milli":
        changed = quota.model_copy(update={"gpu_milli": entry.needed})
    else:
        by_model = {**quota.by_model, str(entry.model): entry.needed}
        changed = quota.model_copy(update={"by_model": by_model})
    return limit.model_copy(update={f"quota{user}": changed})
