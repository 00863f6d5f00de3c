"""What would help a waiting job: the cheapest change of each kind, proven by solving with it."""

from __future__ import annotations

from collections.abc import Iterator

from trencadis.models import Hold, Job, Snapshot
from trencadis.models.explanation import Raise, Reason, Remedy, RemedyKind
from trencadis.models.units import asks_for_mig
from trencadis.solver.explain.alone import Alone
from trencadis.solver.explain.beside import in_round
from trencadis.solver.explain.budget import larger_budget
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.grouped import MOST_NODES, too_large
from trencadis.solver.explain.grow import grow, grow_for_group
from trencadis.solver.explain.limits import heads, raise_of, reached
from trencadis.solver.explain.move import Mover
from trencadis.solver.explain.moved import impossible
from trencadis.solver.explain.raises import beside, raise_text
from trencadis.solver.explain.repacked import Repacker
from trencadis.solver.explain.said import names, some
from trencadis.solver.explain.scene import Scene
from trencadis.solver.explain.shape import shapes
from trencadis.solver.explain.slimmer import slimmer
from trencadis.solver.explain.stops import stop
from trencadis.solver.explain.wait import wait

KINDS: tuple[RemedyKind, ...] = ("wait", "move", "stop", "limit", "shape", "nodes")
RULES = frozenset({Reason.DEPENDENCY, Reason.NOT_BEFORE, Reason.HELD_GPUS})
"""Reasons that only time ends."""
LIMITS = frozenset(
    {Reason.NEVER_UNDER_LIMIT, Reason.LIMIT, Reason.THROTTLE, Reason.LICENCE}
)
HOPELESS = frozenset({Reason.NEVER_FITS, Reason.CONSTRAINTS, Reason.OUTAGE})
"""Reasons that no running job has to do with."""

Found = tuple[RemedyKind, Remedy | str]


def case_of(scene: Scene, alone: Alone, job: Job, code: Reason) -> Case:
    """The case of a waiting job. `alone`: of the snapshot after the plan's actions."""
    following = alone.snapshot
    unit: tuple[str, ...] = (job.name,)
    if job.group is not None:
        members = [
            j.name for j in following.jobs if j.group == job.group and j.state == "pending"
        ]
        unit = (job.name, *sorted(name for name in members if name != job.name))
    models, raises = _models(scene, job, code)
    starting = frozenset(scene.ledger.started)
    ahead = behind(scene, job, following)
    return Case(following, alone, job, unit, models, raises, starting, ahead)


def _models(
    scene: Scene, job: Job, code: Reason
) -> tuple[frozenset[str | None], tuple[Raise, ...]]:
    """The models that limits allow; where they allow none, those with the fewest to raise."""
    if job.name not in scene.facts.values.eligible:
        return frozenset(), ()
    models = sorted(
        scene.facts.can_run[job.name] or scene.shape(job).models(), key=lambda m: m or ""
    )
    needed = {m: tuple(raise_of(scene, entry) for entry in reached(scene, job, m)) for m in models}
    allowed = frozenset(model for model in models if not needed[model])
    if allowed or code not in LIMITS or not models:
        return allowed or frozenset(models), ()
    best = min(models, key=lambda m: (len(needed[m]), m or ""))
    return frozenset({best}), needed[best]


def behind(scene: Scene, job: Job, following: Snapshot) -> tuple[Hold, ...]:
    """Reservations after the plan of jobs that go before this one."""
    ranks = scene.kept.ranks
    return tuple(
        hold
        for hold in following.holds
        if hold.kind == "reservation"
        and hold.job in ranks
        and hold.job != job.name
        and (job.name not in ranks or ranks[job.name] > ranks[hold.job])
    )


def remedies(
    scene: Scene, case: Case, code: Reason
) -> tuple[tuple[Remedy, ...], dict[str, str]]:
    """What helps, and for kinds of which nothing does, why."""
    found: list[Remedy] = []
    none: dict[str, str] = {}
    for kind, remedy in _tried(scene, case, code):
        if isinstance(remedy, str):
            none.setdefault(kind, remedy)
        elif case.works(remedy):
            found.append(in_round(case, remedy))
            none.pop(kind, None)
        else:
            none.setdefault(kind, "what looked right did not hold when it was solved")
    for remedy in found:
        none.pop(remedy.kind, None)
    return tuple(found), none


def _tried(scene: Scene, case: Case, code: Reason) -> Iterator[Found]:
    ahead = heads(scene, case.job) if case.job.name in scene.facts.values.eligible else []
    if ahead:
        for kind in KINDS:
            yield kind, f"{ahead[0]} goes first: its queue keeps its order"
        return
    if code in (Reason.KIND_OF_GPU, Reason.NOT_WORTH_IT):
        if case.parts:
            for remedy in slimmer(case):
                yield "shape", remedy
        return
    if code not in HOPELESS and code is not Reason.NEVER_UNDER_LIMIT:
        yield "wait", wait(case, rules=code in RULES | LIMITS | {Reason.LENDING, Reason.GROUP})
    if code in RULES:
        return
    if not case.single:
        yield from _for_group(case)
        return
    if code in LIMITS:
        yield from _limit(case)
    if code is Reason.BUDGET:
        yield "limit", larger_budget(case)
    if code is Reason.LENDING:
        yield "limit", "guarantees that are not lent keep the GPUs, not a limit"
    elif code not in HOPELESS and not case.fits():
        yield "move", _restart(case) if case.parts else _move(case)
        yield "stop", stop(case)
    if case.parts:
        # What new nodes could be cut into is not worked out.
        for remedy in slimmer(case):
            yield "shape", remedy
        return
    for shape in _shapes(case):
        yield "shape", shape
    if not case.fits():
        yield "nodes", grow(case)


def _for_group(case: Case) -> Iterator[Found]:
    """For jobs that start together: the others of the group are part of every answer."""
    whole = f"its group of {some(len(case.unit), 'job')} starts as a whole: "
    for kind in ("move", "limit", "shape"):
        yield kind, whole + "this is not worked out for several jobs at once"
    if too_large(case):
        yield "stop", whole + f"not worked out beyond {MOST_NODES} nodes"
        yield "nodes", whole + f"not worked out beyond {MOST_NODES} nodes"
        return
    yield "stop", stop(case)
    yield "nodes", grow_for_group(case)


def _shapes(case: Case) -> list[Remedy] | list[str]:
    return shapes(case) or ["no other shape that was tried fits now either"]


def _limit(case: Case) -> Iterator[Found]:
    if not case.raises:
        return
    if not case.fits():
        yield "limit", "a larger limit alone does not make room"
        return
    texts = [raise_text(entry) for entry in case.raises]
    yield "limit", Remedy(
        kind="limit", sentence=f"raise {', and '.join(texts)}", raises=case.raises
    )


def _move(case: Case) -> Remedy | str:
    mover = Mover(case.base, case.place, case.states, case.starting)
    found = mover.fewest(case.job, case.models)
    if found is None or not found.relocations:
        if impossible(case.base, case.place, case.job, case.models):
            return f"wherever the running jobs moved, it would not fit{case.aside}"
        return "no moves were found among the nodes that come nearest"
    moved = [entry.job for entry in found.relocations]
    to = ", ".join(f"{entry.job} to {entry.to[0].node}" for entry in found.relocations[:3])
    rest = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
    return Remedy(
        kind="move",
        sentence=f"move {to}{rest}{beside(case.raises)}",
        move=found.relocations,
        cost={"jobs": len(moved), "gpus": found.gpus},
        cheapest=found.fewest,
        raises=case.raises,
    )


def _restart(case: Case) -> Remedy | str:
    """Moves of slices, on their GPU or to others."""
    if not asks_for_mig(case.job.request):
        return "moves of shares are not worked out"
    if case.job.minimum > 1:
        return "moves are worked out for one task that asks for slices, not for several"
    found = Repacker(case).fewest()
    if found is None:
        return "no restarts of running slices elsewhere were found that make room"
    return Remedy(
        kind="move",
        sentence=f"restart {names(found.slices)}{beside(case.raises)}",
        move=found.relocations,
        cost={"jobs": len(found.relocations)},
        cheapest=found.fewest,
        raises=case.raises,
    )
