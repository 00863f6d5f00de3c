"""Burst nodes: who goes there and when, what is paid, and that nothing gets lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_world import ZERO, cluster, entry, played, trace, worlds

from trencadis.instances.traces.read import read_trace
from trencadis.models import InvalidInputError, Snapshot
from trencadis.models.trace import Trace
from trencadis.whatif.burst import BurstKind, burst_kind, mean_use
from trencadis.whatif.capacity.offers import rented
from trencadis.whatif.capacity.replays import ReplaySearch, cheapest_replayed, measured
from trencadis.whatif.capacity.target import targets
from trencadis.whatif.clusters import cluster_of
from trencadis.whatif.engine import Engine, ReplayOptions
from trencadis.whatif.failures import FailureModel
from trencadis.whatif.measures import Measures, measure
from trencadis.whatif.prices import Burst, PriceList, example_prices, load_prices
from trencadis.whatif.replay import Setting, replay
from trencadis.whatif.runs import State

RULES = {
    "min_runtime_seconds": 0,
    "grace_seconds": 30,
    "restart_seconds": 10,
    "restart_seconds_multi_node": 20,
    "checkpoint_interval_seconds": 600,
}


def kind(sku: str = "H100-4", **fields: object) -> BurstKind:
    wanted = {"price_per_hour_milli": 10_000, "nodes": 2, "start_seconds": 50, **fields}
    burst = Burst(name="b", sku=sku, **wanted)  # type: ignore[arg-type]
    return burst_kind("b", example_prices().model_copy(update={"bursts": (burst,)}))


def run(jobs: Trace, burst: BurstKind, **options: object) -> tuple[Engine, Measures]:
    engine = played(jobs, cluster(preemption=RULES), "priority", burst=burst, **options)
    return engine, measure(engine, "priority", 2.0)


def ends(engine: Engine) -> dict[str, int]:
    return {r.name: r.end - ZERO for r in engine.runs if r.end is not None}


LOW, HIGH = (entry("low", 0, 5_000, 4, priority="low"), entry("high", 3_100, 9_000, 4,
                                                              priority="high"))  # fmt: skip


def test_a_preempted_job_goes_on_beside_the_cluster() -> None:
    """Told at 3,100, gone at 3,130 with 3,000 s saved; a node after 50 s, 10 to restart."""
    engine, m = run(trace(LOW, HIGH), kind())
    assert ends(engine) == {"low": 3_130 + 60 + 2_000, "high": 3_130 + 9_000}
    assert m.burst is not None
    assert (m.burst.jobs, m.burst.most_nodes, m.burst.node_hours) == (1, 1, 1)
    assert m.burst.useful_gpu_hours == pytest.approx(4 * 2_000 / 3_600)
    assert m.burst.gpu_hours == pytest.approx(4 * 2_060 / 3_600)
    assert m.burst.cost == 10.0
    assert m.cost == pytest.approx(10.0 + 2.0 * m.gpu_hours.capacity)
    # The cluster's own figures know nothing of it.
    assert m.gpu_hours.useful == pytest.approx(4 * (3_000 + 9_000) / 3_600)


def test_who_was_not_preempted_waits_on() -> None:
    engine, m = run(trace(LOW, entry("next", 10, 100, 4, priority="low")), kind())
    assert ends(engine) == {"low": 5_000, "next": 5_100}
    assert m.burst is not None
    assert (m.burst.jobs, m.burst.node_hours, m.burst.cost) == (0, 0, 0.0)


def test_who_waits_since_a_failure_stays() -> None:
    engine = played(
        trace(entry("j", 0, 40_000, 4)),
        cluster(preemption=RULES),
        "fifo",
        burst=kind(),
        failures=FailureModel(3.0, 1.0),
    )
    assert engine.runs[0].failures
    assert engine.pool is not None
    assert not engine.pool.jobs


def test_a_job_may_have_to_wait_before_it_goes() -> None:
    engine, _ = run(trace(LOW, HIGH), kind(after_seconds=1_000))
    assert ends(engine)["low"] == 4_100 + 60 + 2_000
    late, m = run(trace(LOW, HIGH), kind(after_seconds=100_000))
    assert ends(late)["low"] == 12_130 + 10 + 2_000
    assert m.burst is not None
    assert not m.burst.jobs


def test_a_job_that_fits_on_no_burst_node_waits() -> None:
    for other in (kind("A100-8"), kind("H100-2", nodes=1)):
        low = entry("low", 0, 5_000, 4, priority="low", gpu_models=("H100",))
        engine, _ = run(trace(low, HIGH), other)
        assert ends(engine)["low"] == 12_130 + 10 + 2_000


def test_a_job_tied_to_nodes_of_the_cluster_waits() -> None:
    for tie in ({"required_nodes": ("n1",)}, {"node_selector": {"rack": "1"}}):
        low = entry("low", 0, 5_000, 4, priority="low", **tie)
        place = cluster(preemption=RULES)
        named = [n.model_copy(update={"labels": {"rack": "1"}}) for n in place.nodes]
        place = place.model_copy(update={"nodes": tuple(named)})
        engine = played(trace(low, HIGH), place, "priority", burst=kind())
        assert ends(engine)["low"] == 12_130 + 10 + 2_000


def test_the_solver_is_helped_like_the_others() -> None:
    engine = played(
        trace(LOW, HIGH), cluster(preemption=RULES), "trencadis", burst=kind(), round_seconds=60
    )
    assert engine.pool is not None
    assert engine.pool.jobs == 1
    assert ends(engine)["low"] < ends(engine)["high"]


def test_begun_hours_are_paid_and_used_up() -> None:
    """`a` ends on the node within its first hour; `b`, told later in that hour, finds it ready."""
    jobs = trace(
        entry("a", 0, 700, 4, priority="low"),
        entry("h1", 600, 100, 4, priority="high"),
        entry("b", 700, 4_000, 4, priority="low"),
        entry("h2", 1_400, 9_000, 4, priority="high"),
    )
    engine, m = run(jobs, kind(nodes=1))
    # a: told at 600, all 600 s saved, there from 630, ends at 630 + 60 + 100.
    assert ends(engine)["a"] == 790
    # b: began at 730; told at 1,400 with 600 s saved; on the rented node, restart alone.
    assert ends(engine)["b"] == 1_430 + 10 + 3_400
    assert m.burst is not None
    assert (m.burst.jobs, m.burst.most_nodes) == (2, 1)
    assert m.burst.node_hours == 2  # 630 to 4,840


def test_a_gang_on_several_burst_nodes_pays_for_their_network() -> None:
    low = entry("low", 0, 5_000, 2, tasks=2, priority="low")
    near, _ = run(trace(low, HIGH), kind("H100-2"))
    slow, m = run(trace(low, HIGH), kind("H100-2", fabric="10gbe"))
    assert ends(slow)["low"] > ends(near)["low"] > 3_130 + 50 + 20 + 2_000
    assert m.burst is not None
    hours = -(-(ends(slow)["low"] - 3_130) // 3_600)
    assert (m.burst.most_nodes, m.burst.node_hours) == (2, 2 * hours)


def test_all_that_a_price_list_may_get_wrong() -> None:
    prices = example_prices()
    assert burst_kind("burst-h100-8", prices).sku.gpus == 8
    with pytest.raises(InvalidInputError, match="there are burst-h100-8"):
        burst_kind("none", prices)
    with pytest.raises(InvalidInputError, match="no kind of node"):
        kind("nonsense")
    with pytest.raises(InvalidInputError, match="no fabric"):
        kind(fabric="string")
    twice = prices.model_copy(update={"bursts": prices.bursts * 2})
    with pytest.raises(InvalidInputError, match="twice"):
        load_prices(twice.model_dump_json())


@pytest.mark.parametrize("spec", ["priority", "volcano", "volcano+kill", "priority+no-gang"])
@given(
    world=worlds(),
    nodes=st.integers(1, 3),
    after=st.sampled_from([0, 30]),
    gpus=st.integers(1, 4),
)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_gpu_time_is_conserved_and_jobs_end_once(
    spec: str, world: tuple[Trace, Snapshot], nodes: int, after: int, gpus: int
) -> None:
    jobs, place = world
    burst = kind(f"A-{gpus}", nodes=nodes, after_seconds=after, start_seconds=7)
    engine = played(jobs, place, spec, burst=burst, serial_milli=50)
    time, pool = engine.gpu_time, engine.pool
    assert pool is not None
    spent = sum(r.spent.total for r in engine.runs)
    assert spent + (time.idle + time.held) * 1_000 == time.capacity * 1_000
    sent = [r for r in engine.runs if r.away.total]
    use = pool.use(engine.runs, engine.now)
    assert len(sent) == use.jobs
    assert use.gpu_hours <= use.node_hours * gpus + 1e-9
    assert use.most_nodes <= nodes
    for r in engine.runs:
        assert r.state in {State.DONE, State.REJECTED} or engine.stalled
        assert r.state is not State.DONE or not r.work_left
    for r in sent:
        assert r.preemptions
        assert r.state is State.DONE
        assert r.starts > r.preemptions
        assert min(r.away.useful, r.away.restart, r.away.spread) >= 0
        assert r.away.rework == r.away.grace == 0
    assert not pool.state.tasks.any()
    assert (pool.state.gpus == pool.state.capacity).all()
    again = played(jobs, place, spec, burst=burst, serial_milli=50)
    assert ends(again) == ends(engine)


# Capacity: nodes against burst hours

ROWS = "".join(
    f"{3_600 * hour},{(9_000, 2_000)[hour % 2]},{(8, 4)[hour % 2]},{('low', 'high')[hour % 2]}\n"
    for hour in range(16)
)
CSV = "submit,seconds,gpus,priority\n" + ROWS
MOST = 6


def listed(price_milli: int) -> PriceList:
    burst = Burst(name="b", sku="h100-8", price_per_hour_milli=price_milli, nodes=4)
    return example_prices().model_copy(update={"bursts": (burst,)})


def search(file: Path, price_milli: int, text: str) -> ReplaySearch:
    prices = listed(price_milli)
    offers, _ = rented(cluster_of({}, prices), ("h100-8",), prices, None, MOST)
    return ReplaySearch(
        trace=read_trace(file).shaped_for(8),
        offers=tuple(offers),
        targets=targets([text], trace=True),
        cluster=lambda mix: cluster_of({"h100-8": mix[0]}, prices),
        policy="priority",
        neighbours=MOST,
        processes=1,
        burst=burst_kind("b", prices),
    )


@pytest.mark.parametrize("text", ["p95_completion<4h", "p95_completion<8h"])
@pytest.mark.parametrize("price", [1_000, 30_000, 900_000])
def test_nodes_are_weighed_against_burst_hours(tmp_path: Path, price: int, text: str) -> None:
    """The cheapest of all sizes, each replayed with burst nodes and without."""
    file = tmp_path / "jobs.csv"
    file.write_text(CSV)
    wanted = search(file, price, text)
    totals: dict[bool, list[float]] = {False: [], True: []}
    for count in range(1, MOST + 1):
        for burst in (None, wanted.burst):
            setting = Setting(ReplayOptions(burst=burst))
            done = replay(wanted.trace, wanted.cluster((count,)), "priority", setting)
            (target,) = wanted.targets
            if target.met(measured(done, wanted.targets)[target.measure]):
                use = done.measures.burst
                hourly = 0.0 if use is None else use.cost * 3_600 / wanted.span_seconds
                totals[burst is not None].append(25_920 * count + hourly * 1_000)
    found = cheapest_replayed(wanted)
    assert found.complete
    assert found.best is not None
    assert found.without is not None
    assert found.best.total_milli == pytest.approx(min(totals[False] + totals[True]), abs=1)
    assert found.without.total_milli == min(totals[False])
    assert found.without.burst is None


def test_the_mean_of_several_replays() -> None:
    assert mean_use([None]) is None
    _, m = run(trace(LOW, HIGH), kind())
    assert m.burst is not None
    assert mean_use([m.burst, m.burst]) == m.burst


# Commands


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    (tmp_path / "jobs.csv").write_text(CSV)
    (tmp_path / "prices.json").write_text(listed(20_000).model_dump_json())
    return Program(monkeypatch, tmp_path)


def test_a_replay_with_burst_nodes(program: Program) -> None:
    words = ("jobs.csv", "--cluster", "1xh100-8", "--prices", "prices.json", "--burst", "b")
    policies = ("--policy", "priority", "--policy", "fifo")
    told = program("replay", *words, *policies, "--json", "--processes", "1")
    assert told.code == 0, told.err
    first, second = json.loads(told.out)["policies"]
    assert first["burst"]["jobs"] > 0 == second["burst"]["jobs"]
    assert first["burst"]["cost"] == first["burst"]["node_hours"] * 20.0
    shown = program("replay", *words, *policies, "--processes", "1")
    assert "Burst nodes, b" in shown.out
    assert program("replay", *words[:-1], "none", *policies).code == 65


def test_resuming_is_for_the_same_burst_nodes(program: Program) -> None:
    words = ("replay", "jobs.csv", "--cluster", "1xh100-8", "--policy", "priority",
             "--prices", "prices.json", "--out", "out")  # fmt: skip
    assert program(*words, "--burst", "b").code == 0
    assert program(*words, "--burst", "b", "--resume").code == 0
    assert program(*words, "--resume").code == 65


def test_capacity_with_burst_nodes(program: Program) -> None:
    words = ("capacity", "jobs.csv", "--sku", "h100-8", "--target", "p95_completion<8h",
             "--replay-policy", "priority", "--prices", "prices.json", "--burst", "b",
             "--processes", "1")  # fmt: skip
    told = program(*words, "--json")
    assert told.code == 0, told.err
    record = json.loads(told.out)
    best, plain = record["best"], record["without_burst"]
    assert best["price_per_hour"] <= plain["price_per_hour"]
    assert best["burst"]["node_hours"] > 0
    assert best["price_per_hour"] == pytest.approx(
        best["nodes_per_hour"] + best["burst"]["cost_per_hour"]
    )
    shown = program(*words)
    assert "of b" in shown.out
    assert "Without burst nodes: " in shown.out
    assert program("capacity", "jobs.csv", *words[2:-2], "--sku", "v100-8").code == 65


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--sku", "v100-8", "--target", "p95_wait<1h", "--burst", "b"), 2),
        (("--sku", "h100-8", "--target", "p95_wait<1h", "--burst", "none"), 65),
    ],
)
def test_what_it_refuses(program: Program, words: tuple[str, ...], code: int) -> None:
    told = program("capacity", "jobs.csv", "--prices", "prices.json", *words)
    assert told.code == code
    assert "Traceback" not in told.err
