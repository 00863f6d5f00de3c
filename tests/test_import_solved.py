"""What the importers make can be solved, and the plans keep every rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from slurm_docs import SHAPES, document, job, node, running

from trencadis.adapters.nvidia_smi import read_nvidia_smi
from trencadis.adapters.slurm import read_slurm
from trencadis.instances.openb import read_openb
from trencadis.models import InvalidInputError, Job, Queue, Request
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_slurm_cluster(shape: str) -> None:
    jobs = [
        running(shape, 1, {"g1": "gpu:h100:4(IDX:0-3)"}),
        running(shape, 2, {"g2": "gpu:h100:2"}),
        job(shape, 3, tres_per_node="gres/gpu:h100:4"),
        job(shape, 4, tres_per_node="gres/gpu:8", node_count=2, max_nodes=2, required_switches=1),
        job(shape, 5, array_job_id=5, array_task_string="1-6%2", tres_per_task="gres/gpu:1"),
        job(shape, 6, tres_per_job="gres/gpu:1", dependency="afterok:1(unfulfilled)"),
        job(shape, 7, tres_per_job="gres/gpu:1", features="[a|b]"),
        job(shape, 8, required_nodes="g3", tres_per_node="gres/gpu:2", hold=True),
    ]
    nodes = [node(shape, f"g{i}") for i in range(1, 5)]
    topology = (
        "SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=g[1-2]\nSwitchName=l2 Nodes=g[3-4]"
    )
    snapshot, _ = read_slurm(
        document(shape, "jobs", *jobs), document(shape, "nodes", *nodes), topology
    )
    plan = solve(snapshot)
    assert verify(snapshot, plan).violations == ()
    started = {start.job for start in plan.starts}
    assert {"3", "4"} <= started
    assert len(started & {f"5_{i}" for i in range(1, 7)}) == 2
    assert not started & {"6", "7", "8"}


def test_a_small_openb_table(tmp_path: Path) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time"
    pods = [f"p{i},1000,1024,{1 + i % 3},1000,{'T4' if i % 2 else ''},LS,,{i}" for i in range(12)]
    (tmp_path / "pods.csv").write_text("\n".join([header, "s,1000,1024,1,400,,BE,,0", *pods]))
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,99999,8,T4\nn2,64000,99999,4,G2\nc,9000,9000,0,\n"
    )
    snapshot = read_openb(tmp_path / "nodes.csv", tmp_path / "pods.csv", running=4)
    plan = solve(snapshot)
    assert verify(snapshot, plan).violations == ()
    assert plan.starts


@pytest.mark.skipif(not DATA.is_dir(), reason="the samples are not beside the repository")
def test_every_slurm_sample() -> None:
    folder = DATA / "formats" / "slurm"
    jobs = [*folder.glob("*slurm-job*.json"), *folder.glob("squeue*.json")]
    nodes = [*folder.glob("*slurm-node*.json"), *folder.glob("sinfo*.json")]
    for job_file in sorted(jobs):
        for node_file in sorted(nodes):
            snapshot, _ = read_slurm(job_file.read_text(), node_file.read_text())
            assert verify(snapshot, solve(snapshot)).violations == ()


@pytest.mark.skipif(not DATA.is_dir(), reason="the samples are not beside the repository")
def test_slurm_samples_with_more_and_with_less() -> None:
    """Fields that nobody knows change nothing; what a job or node can't be without is told."""
    folder = DATA / "formats" / "slurm"
    job_file = next(iter(sorted(folder.glob("*slurm-job*.json"))))
    node_file = next(iter(sorted(folder.glob("*slurm-node*.json"))))
    jobs, nodes = json.loads(job_file.read_text()), json.loads(node_file.read_text())
    plain, _ = read_slurm(json.dumps(jobs), json.dumps(nodes))
    for record in (*jobs["jobs"], *nodes["nodes"], jobs, nodes):
        record["of_a_later_release"] = {"set": True, "number": [1, {"x": None}]}
    assert read_slurm(json.dumps(jobs), json.dumps(nodes))[0] == plain
    for content, key, field in ((jobs, "jobs", "job_id"), (nodes, "nodes", "name")):
        lost = content[key][0].pop(field)
        with pytest.raises(InvalidInputError) as caught:
            read_slurm(json.dumps(jobs), json.dumps(nodes))
        assert any(f"{key}[0]" in line and field in line for line in caught.value.lines())
        content[key][0][field] = lost


SMI = DATA / "formats" / "nvidia-smi"


@pytest.mark.parametrize("file", sorted(SMI.glob("*")), ids=lambda file: file.name)
def test_every_nvidia_smi_sample(file: Path) -> None:
    """With jobs that want a GPU, two linked ones, and each kind of slice that is there."""
    snapshot, _ = read_nvidia_smi(
        [(file.name, file.read_bytes())], cpu_milli=64_000, memory_mib=512_000
    )
    profiles = {i.profile for node in snapshot.nodes for gpu in node.mig for i in gpu.instances}
    requests = [Request(gpus=1), Request(gpus=2), *(Request(mig=(p,)) for p in sorted(profiles))]
    queue = Queue(name="users")
    jobs = tuple(
        Job(name=f"wants{n}", queue=queue.name, submit=snapshot.now, request=request)
        for n, request in enumerate(requests)
    )
    asked = snapshot.model_copy(
        update={"jobs": (*snapshot.jobs, *jobs), "queues": (*snapshot.queues, queue)}
    )
    plan = solve(asked)
    assert verify(asked, plan).violations == ()
    told = {start.job for start in plan.starts} | {entry.job for entry in plan.pending}
    assert {job.name for job in jobs} <= told
    (node,) = snapshot.nodes
    sick = sum(len(group.unhealthy) for group in node.gpus)
    assert (node.gpu_count - sick > len(node.mig)) <= bool(plan.starts)


@pytest.mark.skipif(not DATA.is_dir(), reason="the openb tables are not beside the repository")
def test_a_part_of_openb() -> None:
    folder = DATA / "openb"
    snapshot = read_openb(
        folder / "openb_node_list_gpu_node.csv",
        folder / "openb_pod_list_gpuspec33.csv",
        running=100,
        pending=30,
        seed=5,
    )
    assert verify(snapshot, solve(snapshot)).violations == ()
