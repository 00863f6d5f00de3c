"""Whether limits, licences and lending let a job start if nobody else waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trencadis.models import Job, Limits, Snapshot
from trencadis.solver.accounts import books
from trencadis.solver.entitlement import queue_tree
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import facts
from trencadis.solver.worth import Values, rates

NONE = Limits()


def sharers(snapshot: Snapshot, job: Job) -> list[Job]:
    """Running and draining jobs that matter to whether it is allowed: with which it shares a
    limit, or all where some guarantee isn't lent."""
    lending = _lending(snapshot)
    chains = {queue.name: _bounded_chain(snapshot, queue.name) for queue in snapshot.queues}
    return [
        other
        for other in snapshot.jobs
        if other.on_nodes and (lending or _shares(chains, job, other))
    ]


def allowed(
    snapshot: Snapshot, others: Collection[Job], job: Job, models: Collection[str | None]
) -> bool:
    """Whether an eligible job may start on one of the models beside the others."""
    lone = job.model_copy(update={"after": (), "group": None, "not_before": None})
    slim = snapshot.model_copy(update={"jobs": (*others, lone), "holds": ()})
    if _lending(snapshot):
        ledger = Ledger(facts(slim))
        return any(ledger.may_start([(lone, model)]) for model in sorted(models, key=str))
    read = books(slim, Values(rates(slim), {lone.name: lone}, {}, queue_tree(slim), {}), set())
    return any(
        all(
            charge.amount <= read.accounts[charge.account].slack
            for charge in read.charges[lone.name]
            if not charge.model or charge.model == model
        )
        for model in models
    )


def _lending(snapshot: Snapshot) -> bool:
    return any(queue.lending_limit is not None for queue in snapshot.queues)


def _bounded_chain(snapshot: Snapshot, name: str) -> set[str]:
    """The queue and those above it, as far as they have limits."""
    queues = {queue.name: queue for queue in snapshot.queues}
    found = set()
    while True:
        queue = queues[name]
        if queue.limit != NONE:
            found.add(name)
        if queue.parent is None:
            return found
        name = queue.parent


def _shares(chains: Mapping[str, set[str]], job: Job, other: Job) -> bool:
    """Whether a running job uses up a limit that holds for the job too."""
    if job.array is not None and other.array is not None and job.array.name == other.array.name:
        return True
    if job.qos is not None and job.qos == other.qos:
        return True
    if job.licences.keys() & other.licences.keys():
        return True
    return bool(chains[job.queue] & chains[other.queue])
