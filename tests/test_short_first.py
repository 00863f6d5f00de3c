"""Short jobs first: what the policy's `short_first_seconds` does to weights, rounds and replays."""

from __future__ import annotations

import pytest
from build import job, node, snapshot
from replay_world import cluster, entry, first_starts, played, trace

from trencadis.models import Snapshot
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify
from trencadis.solver.worth import weight_milli

HOUR = 3_600
OPTIONS = Options(time_limit_s=5, deterministic=True)


def one_place(**policy: object) -> Snapshot:
    """Room for one of two equal jobs, of ten hours and of one; `long` comes first by name."""
    return snapshot(
        node("n", 8),
        job("long", 8, runtime_seconds=10 * HOUR),
        job("short", 8, runtime_seconds=HOUR),
        job("unknown", 8),
        **policy,
    )


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (None, {"long": 1_000, "short": 1_000, "unknown": 1_000}),
        (HOUR // 2, {"long": 1_000, "short": 1_000, "unknown": 1_000}),
        (5 * HOUR, {"long": 1_000, "short": 5_000, "unknown": 1_000}),
        (100 * HOUR, {"long": 10_000, "short": 100_000, "unknown": 1_000}),
        (10_000 * HOUR, {"long": 1_000_000, "short": 1_000_000, "unknown": 1_000}),
    ],
)
def test_weights_are_in_inverse_proportion_to_runtimes(
    span: int | None, expected: dict[str, int]
) -> None:
    snap = one_place(short_first_seconds=span)
    assert {j.name: weight_milli(snap.policy, j) for j in snap.jobs} == expected


def test_the_short_job_starts_and_the_verifier_agrees_on_the_cost() -> None:
    snap = one_place(short_first_seconds=100 * HOUR)
    plan = solve(snap, OPTIONS)
    assert [start.job for start in plan.starts] == ["short"]
    verdict = verify(snap, plan)
    assert not verdict.violations


def test_a_long_job_that_waited_goes_before_a_short_one() -> None:
    """Ten times the runtime is made up for by waits: 4 hours count once, 40 hours ten times."""
    place = cluster(short_first_seconds=100 * HOUR, promote_after_seconds=None)
    late = trace(
        entry("first", 0, 39 * HOUR, 4),
        entry("long", 0, 10 * HOUR, 4),
        entry("short", 39 * HOUR - 600, HOUR, 4),
    )
    # `long` is the shorter of the two at 0; at 10 h it is over, and `first` runs until 49 h.
    starts = first_starts(played(late, place, "trencadis"))
    assert starts["long"] < starts["first"] < starts["short"]


def test_the_mean_wait_falls_to_that_of_shortest_first() -> None:
    """Four jobs at once, the longest named first: the shortest go first and wait 0, 1, 3, 7 h."""
    jobs = trace(*(entry(f"j{n}", 0, hours * HOUR, 4) for n, hours in enumerate((8, 4, 2, 1))))
    place = cluster(short_first_seconds=100 * HOUR)
    starts = first_starts(played(jobs, place, "trencadis"))
    assert starts == {"j3": 0, "j2": HOUR, "j1": 3 * HOUR, "j0": 7 * HOUR}
