"""Slurm's documents as a whole: releases, faults, junk, samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slurm_docs import NOW, SHAPES, document, job, node, running
from slurm_world import AT, World, faults, partition, read

from trencadis.adapters.slurm import read_slurm
from trencadis.models import (
    InvalidInputError,
    Job,
    Policy,
    Queue,
    Quota,
    load_snapshot,
)


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


DATA = Path(__file__).parents[2] / "shared" / "data" / "formats"


def test_tiers_queues_and_weights(shape: str) -> None:
    jobs = [
        job(shape, 1, qos="urgent", priority=1_000),
        job(shape, 2, qos="low", priority=10),
        job(shape, 3, qos="other", account="", priority=505),
    ]
    world = read(
        shape,
        jobs,
        tiers={"urgent": "high"},
        queues=[Queue(name="red", guarantee=Quota(gpus=8))],
        use_priority=True,
    )
    assert [world.jobs[name].priority for name in "123"] == ["high", "low", None]
    assert [world.jobs[name].weight_milli for name in "123"] == [4_000, 1_000, 2_500]
    assert world.jobs["3"].queue == "default"
    queues = {entry.name: entry.guarantee.gpus for entry in world.snapshot.queues}
    assert queues == {"red": 8, "default": None}
    wrong = faults(document(shape, "jobs"), document(shape, "nodes"), tiers={"x": "gold"})
    assert wrong == ["tiers: QOS x is in tier gold; the tiers are high, normal, low"]


def test_the_time_of_the_documents() -> None:
    jobs, nodes = document("25.11", "jobs"), document("25.11", "nodes")
    assert read_slurm(jobs, nodes)[0].now == AT
    old = document("22.05", "jobs"), document("22.05", "nodes")
    _, warnings = read_slurm(*old)
    assert any(warning.path == "now" for warning in warnings)


def test_the_newer_sinfo() -> None:
    def group(names: list[str], part: str, **more: Any) -> dict[str, Any]:
        return {
            "nodes": {"nodes": names, "total": len(names)},
            "node": {"state": ["IDLE"]},
            "partition": {"name": part},
            "cpus": {"total": 64 * len(names), "minimum": 64, "maximum": 64, "allocated": 0},
            "memory": {"minimum": 500_000, "maximum": 500_000, "allocated": 0},
            "gres": {"total": "gpu:h100:8(S:0-1)", "used": "gpu:h100:0(IDX:N/A)"},
            "features": {"total": "x", "active": "x"},
        } | more

    groups = [
        group(["g1", "g2"], "gpu"),
        group(["g1"], "short"),
        group(["g3"], "gpu", node={"state": ["IDLE", "DRAIN"]}),
        group([], "empty"),
    ]
    jobs = document("25.11", "jobs", job("25.11", 1, partition="short", features="x"))
    snapshot, warnings = read_slurm(jobs, document("25.11", "sinfo", *groups))
    world = World(snapshot, warnings)
    assert load_snapshot(snapshot.model_dump_json())[0] == snapshot
    assert world.may_run_on("1") == {"g1"}
    assert [world.nodes[n].gpu_count for n in ("g1", "g2", "g3")] == [8, 8, 8]
    assert world.nodes["g3"].cordoned
    assert world.nodes["g2"].cpu_milli == 64_000


@pytest.mark.parametrize(
    ("jobs", "path"),
    [
        ("{", "jobs:$: not JSON"),
        ("[]", "jobs:$: not an object but a list"),
        ("{}", "jobs:$.jobs: required list is missing"),
        ('{"jobs": {}}', "jobs:$.jobs: not a list"),
        ('{"jobs": [7]}', "jobs:$.jobs[0]: not an object"),
        ('{"jobs": [{}]}', "jobs:$.jobs[0].job_id: required"),
        ('{"jobs": [{"job_id": 7}]}', "jobs:$.jobs[0].job_state: required"),
        (
            '{"jobs": [{"job_id": 7, "job_state": "PENDING"}]}',
            "jobs:$.jobs[0].submit_time: job 7: required",
        ),
        (
            '{"jobs": [{"job_id": 7, "job_state": "RUNNING", "submit_time": 5}]}',
            "jobs:$.jobs[0].nodes: job 7 runs, but no node",
        ),
        ("[" * 100_000, "jobs:$: not JSON"),
        (b"\xff\xfe", "jobs:$: not JSON"),
    ],
)
def test_broken_job_documents(jobs: str | bytes, path: str) -> None:
    assert any(line.startswith(path) for line in faults(jobs, document("25.11", "nodes")))


def test_all_faults_are_told_at_once() -> None:
    nodes = document("25.11", "nodes", {"name": "g1"}, node("25.11", "g2", "gpu:a:b:c:d"))
    lines = faults("{", nodes, topology_conf="nonsense", partitions_json="[")
    starts = ["jobs:$", "nodes:$.nodes[0].cpus", "nodes:$.nodes[0].real_memory"]
    starts += ["nodes:$.nodes[0].state", "nodes:$.nodes[1].gres", "topology:line 1", "partitions:$"]
    assert [line.split(": ")[0] for line in lines] == starts


def test_what_slurm_says_went_wrong_is_passed_on() -> None:
    doc = json.dumps({"errors": [{"error": "Unable to contact\nslurmctld"}]})
    (line,) = faults(doc, document("25.11", "nodes"))
    assert "Unable to contact slurmctld" in line


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside a document."""
    if path:
        yield path
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from leaves(inner, (*path, key))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "gpu:h100:3",
            "gpu:4(IDX:0-9)",
            "g[1-3]",
            "afterok:7",
            "1-3%2",
            "a|b",
            "shard:2",
            "gres/gpu:9",
        ]
    ),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.sampled_from(["set", "number", "infinite", "0"]), st.integers(), max_size=2),
)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_that_is_told_twice_is_a_fault(shape: str) -> None:
    text = document(shape, "jobs", job(shape, 7), job(shape, 8), job(shape, 7))
    with pytest.raises(InvalidInputError) as caught:
        read_slurm(text, document(shape, "nodes", node(shape, "g1")), now=AT)
    (fault,) = caught.value.faults
    assert str(fault).startswith("jobs:$.jobs[2].job_id: job 7 is also jobs:$.jobs[0]")


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SHAPES), st.data())
def test_junk_is_read_or_refused_but_never_breaks(shape: str, data: st.DataObject) -> None:
    docs = [
        json.loads(
            document(
                shape,
                "jobs",
                running(shape, 1, {"g1": "gpu:h100:2(IDX:0-1)", "g2": "gpu:h100:2(IDX:0-1)"}),
                running(shape, 2, {"g1": "shard:2"}, tres_alloc_str="cpu=2,mem=4G,gres/gpu=1"),
                job(shape, 3, tres_per_job="gres/gpu:4", features="a", resv_name="r", licenses="m"),
                job(shape, 4, array_job_id=4, array_task_string="1-3%2", dependency="afterok:3",
                    tres_per_task="gres/gpu:1", segment_size=2, required_switches=1,
                    required_nodes="g1", excluded_nodes="g2", maximum_switch_wait_time=5),
            )
        ),
        json.loads(
            document(shape, "nodes", node(shape, "g1", "gpu:h100:4,shard:8", alloc_cpus=9),
                     node(shape, "g2", gres_used="gpu:h100:3(IDX:0-2)"))
        ),
        {"partitions": [partition("gpu", "g[1-2]", maximums={"time": 5, "shares": 1})]},
        {"reservations": [{"name": "r", "node_list": "g1", "start_time": 5, "end_time": NOW + 50,
                           "flags": [], "licenses": "m:1"}]},
        {"licenses": [{"LicenseName": "m", "Total": 3, "Used": 1}]},
    ]  # fmt: skip
    for _ in range(data.draw(st.integers(1, 3))):
        which = data.draw(st.integers(0, len(docs) - 1))
        *path, last = data.draw(st.sampled_from(list(leaves(docs[which]))))
        inside: Any = docs[which]
        try:
            for key in path:
                inside = inside[key]
            inside[last] = data.draw(JUNK)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    texts = [json.dumps(doc) for doc in docs]
    try:
        snapshot, _ = read_slurm(
            texts[0],
            texts[1],
            "SwitchName=leaf Nodes=g[1-2]",
            partitions_json=texts[2],
            reservations_json=texts[3],
            licenses_json=texts[4],
            now=AT,
        )
    except InvalidInputError as error:
        lines = [str(fault) for fault in error.faults] or [""]
    else:
        lines = ["read"]
        assert load_snapshot(snapshot.model_dump_json())[0] == snapshot
    assert all(line and "\n" not in line for line in lines)


NO_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="the samples are not beside the repository")


JOB_FILES = sorted(DATA.glob("slurm/*slurm-job*.json")) + sorted(DATA.glob("slurm/squeue*.json"))


NODE_FILES = sorted(DATA.glob("slurm/*slurm-node*.json")) + sorted(DATA.glob("slurm/sinfo*.json"))


@NO_DATA
def test_every_sample_imports() -> None:
    assert JOB_FILES
    assert NODE_FILES
    more = {
        f"{key}_json": next(DATA.glob(f"slurm/*25.11*slurm-{key}.json")).read_text()
        for key in ("partitions", "reservations")
    }
    old = next(DATA.glob("slurm/*24.05*reservations.json")).read_text()
    for jobs in JOB_FILES:
        for nodes in NODE_FILES:
            for options in ({}, more, more | {"reservations_json": old}):
                snapshot, _ = read_slurm(jobs.read_bytes(), nodes.read_text(), **options)
                assert load_snapshot(snapshot.model_dump_json())[0] == snapshot
                assert snapshot.jobs
                assert snapshot.nodes


@NO_DATA
def test_samples_mean_what_their_commands_said() -> None:
    nodes = next(DATA.glob("slurm/*slurm-node-with-gpus-model-mixed.json")).read_text()

    def sample(name: str) -> Job:
        text = next(DATA.glob(f"slurm/*{name}.json")).read_text()
        return read_slurm(text, nodes)[0].jobs[0]

    spread = sample("slurm-job-gpus-multi-nodes")
    assert [(task.node, task.gpus) for task in spread.allocation] == [
        ("gpu1", (0, 1, 2, 3)),
        ("gpu2", (0, 1, 2, 3)),
    ]
    later = sample("slurm-job-gpus-pending")
    assert (later.tasks, later.request.gpus, later.queue) == (1, 4, "admin")
    cpus = sample("slurm-job-pending")
    assert (cpus.tasks, cpus.request.cpu_milli, cpus.request.memory_mib) == (128, 1_000, 512)


@NO_DATA
@pytest.mark.parametrize("kind", ["tree", "block"])
def test_topology_samples(kind: str) -> None:
    text = (DATA / "topology" / f"slurm-topology-{kind}.conf").read_text()
    nodes = document(
        "25.11", "nodes", *(node("25.11", f"srv{r}0{i}") for r in (11, 12) for i in (1, 2))
    )
    snapshot, warnings = read_slurm(document("25.11", "jobs"), nodes, text)
    assert warnings == []
    assert len(snapshot.fabric.levels) == 3
    paths = {entry.name: entry.fabric for entry in snapshot.nodes}
    assert paths["srv1101"] == paths["srv1102"]
    assert paths["srv1101"][:2] == paths["srv1201"][:2]
    assert paths["srv1101"] != paths["srv1201"]


def test_the_policy_is_the_callers() -> None:
    policy = Policy(horizon_seconds=900)
    snapshot, _ = read_slurm(document("25.11", "jobs"), document("25.11", "nodes"), policy=policy)
    assert snapshot.policy == policy
