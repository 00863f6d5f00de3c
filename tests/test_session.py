"""Session: changes come in, plans come out; cancelled from another thread, heard on the way."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trencadis
from trencadis import Delta, Options, Progress, Session, Snapshot, solve
from trencadis.instances.generate import generate
from trencadis.models import InvalidInputError, Job, PlanMismatchError, apply, change
from trencadis.models.order import in_order
from trencadis.models.plan import Status
from trencadis.solver import search, settle
from trencadis.solver.again import Beginning, Earlier
from trencadis.solver.attempt import search_and_place
from trencadis.solver.clock import Clock, Limits
from trencadis.solver.cpsat import Window
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Thresholds, classify, facts
from trencadis.solver.report import make_plan
from trencadis.solver.round import better
from trencadis.solver.timer import Timer
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


def later(snapshot: Snapshot, seed: int, number: int) -> Delta:
    """A minute on: some running and some waiting jobs have gone, some new ones wait."""
    draw = random.Random(seed)
    needed = {name for job in snapshot.jobs for name in job.after}
    able = [job for job in snapshot.jobs if job.name not in needed and not job.group]
    waiting = [job for job in able if job.state == "pending"]
    now = snapshot.now + timedelta(minutes=1)
    born = tuple(
        draw.choice(waiting).model_copy(update={"name": f"new{seed}-{i}", "submit": now})
        for i in range(number if waiting else 0)
    )
    running = [job for job in able if job.on_nodes]
    gone = [job for some in (running, waiting) for job in draw.sample(some, min(number, len(some)))]
    return Delta(now=now, jobs=born, gone=tuple(job.name for job in gone))


class Counted:
    """How much CP-SAT is given to search: columns that it may choose, over all searches."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.columns = 0
        for module in (settle, search):
            patch.setattr(module, "search", partial(self._search, module.search))

    def _search(self, real: Any, *given: Any, **more: Any) -> Any:
        window: Window = given[2]
        pairs = zip(window.low, window.high, strict=True)
        self.columns += sum(low < high for low, high in pairs)
        return real(*given, **more)

    def take(self) -> int:
        found, self.columns = self.columns, 0
        return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_second_round_searches_less(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The last plan's starts are kept where the proof says that they are good enough."""
    cluster = generate(100, 150, 0.6, seed, 4)
    # Without F as a last stage, which only a search from nothing gets right to the end.
    policy = cluster.policy.model_copy(update={"fragmentation": "off"})
    cluster = cluster.model_copy(update={"policy": policy})
    options = Options(time_limit_s=900, workers=2, thresholds=Thresholds(again=0))
    counted = Counted(monkeypatch)
    session = Session(cluster, options)
    first = session.solve()
    whole = counted.take()
    session.update(Delta(now=cluster.now + timedelta(seconds=60)))
    again = session.solve()
    assert again.proof.status in ("OPTIMAL", "GAP")
    assert 4 * counted.take() < whole
    assert {start.job for start in again.starts} >= {start.job for start in first.starts}
    session.update(later(session.snapshot, seed, 3))
    plan = session.solve()
    assert plan.proof.gap <= 1e-4
    assert verify(session.snapshot, plan).violations == ()


def test_a_proof_counts_more_than_a_hair_in_an_upper_stage() -> None:
    """What was mended may win there, and lose any amount in the stages below."""
    good = solve(SMALL, FIXED)
    first, *rest = good.proof.stages
    cheaper = first.model_copy(update={"objective": first.objective - 1})
    open_one = good.proof.model_copy(
        update={"status": Status.FEASIBLE, "stages": (cheaper, *rest)}
    )
    mended = good.model_copy(update={"proof": open_one})
    assert better(mended, good) is good
    assert better(mended, mended.model_copy(update={"proof": open_one})) is mended


@pytest.mark.parametrize("seed", range(4))
def test_deterministic_rounds_know_nothing_of_earlier_ones(seed: int) -> None:
    session = Session(generate(8, 24, 0.6, seed, 3), FIXED)
    for step in range(3):
        plan = session.solve()
        assert plan == solve(session.snapshot, FIXED)
        session.update(later(session.snapshot, step, 2))


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.35, 1.0]))
@settings(max_examples=25, deadline=None)
def test_kept_starts_keep_every_rule(seed: int, share: float) -> None:
    """Whatever has changed since: the plan that is mended passes the verifier."""
    cluster = generate(8, 24, 0.6, seed % 50, 3)
    plan = solve(cluster, FIXED)
    earlier = Earlier.of(cluster, plan)
    changed = in_order(change(cluster, later(cluster, seed, 3)))
    read = facts(changed)
    ledger = Ledger(read)
    problem = classify(read, Thresholds(), frozenset(), frozenset())
    shapes = problem.demand.shapes
    shape_of = {name: shapes[index] for name, index in problem.demand.shape_of.items()}
    Beginning(earlier, share).enter(ledger, shape_of.__getitem__)
    assert ledger.started.keys() <= earlier.nodes.keys()
    assert (share == 1.0) <= (not ledger.started)
    for name, (_, bundles) in ledger.started.items():
        assert sorted(node for node, _ in bundles) == sorted(earlier.nodes[name])
    limits = Limits(Clock(2.0, True), 1, 0, 0.0, threading.Event())
    beginning = Beginning(earlier, share)
    outcome = search_and_place(read, FIXED.thresholds, limits, Timer(), beginning=beginning)
    made = make_plan(
        read, outcome, read, limits, fingerprint=changed.fingerprint(), made=plan.made, warnings=()
    )
    assert verify(changed, made).violations == ()


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
