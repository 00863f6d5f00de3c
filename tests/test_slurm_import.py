"""Slurm's documents, in the shapes of three releases, as snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slurm_docs import NOW, SHAPES, document, job, node, num, running

from trencadis.adapters.slurm import read_slurm
from trencadis.models import (
    ArrayRef,
    Fault,
    InvalidInputError,
    Job,
    Policy,
    Queue,
    Quota,
    Segments,
    Snapshot,
    Topology,
    load_snapshot,
)

DATA = Path(__file__).parents[2] / "shared" / "data" / "formats"
AT = datetime.fromtimestamp(NOW, tz=UTC)

TREE = """
SwitchName=spine Switches=leaf[1-2]
SwitchName=leaf1 Nodes=g[1-2]
SwitchName=leaf2 Nodes=g[3-4]
"""


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class World:
    """A snapshot with its warnings, and its parts by name."""

    def __init__(self, snapshot: Snapshot, warnings: list[Fault]) -> None:
        self.snapshot = snapshot
        self.warnings = [str(warning) for warning in warnings]
        self.jobs: dict[str, Job] = {entry.name: entry for entry in snapshot.jobs}
        self.nodes = {entry.name: entry for entry in snapshot.nodes}

    def warned(self, text: str) -> bool:
        return any(text in line for line in self.warnings)

    def may_run_on(self, name: str) -> set[str]:
        """Nodes that the job's selector, lists and tolerations leave."""
        entry = self.jobs[name]
        return {
            n.name
            for n in self.snapshot.nodes
            if all(n.labels.get(k) == v for k, v in entry.node_selector.items())
            and n.name not in entry.excluded_nodes
            and (not entry.required_nodes or n.name in entry.required_nodes)
            and all(any(t.key == taint.key for t in entry.tolerations) for taint in n.taints)
            and not (n.down or n.cordoned)
        }


def read(
    shape: str, jobs: list[dict[str, Any]], nodes: list[dict[str, Any]] | None = None, **more: Any
) -> World:
    nodes = [node(shape, f"g{i}") for i in range(1, 5)] if nodes is None else nodes
    topology = more.pop("topology", None)
    more.setdefault("now", AT)
    snapshot, warnings = read_slurm(
        document(shape, "jobs", *jobs), document(shape, "nodes", *nodes), topology, **more
    )
    # What the importer makes must be what the loader takes.
    assert load_snapshot(snapshot.model_dump_json())[0] == snapshot
    return World(snapshot, warnings)


def faults(jobs: str | bytes, nodes: str | bytes, **more: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read_slurm(jobs, nodes, **more)
    assert all("\n" not in str(fault) for fault in caught.value.faults)
    return [str(fault) for fault in caught.value.faults]


def test_a_job_with_gpus_per_node_is_a_gang(shape: str) -> None:
    world = read(
        shape,
        [
            job(
                shape, 7, tres_per_node="gres:gpu:h100:4", node_count=2, cpus=32, tasks=8,
                tres_req_str="cpu=32,mem=64000M,node=2,billing=32",
                memory_per_node=32_000, time_limit=90,
            )
        ],
    )  # fmt: skip
    found = world.jobs["7"]
    assert (found.tasks, found.request.gpus, found.max_tasks_per_node) == (2, 4, 1)
    assert (found.request.cpu_milli, found.request.memory_mib) == (16_000, 32_000)
    assert found.gpu_models == ("h100",)
    assert (found.queue, found.user, found.qos) == ("red", "ada", "normal")
    assert found.priority == "normal"
    assert found.runtime_seconds == 5_400
    assert (AT - found.submit).total_seconds() == 3_600
    assert found.state == "pending"
    assert world.may_run_on("7") == {"g1", "g2", "g3", "g4"}
    assert world.warnings == []
    assert all(entry.precision == "node" for entry in world.snapshot.nodes)


@pytest.mark.parametrize(
    ("fields", "tasks", "gpus", "most"),
    [
        ({"tres_per_job": "gres/gpu:4"}, 1, 4, None),
        ({"tres_per_job": "gres/gpu:16"}, 2, 8, 1),
        ({"tres_per_job": "gres/gpu:8", "max_nodes": 2, "node_count": 2}, 2, 4, 1),
        ({"tres_per_job": "gres/gpu:7", "max_nodes": 2, "node_count": 2}, 7, 1, 4),
        ({"tres_per_task": "gres/gpu:2", "tasks": 6}, 6, 2, None),
        ({"tres_per_task": "gres/gpu:2", "tasks": 6, "tasks_per_node": 3}, 6, 2, 3),
        ({"tres_per_task": "gres/gpu:2", "tasks": 6, "max_nodes": 2, "node_count": 2}, 2, 6, 1),
        ({"tres_per_task": "cpu=4,gres/gpu:1", "tasks": 2}, 2, 1, None),
        ({"tres_per_node": "gres/gpu:4", "tres_per_job": "gres/gpu:8"}, 2, 4, 1),
        ({"tres_per_socket": "gres/gpu:2", "sockets_per_node": 2}, 1, 4, None),
        ({"tres_per_task": "gres/gpu:1", "tres_per_job": "gres/gpu:8"}, 8, 1, None),
        ({"tasks": 6, "cpus": 6}, 6, 0, None),
        ({"tasks": 6, "cpus": 6, "max_nodes": 1}, 1, 0, None),
    ],
)
def test_how_requests_fall_into_tasks(
    shape: str, fields: dict[str, Any], tasks: int, gpus: int, most: int | None
) -> None:
    found = read(shape, [job(shape, 7, **fields)]).jobs["7"]
    assert (found.tasks, found.request.gpus, found.max_tasks_per_node) == (tasks, gpus, most)
    assert found.state == "pending"


def test_gpus_are_not_read_from_the_totals(shape: str) -> None:
    """tres_req_str leaves GPUs out at most sites, and counts them twice at others."""
    entry = job(shape, 7, tres_per_node="gres/gpu:2", tres_req_str="cpu=1,node=1,billing=1")
    assert read(shape, [entry]).jobs["7"].request.gpus == 2


def test_cpu_and_memory_by_cpu_and_by_gpu(shape: str) -> None:
    by_cpu = job(shape, 1, cpus=8, memory_per_cpu=2_000)
    by_gpu = job(
        shape,
        2,
        tres_per_node="gres/gpu:4",
        cpus_per_tres="gres:gpu:6",
        memory_per_tres="gres:gpu:9000",
    )
    total = job(shape, 3, memory_per_node=0, tres_req_str="cpu=1,mem=62.50G,node=1")
    jobs = read(shape, [by_cpu, by_gpu, total]).jobs
    assert (jobs["1"].request.cpu_milli, jobs["1"].request.memory_mib) == (8_000, 16_000)
    assert (jobs["2"].request.cpu_milli, jobs["2"].request.memory_mib) == (24_000, 36_000)
    assert jobs["3"].request.memory_mib == 64_000


def test_running_jobs_keep_their_indices(shape: str) -> None:
    world = read(
        shape,
        [running(shape, 9, {"g1": "gpu:h100:4(IDX:0-3)", "g2": "gpu:h100:4(IDX:4,6-7,5)"}, cpus=8)],
    )
    found = world.jobs["9"]
    assert found.state == "running"
    assert [(task.node, task.gpus) for task in found.allocation] == [
        ("g1", (0, 1, 2, 3)),
        ("g2", (4, 5, 6, 7)),
    ]
    assert (found.request.gpus, found.request.cpu_milli, found.request.memory_mib) == (
        4,
        8_000,
        1_000,
    )
    assert found.start is not None
    assert (AT - found.start).total_seconds() == 600
    assert found.runtime_seconds == 3_600


def test_unequal_nodes_become_smaller_tasks(shape: str) -> None:
    world = read(
        shape, [running(shape, 9, {"g1": "gpu:h100:2(IDX:0-1)", "g2": "gpu:h100:6(IDX:0-5)"})]
    )
    found = world.jobs["9"]
    assert (found.tasks, found.request.gpus) == (4, 2)
    assert [task.gpus for task in found.allocation] == [(0, 1), (0, 1), (2, 3), (4, 5)]
    assert world.warned("unequal numbers of GPUs")


def test_without_indices_only_the_number_is_known(shape: str) -> None:
    from_detail = running(shape, 1, {"g1": "gpu:h100:2"})
    from_request = running(
        shape, 2, {"g2": "", "g3": ""}, gres_detail=[], tres_per_node="gres/gpu:h100:3"
    )
    from_totals = running(shape, 3, {"g4": ""}, gres_detail=[], tres_alloc_str="cpu=1,gres/gpu=5")
    per_job = running(shape, 4, {"g1": ""}, gres_detail=[], tres_per_job="gres/gpu:6")
    jobs = read(shape, [from_detail, from_request, from_totals, per_job]).jobs
    assert [jobs[name].request.gpus for name in "1234"] == [2, 3, 5, 6]
    assert all(task.gpus is None for name in "1234" for task in jobs[name].allocation)


def test_states_of_jobs(shape: str) -> None:
    ended = [
        job(shape, 10 + i, state)
        for i, state in enumerate(["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED"])
    ]
    completing = running(shape, 1, {"g1": "gpu:h100:1(IDX:0)"}, state="COMPLETING")
    left = job(shape, 2, "COMPLETING", nodes="", start_time=NOW - 5)
    suspended = running(shape, 3, {"g2": "gpu:h100:1(IDX:0)"}, state="SUSPENDED")
    configuring = running(shape, 4, {"g3": "gpu:h100:1(IDX:0)"}, state="CONFIGURING")
    world = read(shape, [*ended, completing, left, suspended, configuring])
    assert {name: entry.state for name, entry in world.jobs.items()} == {
        "1": "draining",
        "3": "running",
        "4": "running",
    }
    assert world.warned("suspended")


def test_held_jobs(shape: str) -> None:
    jobs = [
        job(shape, 1, hold=True),
        job(shape, 2, priority=0, state_reason="JobHeldUser"),
        job(shape, 3, state_reason="JobHeldAdmin"),
        job(shape, 4, state_reason="DependencyNeverSatisfied"),
        job(shape, 5, state_reason="AssocGrpGRES"),
        job(shape, 6, state_reason="Resources"),
        job(shape, 7, state_reason="PartitionTimeLimit"),
    ]
    world = read(shape, jobs)
    assert {name for name, entry in world.jobs.items() if entry.state == "held"} == set("123457")
    assert world.warned("AssocGrpGRES")
    ours = read(shape, jobs, held="pending")
    assert {name for name, entry in ours.jobs.items() if entry.state == "held"} == set("457")


def test_a_begin_time_in_the_future(shape: str) -> None:
    entry = job(shape, 7, eligible_time=NOW + 600, state_reason="BeginTime")
    found = read(shape, [entry]).jobs["7"]
    assert found.not_before is not None
    assert (found.not_before - AT).total_seconds() == 600


def test_waiting_counts_from_when_a_job_might_have_run(shape: str) -> None:
    found = read(shape, [job(shape, 7, eligible_time=NOW - 60)]).jobs["7"]
    assert (AT - found.submit).total_seconds() == 60


def test_dependencies(shape: str) -> None:
    jobs = [
        running(shape, 1, {"g1": ""}),
        job(shape, 2, dependency="afterok:1(unfulfilled)", state_reason="Dependency"),
        job(shape, 3, dependency="after:1,afterany:2", state_reason="Dependency"),
        job(shape, 4, dependency="afterok:99(unfulfilled)", state_reason="Dependency"),
        job(shape, 5, dependency="afterok:99"),
        job(shape, 6, dependency="singleton", name="job-2"),
        job(shape, 7, dependency="afterok:1(failed)"),
        job(shape, 8, dependency="expand:1"),
        job(shape, 9, dependency="afterok:1?afterok:2"),
    ]
    world = read(shape, jobs)
    assert world.jobs["2"].after == ("1",)
    assert world.jobs["3"].after == ("2",)
    assert world.jobs["5"].after == ()
    assert world.jobs["6"].after == ("2",)
    assert world.jobs["9"].after == ("1", "2")
    assert {name for name, entry in world.jobs.items() if entry.state == "held"} == set("478")
    assert world.warned("does not show")


def test_arrays(shape: str) -> None:
    jobs = [
        job(shape, 50, array_job_id=50, array_task_string="1-3,7-9:2%2", array_max_tasks=2),
        running(shape, 51, {"g1": "gpu:h100:1(IDX:0)"}, array_job_id=50, array_task_id=0,
                array_max_tasks=2),
        job(shape, 60, array_job_id=60, array_task_id=4),
        job(shape, 70, dependency="afterok:50_*(unfulfilled)"),
        job(shape, 71, dependency="afterok:50_7(unfulfilled)"),
        job(shape, 80, array_job_id=80, array_task_string="7,8",
            dependency="aftercorr:50(unfulfilled)"),
    ]  # fmt: skip
    world = read(shape, jobs)
    tasks = {"50_1", "50_2", "50_3", "50_7", "50_9"}
    assert set(world.jobs) == tasks | {"50_0", "60_4", "70", "71", "80_7", "80_8"}
    assert world.jobs["50_1"].array == world.jobs["50_0"].array == ArrayRef(name="50", throttle=2)
    assert world.jobs["60_4"].array is None
    assert set(world.jobs["70"].after) == tasks | {"50_0"}
    assert world.jobs["71"].after == ("50_7",)
    assert world.jobs["80_7"].after == ("50_7",)
    few = read(shape, jobs, array_tasks=2)
    assert {"50_1", "50_2"} <= set(few.jobs)
    assert "50_3" not in few.jobs
    assert few.warned("left out")


def test_het_jobs_start_together(shape: str) -> None:
    jobs = [job(shape, 7, het_job_id=7), job(shape, 8, het_job_id=7), job(shape, 9)]
    found = read(shape, jobs).jobs
    assert found["7"].group == found["8"].group == "het-7"
    assert found["9"].group is None


def test_required_and_excluded_nodes(shape: str) -> None:
    jobs = [
        job(shape, 1, required_nodes="g3"),
        job(shape, 2, excluded_nodes="g[1-2],zz"),
        job(
            shape, 3, required_nodes="g[1-2]", node_count=2, max_nodes=2, tres_per_node="gres/gpu:8"
        ),
        job(shape, 4, required_nodes="g1", node_count=2, max_nodes=2, tres_per_node="gres/gpu:8"),
        job(shape, 5, required_nodes="g[1-"),
    ]
    world = read(shape, jobs)
    assert world.may_run_on("1") == {"g3"}
    assert world.may_run_on("2") == {"g3", "g4"}
    assert world.may_run_on("3") == {"g1", "g2"}
    assert world.jobs["3"].state == "pending"
    # Slurm would add nodes of its own to g1; the schema can't say that.
    assert world.jobs["4"].state == world.jobs["5"].state == "held"


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [
        ("a", {"g1", "g2"}),
        ("a&b", {"g2"}),
        ("b|c", {"g2", "g3"}),
        ("a&(b|c)", {"g2"}),
        ("z", set()),
        ("a|z", {"g1", "g2"}),
    ],
)
def test_features(shape: str, constraint: str, nodes: set[str]) -> None:
    kinds: list[Any] = ["a", "a,b", "c"]
    if shape != "22.05":
        kinds = [kind.split(",") for kind in kinds]
    entries = [
        node(shape, f"g{i}", features=kind, active_features=kind) for i, kind in enumerate(kinds, 1)
    ]
    world = read(shape, [job(shape, 7, features=constraint)], entries)
    assert world.may_run_on("7") == nodes
    assert world.jobs["7"].state == "pending"


@pytest.mark.parametrize("constraint", ["[a|b]", "a*2&b*1", "a&"])
def test_constraints_that_are_not_kept_hold_the_job(shape: str, constraint: str) -> None:
    world = read(shape, [job(shape, 7, features=constraint)])
    assert world.jobs["7"].state == "held"
    assert world.may_run_on("7") == set()
    assert world.warned("constraint")


def test_switches_and_segments(shape: str) -> None:
    wide = {"node_count": 4, "max_nodes": 4, "tres_per_node": "gres/gpu:8"}
    key = "minimum_switches" if shape == "22.05" else "required_switches"
    jobs = [
        job(shape, 1, **wide, **{key: 1}, maximum_switch_wait_time=7_200),
        job(shape, 2, **wide, required_switches="1@2:00:00"),
        job(shape, 3, **wide, **{key: 2}),
        job(shape, 4, **wide, segment_size=2),
        job(shape, 5, **wide, segment_size=3),
        job(shape, 6, **wide, segment_size=0, **{key: 1}),
        job(shape, 7, **{key: 1}),
    ]
    world = read(shape, jobs, topology=TREE)
    required = Topology(level="leaf", mode="required", relax_after_seconds=7_200)
    assert world.jobs["1"].topology == required
    assert world.jobs["2"].topology == required
    assert world.jobs["3"].topology == Topology(level="leaf", mode="preferred")
    assert world.jobs["4"].segments == Segments(tasks=2, level="leaf")
    assert world.jobs["5"].state == "held"
    assert world.jobs["6"].topology == Topology(
        level="leaf", mode="required", relax_after_seconds=300
    )
    assert world.jobs["7"].topology is None
    assert world.nodes["g3"].fabric == ("spine", "leaf2")


def test_nodes_without_a_switch_are_alone(shape: str) -> None:
    world = read(shape, [], [node(shape, "g1"), node(shape, "x")], topology=TREE)
    assert world.nodes["x"].fabric == ("only/x", "only/x")
    assert world.snapshot.fabric.levels[0].boundary
    assert world.warned("not in the topology")


def test_exclusive_jobs(shape: str) -> None:
    none: Any = "none" if shape == "22.05" else ["none"]
    user: Any = "user" if shape == "22.05" else ["user"]
    jobs = [
        job(shape, 1, shared=none),
        job(shape, 2, exclusive=["true"]),
        job(shape, 3, shared=user),
        job(shape, 4, shared=["oversubscribe"], exclusive=["false"]),
        job(shape, 5, shared=None),
    ]
    world = read(shape, jobs)
    assert {name for name, entry in world.jobs.items() if entry.exclusive} == {"1", "2", "3"}
    assert world.warned("not shared with other users")


def test_exclusive_jobs_that_share_a_node_close_it(shape: str) -> None:
    """One user's jobs may share what is exclusive to the user."""
    user: Any = "user" if shape == "22.05" else ["user"]
    jobs = [
        running(shape, 1, {"g1": "gpu:h100:1(IDX:0)"}, shared=user),
        running(shape, 2, {"g1": "gpu:h100:1(IDX:1)"}, shared=user),
    ]
    world = read(shape, jobs)
    assert world.nodes["g1"].cordoned
    assert not any(entry.exclusive for entry in world.jobs.values())


@pytest.mark.parametrize(
    ("state", "down", "cordoned"),
    [
        ("IDLE", False, False),
        ("MIXED+PLANNED", False, False),
        ("IDLE+CLOUD+POWERED_DOWN", False, False),
        ("IDLE+DRAIN", False, True),
        ("ALLOCATED+DRAIN", False, True),
        ("DOWN", True, False),
        ("DOWN+NOT_RESPONDING", True, True),
        ("IDLE+NOT_RESPONDING", False, True),
        ("IDLE+MAINTENANCE", False, True),
        ("IDLE+RESERVED", False, True),
        ("IDLE+POWERING_DOWN", False, True),
        ("FUTURE", True, False),
    ],
)
def test_states_of_nodes(shape: str, state: str, down: bool, cordoned: bool) -> None:
    found = read(shape, [], [node(shape, "g1", state=state)]).nodes["g1"]
    assert (found.down, found.cordoned) == (down, cordoned)


def test_a_down_node_with_a_job_is_only_cordoned(shape: str) -> None:
    world = read(
        shape,
        [running(shape, 1, {"g1": "gpu:h100:1(IDX:0)"}, state="COMPLETING")],
        [node(shape, "g1", state="DOWN")],
    )
    assert world.nodes["g1"].cordoned
    assert not world.nodes["g1"].down


def test_mixed_models_and_drained_gpus(shape: str) -> None:
    world = read(
        shape,
        [],
        [
            node(shape, "g1", "gpu:a100:2(S:0),gpu:v100:4(S:1)", gres_drained="gpu:v100:1(IDX:3)"),
            node(shape, "g2", "gpu:4", gres_drained="gpu:1", gres_used="gpu:1(IDX:3)"),
        ],
    )
    first, second = world.nodes["g1"], world.nodes["g2"]
    assert [(group.model, group.count, group.unhealthy) for group in first.gpus] == [
        ("a100", 2, ()),
        ("v100", 4, (3,)),
    ]
    assert [(group.model, group.count, group.unhealthy) for group in second.gpus] == [
        ("gpu", 4, (2,))
    ]


def test_mig_devices_are_counted_resources(shape: str) -> None:
    nodes = [node(shape, "g1", "gpu:a100_3g.20gb:2,gpu:a100:2,nic:cx7:4")]
    jobs = [
        running(shape, 1, {"g1": "gpu:a100_3g.20gb:1(IDX:0)"}),
        running(shape, 2, {"g1": "gpu:a100:1(IDX:3)"}),
        job(shape, 3, tres_per_node="gres/gpu:a100_3g.20gb:1"),
        job(shape, 4, tres_per_node="gres/gpu:1,gres/nic:2"),
    ]
    world = read(shape, jobs, nodes)
    key = "gres/gpu:a100_3g.20gb"
    assert world.nodes["g1"].resources == {key: 2, "gres/nic": 4, "gres/nic:cx7": 4}
    assert world.nodes["g1"].gpu_count == 2
    assert world.jobs["1"].request.resources == {key: 1}
    assert world.jobs["1"].request.gpus == 0
    # Slurm's index 3 counts through the MIG devices; among whole GPUs it is 1.
    assert world.jobs["2"].allocation[0].gpus == (1,)
    assert world.jobs["3"].request.resources == {key: 1}
    assert (world.jobs["4"].request.gpus, world.jobs["4"].request.resources) == (1, {"gres/nic": 2})


def test_shards_are_shares(shape: str) -> None:
    nodes = [
        node(shape, "g1", "gpu:h100:4,shard:32", gres_used="gpu:h100:0,shard:5(0/8,3/8,2/8,0/8)")
    ]
    jobs = [
        running(shape, 1, {"g1": "shard:3"}),
        running(shape, 2, {"g1": "shard:2"}),
        job(shape, 3, tres_per_node="gres/shard:4"),
    ]
    world = read(shape, jobs, nodes)
    assert world.nodes["g1"].shareable
    assert world.nodes["g1"].max_jobs_per_gpu == 8
    assert {world.jobs[name].allocation[0].gpus for name in "12"} == {(1,), (2,)}
    share = world.jobs["3"].request.share
    assert share is not None
    assert share.gpu_milli == 500


def test_two_types_in_one_request_are_held(shape: str) -> None:
    world = read(shape, [job(shape, 7, tres_per_node="gres/gpu:a100:1,gres/gpu:v100:1")])
    assert world.jobs["7"].state == "held"
    assert world.warned("several types")


def partition(name: str, nodes: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "nodes": {"configured": nodes}, "partition": {"state": ["UP"]}} | more


def test_partitions(shape: str) -> None:
    parts = document(
        shape,
        "partitions",
        partition("a", "g[1-2]", maximums={"time": num(shape, 120), "shares": 1}, grace_time=30),
        partition("b", "g[2-3]", partition={"state": ["DOWN"]}),
        partition("c", "g4", maximums={"shares": 0}, defaults={"time": num(shape, 10)}),
    )
    nodes = [node(shape, f"g{i}", partitions=[]) for i in range(1, 5)]
    jobs = [
        job(shape, 1, partition="a", time_limit=None),
        job(shape, 2, partition="a,b"),
        job(shape, 3, partition="b"),
        job(shape, 4, partition="a,c"),
        job(shape, 5, partition="c", time_limit=None),
        job(shape, 6, partition="z"),
    ]
    world = read(shape, jobs, nodes, partitions_json=parts, queue_by="partition")
    assert world.may_run_on("1") == {"g1", "g2"}
    assert (world.jobs["1"].runtime_seconds, world.jobs["1"].grace_seconds) == (7_200, 30)
    assert world.may_run_on("2") == {"g1", "g2"}
    assert world.jobs["3"].state == "held"
    assert world.may_run_on("4") == {"g1", "g2", "g4"}
    assert (world.jobs["5"].runtime_seconds, world.jobs["5"].exclusive) == (600, True)
    assert world.may_run_on("6") == set()
    assert world.jobs["2"].queue == "a"


def test_reservations(shape: str) -> None:
    def kept(name: str, start: int, end: int, nodes: str, *flags: str) -> dict[str, Any]:
        times = {"start_time": num(shape, NOW + start), "end_time": num(shape, NOW + end)}
        return {"name": name, "node_list": nodes, "flags": list(flags), "licenses": "sim:3"} | times

    reservations = document(
        shape,
        "reservations",
        kept("now", -60, 3_600, "g1", "SPEC_NODES"),
        kept("later", 600, 1_200, "g2", "MAINT"),
        kept("flex", -60, 3_600, "g3", "FLEX"),
        kept("over", -600, -60, "g4"),
    )
    nodes = [
        node(shape, "g1", state="IDLE+RESERVED"),
        *(node(shape, f"g{i}") for i in range(2, 5)),
    ]
    jobs = [
        job(shape, 1, resv_name="now"),
        job(shape, 2, resv_name="later"),
        job(shape, 3, resv_name="flex"),
        job(shape, 4, resv_name="over"),
        job(shape, 5),
    ]
    pools = document(shape, "licenses", {"LicenseName": "sim", "Total": 9, "Used": 1})
    world = read(shape, jobs, nodes, reservations_json=reservations, licenses_json=pools)
    assert world.may_run_on("1") == {"g1"}
    assert world.may_run_on("2") == {"g2"}
    assert world.jobs["2"].not_before == datetime.fromtimestamp(NOW + 600, tz=UTC)
    assert world.may_run_on("3") == {"g2", "g3", "g4"}
    assert world.jobs["4"].state == "held"
    assert world.may_run_on("5") == {"g2", "g4"}
    assert world.nodes["g2"].free_until == datetime.fromtimestamp(NOW + 600, tz=UTC)
    assert world.nodes["g4"].free_until is None
    assert world.snapshot.licences[0].used_elsewhere == 1 + 3 + 3


def test_licences(shape: str) -> None:
    jobs = [
        running(shape, 1, {"g1": ""}, licenses="ansys@db:2,matlab"),
        job(shape, 2, licenses="ansys@db:1"),
        job(shape, 3, licenses="a:1|b:1"),
    ]
    pools = document(shape, "licenses", {"LicenseName": "ansys@db", "Total": 10, "Used": 5})
    world = read(shape, jobs, licenses_json=pools)
    found = {entry.name: (entry.total, entry.used_elsewhere) for entry in world.snapshot.licences}
    # Nobody told how many of matlab there are, so there are no more than run.
    assert found == {"ansys@db": (10, 3), "matlab": (1, 0)}
    assert world.jobs["2"].licences == {"ansys@db": 1}
    assert world.jobs["3"].state == "held"


def test_what_no_job_accounts_for_stays_in_use(shape: str) -> None:
    nodes = [
        node(
            shape, "g1", gres_used="gpu:h100:3(IDX:0-1,5)", alloc_cpus=10, alloc_memory=5_000
        )
    ]  # fmt: skip
    world = read(shape, [running(shape, 1, {"g1": "gpu:h100:1(IDX:1)"}, cpus=4)], nodes)
    unseen = world.jobs["unseen/g1"]
    assert unseen.allocation[0].gpus == (0, 5)
    assert (unseen.request.cpu_milli, unseen.request.memory_mib) == (6_000, 4_000)
    assert not unseen.preemptible


def test_two_jobs_on_one_gpu_are_only_counted(shape: str) -> None:
    jobs = [
        running(shape, 1, {"g1": "gpu:h100:2(IDX:0-1)"}),
        running(shape, 2, {"g1": "gpu:h100:2(IDX:1-2)"}),
    ]
    world = read(shape, jobs)
    assert world.jobs["1"].allocation[0].gpus == (0, 1)
    assert world.jobs["2"].allocation[0].gpus is None


def test_a_node_that_is_not_listed_gets_a_stand_in(shape: str) -> None:
    world = read(shape, [running(shape, 1, {"q9": "gpu:h100:2(IDX:4-5)"}, cpus=8)])
    assert world.nodes["q9"].cordoned
    assert world.nodes["q9"].gpu_count == 6
    assert world.jobs["1"].allocation[0].gpus == (4, 5)
    assert world.warned("lacks")


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
