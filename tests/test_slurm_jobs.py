"""Slurm's jobs: what they ask for, where they run, what they wait for."""

from __future__ import annotations

from typing import Any

import pytest
from slurm_docs import NOW, SHAPES, document, job, running
from slurm_world import AT, read

from trencadis.models import (
    ArrayRef,
)


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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
