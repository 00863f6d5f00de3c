"""The openb importer: best fit, shares, qos, and what it says of broken tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trencadis.instances.openb import OpenbSample, read_openb, sample_openb
from trencadis.models import InvalidInputError, Snapshot, load_snapshot

NODES = "sn,cpu_milli,memory_mib,gpu,model"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)
DATA = Path(__file__).parents[2] / "shared" / "data" / "openb"


def tables(
    folder: Path, nodes: list[str], pods: list[str], header: str = PODS
) -> tuple[Path, Path]:
    (folder / "nodes.csv").write_text("\n".join([NODES, *nodes, ""]))
    (folder / "pods.csv").write_text("\n".join([header, *pods, ""]))
    return folder / "nodes.csv", folder / "pods.csv"


def pod(name: str, gpus: int = 1, milli: int = 1_000, cpu: int = 1_000, **more: str) -> str:
    spec, qos = more.get("spec", ""), more.get("qos", "LS")
    return f"{name},{cpu},1024,{gpus},{milli},{spec},{qos},Running,{more.get('at', '0')},,"


def fits(snapshot: Snapshot) -> None:
    """No node gives more than it has, and no GPU more than a thousand thousandths."""
    for node in snapshot.nodes:
        cpu = memory = 0
        used: dict[int, int] = {}
        for job in snapshot.jobs:
            for task in job.allocation:
                if task.node != node.name:
                    continue
                cpu += job.request.cpu_milli
                memory += job.request.memory_mib
                assert task.gpus is not None
                assert len(task.gpus) == (1 if task.share else job.request.gpus)
                for gpu in task.gpus:
                    share = task.share.gpu_milli if task.share else 1_000
                    used[gpu] = used.get(gpu, 0) + share
                if job.gpu_models:
                    assert node.gpus[0].model in job.gpu_models
        assert cpu <= node.cpu_milli
        assert memory <= node.memory_mib
        assert all(gpu < node.gpu_count and share <= 1_000 for gpu, share in used.items())


def test_best_fit_takes_the_node_with_the_least_left(tmp_path: Path) -> None:
    paths = tables(
        tmp_path,
        ["big,64000,99999,8,T4", "small,64000,99999,2,T4", "other,64000,99999,2,G2"],
        [pod("a", 2), pod("b", 2, spec="T4"), pod("c", 2, spec="P100|G2"), pod("d", 8)],
    )
    sample = sample_openb(*paths, running=4)
    placed = {job.name: job.allocation[0].node for job in sample.snapshot.jobs}
    assert placed == {"a": "small", "b": "big", "c": "other"}
    assert sample.skipped == ("d",)


def test_shares_fill_the_gpu_with_the_least_room(tmp_path: Path) -> None:
    paths = tables(
        tmp_path,
        ["n1,64000,99999,2,T4"],
        [pod("a", 1, 600), pod("b", 1, 500), pod("c", 1, 400), pod("d", 1, 500), pod("e", 1, 100)],
    )
    sample = sample_openb(*paths, running=5)
    gpus = {job.name: job.allocation[0].gpus for job in sample.snapshot.jobs}
    assert gpus == {"a": (0,), "b": (1,), "c": (0,), "d": (1,)}
    assert sample.skipped == ("e",)
    node = sample.snapshot.nodes[0]
    assert node.shareable
    assert node.max_jobs_per_gpu == 10
    fits(sample.snapshot)


def test_pods_without_gpus_use_cpu_and_keep_off_idle_gpus(tmp_path: Path) -> None:
    paths = tables(
        tmp_path,
        ["gpu,4000,99999,2,T4", "cpu,2000,99999,0,"],
        [pod("a", 0, 0, cpu=2_000), pod("b", 0, 0, cpu=3_000), pod("c", 1, cpu=2_000)],
    )
    sample = sample_openb(*paths, running=3)
    placed = {job.name: job.allocation[0].node for job in sample.snapshot.jobs}
    assert placed == {"a": "cpu", "b": "gpu"}
    assert sample.skipped == ("c",)


def test_the_rest_waits_in_order_and_with_its_tier(tmp_path: Path) -> None:
    now = datetime(2025, 5, 1, tzinfo=UTC)
    pods = [
        pod("a", at="100", qos="BE"),
        pod("b", at="300", qos="Burstable"),
        pod("c", at="200", qos="Guaranteed"),
        pod("d", at="900"),
    ]
    paths = tables(tmp_path, ["n1,64000,99999,2,T4"], pods)
    snapshot = read_openb(*paths, running=1, pending=2, now=now, span_seconds=None, queue_by="qos")
    a, b, c = snapshot.jobs
    assert [job.state for job in (a, b, c)] == ["running", "pending", "pending"]
    assert [job.priority for job in (a, b, c)] == ["low", "normal", "high"]
    assert [(now - job.submit).total_seconds() for job in (a, b, c)] == [200, 0, 100]
    assert {queue.name for queue in snapshot.queues} == {"BE", "Burstable", "Guaranteed"}
    short = read_openb(*paths, running=1, pending=2, now=now, span_seconds=60)
    assert [(now - job.submit).total_seconds() for job in short.jobs] == [60, 0, 30]


def test_a_seed_shuffles_and_nothing_else_is_random(tmp_path: Path) -> None:
    paths = tables(tmp_path, ["n1,64000,99999,8,T4"], [pod(f"p{i}") for i in range(20)])

    def names(seed: int | None) -> list[str]:
        return [job.name for job in read_openb(*paths, running=4, seed=seed).jobs]

    assert names(None) == [f"p{i}" for i in range(20)]
    assert names(1) == names(1) != names(2)
    assert sorted(names(1)) == sorted(names(None))


def test_the_short_table_has_no_qos(tmp_path: Path) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    paths = tables(tmp_path, ["n1,64000,99999,8,T4"], ["a,1000,1024,1,460"], header)
    snapshot = read_openb(*paths, running=1)
    assert snapshot.jobs[0].priority is None
    assert load_snapshot(snapshot.model_dump_json()) == (snapshot, [])


@pytest.mark.parametrize(
    ("nodes", "pods", "where", "what"),
    [
        (["n1,x,1,1,T4"], [], "nodes.csv:2", "cpu_milli: 'x' is not a whole number"),
        (["n1,1,1,1,H900"], [], "nodes.csv:2", "model: 'H900'"),
        (["n1,1,1,1,"], [], "nodes.csv:2", "model: ''"),
        (["n1,1,1,1"], [], "nodes.csv:2", "4 fields, the header has 5"),
        (["n1,1,1,99,T4"], [], "nodes.csv:2", "gpu: 99 is more than 64"),
        (["n1,1,-1,1,T4"], [], "nodes.csv:2", "memory_mib: '-1'"),
        (["n1,1,1,1,T4", "n1,1,1,1,T4"], [], "nodes.csv:3", "'n1' is on line 2 already"),
        ([], ["a,1000"], "pods.csv:2", "2 fields"),
        ([], [pod("a", 2, 500)], "pods.csv:2", "only one GPU can be shared"),
        ([], [pod("a", 1, 0)], "pods.csv:2", "gpu_milli: 0"),
        ([], [pod("a", spec="T4|B7")], "pods.csv:2", "gpu_spec: 'B7'"),
        ([], [pod("a", qos="Gold")], "pods.csv:2", "qos: 'Gold'"),
        ([], [pod("a b")], "pods.csv:2", "'a b' is not a name"),
        ([], [pod("a"), pod("b").replace("1024", "٣")], "pods.csv:3", "memory_mib"),
        ([], [pod("a", at="1e3")], "pods.csv:2", "creation_time: '1e3'"),
    ],
)
def test_a_broken_row_is_named(
    tmp_path: Path, nodes: list[str], pods: list[str], where: str, what: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_openb(*tables(tmp_path, nodes, pods))
    (fault,) = caught.value.faults
    assert fault.path == str(tmp_path / where)
    assert what in fault.message
    assert "\n" not in str(fault)


def test_missing_files_and_headers(tmp_path: Path) -> None:
    nodes, pods = tables(tmp_path, [], [], header="name,cpu_milli")
    with pytest.raises(InvalidInputError, match=r"pods.csv:1: no column memory_mib, num_gpu"):
        read_openb(nodes, pods)
    with pytest.raises(InvalidInputError, match="No such file"):
        read_openb(tmp_path / "absent.csv", pods)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        read_openb(nodes, tmp_path / "bytes.csv")
    with pytest.raises(InvalidInputError, match="pending: -1 is negative"):
        read_openb(*tables(tmp_path, [], []), pending=-1)


def test_all_broken_rows_are_told_at_once(tmp_path: Path) -> None:
    paths = tables(tmp_path, ["n1,x,1,1,T4", "n2,1,y,1,T4"], [pod("a", 1, 0)])
    with pytest.raises(InvalidInputError) as caught:
        read_openb(*paths)
    assert len(caught.value.faults) == 3


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_is_placed_fits(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    models = ("T4", "G2", "P100")
    nodes = data.draw(
        st.lists(
            st.tuples(st.integers(0, 8_000), st.integers(0, 4_096), st.integers(0, 4)),
            min_size=1,
            max_size=4,
        )
    )
    pods = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, 3_000),
                st.sampled_from([(0, 0), (1, 1_000), (1, 300), (1, 500), (2, 1_000)]),
                st.lists(st.sampled_from(models), max_size=2, unique=True),
            ),
            max_size=12,
        )
    )
    node_rows = [
        f"n{i},{cpu},{memory},{gpus},{models[i % 3] if gpus else ''}"
        for i, (cpu, memory, gpus) in enumerate(nodes)
    ]
    pod_rows = [
        pod(f"p{i}", *gpus, cpu=cpu, spec="|".join(spec))
        for i, (cpu, gpus, spec) in enumerate(pods)
    ]
    sample = sample_openb(
        *tables(tmp_path_factory.mktemp("openb"), node_rows, pod_rows), running=len(pods)
    )
    fits(sample.snapshot)
    assert len(sample.snapshot.jobs) + len(sample.skipped) == len(pods)
    assert load_snapshot(sample.snapshot.model_dump_json())[0] == sample.snapshot


@pytest.mark.skipif(not DATA.is_dir(), reason="the openb tables are not beside the repository")
@pytest.mark.parametrize("kind", ["default", "gpuspec33", "multigpu50"])
def test_the_published_tables(kind: str) -> None:
    sample: OpenbSample = sample_openb(
        DATA / "openb_node_list_gpu_node.csv",
        DATA / f"openb_pod_list_{kind}.csv",
        running=200,
        pending=50,
        seed=3,
    )
    states = [job.state for job in sample.snapshot.jobs]
    assert states.count("running") + len(sample.skipped) == 200
    assert states.count("pending") == 50
    assert len(sample.snapshot.nodes) == 1_213
    fits(sample.snapshot)
    assert load_snapshot(sample.snapshot.model_dump_json())[0] == sample.snapshot
