"""Each policy on cases that are worked out by hand."""

from __future__ import annotations

import pytest
from build import node, queue, snapshot
from replay_world import ZERO, cluster, entry, first_starts, played, trace

from trencadis.models import Checkpoint, Share
from trencadis.models.jobs import Request
from trencadis.whatif.policies.size_queues import shares

QUICK = {"min_runtime_seconds": 0, "grace_seconds": 30, "restart_seconds": 10}


def test_fifo_waits_behind_its_head() -> None:
    """a has 3 of 4 GPUs until 100; b needs 4; c would fit beside a, but came later."""
    jobs = trace(entry("a", 0, 100, 3), entry("b", 10, 50, 4), entry("c", 20, 10, 1))
    assert first_starts(played(jobs, cluster())) == {"a": 0, "b": 100, "c": 150}


def test_easy_backfills_who_ends_before_the_head_starts() -> None:
    """b is reserved for 100: c (until 90) may go before it, d (until 110) may not."""
    jobs = trace(
        entry("a", 0, 100, 3),
        entry("b", 10, 50, 4),
        entry("d", 20, 90, 1),
        entry("c", 30, 60, 1),
    )
    starts = first_starts(played(jobs, cluster(), "backfill"))
    assert starts == {"a": 0, "b": 100, "c": 30, "d": 150}


def test_easy_lets_a_long_job_use_what_the_head_leaves_over() -> None:
    """b needs 3 of the 4 GPUs at 100; the fourth is nobody's: c may keep it for long."""
    jobs = trace(entry("a", 0, 100, 3), entry("b", 10, 50, 3), entry("c", 20, 1_000, 1))
    assert first_starts(played(jobs, cluster(), "backfill")) == {"a": 0, "b": 100, "c": 20}


def test_easy_counts_the_spare_gpu_once() -> None:
    """Of two long jobs only the first gets the GPU that the head leaves over."""
    jobs = trace(
        entry("a", 0, 100, 2),
        entry("b", 10, 50, 3),
        entry("c", 20, 1_000, 1),
        entry("d", 21, 1_000, 1),
    )
    starts = first_starts(played(jobs, cluster(), "backfill"))
    assert starts == {"a": 0, "b": 100, "c": 20, "d": 150}


def test_easy_looks_at_nodes_not_at_sums() -> None:
    """b needs a whole node. n1 frees up at 200, n2 at 100: c, until 150, must not sit on n2."""
    jobs = trace(
        entry("a", 0, 200, 3),
        entry("x", 0, 100, 3),
        entry("b", 10, 50, 4),
        entry("c", 20, 130, 1),
    )
    engine = played(jobs, cluster(2), "backfill")
    assert first_starts(engine) == {"a": 0, "x": 0, "b": 100, "c": 20}
    # Beside a on n1; best fit alone might have chosen either.
    assert engine.by_name["c"].end == ZERO + 150


def test_easy_reserves_only_for_the_head() -> None:
    """c would fit only if d, which came later, waited: EASY doesn't promise it anything."""
    jobs = trace(
        entry("a", 0, 100, 3),
        entry("b", 10, 50, 4),
        entry("c", 11, 50, 2),
        entry("d", 20, 60, 1),
    )
    starts = first_starts(played(jobs, cluster(), "backfill"))
    assert starts == {"a": 0, "b": 100, "c": 150, "d": 20}


def test_easy_fills_by_estimates_not_by_what_happens() -> None:
    """c says 200 s and takes 10: its word counts, so it waits for b."""
    jobs = trace(
        entry("a", 0, 100, 3),
        entry("b", 10, 50, 4),
        entry("c", 20, 10, 1, runtime_seconds=200),
    )
    assert first_starts(played(jobs, cluster(), "backfill"))["c"] == 150


def test_the_head_starts_no_later_under_easy_than_without_backfill() -> None:
    """With honest estimates nobody delays the first waiting job."""
    jobs = trace(
        entry("a", 0, 100, 2, 2),
        entry("b", 10, 50, 4, 2),
        *(entry(f"s{i}", 20 + i, 37 * (i + 1), 1) for i in range(6)),
    )
    starts = first_starts(played(jobs, cluster(2), "backfill"))
    # A gang over two nodes under one leaf runs 3 % longer: ceil(100 / 0.97) = 104.
    assert starts["b"] == first_starts(played(jobs, cluster(2), "fifo"))["b"]


def test_best_fit_starts_whoever_fits() -> None:
    jobs = trace(entry("a", 0, 100, 3), entry("b", 10, 50, 4), entry("c", 20, 500, 1))
    assert first_starts(played(jobs, cluster(), "best-fit")) == {"a": 0, "b": 520, "c": 20}


def test_a_high_job_stops_a_low_one_with_grace() -> None:
    """low is told at 50, leaves at 80 with nothing saved since its start; high runs 80 to 90.

    low restarts at 90 after 10 s, and has all its 100 s before it: done at 200.
    """
    place = cluster(preemption=QUICK)
    jobs = trace(entry("low", 0, 100, 4, priority="low"), entry("high", 50, 10, 4, priority="high"))
    engine = played(jobs, place, "priority")
    low, high = engine.by_name["low"], engine.by_name["high"]
    assert high.first_start == ZERO + 80
    assert low.end == ZERO + 200
    assert (low.preemptions, low.starts) == (1, 2)
    gpus = 4 * 1_000_000
    assert low.spent.rework == 50 * gpus
    assert low.spent.grace == 30 * gpus
    assert low.spent.restart == 10 * gpus
    assert low.spent.useful == 100 * gpus


@pytest.mark.parametrize(
    ("checkpoint", "lost"),
    [
        (Checkpoint(on_signal=True), 0),
        (Checkpoint(interval_seconds=20), 10),
        (Checkpoint(interval_seconds=50), 0),
        (None, 50),
    ],
)
def test_a_victim_loses_what_it_did_since_its_checkpoint(
    checkpoint: Checkpoint | None, lost: int
) -> None:
    jobs = trace(
        entry("low", 0, 100, 4, priority="low", checkpoint=checkpoint),
        entry("high", 50, 10, 4, priority="high"),
    )
    engine = played(jobs, cluster(preemption=QUICK), "priority")
    assert engine.by_name["low"].spent.rework == lost * 4_000_000


def test_without_grace_the_gpus_are_free_at_once_and_nothing_is_saved() -> None:
    jobs = trace(
        entry("low", 0, 100, 4, priority="low", checkpoint=Checkpoint(on_signal=True)),
        entry("high", 50, 10, 4, priority="high"),
    )
    engine = played(jobs, cluster(preemption=QUICK), "priority+kill")
    assert engine.by_name["high"].first_start == ZERO + 50
    assert engine.by_name["low"].spent.rework == 50 * 4_000_000
    assert engine.by_name["low"].spent.grace == 0


def test_nobody_is_stopped_in_vain() -> None:
    """high needs 8 GPUs on a node of 4: no victim would help."""
    place = snapshot(
        node("n1", 8, nvswitch=True), node("n2", 4, nvswitch=True), queue("main"), preemption=QUICK
    )
    jobs = trace(
        entry("keep", 0, 500, 8, priority="high", preemptible=False),
        entry("low", 0, 100, 4, priority="low"),
        entry("high", 50, 10, 8, priority="high"),
    )
    engine = played(jobs, place, "priority")
    assert engine.by_name["low"].preemptions == 0
    assert first_starts(engine)["high"] == 500


def test_the_cheapest_victim_goes() -> None:
    """Of two equal jobs the one that wrote a checkpoint 10 s ago is stopped, not the other."""
    jobs = trace(
        entry("dear", 0, 500, 2, priority="low"),
        entry("cheap", 0, 500, 2, priority="low", checkpoint=Checkpoint(interval_seconds=40)),
        entry("high", 50, 10, 2, priority="high"),
    )
    engine = played(jobs, cluster(preemption=QUICK), "priority")
    assert engine.by_name["dear"].preemptions == 0
    assert engine.by_name["cheap"].preemptions == 1


def test_volcano_reclaims_only_what_a_queue_has_above_its_share() -> None:
    """Equal queues share 4 GPUs: red has them all in jobs of 2; blue gets 2 back, not 4."""
    place = snapshot(node("n1", 4), queue("red"), queue("blue"), preemption=QUICK)
    jobs = trace(
        entry("r1", 0, 1_000, 2, queue="red"),
        entry("r2", 0, 1_000, 2, queue="red"),
        entry("b1", 100, 50, 2, queue="blue"),
        entry("b2", 100, 50, 2, queue="blue"),
    )
    engine = played(jobs, place, "volcano")
    stopped = [run.name for run in engine.runs if run.preemptions]
    assert len(stopped) == 1
    assert stopped[0].startswith("r")
    assert first_starts(engine)["b1"] == 130


def test_volcano_gives_idle_gpus_to_elastic_jobs() -> None:
    """e may run with 1 of 4 tasks: it gets all four, and ends four times as early."""
    jobs = trace(entry("e", 0, 100, 1, 4, min_tasks=1, communicates=False))
    assert played(jobs, cluster(), "volcano").by_name["e"].end == ZERO + 100
    assert played(jobs, cluster(), "best-fit").by_name["e"].end == ZERO + 400


def test_size_queues_keep_small_jobs_off_the_nodes_of_large_ones() -> None:
    """A node each by the GPU-seconds of the classes: ten small jobs share one of them."""
    jobs = trace(
        *(entry(f"s{i}", 0, 100, 1) for i in range(10)),
        entry("big", 1, 250, 4),
    )
    starts = first_starts(played(jobs, cluster(2), "size-queues"))
    assert starts["big"] == 1
    assert sorted(v for k, v in starts.items() if k != "big") == [0] * 4 + [100] * 4 + [200] * 2


@pytest.mark.parametrize(
    ("total", "weights", "least", "expected"),
    [
        (8, [1, 1, 2], [1, 1, 1], [2, 2, 4]),
        (8, [0, 0, 1], [0, 0, 4], [0, 0, 8]),
        (4, [98, 1, 1], [1, 1, 2], [1, 1, 2]),
        (2, [1, 1, 1], [1, 1, 4], [1, 1, 0]),
    ],
)
def test_partitions(
    total: int, weights: list[int], least: list[int], expected: list[int]
) -> None:
    found = shares(total, weights, least)
    assert sum(found) == total
    assert found == expected or total < sum(least)


def test_fgd_keeps_a_node_whole_for_the_jobs_that_need_one() -> None:
    """Half a GPU is in use on n1. Most tasks are of 4 GPUs: the next half goes there as well."""
    place = snapshot(
        *(node(f"n{i}", 4, nvswitch=True, shareable=True, max_jobs_per_gpu=4) for i in (1, 2)),
        queue("main"),
    )
    half = Request(share=Share(gpu_milli=500))
    jobs = trace(
        entry("h1", 0, 1_000, request=half),
        entry("h2", 10, 1_000, request=half),
        *(entry(f"w{i}", 20, 100, 4) for i in range(2)),
    )
    assert first_starts(played(jobs, place, "fgd")) == {"h1": 0, "h2": 10, "w0": 20, "w1": 120}


def test_without_gangs_jobs_hold_gpus_and_wait_for_each_other() -> None:
    """Two gangs of 4 arrive where 3 GPUs are free, later all 4: tasks sit idle meanwhile."""
    jobs = trace(
        entry("a", 0, 100, 1),
        entry("g", 10, 50, 1, 4),
    )
    with_gangs = played(jobs, cluster(), "best-fit")
    without = played(jobs, cluster(), "best-fit+no-gang")
    assert with_gangs.by_name["g"].spent.gang_wait == 0
    assert without.by_name["g"].spent.gang_wait == 3 * 90 * 1_000_000
    assert first_starts(without) == first_starts(with_gangs) == {"a": 0, "g": 100}


def test_trencadis_starts_whoever_fits() -> None:
    jobs = trace(entry("a", 0, 100, 3), entry("b", 10, 50, 4), entry("c", 20, 10, 1))
    assert first_starts(played(jobs, cluster(), "trencadis")) == {"a": 0, "b": 100, "c": 20}


def test_rounds_are_apart_and_only_after_a_change() -> None:
    """b arrives 10 s after the round at 0: the next is at 300. c comes long after: at once."""
    jobs = trace(entry("a", 0, 5_000, 1), entry("b", 10, 5_000, 1), entry("c", 1_000, 10, 1))
    engine = played(jobs, cluster(), round_seconds=300)
    assert first_starts(engine) == {"a": 0, "b": 300, "c": 1_000}
    # Then a round when c ends, but not before 1,300; and when a does. b's end is the last.
    assert [sample.at - ZERO for sample in engine.samples] == [0, 300, 1_000, 1_300, 5_000]


def test_a_gang_is_slowed_by_its_fabric_and_a_model_by_its_speed() -> None:
    """Two nodes under a leaf cost 3 %: 97 s of work take 100. Half the speed doubles it."""
    far = trace(entry("g", 0, 97, 4, 2))
    assert played(far, cluster(2)).by_name["g"].end == ZERO + 100
    slow = cluster(gpu_speed_milli={"H100": 500})
    assert played(trace(entry("s", 0, 97, 4)), slow).by_name["s"].end == ZERO + 194
