"""Session: changes come in, plans come out; cancelled from another thread, heard on the way."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trencadis
from trencadis import Delta, Options, Progress, Session, Snapshot, solve
from trencadis.instances.generate import generate
from trencadis.models import InvalidInputError, Job, PlanMismatchError, apply, change
from trencadis.solver.model.problem import Thresholds
from trencadis.solver.verify import verify

SMALL = generate(6, 12, 0.5, 1, 2)
FIXED = Options(deterministic=True, time_limit_s=2)


def test_the_names_of_the_library() -> None:
    for name in trencadis.__all__:
        assert getattr(trencadis, name) is not None
    with pytest.raises(AttributeError):
        _ = trencadis.nothing


def test_a_session_answers_as_solve_does() -> None:
    session = Session(SMALL, FIXED)
    assert session.plan is None
    plan = session.solve()
    assert plan == solve(SMALL, FIXED)
    assert session.plan is plan
    assert verify(SMALL, plan).violations == ()
    assert session.accept() == apply(SMALL, plan) == session.snapshot


def test_the_same_question_is_not_asked_twice() -> None:
    session = Session(SMALL, FIXED)
    first = session.solve()
    assert first.proof.status == "OPTIMAL"
    session.update(SMALL.model_copy(update={"jobs": tuple(reversed(SMALL.jobs))}))
    assert session.solve() is first
    session.update(Delta(now=SMALL.now + timedelta(hours=1)))
    assert session.solve() is not first


def test_changes() -> None:
    session = Session(SMALL, FIXED)
    queue = SMALL.queues[-1].name
    extra = Job(name="extra", queue=queue, submit=SMALL.now)
    snapshot = session.update(Delta(jobs=(extra,)))
    assert len(snapshot.jobs) == len(SMALL.jobs) + 1
    assert "extra" in {start.job for start in session.solve().starts}
    changed = extra.model_copy(update={"state": "held"})
    session.update(Delta(jobs=(changed,)))
    assert "extra" not in {start.job for start in session.solve().starts}
    assert session.update(Delta(gone=("extra",))) == SMALL
    with pytest.raises(InvalidInputError, match="extra isn't in the snapshot"):
        session.update(Delta(gone=("extra",)))
    assert session.snapshot == SMALL


@given(st.sets(st.sampled_from([job.name for job in SMALL.jobs])))
@settings(max_examples=30, deadline=None)
def test_what_goes_and_comes_back_changes_nothing(names: set[str]) -> None:
    back = tuple(job for job in SMALL.jobs if job.name in names)
    without = change(SMALL, Delta(gone=tuple(names)))
    assert not names & {job.name for job in without.jobs}
    assert change(without, Delta(jobs=back)).fingerprint() == SMALL.fingerprint()


def test_accept_needs_a_plan_of_this_snapshot() -> None:
    session = Session(SMALL, FIXED)
    with pytest.raises(ValueError, match="no plan yet"):
        session.accept()
    session.solve()
    session.update(Delta(now=SMALL.now + timedelta(hours=1)))
    with pytest.raises(PlanMismatchError):
        session.accept()


def test_progress_tells_incumbent_and_bound() -> None:
    heard: list[Progress] = []
    session = Session(SMALL, FIXED, on_progress=heard.append)
    plan = session.solve()
    steps = [progress.step for progress in heard]
    assert steps[0] == "read"
    assert {"searched", "placed"} <= set(steps)
    assert steps[-1] == "done"
    assert [p.seconds for p in heard] == sorted(p.seconds for p in heard)
    proven = {stage.name: (stage.objective, stage.bound) for stage in plan.proof.stages}
    last = {name: (stage.incumbent, stage.bound) for name, stage in heard[-1].stages.items()}
    assert last == proven
    assert heard[-1].started == len(plan.starts)
    assert all(s.bound <= s.incumbent for p in heard for s in p.stages.values())


@pytest.mark.parametrize("whole", [3_000, 0])
def test_progress_from_inside_a_search(whole: int) -> None:
    """Incumbents fall and bounds rise while CP-SAT searches, told in the thread of `solve`."""
    cluster = generate(20, 80, 0.5, 1, 4)
    options = Options(
        deterministic=True, time_limit_s=2, gap=0.0, thresholds=Thresholds(whole=whole)
    )
    heard: list[Progress] = []
    threads: set[int] = set()

    def hear(progress: Progress) -> None:
        heard.append(progress)
        threads.add(threading.get_ident())

    plan = solve(cluster, options, progress=hear)
    assert threads == {threading.get_ident()}
    assert plan == solve(cluster, options)
    inside = [progress for progress in heard if progress.step == "searching"]
    assert len(inside) > 3
    assert heard.index(inside[0]) < [progress.step for progress in heard].index("searched")
    assert all(s.bound <= s.incumbent for p in inside for s in p.stages.values())
    if whole:
        # Stage by stage, each message tells something better than the one before.
        tier = [p.stages["tier:high"] for p in inside if "tier:high" in p.stages]
        costs, bounds = [s.incumbent for s in tier], [s.bound for s in tier]
        assert costs == sorted(costs, reverse=True)
        assert bounds == sorted(bounds)
        assert len(set(zip(costs, bounds, strict=True))) == len(tier) > 1


def test_a_listener_that_fails_ends_the_solve() -> None:
    def refuse(progress: Progress) -> None:
        if progress.step == "searching":
            raise ConnectionError("the listener is gone")

    session = Session(generate(20, 80, 0.5, 1, 4), FIXED, on_progress=refuse)
    with pytest.raises(ConnectionError, match="gone"):
        session.solve()
    assert session.plan is None


def test_cancel_from_another_thread() -> None:
    """Cancelled as soon as it has begun to search: the plan is whole and keeps the rules."""
    large = generate(60, 300, 0.6, 2, 5)
    read = threading.Event()
    session = Session(large, Options(time_limit_s=120, gap=0.0), on_progress=lambda _: read.set())

    def cancel() -> None:
        read.wait()
        session.cancel()

    other = threading.Thread(target=cancel)
    other.start()
    plan = session.solve()
    other.join()
    assert plan.proof.status in ("INTERRUPTED", "OPTIMAL")
    assert verify(large, plan).violations == ()


def test_cancel_without_a_solve_is_forgotten() -> None:
    session = Session(Snapshot(now=SMALL.now), FIXED)
    session.cancel()
    assert session.solve().proof.status == "OPTIMAL"
