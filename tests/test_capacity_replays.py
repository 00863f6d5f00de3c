"""Capacity by replays: against replaying every size, neighbours, seeds, the command."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from command import Program

from trencadis.instances.traces.read import read_trace
from trencadis.models import Snapshot
from trencadis.models.trace import Trace
from trencadis.whatif.capacity import replays
from trencadis.whatif.capacity.offers import Mix, rented
from trencadis.whatif.capacity.replays import (
    ReplaySearch,
    Trial,
    cheapest_replayed,
    dealt_anew,
    measured,
)
from trencadis.whatif.capacity.target import targets
from trencadis.whatif.clusters import cluster_of
from trencadis.whatif.prices import example_prices
from trencadis.whatif.replay import replay

ROWS = "".join(
    f"2026-01-01T{hour:02}:00:00Z,{1_800 + 700 * (hour % 5)},{(8, 4, 2, 16, 1)[hour % 5]}\n"
    for hour in range(20)
)
CSV = "submit,seconds,gpus\n" + ROWS
KINDS = ("h100-8", "a100-8")
MOST = 8


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    file = tmp_path / "jobs.csv"
    file.write_text(CSV)
    return read_trace(file).shaped_for(8)


def cluster(kinds: tuple[str, ...], mix: Mix) -> Snapshot:
    nodes = {kind: count for kind, count in zip(kinds, mix, strict=True) if count}
    return cluster_of(nodes, example_prices())


def searched(trace: Trace, text: str, kinds: tuple[str, ...] = KINDS[:1], **more: object) -> (
    ReplaySearch
):
    offers, _ = rented(cluster_of({}, example_prices()), kinds, example_prices(), None, MOST)
    fixed = {"policy": "backfill", "processes": 1, "neighbours": MOST}
    return ReplaySearch(
        trace=trace,
        offers=tuple(offers),
        targets=targets([text], trace=True),
        cluster=partial(cluster, kinds),
        **{**fixed, **more},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("text", ["p95_wait<10m", "mean_wait<1h", "p95_wait<=0s", "unfinished==0"])
def test_the_fewest_nodes_are_those_of_replaying_every_size(trace: Trace, text: str) -> None:
    wanted = searched(trace, text)
    met = []
    for count in range(1, MOST + 1):
        done = replay(trace, wanted.cluster((count,)), "backfill")
        (target,) = wanted.targets
        if target.met(measured(done, wanted.targets)[target.measure]):
            met.append(count)
    found = cheapest_replayed(wanted)
    assert found.complete
    assert (found.best.mix if found.best else None) == ((met[0],) if met else None)


def test_jobs_that_never_start_wait_for_ever(trace: Trace) -> None:
    """On one node the gangs of 16 GPUs can't run: no quantile that holds them is finite."""
    wanted = searched(trace, "mean_wait<1h")
    done = replay(trace, wanted.cluster((1,)), "backfill")
    assert measured(done, wanted.targets)["mean_wait"] == float("inf")


def test_neighbours_find_what_halving_passes_by(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three nodes meet the target, four and five don't, six do: halving ends at six."""
    works = {3, 6, 7, 8}

    def fake(_: object, mix: Mix) -> list[object]:
        return [replay(trace, cluster(KINDS[:1], (8 if sum(mix) in works else 1,)), "fifo")]

    monkeypatch.setattr(replays._Searcher, "_replayed", fake)
    monkeypatch.setattr(replays._Searcher, "_load", lambda *_: 5)
    few = cheapest_replayed(searched(trace, "unfinished==0", neighbours=1))
    assert few.best is not None
    assert few.best.mix == (6,)
    more = cheapest_replayed(searched(trace, "unfinished==0", neighbours=3))
    assert more.best is not None
    assert more.best.mix == (3,)


def test_kinds_stand_in_for_each_other_where_that_is_cheaper(trace: Trace) -> None:
    told: list[Trial] = []
    dense = trace.faster(4)
    found = cheapest_replayed(searched(dense, "p95_wait<10m", KINDS, neighbours=2), told.append)
    assert found.best is not None
    assert tuple(told) == found.trials
    met = [trial for trial in found.trials if trial.met]
    assert found.best.price_milli == min(trial.price_milli for trial in met)
    assert any(all(trial.mix) for trial in found.trials)  # mixes were looked at


def test_seeds_deal_the_same_jobs_to_the_same_arrivals(trace: Trace) -> None:
    assert dealt_anew(trace, 0) is trace
    one, again, two = (dealt_anew(trace, seed) for seed in (1, 1, 2))
    assert one == again
    assert one != two
    for dealt in (one, two):
        assert [e.job.submit for e in dealt.jobs] == [e.job.submit for e in trace.jobs]
        assert sorted(e.job.name for e in dealt.jobs) == sorted(e.job.name for e in trace.jobs)
        assert dealt.gpu_seconds == trace.gpu_seconds


def test_targets_are_held_at_p90_and_tries_are_kept(trace: Trace) -> None:
    wanted = searched(trace, "p95_wait<3h", seeds=4, tries=2)
    found = cheapest_replayed(wanted)
    assert len(found.trials) <= 2
    for trial in found.trials:
        assert trial.median["p95_wait"] <= trial.high["p95_wait"]
        assert trial.met == (trial.high["p95_wait"] < 10_800)


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = Program(monkeypatch, tmp_path)
    Path("jobs.csv").write_text(CSV)
    words = ("--sku", "h100-8", "--replay-policy", "fifo", "--processes", "1")
    told = program("capacity", "jobs.csv", *words, "--target", "p95_wait<1h", "--json")
    assert told.code == 0, told.err
    record = json.loads(told.out)
    assert record["status"] == "searched"
    assert record["best"]["met"] is True
    assert None in [trial["p90"]["p95_wait"] for trial in record["trials"]]
    shown = program("capacity", "jobs.csv", *words, "--target", "p95_wait<1h")
    assert "not proven" in shown.out
    assert "for ever" in shown.out
    few = ("--max-nodes", "1", "--target", "p95_wait<1h")
    assert program("capacity", "jobs.csv", *words, *few).code == 4
    assert program("capacity", "jobs.csv", *words).code == 2
    assert program("capacity", "jobs.csv", *words, "--target", "pending==0").code == 65
