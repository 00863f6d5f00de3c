"""Why there is no room for a job that rules and limits would let start now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from trencadis.models import Job
from trencadis.models.base import seconds
from trencadis.models.explanation import Reason
from trencadis.models.plan import Evidence
from trencadis.solver.explain.pieces import by_level, reach, slots
from trencadis.solver.explain.said import Said, gpus, names, some, span, when
from trencadis.solver.explain.scene import Scene
from trencadis.solver.explain.sliced import idle_in_parts, in_pieces, no_piece
from trencadis.solver.explain.spent import spent
from trencadis.solver.room import Room
from trencadis.solver.shapes import Alternative


def no_room(scene: Scene, job: Job, ways: Sequence[Alternative]) -> Said:
    """The reason. `ways`: those that limits allow; the job fits the emptied cluster."""
    if scene.takes(scene.before, job, ways):
        if scene.kept.bars(job) and not scene.fits_beside(job, ways):
            return would_delay(scene, job)
        return _outranked(scene, job, ways)
    everyone = draining(scene)
    held = holders(scene, job)
    if everyone and scene.takes(scene.without(everyone, ()), job, ways):
        return _draining(scene, job, ways, everyone)
    if held and scene.takes(scene.without((), held), job, ways):
        return _reservation(scene, job, ways, held)
    if held and everyone and scene.takes(scene.without(everyone, held), job, ways):
        return _reservation(scene, job, ways, held, everyone)
    if in_pieces(job):
        return no_piece(scene, job, ways)
    return spent(scene.spending, job, ways) or _short(scene, job, ways)


def draining(scene: Scene) -> list[str]:
    """Draining jobs, the first to be gone first; those of unknown end last."""
    jobs = [job for job in scene.snapshot.jobs if job.state == "draining"]
    jobs.sort(key=lambda j: (j.drain_ends is None, j.drain_ends and seconds(j.drain_ends), j.name))
    return [job.name for job in jobs]


def holders(scene: Scene, job: Job) -> list[str]:
    """Other jobs that GPUs are held for."""
    return sorted({hold.job for hold in scene.snapshot.delayed if hold.job != job.name})


def _outranked(scene: Scene, job: Job, ways: Sequence[Alternative]) -> Said:
    models, columns = reach(ways)
    own = scene.facts.values.worth[job.name]
    before, after = (
        sum(size * n for size, n in room.idle(models, columns).items())
        for room in (scene.before, scene.after)
    )
    text = "it fits now, but jobs that start now come first and leave no room"
    idle: Evidence = {"idle_gpus": before, "idle_gpus_after": after}
    if job.request.gpus:
        text += f": of {some(before, 'idle GPU')} that it may use they leave {after}"
    elif in_pieces(job):
        needs = {alternative.way.need.model: alternative.way.need for alternative in ways}
        knife = scene.facts.capacity.cutter
        in_parts = [
            idle_in_parts(room, needs, knife)[0] * 1_000 // knife.sizes.unit
            for room in (scene.before, scene.after)
        ]
        idle = {"idle_milli_gpu": in_parts[0], "idle_milli_gpu_after": in_parts[1]}
        text += f": of {gpus(in_parts[0])} that it may use in parts they leave {gpus(in_parts[1])}"
    return Said(
        Reason.OUTRANKED,
        text,
        {
            "tasks": job.minimum,
            "gpus_per_task": job.request.gpus,
            **idle,
            "saves": own.wait,
            "started": len(scene.ledger.started),
            "started_of_higher_tiers": scene.started_above(own.tier),
        },
    )


def _draining(
    scene: Scene, job: Job, ways: Sequence[Alternative], everyone: list[str]
) -> Said:
    """The fewest draining jobs, in the order in which they end, after which it fits."""
    low, high = 1, len(everyone)
    while low < high:
        middle = (low + high) // 2
        if scene.takes(scene.without(everyone[:middle], ()), job, ways):
            high = middle
        else:
            low = middle + 1
    needed = _fewer(everyone[:low], lambda some_: scene.without(some_, ()), scene, job, ways)
    jobs = {entry.name: entry for entry in scene.snapshot.jobs}
    ends = [jobs[name].drain_ends for name in needed]
    known = [end for end in ends if end is not None]
    evidence: Evidence = {"jobs": ", ".join(needed), "tasks": job.minimum}
    if len(known) < len(ends):
        return Said(Reason.DRAINING, f"waits for draining {names(needed)} to leave", evidence)
    last = max(known)
    left = max(0, seconds(last) - seconds(scene.snapshot.now))
    return Said(
        Reason.DRAINING,
        f"waits for draining {names(needed)} to leave, {span(left)} at most",
        evidence | {"until": last.isoformat(), "seconds_at_most": left},
    )


def _reservation(
    scene: Scene,
    job: Job,
    ways: Sequence[Alternative],
    held: list[str],
    leaving: Sequence[str] = (),
) -> Said:
    needed = _fewer(held, lambda some_: scene.without(leaving, some_), scene, job, ways)
    at = {hold.job: hold.at for hold in scene.snapshot.delayed if hold.job in needed}
    begins = max(at.values())
    text = f"GPUs that it could use are on hold for {names(needed)}, from {when(begins)} on"
    evidence: Evidence = {"holders": ", ".join(needed), "at": begins.isoformat()}
    return Said(Reason.RESERVATION, text + _until(scene, at, evidence), evidence)


def _until(scene: Scene, at: Mapping[str, datetime], evidence: Evidence) -> str:
    """The end of a sentence on what is reserved: until when, as far as that is known. `at`: by
    job, when it is to start there."""
    jobs = {entry.name: entry for entry in scene.snapshot.jobs}
    ends = []
    for name, start in at.items():
        runtime = jobs[name].runtime_seconds
        if runtime is None:
            return f"; until when is open, for {name} does not say how long it runs"
        ends.append(start + timedelta(seconds=runtime))
    evidence["until"] = max(ends).isoformat()
    return f" until {when(max(ends))}, by {'its' if len(at) == 1 else 'their'} estimate"


def would_delay(scene: Scene, job: Job) -> Said:
    """The job fits the nodes that are kept for others, but would still run when these are due."""
    barring = [scene.kept.reservations[i] for i in sorted(scene.kept.bars(job))]
    at = {entry.job: datetime.fromtimestamp(entry.at, UTC) for entry in barring}
    evidence: Evidence = {"holders": ", ".join(at), "at": min(at.values()).isoformat()}
    text = f"it fits, but would delay {names(list(at))}: "
    if job.runtime_seconds is None:
        text += "how long it would run is not known"
    else:
        evidence["runtime_seconds"] = job.runtime_seconds
        text += f"it would run for {span(job.runtime_seconds)}"
    text += f", and nodes are reserved from {when(min(at.values()))} on"
    return Said(Reason.RESERVATION, text + _until(scene, at, evidence), evidence)


def _fewer(
    found: Sequence[str],
    without: Callable[[Collection[str]], Room],
    scene: Scene,
    job: Job,
    ways: Sequence[Alternative],
    most: int = 24,
) -> list[str]:
    """Leaves out what isn't needed, one by one; of long lists as many as `most`."""
    kept = list(found)
    for name in list(found)[:most]:
        rest = [other for other in kept if other != name]
        if rest and scene.takes(without(rest), job, ways):
            kept = rest
    return kept


def _short(scene: Scene, job: Job, ways: Sequence[Alternative]) -> Said:
    """What is short on the nodes as they are now: GPUs, whole pieces, what is beside, nearness."""
    room, each = scene.before, job.request.gpus
    models, columns = reach(ways)
    evidence: Evidence = {"tasks": job.minimum, "gpus_per_task": each}
    if not each:
        return Said(
            Reason.CPU_MEMORY,
            "not enough CPU or memory is free on the nodes it may use",
            evidence | {"slots": slots(room, ways)},
        )
    idle = room.idle(models, columns)
    total = sum(size * number for size, number in idle.items())
    largest, wanted = max(idle, default=0), each * job.minimum
    evidence |= {"idle_gpus": total, "largest_node": largest}
    levels = by_level(room, models, columns)
    evidence |= {f"largest_{name}": count for name, count in levels.items()}
    if total < wanted:
        text = f"asks for {some(wanted, 'GPU')}; "
        text += f"{total:,}" if total else "none"
        text += f" that it may use {_are(max(1, total))} idle"
        stay = room.stay_in_mig(models, columns)
        if stay:
            evidence["idle_in_mig_mode"] = stay
            more = f"{stay:,} more" if total else f"{stay:,}"
            text += f"; {more} {_are(stay)} idle in MIG mode, which can't be turned off there"
        return Said(Reason.NOT_ENOUGH_FREE, text, evidence)
    whole = sum(size // each * number for size, number in idle.items())
    evidence["slots"] = whole
    if whole < job.minimum:
        near = "".join(f", the fullest {name} {count}" for name, count in levels.items())
        return Said(
            Reason.FRAGMENTED,
            f"{some(total, 'GPU')} {_are(total)} idle but in pieces: {_rooms(job, whole)}; the "
            f"largest piece on a node has {largest}{near}",
            evidence,
        )
    fitting = slots(room, ways)
    evidence["slots_with_cpu_memory"] = fitting
    if fitting < job.minimum:
        return Said(
            Reason.CPU_MEMORY,
            f"{some(total, 'GPU')} {_are(total)} idle, but CPU, memory or NVLink beside them "
            f"suffice for {fitting} of its {some(job.minimum, 'task')}",
            evidence,
        )
    cap = job.max_tasks_per_domain
    if cap is not None:
        text = f"with at most {some(cap.tasks, 'task')} in one {cap.level}"
        text = f"{fitting} slots are idle, but not {job.minimum} of them {text} as it requires"
        return Said(Reason.TOPOLOGY, text, evidence)
    return Said(
        Reason.TOPOLOGY,
        f"{fitting} slots are idle, but not {job.minimum} of them in one domain as it requires",
        evidence,
    )


def _rooms(job: Job, number: int) -> str:
    """For how many tasks there is room, in words."""
    each = job.request.gpus
    if not number:
        return f"no node has the {some(each, 'GPU')} of one task"
    return f"room for {number} of its {some(job.minimum, 'task')} of {each}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
