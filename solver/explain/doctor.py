"""doctor(): is the cluster full or in pieces, who is owed what, what can never run."""

from __future__ import annotations

from collections import Counter

from trencadis.models import Job, Snapshot
from trencadis.models.collector import paused_collector
from trencadis.models.explanation import NEVER, Reason
from trencadis.models.health import Doomed, Health, QueueHealth, Unsaved
from trencadis.models.order import in_order
from trencadis.models.units import Sizes
from trencadis.solver.explain.loss import unsaved
from trencadis.solver.explain.reasons import Reasons, waiting
from trencadis.solver.explain.said import Said, some
from trencadis.solver.explain.scene import Scene
from trencadis.solver.explain.slots import slot_tables, stranded
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Facts, facts
from trencadis.solver.preempt.victims import elapsed, gpus_of
from trencadis.solver.room import room_of
from trencadis.solver.worth import waited

FULL = 50
"""A cluster is full if at most a fiftieth of its GPUs is idle."""
IN_PIECES = (Reason.FRAGMENTED, Reason.TOPOLOGY, Reason.CPU_MEMORY)


def doctor(snapshot: Snapshot) -> Health:
    """The state of the cluster now, before anything is decided."""
    with paused_collector():
        return _doctor(in_order(snapshot))


def _doctor(snapshot: Snapshot) -> Health:
    read = facts(snapshot)
    room = room_of(read.capacity.states, read.admission.column, read.fabric)
    scene = Scene(read, Ledger(read), room, {})
    reasons = Reasons(scene)
    said: list[tuple[Job, Said | None]] = []
    for job in waiting(scene):
        said.append((job, None if _fits(reasons, job) else reasons.of(job)))
    codes = Counter(entry.code for _, entry in said if entry is not None)
    idle = sum(state.idle_count for state in read.capacity.states)
    total = sum(read.capacity.gpus_by_model.values())
    verdict, sentence = _verdict(total, idle, codes, said)
    return Health.model_validate(
        {
            "snapshot": snapshot.fingerprint(),
            "now": snapshot.now,
            "verdict": verdict,
            "sentence": sentence,
            "gpus": total,
            "allocated": _allocated(snapshot),
            "idle": idle,
            "waiting": len(said),
            "waiting_by_reason": {code.value: codes[code] for code in Reason if codes[code]},
            "fit_now": sum(1 for _, entry in said if entry is None),
            "slots": slot_tables(read),
            "stranded": stranded(read),
            "queues": _queues(read),
            "never": tuple(
                Doomed(
                    job=job.name,
                    queue=job.queue,
                    code=entry.code.value,
                    sentence=entry.sentence,
                    evidence=dict(entry.evidence),
                )
                for job, entry in said
                if entry is not None and entry.code in NEVER
            ),
            "unsaved": _unsaved(snapshot),
            "broken_gpus": sum(len(g.unhealthy) for n in snapshot.nodes for g in n.gpus),
            "nodes_out": tuple(n.name for n in snapshot.nodes if n.down or n.cordoned),
        }
    )


def _fits(reasons: Reasons, job: Job) -> bool:
    """Whether the job would start if it came alone; a group counts by each of its jobs."""
    read = reasons.scene.facts
    if job.name not in read.values.eligible or not read.can_run[job.name]:
        return False
    ways = reasons.ways(job)
    return bool(ways) and reasons.scene.takes(reasons.scene.before, job, ways)


def _verdict(
    total: int, idle: int, codes: Counter[Reason], said: list[tuple[Job, Said | None]]
) -> tuple[str, str]:
    if not total:
        return "empty", "there are no GPUs"
    pieces = sum(codes[code] for code in IN_PIECES)
    fit = sum(1 for _, entry in said if entry is None)
    if idle * FULL <= total:
        return "full", f"{idle:,} of {some(total, 'GPU')} are idle"
    if pieces:
        wanted = min(
            job.minimum * job.request.gpus
            for job, entry in said
            if entry is not None and entry.code in IN_PIECES
        )
        return (
            "fragmented",
            f"{idle:,} of {some(total, 'GPU')} are idle, but {some(pieces, 'waiting job')}, the "
            f"smallest of {some(wanted, 'GPU')}, fit nowhere for pieces, nearness, CPU or memory",
        )
    return (
        "room",
        f"{idle:,} of {some(total, 'GPU')} are idle; {fit:,} of {some(len(said), 'waiting job')} "
        "would fit alone",
    )


def _allocated(snapshot: Snapshot) -> int:
    """GPUs in use by whole, share or MIG; unknown indices count as asked."""
    named: set[tuple[str, int]] = set()
    unknown = 0
    for job in snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                if task.gpus is None:
                    unknown += job.request.gpus
                else:
                    named.update((task.node, index) for index in task.gpus)
    return len(named) + unknown


def _queues(read: Facts) -> tuple[QueueHealth, ...]:
    snapshot, tree = read.snapshot, read.values.tree
    sizes = read.values.rates.sizes
    found = []
    for name, queue in sorted(tree.queues.items()):
        guarantee = queue.guarantee.total_milli()
        if guarantee is None:
            continue
        mine = [job for job in snapshot.jobs if name in tree.chain(job.queue)]
        running = [job for job in mine if job.on_nodes]
        waits = [job for job in mine if job.state == "pending"]
        used = sum(sizes.job(job) for job in running) * 1_000 // sizes.unit
        asked = sum(sizes.job(job) for job in waits) * 1_000 // sizes.unit
        if used < guarantee and asked:
            state, since = "below", max(waited(snapshot, job) for job in waits)
        elif used > guarantee:
            state, since = "above", _above_since(snapshot, running, guarantee, sizes)
        else:
            continue
        found.append(
            QueueHealth.model_validate(
                {
                    "queue": name,
                    "state": state,
                    "guarantee_milli": guarantee,
                    "used_milli": used,
                    "asked_milli": asked,
                    "seconds": since,
                }
            )
        )
    return tuple(found)


def _above_since(
    snapshot: Snapshot, running: list[Job], guarantee: int, sizes: Sizes
) -> int:
    """Seconds since the jobs that still run passed the guarantee, in the order they started."""
    used = 0
    for job in sorted(running, key=lambda job: (-elapsed(snapshot, job), job.name)):
        used += sizes.job(job) * 1_000 // sizes.unit
        if used > guarantee:
            return elapsed(snapshot, job)
    return 0


def _unsaved(snapshot: Snapshot) -> tuple[Unsaved, ...]:
    """The most work at risk first."""
    entries = [
        Unsaved(
            job=job.name,
            queue=job.queue,
            gpus=gpus_of(job),
            lost_gpu_seconds=gpus_of(job) * unsaved(snapshot, job),
        )
        for job in snapshot.jobs
        if job.state == "running" and job.preemptible and job.checkpoint is None and gpus_of(job)
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.lost_gpu_seconds, entry.job)))


