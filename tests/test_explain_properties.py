"""Explanations hold on any tiny snapshot: reasons, remedies and proofs against whole solves."""

from __future__ import annotations

from itertools import combinations

import build as b
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ALL, NODES, QUEUES, TOPOLOGY, snapshots

from trencadis.models import (
    Job,
    MigInstance,
    Plan,
    Request,
    Snapshot,
    TaskAllocation,
    apply,
)
from trencadis.models.check import check
from trencadis.models.explanation import NEVER, Explanation, Reason
from trencadis.models.order import in_order
from trencadis.solver.explain.alone import Alone, only
from trencadis.solver.explain.changes import at_time, with_remedy
from trencadis.solver.explain.explain import Explainer
from trencadis.solver.explain.menus import occupants, states_without
from trencadis.solver.explain.moved import impossible
from trencadis.solver.explain.place import place_of
from trencadis.solver.explain.stop import Stopper
from trencadis.solver.explain.wait import events
from trencadis.solver.round import Options, solve

OPTIONS = Options(time_limit_s=5.0, gap=0.0, workers=1, deterministic=True)
EXAMPLES = 30
FAMILIES = {"all": ALL, "queues": QUEUES, "topology": TOPOLOGY, "nodes": NODES}


def unit_of(snap: Snapshot, name: str) -> list[str]:
    """The job, or the waiting jobs of its group."""
    group = next(entry.group for entry in snap.jobs if entry.name == name)
    if group is None:
        return [name]
    return [entry.name for entry in snap.jobs if entry.group == group and entry.state == "pending"]


def starts_alone(snapshot: Snapshot, names: list[str]) -> bool:
    """Whether a whole solve starts these jobs if nobody else waits."""
    plan = solve(only(snapshot, names), OPTIONS)
    return {start.job for start in plan.starts}.issuperset(names)


def explained(snapshot: Snapshot) -> tuple[Snapshot, Plan, list[Explanation]]:
    """The snapshot after its plan, the plan, and an explanation of each job that waits."""
    snapshot = in_order(snapshot)
    plan = solve(snapshot, OPTIONS)
    explainer = Explainer(snapshot, plan)
    waits = [entry.job for entry in plan.pending]
    return apply(snapshot, plan), plan, [explainer.job(name) for name in waits]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_every_remedy_makes_the_job_start(family: str, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots(FAMILIES[family]))
    after, plan, answers = explained(snapshot)
    codes = {entry.job: entry.code for entry in plan.pending}
    assert len(codes) == len(plan.pending)
    for answer in answers:
        assert answer.code == codes[answer.job]
        assert Reason(answer.code)
        unit = unit_of(after, answer.job)
        assert not starts_alone(after, unit) or answer.code in (
            # Others wait ahead of it, or fragmentation is weighed: alone it may be worth it.
            Reason.STRICT_ORDER,
            Reason.NOT_WORTH_IT,
        )
        for remedy in answer.remedies:
            changed = with_remedy(after, answer.job, remedy)
            check(only(changed, unit))
            assert starts_alone(changed, unit), (answer.job, remedy)


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots())
def test_never_stays_pending_on_the_emptied_cluster(snapshot: Snapshot) -> None:
    after, _, answers = explained(snapshot)
    for answer in answers:
        if answer.code in NEVER:
            emptied = after.model_copy(
                update={
                    "jobs": tuple(job for job in after.jobs if not job.on_nodes),
                    "holds": (),
                }
            )
            assert not starts_alone(emptied, [answer.job])


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots())
def test_alone_decides_what_a_solve_decides(snapshot: Snapshot) -> None:
    alone = Alone(snapshot)
    for job in snapshot.jobs:
        if job.state == "pending":
            unit = unit_of(snapshot, job.name)
            assert alone.starts(snapshot, unit) == starts_alone(snapshot, unit)


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots(NODES | TOPOLOGY))
def test_victims_are_the_cheapest(snapshot: Snapshot) -> None:
    """Against all sets of running jobs."""
    snapshot = in_order(snapshot)
    place, here = place_of(snapshot), occupants(snapshot)
    stopper = Stopper(snapshot, place)
    running = [job for job in snapshot.jobs if job.state == "running"]
    costs = {job.name: 1 + (7 * i + 3) % 10 for i, job in enumerate(running)}
    for job in snapshot.jobs:
        if job.state != "pending" or not _plain(job):
            continue
        models = {
            alternative.way.need.model
            for alternative in place.look(job, place.supply.empty).ways
        }

        def fits(gone: tuple[str, ...], job: Job = job) -> bool:
            return place.fits(job, states_without(snapshot, here, gone, place.supply))

        if fits(()):
            continue
        best = min(
            (
                sum(costs[name] for name in names)
                for size in range(1, len(costs) + 1)
                for names in combinations(sorted(costs), size)
                if fits(names)
            ),
            default=None,
        )
        found = stopper.cheapest(job, models, costs)
        if best is None or found is None:
            assert found is None
            assert best is None
            continue
        assert fits(found.names)
        assert found.cost == sum(costs[name] for name in found.names)
        assert found.cost >= best
        if found.cheapest:
            assert found.cost == best


def _plain(job: Job) -> bool:
    return job.request.share is None and not job.request.mig and not job.request.mig_memory_mib


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots())
def test_no_earlier_instant_would_do(snapshot: Snapshot) -> None:
    after, _, answers = explained(snapshot)
    alone = Alone(after)
    for answer in answers:
        for remedy in answer.remedies:
            if remedy.at is not None:
                unit = unit_of(after, answer.job)
                for instant in events(after):
                    if instant < remedy.at:
                        assert not alone.starts(at_time(after, instant), unit)


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots(NODES | TOPOLOGY))
def test_what_is_impossible_stays_so_if_all_may_move(snapshot: Snapshot) -> None:
    """No plan for the emptied cluster starts the job beside all that ran."""
    snapshot = in_order(snapshot)
    place = place_of(snapshot)
    for job in snapshot.jobs:
        if job.state != "pending" or not _plain(job) or job.group is not None:
            continue
        models = {
            alternative.way.need.model
            for alternative in place.look(job, place.supply.empty).ways
        }
        if not impossible(snapshot, place, job, models):
            continue
        alone = only(snapshot, [job.name])
        freed = {"state": "pending", "start": None, "allocation": (), "group": "together"}
        moving = tuple(
            other.model_copy(update=freed)
            if other.state == "running" and _plain(other) and other.min_tasks is None
            else other.model_copy(update={"group": "together", "after": (), "not_before": None})
            if other.name == job.name
            else other
            for other in alone.jobs
        )
        emptied = alone.model_copy(update={"jobs": moving})
        assert job.name not in {start.job for start in solve(emptied, OPTIONS).starts}


@st.composite
def pieces(draw: st.DrawFn) -> Snapshot:
    """Enough idle GPUs for what waits, but in pieces, by size, nearness or CPU."""
    count = draw(st.integers(2, 4))
    size = draw(st.sampled_from((2, 4)))
    nodes = [
        b.node(f"n{i}", size, cpu_milli=1_000 * size, fabric=(f"leaf{i // 2}",))
        for i in range(count)
    ]
    busy = []
    for i in range(count):
        left = list(range(size))
        for k in range(draw(st.integers(0, 3))):
            gpus = draw(st.integers(1, max(1, size - 1)))
            if gpus <= len(left):
                mine, left = left[:gpus], left[gpus:]
                busy.append(
                    b.running(
                        f"r{i}{k}",
                        b.at(f"n{i}", *mine),
                        ran=draw(st.sampled_from((60, 3_600))),
                        cpu_milli=draw(st.sampled_from((0, 500 * gpus, 1_000 * gpus))),
                        priority=draw(st.sampled_from(("low", "normal"))),
                        runtime_seconds=draw(st.sampled_from((None, 4_000, 9_000))),
                    )
                )
    waits = b.job(
        "j",
        draw(st.integers(1, size)),
        draw(st.integers(1, 3)),
        cpu_milli=draw(st.sampled_from((0, 1_000, 2_000))),
        required=draw(st.sampled_from((None, "leaf", "node"))),
    )
    return b.snapshot(nodes, busy, waits, levels=("leaf",))


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(pieces())
def test_remedies_for_pieces_hold(snap: Snapshot) -> None:
    after, _, answers = explained(snap)
    for answer in answers:
        for remedy in answer.remedies:
            changed = with_remedy(after, answer.job, remedy)
            assert check(only(changed, [answer.job])) is not None
            assert starts_alone(changed, [answer.job]), remedy
            if remedy.kind == "move" and remedy.cheapest and len(remedy.move) > 1:
                assert not _one_move_does(after, answer.job)
        if answer.proof == "moved":
            assert not _one_move_does(after, answer.job)


def _one_move_does(after: Snapshot, name: str) -> bool:
    """Whether the job would start if one running job went to one other node."""
    alone = Alone(after)
    for mover in after.jobs:
        if mover.state != "running":
            continue
        gone = after.model_copy(
            update={"jobs": tuple(job for job in after.jobs if job.name != mover.name)}
        )
        for state in alone.states(gone):
            idle = [index for gpus in state.idle.values() for index in gpus]
            fits = len(idle) >= mover.request.gpus and state.free[0] >= mover.request.cpu_milli
            if not fits or state.name == mover.allocation[0].node:
                continue
            moved = mover.model_copy(
                update={"allocation": (b.at(state.name, *idle[: mover.request.gpus]),)}
            )
            jobs = tuple(moved if job.name == mover.name else job for job in after.jobs)
            if alone.starts(after.model_copy(update={"jobs": jobs}), [name]):
                return True
    return False


@st.composite
def sliced(draw: st.DrawFn) -> Snapshot:
    """One or two A100 in MIG mode, some legal instances in use, and one slice waited for."""
    model, count = "A100-SXM4-40GB", draw(st.integers(1, 2))
    machine = b.node("n1", count, model, mig=tuple(range(count)))
    busy = []
    for gpu in range(count):
        taken: set[int] = set()
        for start in draw(st.lists(st.integers(0, 6), max_size=4, unique=True)):
            profile, length = draw(st.sampled_from((("1g.5gb", 1), ("2g.10gb", 2), ("3g.20gb", 4))))
            covers = set(range(start, start + length))
            if taken & covers or start not in LEGAL[profile]:
                continue
            taken |= covers
            where = TaskAllocation(
                node="n1", gpus=(gpu,), mig=(MigInstance(profile=profile, start=start),)
            )
            busy.append(
                b.running(
                    f"r{gpu}{start}",
                    where,
                    ran=draw(st.sampled_from((60, 3_600))),
                    request=Request(mig=(profile,)),
                    priority=draw(st.sampled_from(("low", "normal"))),
                    runtime_seconds=draw(st.sampled_from((None, 4_000, 9_000))),
                )
            )
    wants = draw(st.sampled_from(("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")))
    return b.snapshot(machine, busy, b.job("j", request=Request(mig=(wants,))))


LEGAL = {"1g.5gb": range(7), "2g.10gb": (0, 2, 4), "3g.20gb": (0, 4)}


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(sliced())
def test_remedies_for_slices_hold_and_none_is_missed(snap: Snapshot) -> None:
    """Every remedy is solved; whoever waits for a slice is told whom to stop, no job in vain."""
    after, _, answers = explained(snap)
    for answer in answers:
        stops = [remedy.stop for remedy in answer.remedies if remedy.kind == "stop"]
        assert stops or answer.code in (Reason.DRAINING, Reason.OUTRANKED)
        for remedy in answer.remedies:
            changed = with_remedy(after, answer.job, remedy)
            check(only(changed, [answer.job]))
            assert starts_alone(changed, [answer.job]), remedy
            for name in remedy.stop:
                rest = tuple(other for other in remedy.stop if other != name)
                fewer = remedy.model_copy(update={"stop": rest})
                assert not starts_alone(with_remedy(after, answer.job, fewer), [answer.job])
