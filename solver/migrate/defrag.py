"""defrag(): a plan that moves running jobs, and nothing else."""

from __future__ import annotations

from importlib.metadata import version

from trencadis.models import Move, Plan, Proof, Snapshot, StageProof, Status
from trencadis.models.check import check
from trencadis.models.order import in_order
from trencadis.models.plan import Made
from trencadis.models.reckoned import as_told, reckoned
from trencadis.solver.metrics import metrics
from trencadis.solver.migrate.compact import Compaction, compact
from trencadis.solver.migrate.counted import by_index, by_number
from trencadis.solver.migrate.let_in import Entry, let_in
from trencadis.solver.migrate.movers import movers, moves_left
from trencadis.solver.migrate.slice_moves import SliceMoves, find_slice_moves, tell
from trencadis.solver.migrate.yard import Trip, Yard
from trencadis.solver.model.problem import Facts, facts
from trencadis.solver.repair import as_repairs
from trencadis.solver.round import InternalError
from trencadis.solver.score import leftovers
from trencadis.solver.verify import Prepared, prepare, verify

STAGE = "moves"
KEEPS = "moves"
"""The verifier's rule that nobody who could start before can't afterwards."""
MAY_FAIL = {KEEPS, "lets-in"}
SCOPE = (
    "the jobs let in; of other moves: whole jobs on one node, on the lowest idle GPUs, "
    "and single slices, each moved once"
)


def defrag(snapshot: Snapshot) -> Plan:
    """Which running jobs to move, within the policy's budget of moves.

    First moves that let a waiting job in that fits nowhere now; then, with what is left of the
    budget, moves that lower fragmentation by more GPU-seconds than they cost. The plan has passed
    the verifier. Raises InvalidInputError if the snapshot contradicts itself.
    """
    warnings = tuple(sorted(fault.message for fault in check(snapshot)))
    as_given = in_order(snapshot)
    snapshot = reckoned(as_given)
    named = by_index(snapshot)
    if named != snapshot:
        plan = by_number(_defrag(named, warnings), snapshot)
        if not verify(snapshot, plan, prepare(snapshot)).violations:
            return as_told(plan, as_given)
    return as_told(_defrag(snapshot, warnings), as_given)


def _defrag(snapshot: Snapshot, warnings: tuple[str, ...]) -> Plan:
    read, prepared = facts(snapshot), prepare(snapshot)
    most = moves_left(snapshot)
    may = movers(snapshot, read.capacity.resources) if most else {}
    entry = let_in(read, may, most)
    slices = find_slice_moves(read, entry.taken, most - len(entry.trips))
    compaction: Compaction[Trip] = Compaction((), 0, best=True)
    left = most - len(entry.trips) - len(slices.trips)
    if not read.profile.off and left > 0:
        gone = {trip.mover.job.name for trip in entry.trips}
        rest = {name: mover for name, mover in may.items() if name not in gone}
        yard = Yard(read, entry.snapshot, entry.taken, rest)
        compaction = compact(yard, left)
    # What is left of a budget is not split in every way between the two.
    slices.best = slices.best and (left > 0 or not may)
    stay: Compaction[Trip] = Compaction((), 0, best=False)
    options = [(entry, compaction, slices)]
    if compaction.trips or len(slices.trips) > slices.forced:
        options.append((entry, stay, slices.only_forced()))
    if slices.trips:
        options.append((entry, stay, SliceMoves(best=False)))
    if entry.trips or compaction.trips or slices.trips:
        nothing = Entry(read.snapshot, read.snapshot)
        options.append((nothing, stay, SliceMoves(best=False)))
    for found, more, parts in options:
        plan = as_repairs(snapshot, _plan(read, prepared, found, more, parts, warnings))
        broken = verify(snapshot, plan, prepared).violations
        if not broken:
            return plan
        # A job that fits where several would have to be the first to start may lose its place.
        if any(violation.rule not in MAY_FAIL for violation in broken):
            break
    raise InternalError("; ".join(str(violation) for violation in broken[:5]))


def _plan(
    read: Facts,
    prepared: Prepared,
    entry: Entry,
    more: Compaction[Trip],
    slices: SliceMoves,
    warnings: tuple[str, ...],
) -> Plan:
    snapshot = read.snapshot
    trips = [*entry.trips, *more.trips]
    everyone = {trip.mover.job.name: trip.mover for trip in trips}
    yard = Yard(read, snapshot, snapshot, everyone)
    steps = dict(zip((t.key for t in trips), yard.steps(trips), strict=True))
    yard = Yard(read, snapshot, snapshot, everyone)
    order = sorted(trips, key=lambda trip: (steps[trip.key], trip.mover.job.name))
    last: dict[int, list[str]] = {}
    reached = 0
    for waiting, names in entry.lets_in.items():
        # Whoever was let in later may need what was moved for those before.
        reached = max(reached, *(i for i, t in enumerate(order) if t.mover.job.name in names))
        last.setdefault(reached, []).append(waiting)
    before = total = yard.total()
    moves = []
    for number, trip in enumerate(order):
        after = total + yard.go(trip)
        moves.append(
            Move(
                job=trip.mover.job.name,
                step=steps[trip.key],
                to=trip.tasks,
                idle_gpu_seconds=trip.mover.cost,
                fragmentation_before=total,
                fragmentation_after=after,
                lets_in=tuple(last.get(number, ())),
            )
        )
        total = after
    told = tell(read, slices, max((move.step for move in moves), default=0), total)
    moves += told.moves
    total = told.fragmentation
    waits = {name: worth.wait for name, worth in read.values.worth.items()}
    begin = entry.lets_in.keys() | slices.lets_in.keys()
    rest = sum(wait for name, wait in waits.items() if name not in begin)
    idle = sum(move.idle_gpu_seconds for move in moves)
    idle += sum(change.idle_gpu_seconds for change in told.reconfigures)
    objective = total + idle + rest
    forced = rest + sum(trip.mover.cost for trip in entry.trips) + told.forced
    best = more.best and slices.best
    left = leftovers(read, {})
    return Plan(
        snapshot=prepared.fingerprint,
        now=snapshot.now,
        purpose="defrag",
        moves=tuple(moves),
        reconfigures=tuple(told.reconfigures),
        # Only fragmentation changes.
        metrics=metrics(read, left, left, {STAGE: before}, {STAGE: total}, {}),
        proof=_proof(objective, objective if best else forced, before + sum(waits.values())),
        warnings=warnings,
        made=Made(
            trencadis=version("trencadis"),
            ortools=version("ortools"),
            seed=0,
            deterministic=True,
            workers=1,
        ),
    )


def _proof(objective: int, bound: int, nothing: int) -> Proof:
    room = nothing - bound
    gap = (objective - bound) / room if room else 0.0
    status = Status.OPTIMAL if objective == bound else Status.FEASIBLE
    stage = StageProof(
        name=STAGE,
        unit="weighted GPU-s",
        objective=objective,
        bound=bound,
        do_nothing=nothing,
        gap=gap,
        status=status,
    )
    return Proof(
        stages=(stage,), gap=gap, status=status, bound_scope="restricted", restricted_to=SCOPE
    )
