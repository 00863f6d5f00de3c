"""Reservations: the heaviest waiting job gets nodes and a time, and backfill doesn't delay it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import build as b
import pytest
from exact import EXACT, assert_exact
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.reserves import earliest
from rounds import Rounds

from trencadis.models import Job, Preemption, Segments, Snapshot, Window
from trencadis.models.plan import Reserve
from trencadis.solver.explain.explain import explain
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

HOUR = 3_600


def case_10() -> Snapshot:
    """Two nodes of 8. A and B run until t+60 min, 4 GPUs are idle; BIG wants both nodes."""
    return b.snapshot(
        b.nodes(2, 8),
        b.running("A", b.at("n1", *range(8)), ran=60, runtime_seconds=HOUR + 60),
        b.running("B", b.at("n2", *range(4)), ran=60, runtime_seconds=HOUR + 60),
        b.job("BIG", 8, 2, waited=3, runtime_seconds=HOUR),
        b.job("S1", 4, waited=2, runtime_seconds=1_800),
        b.job("S2", 4, waited=1, runtime_seconds=7_200),
        reservations=1,
    )


def after(seconds: int) -> datetime:
    return b.NOW + timedelta(seconds=seconds)


def where(entry: Reserve) -> list[str]:
    return [task.node for task in entry.allocation]


def test_case_10_reservation_and_backfill() -> None:
    snap = case_10()
    plan = solve(snap)
    (big,) = plan.reserves
    assert (big.job, big.at, where(big)) == ("BIG", after(HOUR), ["n1", "n2"])
    assert [start.job for start in plan.starts] == ["S1"]
    codes = {entry.job: entry.code for entry in plan.pending}
    assert codes["S2"] == "reservation"
    assert plan.proof.status == "OPTIMAL"


def test_without_the_short_job_the_long_one_still_waits() -> None:
    snap = case_10()
    snap = snap.model_copy(update={"jobs": tuple(j for j in snap.jobs if j.name != "S1")})
    plan = solve(snap)
    assert not plan.starts
    assert [entry.job for entry in plan.reserves] == ["BIG"]
    (why,) = [entry for entry in plan.pending if entry.job == "S2"]
    assert why.code == "reservation"
    assert "would delay BIG" in why.sentence
    assert why.evidence["at"] == after(HOUR).isoformat()
    report = explain(snap, plan, ["S2", "BIG"])
    assert report.jobs[0].code == "reservation"
    assert plan.proof.status == "OPTIMAL"


@pytest.mark.parametrize("due", [True, False])
@pytest.mark.parametrize(
    ("wishes", "nodes"),
    [
        ({"required": "leaf"}, ("n1", "n2")),
        ({"segments": Segments(tasks=2, level="leaf")}, ("n1", "n2")),
        ({"max_tasks_per_node": 1}, ("n2", "n2")),
    ],
)
def test_a_promise_that_suits_no_more_keeps_nobody_away(
    due: bool, wishes: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    """Since it was made, the job has come to ask for something else."""
    gpus = 8 if len(set(nodes)) > 1 else 4
    snap = b.snapshot(
        b.node("n1", 8, fabric=("a",)),
        b.node("n2", 8, fabric=("b",)),
        b.node("n3", 8, fabric=("b",)),
        b.running("A", b.at("n1", *range(8)), ran=60, runtime_seconds=HOUR + 60),
        b.running("B", b.at("n3", *range(8)), ran=60, runtime_seconds=HOUR + 60),
        b.job("BIG", gpus, 2, waited=3, runtime_seconds=HOUR, **wishes),
        b.hold(
            "BIG", *(b.somewhere(node) for node in nodes), kind="reservation",
            at=after(-10 if due else HOUR),
        ),
        levels=("leaf",),
        reservations=1,
    )
    (big,) = solve(snap).reserves
    assert big.at == after(HOUR)
    assert sorted(where(big)) != sorted(nodes)


@pytest.mark.parametrize(
    ("wishes", "nodes"),
    [({"required": "leaf"}, ("n1", "n2")), ({"max_tasks_per_node": 1}, ("n1", "n1"))],
)
def test_a_due_promise_that_suits_no_more_lets_others_start(
    wishes: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    gpus = 8 if len(set(nodes)) > 1 else 4
    snap = b.snapshot(
        b.node("n1", 8, fabric=("a",)),
        b.node("n2", 8, fabric=("b",)),
        b.running("A", b.at("n2", *range(8)), ran=60, runtime_seconds=HOUR + 60),
        b.job("BIG", gpus, 2, waited=3, runtime_seconds=HOUR, **wishes),
        b.job("S", 8, waited=2, runtime_seconds=9 * HOUR),
        b.hold("BIG", *(b.somewhere(node) for node in nodes), kind="reservation", at=after(-10)),
        levels=("leaf",),
    )
    assert [start.job for start in solve(snap).starts] == ["S"]


@st.composite
def loaded(draw: st.DrawFn) -> Snapshot:
    """A small cluster with work that ends, gangs that wait, and small jobs that could fill in."""
    count = draw(st.integers(1, 3))
    racks = draw(st.booleans())
    nodes = [
        b.node(
            f"n{i}",
            4,
            cpu_milli=4_000,
            fabric=(f"leaf{i // 2}",) if racks else (),
            maintenance=draw(st.sampled_from([(), (), (), (out(1_800, 5_400),)])),
        )
        for i in range(count)
    ]
    runtimes = st.sampled_from([600, 1_800, HOUR, 2 * HOUR, 4 * HOUR, None])
    jobs = []
    for i in range(count):
        free = 0
        for part in range(draw(st.integers(0, 2))):
            gpus = draw(st.integers(1, 4 - free)) if free < 4 else 0
            if gpus:
                where = b.at(f"n{i}", *range(free, free + gpus))
                jobs.append(
                    b.running(f"r{i}{part}", where, ran=60, runtime_seconds=draw(runtimes))
                )
                free += gpus
    for i in range(draw(st.integers(1, 4))):
        tasks = draw(st.integers(1, 2))
        paired = racks and tasks == 2 and draw(st.integers(0, 3)) == 0
        jobs.append(
            b.job(
                f"w{i}",
                draw(st.sampled_from([1, 2, 4])),
                tasks,
                waited=draw(st.sampled_from([0, 60, HOUR])),
                priority=draw(st.sampled_from(["normal", "normal", "low", "high"])),
                required=draw(st.sampled_from([None, None, "leaf"])) if racks else None,
                runtime_seconds=draw(runtimes),
                cpu_milli=draw(st.sampled_from([0, 0, 1_000, 3_000])),
                min_tasks=None if paired else draw(st.sampled_from([None, None, 1])),
                max_tasks_per_node=draw(st.sampled_from([None, None, 1])),
                segments=Segments(tasks=2, level="leaf") if paired else None,
            )
        )
    holds = []
    if draw(st.booleans()):
        waiting = draw(st.sampled_from([j for j in jobs if j.state == "pending"]))
        where = draw(st.lists(st.sampled_from(nodes), min_size=waiting.minimum))
        holds = [
            b.hold(
                waiting.name,
                *(b.somewhere(node.name) for node in where[: waiting.minimum]),
                kind="reservation",
                at=after(draw(st.sampled_from([-60, 0, 600, HOUR]))),
            )
        ]
    return b.snapshot(
        nodes,
        jobs,
        holds,
        b.queue(b.MAIN, guarantee=draw(st.sampled_from([None, 2, 6]))),
        levels=("leaf",) if racks else (),
        reservations=draw(st.integers(1, 2)),
        runtime_unknown=draw(st.sampled_from(["hold", "queue_median"])),
        preemption=Preemption(mode=draw(st.sampled_from(["none", "none", "graceful"]))),
    )


def out(start: int, end: int) -> Window:
    return Window(start=after(start), end=after(end))


SETTINGS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@settings(SETTINGS, max_examples=150)
@given(loaded())
def test_with_reservations_the_round_is_still_the_best_there_is(snap: Snapshot) -> None:
    """Brute force, told what is reserved, finds no better plan, and no earlier reservation."""
    plan = solve(snap, EXACT)
    assert verify(snap, plan).violations == ()
    moved = any(resize.remove for resize in plan.resizes)
    if not plan.reserves or moved:
        return
    first = plan.reserves[0]
    assert earliest(snap, plan) == int(first.at.timestamp())
    if snap.policy.preemption.mode == "none":
        assert_exact(snap, plan, {})


class World(Rounds):
    """Rounds in which jobs run just as long as they say."""

    def add(self, jobs: Iterable[Job], work: timedelta | None = None) -> None:
        more = tuple(jobs)
        super().add(more, work)
        self.left |= {j.name: timedelta(seconds=j.runtime_seconds or 10**9) for j in more}


def crowded(reservations: int, stagger: list[int]) -> World:
    """Eight GPUs, all taken by one-GPU jobs that end at different times, and a stream of more."""
    world = World(
        b.snapshot(
            b.nodes(2, 4),
            b.queue(b.MAIN),
            reservations=reservations,
            promote_after_seconds=None,
            preemption=Preemption(mode="none"),
        )
    )
    world.add(
        b.job(f"first{i}", 1, waited=1, runtime_seconds=hours * HOUR)
        for i, hours in enumerate(stagger)
    )
    return world


def rounds_until_big_starts(world: World, hours: list[int], most: int) -> int | None:
    """Hours that a gang over both nodes waits, with eight younger jobs always waiting as well."""
    numbers = count()
    world.step(HOUR)
    # Older than all that come now: among equals, the round may choose.
    came = world.now.now - timedelta(seconds=1)
    world.add([b.job("BIG", 4, 2, submit=came, runtime_seconds=HOUR)])
    promise: datetime | None = None
    for passed in range(most):
        waiting = sum(job.state == "pending" for job in world.now.jobs)
        world.add(
            b.job(
                f"s{(n := next(numbers))}",
                1,
                submit=world.now.now,
                runtime_seconds=hours[n % len(hours)] * HOUR,
            )
            for _ in range(9 - waiting)
        )
        plan = world.step(HOUR)
        if "BIG" in world.started:
            return passed
        for entry in plan.reserves:
            # Backfilled jobs never move it.
            assert promise is None or entry.at <= promise
            promise = entry.at
    return None


@settings(SETTINGS, max_examples=15)
@given(
    stagger=st.lists(st.integers(1, 5), min_size=8, max_size=8),
    hours=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_a_big_gang_starts_when_those_that_run_have_ended(
    stagger: list[int], hours: list[int]
) -> None:
    """Under an endless stream of small jobs, at the latest when the last of those has ended that
    ran as it came; and not a round later."""
    waited = rounds_until_big_starts(crowded(1, stagger), hours, 12)
    assert waited is not None
    assert waited == max(stagger) - 1


def test_without_reservations_it_starves() -> None:
    stagger = [1, 2, 3, 4, 1, 2, 3, 4]
    assert rounds_until_big_starts(crowded(0, stagger), [2, 3], 40) is None
    assert rounds_until_big_starts(crowded(1, stagger), [2, 3], 40) == 3


def test_a_runtime_beyond_the_last_instant_is_one_without_an_end() -> None:
    forever = 1_000_000_000
    late = datetime(9999, 12, 31, 23, tzinfo=b.NOW.tzinfo)
    begun = b.running("r", b.at("n1", 0), runtime_seconds=forever)
    waits = b.job("x", 2, submit=b.NOW, runtime_seconds=forever)
    snapshot = b.snapshot(
        b.node("n1", 2), begun.model_copy(update={"start": late}), waits, now=late, reservations=2
    )
    assert verify(snapshot, solve(snapshot, EXACT)).violations == ()
