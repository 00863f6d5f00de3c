"""The moment in which every team asks for what it is guaranteed: who stays, and what they ask for.

Teams are leaf queues. Capacity in GPUs alone would say nothing: whether a guarantee can be had
depends on the shapes in which it is asked for, and on what runs and may not be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from trencadis.models import Fault, InvalidInputError, Job, Queue, Snapshot
from trencadis.models.base import GPU_MILLI
from trencadis.models.units import Sizes, uses_gpu
from trencadis.solver.model.problem import facts
from trencadis.whatif.scenario import waiting_again


@dataclass(frozen=True, slots=True)
class Claim:
    """What a team has and asks for within its guarantee."""

    queue: str
    guarantee_milli: int
    claimed_milli: int
    """GPUs of what stays and of what it asks for, thousandths; more than guaranteed where what
    may not be stopped is."""
    running: tuple[Job, ...]
    """They stay where they are."""
    waiting: tuple[Job, ...]
    """They have to start."""


def unclaimed(claims: Sequence[Claim]) -> str:
    """Which teams claim less than they are guaranteed, in words; empty where none does."""
    short = [
        f"{claim.queue} {claim.claimed_milli / 1_000:g} of {claim.guarantee_milli / 1_000:g}"
        for claim in claims
        if claim.claimed_milli < claim.guarantee_milli
    ]
    if not short:
        return ""
    return f"Claimed is less than guaranteed, as no job fits what is left: {', '.join(short)}"


def leaves(snapshot: Snapshot) -> tuple[str, ...]:
    """The queues that jobs belong to, by name."""
    parents = {queue.parent for queue in snapshot.queues}
    return tuple(sorted(queue.name for queue in snapshot.queues if queue.name not in parents))


def check_teams(snapshot: Snapshot, teams: Sequence[str], guarantee_milli: int) -> None:
    """Raises InvalidInputError for names that are no leaf queues, for limits, for no shapes."""
    faults, known = [], leaves(snapshot)
    queues = {queue.name: queue for queue in snapshot.queues}
    for team in dict.fromkeys(teams):
        if teams.count(team) > 1:
            faults.append(Fault("team", f"{team} is given twice"))
        if team not in queues:
            faults.append(Fault("team", f"there is no queue {team!r} in the snapshot"))
        elif team not in known:
            faults.append(Fault("team", f"{team} has queues below it; give one of these"))
        else:
            faults += _limited(queues, team, guarantee_milli)
    if not teams:
        faults.append(Fault("team", "the snapshot has no queue"))
    if not any(uses_gpu(job.request) for job in snapshot.jobs):
        message = "no job of the snapshot asks for GPUs: there are no shapes to claim them in"
        faults.append(Fault("guarantee-each", message))
    if faults:
        raise InvalidInputError(faults)


def claims_of(snapshot: Snapshot, guarantees: Mapping[str, int]) -> tuple[Claim, ...]:
    """Claim of each leaf queue; thousandths of GPUs by queue, the snapshot's own where absent.

    Of what runs stays what may not be stopped, and then, by tier and start, as much as the
    guarantee holds. The rest of the guarantee is asked for in the team's own shapes: each job that
    waits or had to go once, in order of submission, then copies of all its jobs again and again;
    each that still fits in what is left.
    """
    sizes = facts(snapshot).values.rates.sizes
    ranks = {tier.name: rank for rank, tier in enumerate(snapshot.policy.tiers)}
    own = {queue.name: queue.guarantee.total_milli() or 0 for queue in snapshot.queues}
    anybody = [job for job in snapshot.jobs if sizes.job(job)]

    def order(job: Job) -> tuple[bool, int, float, str]:
        rank = ranks[job.priority or snapshot.policy.default_tier]
        since = job.start or job.submit
        return job.preemptible, rank, since.timestamp(), job.name

    found = []
    for queue in leaves(snapshot):
        jobs = [job for job in snapshot.jobs if job.queue == queue]
        guarantee = guarantees.get(queue, own[queue])
        left = guarantee * sizes.unit // GPU_MILLI
        stays = []
        for job in sorted((job for job in jobs if job.state == "running"), key=order):
            size = sizes.job(job)
            if not job.preemptible or 0 < size <= left:
                stays.append(_still(job))
                left -= size
        known = {job.name for job in stays}
        waiting = _asked(
            queue,
            sorted((job for job in jobs if job.name not in known), key=_submitted),
            [job for job in jobs if sizes.job(job)] or sorted(anybody, key=_submitted),
            max(0, left),
            sizes,
            snapshot,
        )
        units = sum(sizes.job(job) for job in (*stays, *waiting))
        claimed = units * GPU_MILLI // sizes.unit
        found.append(Claim(queue, guarantee, claimed, tuple(stays), waiting))
    return tuple(found)


def moment(snapshot: Snapshot, claims: Sequence[Claim]) -> Snapshot:
    """The snapshot with these jobs alone, and no rule but where they fit.

    Limits, lending, order, holds and budgets say who may have what when; here all is asked for at
    once, and nobody has to stop any more.
    """
    rules = snapshot.policy
    calm = rules.preemption.model_copy(update={"mode": "none"})
    return snapshot.model_copy(
        update={
            "queues": tuple(Queue(name=claim.queue) for claim in claims),
            "qos": (),
            "licences": (),
            "holds": (),
            "jobs": tuple(job for claim in claims for job in (*claim.running, *claim.waiting)),
            "policy": rules.model_copy(update={"preemption": calm}),
        }
    )


def _limited(queues: Mapping[str, Queue], team: str, guarantee_milli: int) -> list[Fault]:
    """Faults where the queue or one above it may not use as much."""
    faults = []
    name: str | None = team
    while name is not None:
        most = queues[name].limit.quota.total_milli()
        if most is not None and most < guarantee_milli:
            message = (
                f"{name} may use at most {most / 1_000:g} GPUs, "
                f"less than a guarantee of {guarantee_milli / 1_000:g} to {team}"
            )
            faults.append(Fault("guarantee-each", message))
        name = queues[name].parent
    return faults


def _asked(
    queue: str,
    own: Sequence[Job],
    shapes: Sequence[Job],
    left: int,
    sizes: Sizes,
    snapshot: Snapshot,
) -> tuple[Job, ...]:
    """Jobs of at most `left` units: the queue's own, then copies of its shapes."""
    found: list[Job] = []
    taken = {job.name for job in snapshot.jobs}
    for job in own:
        wants = _bare(job, queue, job.name, snapshot)
        if 0 < sizes.job(wants) <= left:
            found.append(wants)
            left -= sizes.job(wants)
    # Jobs that name their nodes say where these are, not what others would ask for.
    free = [job for job in shapes if not job.required_nodes]
    numbers, before = count(1), -1
    while before != len(found):
        before = len(found)
        for shape in free:
            wants = _bare(shape, queue, shape.name, snapshot)
            size = sizes.job(wants)
            if not 0 < size <= left:
                continue
            name = next(n for i in numbers if (n := f"{queue}+{i}") not in taken)
            found.append(wants.model_copy(update={"name": name}))
            left -= size
    return tuple(found)


def _still(job: Job) -> Job:
    """The job with the tasks that it has, all of which stay."""
    fixed = {"tasks": len(job.allocation), "min_tasks": None, "min_replicas": 0}
    return job.model_copy(update={**fixed, "preemptible": False})


def _bare(job: Job, queue: str, name: str, snapshot: Snapshot) -> Job:
    """The job as a shape: its minimum of tasks, waiting for nothing but room."""
    return waiting_again(job).model_copy(
        update={
            "name": name,
            "queue": queue,
            "submit": snapshot.now,
            "tasks": job.minimum,
            "min_tasks": None,
            "min_replicas": 0,
            "qos": None,
            "group": None,
            "after": (),
            "not_before": None,
            "array": None,
            "licences": {},
            "preempted": 0,
            "preempted_at": None,
        }
    )


def _submitted(job: Job) -> tuple[float, str]:
    return job.submit.timestamp(), job.name
