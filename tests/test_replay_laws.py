"""What holds of every replay: GPU time is conserved, no job is lost or run twice, it repeats."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_world import played, worlds

from trencadis.models import Snapshot
from trencadis.models.trace import Trace
from trencadis.whatif.engine import Engine
from trencadis.whatif.failures import FailureModel
from trencadis.whatif.runs import State

BASELINES = ("fifo", "priority", "size-queues", "backfill", "best-fit", "fgd", "volcano")
SPECS = (
    *BASELINES,
    "volcano+kill",
    "priority+kill",
    "best-fit+no-gang",
    "backfill+no-gang",
    "volcano+no-elastic",
    "fifo+no-mig",
)
OVER = {State.DONE, State.LOST, State.REJECTED}
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
failures = st.none() | st.just(FailureModel(mtbf_hours=0.5, repair_hours=0.02))


def holds(engine: Engine) -> None:
    """Conservation, and that each job ended once with all its work."""
    time = engine.gpu_time
    spent = sum(run.spent.total for run in engine.runs)
    assert spent + (time.idle + time.held) * 1_000 == time.capacity * 1_000
    for run in engine.runs:
        assert run.state in OVER or (engine.stalled and run.state is State.WAITING)
        assert min(vars_of(run.spent)) >= 0
        if run.state is State.DONE:
            assert run.work_left == 0
            assert run.first_start is not None
            assert run.end is not None
            assert run.submit <= run.first_start < run.end
            assert run.starts >= 1
            # All its work was done, and no more than a second of it twice, per segment.
            if run.entry.job.request.gpus and run.job.minimum == run.job.tasks and not run.failures:
                done = run.spent.useful + run.spent.spread
                assert done >= run.entry.gpu_milli * run.entry.seconds * 1_000 or run.starts > 1
    assert int(engine.state.gpus.sum()) == int(engine.state.capacity.sum()) or engine.stalled
    assert engine.stalled or not +engine.books.used


def vars_of(spent: object) -> list[int]:
    return [getattr(spent, name) for name in ("useful", "spread", "restart", "rework", "grace")]


def story(engine: Engine) -> list[object]:
    return [(r.name, r.state, r.first_start, r.end, r.starts, r.preemptions) for r in engine.runs]


@pytest.mark.parametrize("spec", SPECS)
@given(world=worlds(), broken=failures, seed=st.integers(0, 5))
@QUICK
def test_gpu_time_is_conserved_and_jobs_end_once(
    spec: str, world: tuple[Trace, Snapshot], broken: FailureModel | None, seed: int
) -> None:
    jobs, place = world
    holds(played(jobs, place, spec, failures=broken, seed=seed, serial_milli=50))


@pytest.mark.parametrize("spec", BASELINES)
@given(world=worlds(shares=False))
@QUICK
def test_no_baseline_starts_what_the_verifier_forbids(
    spec: str, world: tuple[Trace, Snapshot]
) -> None:
    jobs, place = world
    holds(played(jobs, place, spec, checked=True))


@given(world=worlds(shares=False), broken=failures)
@settings(QUICK, max_examples=15)
def test_plans_of_the_solver_are_carried_out(
    world: tuple[Trace, Snapshot], broken: FailureModel | None
) -> None:
    """`solve` hands out verified plans only; the engine's own judge must agree with each."""
    jobs, place = world
    engine = played(jobs, place, "trencadis", failures=broken)
    holds(engine)
    assert story(engine) == story(played(jobs, place, "trencadis", failures=broken))


@pytest.mark.parametrize("spec", ["priority", "volcano+kill", "fgd", "best-fit+no-gang"])
@given(world=worlds(), broken=failures, seed=st.integers(0, 5))
@settings(QUICK, max_examples=15)
def test_the_same_seed_gives_the_same_replay(
    spec: str, world: tuple[Trace, Snapshot], broken: FailureModel | None, seed: int
) -> None:
    jobs, place = world
    twice = [played(jobs, place, spec, failures=broken, seed=seed) for _ in range(2)]
    assert story(twice[0]) == story(twice[1])
    assert twice[0].samples == twice[1].samples


@given(world=worlds(shares=False))
@settings(QUICK, max_examples=40)
def test_nobody_idles_who_fits(world: tuple[Trace, Snapshot]) -> None:
    """Best fit leaves nobody waiting who fits: while all waits, somebody runs or nobody can."""
    jobs, place = world
    engine = played(jobs, place, "best-fit")
    assert not engine.stalled
    assert all(run.state in OVER for run in engine.runs)


