"""Everything a round knows before it builds the model: one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from trencadis.models import Job, Node, Snapshot
from trencadis.models.reckoned import reckoned
from trencadis.solver.accounts import Books, books
from trencadis.solver.admission import Admission, admission
from trencadis.solver.bin_classes import Supply
from trencadis.solver.capacity import Capacity, capacity
from trencadis.solver.demand import Demand, demand
from trencadis.solver.fabric import Tree, tree
from trencadis.solver.fragmentation import Profile, profile
from trencadis.solver.repair import as_read
from trencadis.solver.reserve.kept import NOTHING_KEPT, Kept
from trencadis.solver.room import Room, room_of
from trencadis.solver.shapes import ShapeMaker
from trencadis.solver.supply import supply
from trencadis.solver.targets import Target, targets
from trencadis.solver.worth import Values, values


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the model begins to approximate; the bounds stay valid at any setting."""

    segments: int = 64
    """Linear pieces for the weights of a job class."""
    patterns: int = 3_000
    """Patterns of a bin type; above, the class is pooled."""
    splits: int = 4
    """Rebuilds with classes split, where counts could not be placed."""
    whole: int = 3_000
    """Programs of at most so many columns are searched whole; larger ones around a guide."""
    parts: int = 30_000
    """Of programs with more columns only the whole part of the guide is settled at a time."""
    again: int = 1_000
    """With at least so many waiting jobs a round begins with the last plan's starts: fewer are
    searched as fast from nothing."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The snapshot, read: what doesn't change when classes are split."""

    snapshot: Snapshot
    capacity: Capacity
    values: Values
    fabric: Tree
    admission: Admission
    profile: Profile
    books: Books
    guarantees: tuple[Target, ...]
    """All of them."""
    targets: tuple[Target, ...]
    """Those that are short now."""
    can_run: Mapping[str, frozenset[str | None]]
    """GPU models (None: no GPU) on which each eligible job could run on the empty cluster."""
    maker: ShapeMaker
    kept: Kept = NOTHING_KEPT
    """What is reserved; `admission` and `maker` keep those away who would be in its way."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The facts in classes."""

    facts: Facts
    demand: Demand
    supply: Supply
    thresholds: Thresholds


def facts(snapshot: Snapshot) -> Facts:
    """Reads a snapshot; broken gangs as two jobs each, and spares marked."""
    snapshot = as_read(reckoned(snapshot))
    cap = capacity(snapshot)
    worths = values(snapshot, cap)
    fabric = tree(snapshot)
    admitted = admission(snapshot, worths.eligible.values(), _open_nodes(snapshot))
    maker = ShapeMaker(snapshot, cap, worths.rates, fabric, admitted)
    can_run = _can_run(
        worths,
        maker,
        room_of(cap.empty, admitted.column, fabric),
        room_of(cap.empty_cut, admitted.column, fabric),
    )
    guarantees = targets(snapshot, worths, can_run)
    short = [target for target in guarantees if target.missing > 0]
    return Facts(
        snapshot=snapshot,
        capacity=cap,
        values=worths,
        fabric=fabric,
        admission=admitted,
        profile=profile(snapshot, cap.resources, cap.cutter),
        books=books(snapshot, worths, read_accounts(snapshot, short)),
        guarantees=tuple(guarantees),
        targets=tuple(short),
        can_run=can_run,
        maker=maker,
    )


def with_kept(read: Facts, kept: Kept) -> Facts:
    """The facts with these reservations to be respected."""
    admitted = admission(
        read.snapshot, read.values.eligible.values(), _open_nodes(read.snapshot), kept
    )
    return replace(_admitting(read, admitted), kept=kept)


def at_instant(read: Facts, job: Job, at: int) -> Facts:
    """The facts with nodes admitting the job as they will then. `at`: seconds since 1970."""
    up = _open_nodes(read.snapshot)
    if not any(node.leaves for node in up):
        return read
    then = read.snapshot.model_copy(update={"now": datetime.fromtimestamp(at, UTC)})
    return _admitting(read, admission(then, [job], up))


def _admitting(read: Facts, admitted: Admission) -> Facts:
    maker = ShapeMaker(read.snapshot, read.capacity, read.values.rates, read.fabric, admitted)
    return replace(read, admission=admitted, maker=maker)


def _open_nodes(snapshot: Snapshot) -> list[Node]:
    return [node for node in snapshot.nodes if not node.down and not node.cordoned]


def classify(
    read: Facts, thresholds: Thresholds, split: frozenset[str], singled: frozenset[str]
) -> Problem:
    """Sorts jobs and nodes into classes. `split`, `singled`: jobs and nodes kept by themselves."""
    asked = wanted(read, split)
    have = supply(
        read.capacity,
        asked,
        read.admission,
        read.fabric,
        read.profile,
        thresholds.patterns,
        singled,
    )
    return Problem(read, asked, have, thresholds)


def wanted(read: Facts, split: frozenset[str]) -> Demand:
    """What waits, in classes; jobs of queues with a strict order, and `split`, by themselves."""
    queues = read.values.tree.queues

    def alone(job: Job) -> bool:
        return queues[job.queue].order == "strict_fifo"

    return demand(read.values, read.maker, read.books.charges, split, alone)


def _can_run(
    worths: Values, maker: ShapeMaker, empty: Room, empty_cut: Room
) -> dict[str, frozenset[str | None]]:
    known: dict[tuple[object, ...], frozenset[str | None]] = {}
    found: dict[str, frozenset[str | None]] = {}
    for job in worths.eligible.values():
        key = maker.place_key(job)
        if key not in known:
            shape = maker.shape(job, 0, 1, "")
            known[key] = frozenset(
                alt.way.need.model
                for alt in shape.alternatives
                if (empty_cut if alt.way.need.pieces else empty).takes(job, alt.way)
            )
        found[job.name] = known[key]
    return found


def read_accounts(snapshot: Snapshot, short: list[Target]) -> set[tuple[str, ...]]:
    """Keys of the accounts that guarantees and lending read."""
    read: set[tuple[str, ...]] = {("use", target.queue, target.model) for target in short}
    for queue in snapshot.queues:
        if queue.lending_limit is not None:
            leaves = {q.name for q in snapshot.queues} - {q.parent for q in snapshot.queues}
            models = set(queue.lending_limit.by_model) & set(queue.guarantee.by_model)
            if queue.lending_limit.total_milli() is not None:
                models.add("")
            read |= {("use", leaf, model) for leaf in leaves for model in models}
    return read
