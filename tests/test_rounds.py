"""Promises over many rounds: nobody starves, surplus is shared by weight, nothing flutters."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import build as b
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rounds import REPEATABLE, Rounds
from test_preempt import contested

from trencadis.models import Plan, Queue, Snapshot, Tier
from trencadis.solver.round import solve

HOUR = 3_600
SETTINGS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TIERS = (Tier(name="high", weight=16), Tier(name="normal", weight=4), Tier(name="low"))


class Stream:
    """Jobs without end: keeps a queue's backlog at so many jobs."""

    def __init__(self, queue: str, gpus: int, hours: int, backlog: int, **fields: object) -> None:
        self.queue, self.gpus, self.backlog, self.fields = queue, gpus, backlog, fields
        self.work = timedelta(hours=hours)
        self._numbers = count()

    def fill(self, rounds: Rounds) -> None:
        """Brings the backlog up to its number."""
        waiting = sum(
            job.queue == self.queue and job.state == "pending" for job in rounds.now.jobs
        )
        missing = self.backlog - waiting
        jobs = [
            b.job(
                f"{self.queue}-{next(self._numbers)}",
                self.gpus,
                queue=self.queue,
                submit=rounds.now.now - timedelta(seconds=missing - i),
                **self.fields,
            )
            for i in range(missing)
        ]
        rounds.add(jobs, self.work)


@settings(SETTINGS, max_examples=6)
@given(
    guarantee=st.sampled_from([1, 2, 4]),
    gpus=st.sampled_from([1, 2]),
    hours=st.integers(1, 5),
    tier=st.sampled_from(["normal", "low"]),
)
def test_a_guaranteed_queue_starts_its_jobs_under_an_endless_stream_of_high_ones(
    guarantee: int, gpus: int, hours: int, tier: str
) -> None:
    gpus = min(gpus, guarantee)
    rounds = Rounds(
        b.snapshot(
            b.nodes(2, 4),
            b.queue("rich", weight=100),
            b.queue("poor", guarantee=guarantee),
            tiers=TIERS,
            promote_after_seconds=None,
        )
    )
    rich = Stream("rich", 1, hours, 12, priority="high")
    for _ in range(3):
        rich.fill(rounds)
        rounds.step(HOUR)
    mine = [
        b.job(f"mine{i}", gpus, queue="poor", priority=tier, submit=rounds.now.now)
        for i in range(3)
    ]
    began = rounds.now.now
    rounds.add(mine, timedelta(hours=2))
    for _ in range(20):
        rich.fill(rounds)
        rounds.step(HOUR)
    starts = [rounds.started[job.name] - began for job in mine]
    # One after the other at worst: a victim's minimum runtime and grace, then two hours of work.
    assert max(starts) <= timedelta(hours=4 * len(mine))


@settings(SETTINGS, max_examples=8)
@given(
    hours=st.integers(1, 3),
    gpus=st.sampled_from([1, 2, 4]),
    tier=st.sampled_from([1, 2]),
    weight=st.sampled_from([1, 10]),
)
def test_with_promotion_every_job_starts(hours: int, gpus: int, tier: int, weight: int) -> None:
    """Promoted to the top, it needs at most ten times the weight of those who wait there less: the
    part of its queue beyond its entitlement counts a tenth, and age has no bound."""
    rounds = Rounds(
        b.snapshot(
            b.nodes(2, 4),
            b.queue("rich", weight=weight),
            b.queue("poor"),
            tiers=TIERS,
            promote_after_seconds=4 * HOUR,
            aging_seconds=HOUR,
        )
    )
    rich = Stream("rich", 1, hours, 12, priority="high")
    rich.fill(rounds)
    rounds.step(HOUR)
    job = b.job("mine", gpus, queue="poor", priority=TIERS[tier].name, submit=rounds.now.now)
    rounds.add([job], timedelta(hours=2))
    # Others wait until 12 of them have had 8 GPUs.
    longest = 4 * tier + 10 * (1 + 2 * hours)
    for _ in range(longest):
        rich.fill(rounds)
        rounds.step(HOUR)
        if "mine" in rounds.started:
            return
    raise AssertionError(f"it has waited for {longest} hours")


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 1), (1, 2, 4)])
@pytest.mark.parametrize("gpus", [1, 2])
def test_surplus_is_shared_by_weight(weights: tuple[int, ...], gpus: int) -> None:
    named = {f"q{i}": weight for i, weight in enumerate(weights)}
    queues = [Queue(name=name, weight=weight) for name, weight in named.items()]
    world = Rounds(b.snapshot(b.nodes(2, 7 * gpus), queues, tiers=TIERS))
    streams = [Stream(name, gpus, 2, 16) for name in named]
    for _ in range(100):
        for stream in streams:
            stream.fill(world)
        world.step(HOUR)
    used = {name: world.gpu_seconds[name] / HOUR for name in named}
    total = sum(used.values())
    assert total == 14 * gpus * 100
    for name, weight in named.items():
        fair = total * weight / sum(weights)
        # The largest job has its GPUs for two hours.
        assert abs(used[name] - fair) <= max(0.05 * fair, 2 * gpus), used


def test_a_queue_that_was_away_gets_its_share_back_and_starves_nobody() -> None:
    """It is entitled to 8 * w' / (w' + w'') GPUs, w' = 2 * S / (S + V): 6 of 8 if the other one
    has used everything so far, and less and less as it gets its own."""
    queues = [Queue(name="here"), Queue(name="away")]
    world = Rounds(b.snapshot(b.nodes(2, 4), queues, tiers=TIERS))
    here, away = Stream("here", 1, 2, 10), Stream("away", 1, 2, 10)
    for _ in range(48):
        here.fill(world)
        world.step(HOUR)
    assert world.gpu_seconds["here"] == 48 * 8 * HOUR
    latest = world.now.now
    for _ in range(96):
        here.fill(world)
        away.fill(world)
        world.step(HOUR)
        assert _in_use(world, "away") <= 6
        if any(job.queue == "here" and job.state == "running" for job in world.now.jobs):
            latest = world.now.now
        assert world.now.now - latest <= timedelta(hours=4)
    back = world.gpu_seconds["away"] / (96 * 8 * HOUR)
    assert 0.5 <= back <= 0.75


def _in_use(world: Rounds, queue: str) -> int:
    return sum(
        len(job.allocation) * job.request.gpus
        for job in world.now.jobs
        if job.queue == queue and job.on_nodes
    )


# stillness


@settings(SETTINGS, max_examples=40)
@given(contested())
def test_the_length_of_a_round_changes_no_decision(snapshot: Snapshot) -> None:
    def decide(seconds: int) -> Plan:
        policy = snapshot.policy.model_copy(update={"round_seconds": seconds})
        plan = solve(snapshot.model_copy(update={"policy": policy}), REPEATABLE)
        return plan.model_copy(update={"snapshot": ""})

    assert decide(30) == decide(60) == decide(300)


@settings(SETTINGS, max_examples=25)
@given(contested())
def test_in_ten_rounds_with_nothing_new_no_job_is_preempted_twice(snapshot: Snapshot) -> None:
    rounds = Rounds(snapshot)
    for _ in range(10):
        rounds.step(60)
    assert max(rounds.preempted.values(), default=0) <= 1
