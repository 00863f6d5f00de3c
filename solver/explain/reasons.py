"""The reason that keeps a job waiting, as far as the plan itself shows it, in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from trencadis.models import Job, Pending, Snapshot
from trencadis.models.units import asks_for_mig
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Facts
from trencadis.solver.room import Room
from trencadis.solver.shapes import Shape

Evidence = dict[str, int | str]


class _Pieces:
    """Idle GPUs as pieces: how many nodes have how many, for whom they are open."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = Counter(
            (node.column, tuple(node.idle.items()))
            for node in ledger.nodes.values()
            if not node.closed
        )
        self._known: dict[tuple[frozenset[str | None], int], Counter[int]] = {}

    def of(self, models: frozenset[str | None], columns: int) -> Counter[int]:
        """Number of nodes by idle GPUs of the models, over some node columns."""
        key = (models, columns)
        if key not in self._known:
            pieces: Counter[int] = Counter()
            for (column, idle), number in self._nodes.items():
                if columns >> column & 1:
                    pieces[sum(n for model, n in idle if model in models)] += number
            self._known[key] = pieces
        return self._known[key]


def reasons(
    facts: Facts, ledger: Ledger, shape_of: Mapping[str, Shape], room: Room
) -> tuple[Pending, ...]:
    """One entry per pending job that does not start, in order of name.

    `ledger` holds the plan's starts, `room` the nodes as the plan leaves them.
    """
    found = []
    pieces = _Pieces(ledger)
    memo: dict[tuple[object, ...], tuple[str, str, Evidence]] = {}
    for job in sorted(facts.snapshot.jobs, key=lambda job: job.name):
        if job.state != "pending" or job.name in ledger.started:
            continue
        if job.name not in facts.values.eligible:
            code, sentence, evidence = _not_eligible(facts.snapshot, job, facts)
        else:
            key = (facts.maker.place_key(job), facts.books.charges[job.name], job.queue, job.group)
            strict = facts.values.tree.queues[job.queue].order == "strict_fifo"
            if key not in memo or strict or job.group is not None:
                memo[key] = _waits(facts, ledger, pieces, job, shape_of[job.name], room)
            code, sentence, evidence = memo[key]
        found.append(Pending(job=job.name, code=code, sentence=sentence, evidence=evidence))
    return tuple(found)


def _not_eligible(snapshot: Snapshot, job: Job, facts: Facts) -> tuple[str, str, Evidence]:
    present = {other.name for other in snapshot.jobs}
    waiting_for = [name for name in job.after if name in present]
    if waiting_for:
        return (
            "dependency",
            f"waits for {', '.join(waiting_for[:3])} to end",
            {"jobs": ", ".join(waiting_for)},
        )
    if job.not_before is not None and job.not_before > snapshot.now:
        return "not-before", f"may not start before {job.not_before.isoformat()}", {}
    if any(hold.job == job.name for hold in snapshot.holds):
        return "held-gpus", "has GPUs on hold and starts when they are free", {}
    if asks_for_mig(job.request) or job.request.share is not None:
        return "kind-of-gpu", "asks for a MIG slice or a share; this version places whole GPUs", {}
    blockers = sorted(
        other.name
        for other in snapshot.jobs
        if other.group == job.group
        and other.state in ("pending", "held")
        and other.name not in facts.values.eligible
    )
    return (
        "group",
        f"starts together with group {job.group}, of which {blockers[0] if blockers else '?'} "
        "can't start yet",
        {"group": str(job.group)},
    )


def _waits(
    facts: Facts, ledger: Ledger, pieces: _Pieces, job: Job, shape: Shape, room: Room
) -> tuple[str, str, Evidence]:
    asks: Evidence = {"tasks": job.minimum, "gpus_per_task": job.request.gpus}
    if not facts.can_run[job.name]:
        return _never(facts, job, asks)
    limit = _limit(facts, ledger, job, shape)
    if limit is not None:
        return limit
    if not any(ledger.may_start([(job, model)]) for model in shape.models()):
        queue = facts.values.tree.queues[job.queue]
        if queue.order == "strict_fifo":
            return (
                "strict-order",
                f"queue {job.queue} is strict_fifo and a job ahead of it waits",
                {"queue": job.queue},
            )
        return (
            "lending",
            "the idle GPUs are kept for queues that do not lend their guarantee",
            {"queue": job.queue},
        )
    if any(room.takes(job, alt.way) for alt in shape.alternatives):
        return (
            "group",
            f"fits by itself, but group {job.group} does not start as a whole",
            {"group": str(job.group)},
        )
    return _no_room(facts, pieces, job, shape, room, asks)


def _never(facts: Facts, job: Job, asks: Evidence) -> tuple[str, str, Evidence]:
    largest = max((state.idle_count for state in facts.capacity.empty), default=0)
    asks["largest_node_gpus"] = largest
    if job.request.gpus > largest:
        return (
            "never-fits",
            f"asks for {job.request.gpus} GPUs on one node; the largest has {largest}",
            asks,
        )
    return (
        "never-fits",
        "could not run even on the empty cluster: no nodes meet all that it asks for",
        asks,
    )


def _limit(
    facts: Facts, ledger: Ledger, job: Job, shape: Shape
) -> tuple[str, str, Evidence] | None:
    models = shape.models()
    for charge in facts.books.charges[job.name]:
        account = facts.books.accounts[charge.account]
        if account.limit is None or (charge.model and set(models) != {charge.model}):
            continue
        used = account.used + ledger.used[charge.account]
        if used + charge.amount > max(account.limit, account.used):
            what = " ".join(part for part in account.key if part)
            evidence: Evidence = {
                "account": what,
                "limit": account.limit,
                "used": used,
                "asks": charge.amount,
            }
            kind = {"array": "throttle", "licence": "licence"}.get(account.key[0], "limit")
            return kind, f"the limit of {what} is reached", evidence
    return None


def _no_room(
    facts: Facts, pieces: _Pieces, job: Job, shape: Shape, room: Room, asks: Evidence
) -> tuple[str, str, Evidence]:
    each, models = job.request.gpus, frozenset(shape.models())
    idle = pieces.of(models, facts.admission.masks[job.name])
    total = sum(size * number for size, number in idle.items())
    largest = max(idle, default=0)
    wanted = each * job.minimum
    asks |= {"idle_gpus": total, "largest_piece": largest}
    if not each:
        return "cpu-memory", "not enough CPU or memory is free on the nodes it may use", asks
    if total < wanted:
        return (
            "not-enough-free",
            f"asks for {wanted} GPUs; {total} that it may use are idle once heavier jobs started",
            asks,
        )
    slots = sum(size // each * number for size, number in idle.items())
    asks["slots"] = slots
    if slots < job.minimum:
        return (
            "fragmented",
            f"{total} GPUs are idle but in pieces: room for {slots} of its {job.minimum} tasks "
            f"of {each}, the largest piece has {largest}",
            asks,
        )
    fitting = max(
        sum(room.by_domain(alt.way.need, 0).values()) * alt.way.need.sets
        for alt in shape.alternatives
    )
    asks["slots_with_cpu_memory"] = fitting
    if fitting < job.minimum:
        return (
            "cpu-memory",
            f"{total} GPUs are idle, but CPU, memory or NVLink beside them suffice for {fitting} "
            f"of its {job.minimum} tasks",
            asks,
        )
    return (
        "topology",
        f"{fitting} slots are idle, but not {job.minimum} of them in one domain as it requires",
        asks,
    )
