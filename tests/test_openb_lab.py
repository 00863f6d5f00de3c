"""The openb benchmark's simulator: its arrays say what a plain reading of the rules says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import openb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openb_lab.batch import Rounds
from openb_lab.cluster import Cluster
from openb_lab.compare import measure
from openb_lab.fragmentation import Fragmentation
from openb_lab.limit import limit
from openb_lab.policies import BestFit, DotProduct, Fgd, RandomFit
from openb_lab.run import OneAtATime, run
from openb_lab.scores import Scores
from openb_lab.states import States, options
from openb_lab.value import TIGHT, Value
from openb_lab.workload import Kind, Workload, arrivals, typical, workload
from openb_tiny import pod, tiny

from trencadis.instances.openb_csv import NodeRow
from trencadis.models.base import GPU_MILLI

SEEDS = st.integers(0, 10_000)


def plain_f(kinds: list[tuple[Kind, float]], model: str, cpu: int, gpus: list[int]) -> float:
    """F of a node, kind by kind."""
    lost = 0.0
    for kind, share in kinds:
        pieces = [idle for idle in gpus if kind.gpus and idle >= kind.milli]
        fits = len(pieces) >= kind.gpus > 0 and cpu >= kind.cpu
        fits = fits and (not kind.models or model in kind.models)
        lost += share * (sum(gpus) - (sum(pieces) if fits else 0))
    return lost


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.data())
def test_fragmentation_is_what_its_definition_says(seed: int, data: st.DataObject) -> None:
    trace = tiny(seed)
    kinds = typical(trace, 0.9)
    cluster = Cluster(trace)
    measure = Fragmentation(kinds, cluster.models, 4)
    gpus = data.draw(st.lists(st.integers(0, 100).map(lambda x: 10 * x), min_size=4, max_size=4))
    cpu = data.draw(st.sampled_from((0, 1_000, 3_152, 5_000, 20_000)))
    model, idle = np.array([0]), np.array([gpus])
    name = cluster.models[0]
    expected = plain_f(kinds, name, cpu, gpus)
    assert measure.of(model, np.array([cpu]), idle)[0] == pytest.approx(expected)
    after = measure.after_share(model, np.array([cpu]), idle, 320)[0]
    for position, have in enumerate(gpus):
        left = [*gpus[:position], have - 320, *gpus[position + 1 :]]
        wanted = plain_f(kinds, name, cpu, left) if have >= 320 else np.inf
        assert after[position] == pytest.approx(wanted)
    full = [GPU_MILLI, GPU_MILLI, *gpus[2:]]
    taken = measure.after_whole(model, np.array([cpu]), np.array([full]), 2)[0]
    assert taken == pytest.approx(plain_f(kinds, name, cpu, [0, 0, *gpus[2:]]))


def test_fgd_scores_in_whole_steps_of_a_sigmoid() -> None:
    trace = tiny(1)
    cluster = Cluster(trace)
    kind = next(i for i, k in enumerate(trace.kinds) if k.gpus == 1 and k.milli == 470)
    nodes = np.flatnonzero(cluster.fits(kind, np.arange(len(cluster.cpu))))
    rounded, _ = Fgd(cluster, trace).score(kind, nodes)
    exact, _ = Fgd(cluster, trace, exact=True).score(kind, nodes)
    assert set(rounded) <= set(range(101))
    assert rounded.tolist() == [int(100 / (1 + np.exp(-gain / 1_000))) for gain in exact]


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_arrivals_are_the_trace_and_then_clones_up_to_the_inflation(seed: int) -> None:
    trace = tiny(seed, nodes=30)
    order = arrivals(trace, np.random.default_rng(seed))
    totals = trace.totals()
    most = max(kind.total for kind in trace.kinds)
    target = int(1.3 * trace.capacity)
    assert target - most < totals[order].sum() <= target
    if totals[trace.pods].sum() <= target:
        first = np.sort(order[: len(trace.pods)])
        assert first.tolist() == np.sort(trace.pods).tolist()


def placers(trace: Workload, seed: int) -> list[tuple[Cluster, OneAtATime | Rounds, int]]:
    made: list[tuple[Cluster, OneAtATime | Rounds, int]] = []
    for name in ("best", "dot", "random", "fgd", "value", "rounds"):
        rng = np.random.default_rng(seed)
        cluster = Cluster(trace)
        if name == "rounds":
            made.append((cluster, Rounds(Value(cluster, trace), rng), 7))
            continue
        policy = {
            "best": lambda c, _: BestFit(c),
            "dot": lambda c, _: DotProduct(c),
            "random": RandomFit,
            "fgd": lambda c, _: Fgd(c, trace),
            "value": lambda c, _: Value(c, trace),
        }[name](cluster, rng)
        made.append((cluster, OneAtATime(cluster, policy, rng), 1))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_dropped_that_fits_and_nothing_overflows(seed: int) -> None:
    trace = tiny(seed, nodes=4, pods=80)
    order = arrivals(trace, np.random.default_rng(seed))
    everywhere = np.arange(len(trace.nodes))
    for cluster, placer, batch in placers(trace, seed):
        given_away = 0
        for start in range(0, len(order), batch):
            pods = [int(kind) for kind in order[start : start + batch]]
            placed = placer.place(pods)
            for kind, ok in zip(pods, placed, strict=True):
                given_away += trace.kinds[kind].total * ok
                assert ok or not cluster.fits(kind, everywhere).any()
        assert (cluster.cpu >= 0).all()
        assert (cluster.memory >= 0).all()
        assert (cluster.gpu >= 0).all()
        assert given_away == trace.capacity - cluster.gpu.sum() == trace.capacity - cluster.idle
        assert cluster.whole.tolist() == (cluster.gpu == GPU_MILLI).sum(axis=1).tolist()


def valued(seed: int) -> tuple[Workload, Cluster, Value, OneAtATime]:
    trace = tiny(seed)
    cluster = Cluster(trace)
    policy = Value(cluster, trace)
    return trace, cluster, policy, OneAtATime(cluster, policy, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(3))
def test_kept_scores_are_those_of_scoring_all_anew(seed: int) -> None:
    trace, cluster, policy, placer = valued(seed)
    for kind in arrivals(trace, np.random.default_rng(seed))[:40]:
        placer.place([int(kind)])
        kept, _ = placer.scores.of(int(kind))
        anew, _ = Scores(cluster, policy).of(int(kind))
        assert kept.tolist() == anew.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_states_lose_what_nodes_lose(seed: int) -> None:
    trace, cluster, policy, placer = valued(seed)
    placer.place([int(kind) for kind in arrivals(trace, np.random.default_rng(seed))[:15]])
    nodes = np.arange(len(trace.nodes))
    kinds = list(range(len(trace.kinds)))
    loss, gpu = options(policy, States.now(cluster, nodes), kinds)
    for kind in kinds:
        fits = cluster.fits(kind, nodes)
        assert np.isfinite(loss[:, kind]).tolist() == fits.tolist()
        if fits.any():
            expected, where = policy.losses(kind, nodes[fits])
            assert loss[fits, kind] == pytest.approx(expected)
            if trace.kinds[kind].share:
                idle = cluster.gpu[nodes[fits]]
                rows = np.arange(len(idle))
                assert idle[rows, gpu[fits, kind]].tolist() == idle[rows, where].tolist()
    assert TIGHT > 0


def test_a_share_closes_the_gpu_that_the_demand_can_finish() -> None:
    """650 and 320 fill a GPU; beside 470 only 470 belongs."""
    nodes = [NodeRow("n", 64_000, 1_000, 2, "T4")]
    rows = [pod(f"a{i}", 1, 650, 1_000) for i in range(10)]
    rows += [pod(f"b{i}", 1, 320, 1_000) for i in range(10)]
    rows += [pod(f"c{i}", 1, 470, 1_000) for i in range(20)]
    trace = workload(nodes, rows)
    cluster = Cluster(trace)
    index = {kind.milli: i for i, kind in enumerate(trace.kinds)}
    cluster.place(index[650], 0, 0)
    cluster.place(index[470], 0, 1)
    policy = Value(cluster, trace)
    chosen = {milli: int(policy.losses(index[milli], np.array([0]))[1][0]) for milli in (320, 470)}
    assert chosen == {320: 0, 470: 1}


def test_the_limit_of_shares_that_do_not_combine() -> None:
    """Ten GPUs, ten GPUs' worth of 810: one on each. With enough 160s beside them, 970."""
    nodes = [NodeRow(f"n{i}", 64_000, 1_000, 2, "T4") for i in range(5)]
    alone = workload(nodes, [pod(f"a{i}", 1, 810, 1_000) for i in range(12)])
    order = np.zeros(12, dtype=np.int64)
    assert limit(alone, order) == pytest.approx(81.0, abs=0.01)
    both = workload(
        nodes,
        [pod(f"a{i}", 1, 810, 1_000) for i in range(11)]
        + [pod(f"b{i}", 1, 160, 1_000) for i in range(6)],
    )
    # 11 of 810 and 6 of 160 ask for 98.7 %; the eleventh 810 has no GPU of its own, and shares of
    # 810 do not share one.
    assert limit(both, both.pods) == pytest.approx(81.0 + 9.6, abs=0.01)


def test_what_does_not_fit_is_refused() -> None:
    trace = tiny(0)
    cluster = Cluster(trace)
    kind = next(i for i, k in enumerate(trace.kinds) if k.gpus == 4 and not k.models)
    node = int(np.argmin(cluster.whole))
    assert cluster.whole[node] < 4
    with pytest.raises(ValueError, match="does not fit on node"):
        cluster.place(kind, node, 0)


def test_checkpoints_are_means_over_a_percent() -> None:
    trace = tiny(3, nodes=40)
    rng = np.random.default_rng(3)
    order = arrivals(trace, rng)
    cluster = Cluster(trace)
    track = run(trace, order, cluster, OneAtATime(cluster, BestFit(cluster), rng), 1)
    near = (track.arrived >= 99.5) & (track.arrived < 100.5)
    assert near.any()
    assert track.at(track.allocated, 100) == pytest.approx(track.allocated[near].mean())
    assert (track.allocated <= track.arrived + 1e-9).all()


def test_the_command_prints_json_and_tells_what_is_wrong_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,1000,4,T4\nn1,64000,1000,2,G2\n"
    )
    pods = tmp_path / "openb_pod_list_small.csv"
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
    pods.write_text(head + "".join(f"p{i},1000,1,1,{470 + 530 * (i % 2)}\n" for i in range(8)))
    options_ = ["openb.py", "--workload", "small", "--data", str(tmp_path), "--json"]
    monkeypatch.setattr(sys, "argv", [*options_, "--batch", "4"])
    openb.main()
    report = json.loads(capsys.readouterr().out)
    names = [entry["policy"] for entry in report["policies"]]
    assert names[:2] == ["trencadis-batch", "trencadis"]
    assert all(0 < entry["allocated_pct"]["100"] <= 100 for entry in report["policies"])
    pods.write_text(head + "p0,1000,1,1,0\n")
    monkeypatch.setattr(sys, "argv", options_)
    with pytest.raises(SystemExit, match="65"):
        openb.main()
    told = capsys.readouterr().err.strip()
    assert told.startswith(f"{pods}:2: ")
    assert "\n" not in told


@pytest.mark.parametrize("policy", ["trencadis", "trencadis-batch", "random"])
def test_equal_seeds_give_equal_runs(policy: str) -> None:
    trace = tiny(5, nodes=6)
    first, again, other = (measure(trace, policy, seed, 8) for seed in (1, 1, 2))
    for key in ("allocated_pct", "fragmented_pct"):
        assert first[key] == again[key]
    assert first["allocated_pct"] != other["allocated_pct"]
