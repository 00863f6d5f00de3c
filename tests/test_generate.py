"""Synthetic clusters: valid, reproducible, loaded as asked, and mixed as the benchmark says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from trencadis.instances.generate import generate
from trencadis.instances.mix import GIB, PEAK_CPU_PER_GPU, PEAK_GIB_PER_GPU
from trencadis.models import Job, Node, Snapshot, load_snapshot


def text_of(snapshot: Snapshot) -> str:
    return snapshot.model_dump_json(exclude_defaults=True)


def running(snapshot: Snapshot) -> list[Job]:
    return [job for job in snapshot.jobs if job.state == "running"]


def pending(snapshot: Snapshot) -> list[Job]:
    return [job for job in snapshot.jobs if job.state == "pending"]


def gpus_of(job: Job) -> int:
    return job.tasks * job.request.gpus


def healthy(snapshot: Snapshot) -> int:
    return sum(len(node.healthy_gpus()) for node in snapshot.nodes)


def idle_gpus(snapshot: Snapshot) -> dict[str, int]:
    idle = {node.name: len(node.healthy_gpus()) for node in snapshot.nodes}
    for job in running(snapshot):
        for task in job.allocation:
            idle[task.node] -= len(task.gpus or ())
    return idle


def free(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    """Free milli-CPU and MiB by node."""
    left = {node.name: (node.cpu_milli, node.memory_mib) for node in snapshot.nodes}
    for job in running(snapshot):
        for task in job.allocation:
            cpu, memory = left[task.node]
            left[task.node] = (cpu - job.request.cpu_milli, memory - job.request.memory_mib)
    return left


def is_lean(node: Node) -> bool:
    """Whether the hungriest jobs leave GPUs of the node without CPUs or memory."""
    return (
        node.cpu_milli < node.gpu_count * PEAK_CPU_PER_GPU * 1_000
        or node.memory_mib < node.gpu_count * PEAK_GIB_PER_GPU * GIB
    )


@pytest.fixture(scope="module")
def thousand() -> Snapshot:
    """The cluster of the round benchmark."""
    return generate(nodes=1_000, pending=2_000)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "count"), [(1, 5), (3, 10), (20, 40), (100, 200)])
def test_snapshots_are_valid_without_warnings(nodes: int, count: int, seed: int) -> None:
    snapshot = generate(nodes=nodes, pending=count, seed=seed)
    loaded, warnings = load_snapshot(text_of(snapshot))
    assert loaded == snapshot
    assert warnings == []
    assert len(snapshot.nodes) == nodes
    assert len(pending(snapshot)) == count


@pytest.mark.parametrize("gpus_per_node", [1, 2, 4, 6, 16])
def test_nodes_of_other_sizes(gpus_per_node: int) -> None:
    snapshot = generate(nodes=40, pending=60, gpus_per_node=gpus_per_node)
    loaded, warnings = load_snapshot(text_of(snapshot))
    assert loaded == snapshot
    assert warnings == []
    assert max(job.request.gpus for job in snapshot.jobs) <= gpus_per_node


def test_an_empty_cluster_is_valid() -> None:
    snapshot, _ = load_snapshot(text_of(generate(nodes=0, pending=3)))
    assert snapshot.nodes == ()
    assert len(snapshot.jobs) == 3


def test_the_same_arguments_give_the_same_bytes() -> None:
    program = (
        "from trencadis.instances.generate import generate;"
        "print(generate(60, 90, seed=5).model_dump_json(exclude_defaults=True))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert texts == {text_of(generate(60, 90, seed=5))}
    assert text_of(generate(60, 90, seed=6)) not in texts


@pytest.mark.parametrize("load", [0.0, 0.3, 0.7, 0.95])
def test_running_jobs_use_the_load(load: float) -> None:
    snapshot = generate(nodes=100, pending=10, load=load)
    used = sum(len(task.gpus or ()) for job in running(snapshot) for task in job.allocation)
    assert used / healthy(snapshot) == pytest.approx(load, abs=0.01)


def test_idle_gpus_are_scattered(thousand: Snapshot) -> None:
    by_count = Counter(idle_gpus(thousand).values())
    assert all(by_count[count] > 0 for count in range(9))
    part = sum(by_count[count] for count in range(1, 8))
    assert part > 150
    assert by_count[8] > 100


def test_running_jobs_fit_and_carry_their_facts(thousand: Snapshot) -> None:
    assert min(idle_gpus(thousand).values()) >= 0
    assert all(cpu >= 0 and memory >= 0 for cpu, memory in free(thousand).values())
    for job in running(thousand):
        assert job.start is not None
        assert job.submit < job.start < thousand.now
        assert len(job.allocation) == job.tasks
        if job.checkpoint is not None and job.checkpoint.last is not None:
            assert job.start <= job.checkpoint.last <= thousand.now
        if job.runtime_seconds is not None:
            assert (thousand.now - job.start).total_seconds() < job.runtime_seconds
    assert any(job.checkpoint for job in running(thousand))


def test_cpu_and_memory_bind_on_a_fifth_of_the_nodes(thousand: Snapshot) -> None:
    lean = {node.name for node in thousand.nodes if is_lean(node)}
    assert len(lean) / len(thousand.nodes) == pytest.approx(0.2, abs=0.01)
    idle, left = idle_gpus(thousand), free(thousand)
    for node in thousand.nodes:
        if node.name not in lean:
            cpu, memory = left[node.name]
            assert cpu >= idle[node.name] * PEAK_CPU_PER_GPU * 1_000
            assert memory >= idle[node.name] * PEAK_GIB_PER_GPU * GIB
    # The most common request of one GPU strands GPUs of an empty lean node.
    common = Counter(job.request.cpu_milli for job in pending(thousand) if job.request.gpus == 1)
    short = [n for n in thousand.nodes if n.cpu_milli < 8 * common.most_common(1)[0][0]]
    assert len(short) > 50


def test_every_job_has_its_own_submit_time(thousand: Snapshot) -> None:
    assert len({job.submit for job in thousand.jobs}) == len(thousand.jobs)
    assert all(job.submit < thousand.now for job in thousand.jobs)


def test_one_pending_job_in_twelve_is_a_gang(thousand: Snapshot) -> None:
    gangs = [job for job in pending(thousand) if job.tasks > 1]
    assert len(gangs) == round(2_000 / 12)
    assert {job.tasks for job in gangs} >= {2, 3, 4, 8}
    assert max(job.tasks for job in gangs) <= 16
    by_size = Counter(job.request.gpus for job in gangs)
    assert set(by_size) == {4, 8}
    assert by_size[8] > by_size[4] > 0
    modes = Counter((g.topology.level, g.topology.mode) for g in gangs if g.topology)
    assert modes["leaf", "required"] > 0
    assert modes["spine", "required"] > 0
    assert sum(modes.values()) < len(gangs) / 2
    assert any(not job.communicates for job in gangs)


def test_requests_are_few(thousand: Snapshot) -> None:
    kinds: dict[int, set[tuple[int, int]]] = {}
    for job in pending(thousand):
        request = job.request
        kinds.setdefault(request.gpus, set()).add((request.cpu_milli, request.memory_mib))
    assert set(kinds) == {0, 1, 2, 4, 8}
    assert all(2 <= len(found) <= 3 for found in kinds.values())
    without = sum(1 for job in pending(thousand) if job.request.gpus == 0)
    assert 0.02 < without / 2_000 < 0.06
    assert {job.priority for job in pending(thousand)} == {"high", None, "low"}


@pytest.mark.parametrize("seed", range(3))
def test_demand_exceeds_what_is_idle(seed: int) -> None:
    snapshot = generate(nodes=1_000, pending=2_000, seed=seed)
    asked = sum(gpus_of(job) for job in pending(snapshot))
    assert 1.3 <= asked / sum(idle_gpus(snapshot).values()) <= 2.4


def test_two_gpu_models_in_leaves_of_their_own(thousand: Snapshot) -> None:
    by_leaf: dict[tuple[str, ...], set[str]] = {}
    for node in thousand.nodes:
        assert len(node.fabric) == 3
        by_leaf.setdefault(node.fabric, set()).add(node.gpus[0].model)
    assert all(len(models) == 1 for models in by_leaf.values())
    nodes = Counter(node.gpus[0].model for node in thousand.nodes)
    assert nodes["h100"] > 4 * nodes["a100"] > 0
    allowed = {job.gpu_models for job in pending(thousand) if job.request.gpus}
    assert allowed == {("h100",), (), ("a100",)}
    fan_out = Counter(node.fabric for node in thousand.nodes)
    assert max(fan_out.values()) == 16
    assert len({path[:1] for path in fan_out}) > 1
    assert len({path[:2] for path in fan_out}) > 2


@pytest.mark.parametrize("seed", range(4))
def test_queues_form_a_tree_with_guarantees(seed: int) -> None:
    snapshot = generate(nodes=100, pending=200, seed=seed)
    queues = {queue.name: queue for queue in snapshot.queues}
    leaves = [queue for queue in snapshot.queues if queue.parent]
    assert len(leaves) == 10
    assert all(queues[leaf.parent or ""].parent is None for leaf in leaves)
    assert {job.queue for job in snapshot.jobs} <= {leaf.name for leaf in leaves}
    total = healthy(snapshot)
    roots = [queue for queue in snapshot.queues if queue.parent is None]
    for level in (leaves, roots):
        assert 0.6 <= sum(queue.guarantee.gpus or 0 for queue in level) / total <= 0.9
    used, by_user = Counter[str](), Counter[tuple[str, str]]()
    for job in running(snapshot):
        used[job.queue] += gpus_of(job)
        by_user[job.queue, job.user] += gpus_of(job)
    limited = [leaf for leaf in leaves if leaf.limit.quota.gpus is not None]
    assert 0 < len(limited) < len(leaves) / 2
    assert all(used[leaf.name] <= (leaf.limit.quota.gpus or 0) for leaf in limited)
    per_user = {q.name: q.limit.quota_per_user.gpus for q in leaves}
    for (queue, _), gpus in by_user.items():
        most = per_user[queue]
        assert most is None or gpus <= most


@pytest.mark.parametrize(
    "wrong", [{"load": 1.5}, {"load": -0.1}, {"nodes": -1}, {"queues": 0}, {"gpus_per_node": 0}]
)
def test_impossible_arguments_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"load|nodes"):
        generate(**wrong)  # type: ignore[arg-type]
