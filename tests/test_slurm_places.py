"""Slurm's nodes, and where its jobs may run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from slurm_docs import NOW, SHAPES, document, job, node, num, running
from slurm_world import partition, read

from trencadis.adapters.slurm.snapshot import read_slurm
from trencadis.models import (
    Segments,
    Topology,
)


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


TREE = """
SwitchName=spine Switches=leaf[1-2]
SwitchName=leaf1 Nodes=g[1-2]
SwitchName=leaf2 Nodes=g[3-4]
"""


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


@pytest.mark.parametrize(
    ("sizes", "tasks", "level", "segment"),
    [
        # As Slurm 24.11 starts and refuses them: see decision 073.
        ("2", 2, "block", None),
        ("2", 3, None, None),
        ("2", 4, None, 2),
        ("2,4", 2, "block", None),
        ("2,4", 3, "block-2", None),
        ("2,4", 4, "block-2", 2),
        ("2,4", 5, None, None),
        ("2,4", 6, None, 2),
    ],
)
def test_what_a_block_topology_asks_for_unasked(
    sizes: str, tasks: int, level: str | None, segment: int | None
) -> None:
    lines = [f"BlockName=b{i} Nodes=g{2 * i},g{2 * i + 1}" for i in range(3)]
    nodes = document("24.05", "nodes", *(node("24.05", f"g{i}") for i in range(6)))
    record = job("24.05", 1, node_count=tasks, tasks=tasks, tres_per_node="gres/gpu:8")
    text = "\n".join([*lines, f"BlockSizes={sizes}"])
    snapshot, _ = read_slurm(document("24.05", "jobs", record), nodes, text)
    (found,) = snapshot.jobs
    assert (found.topology and found.topology.level) == level
    assert (found.segments and found.segments.tasks) == segment
