"""schema, init, generate and import: what they write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import (
    job,
    node,
    snapshot,
)
from command import INSTANCES, Program
from fake_solver import FakeSolver

from trencadis.models import Policy, load_policy, load_snapshot


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> FakeSolver:
    return FakeSolver(monkeypatch)


@pytest.mark.parametrize("kind", ["snapshot", "plan", "policy"])
def test_schema(program: Program, kind: str) -> None:
    done = program("schema", kind)
    assert done.code == 0
    assert json.loads(done.out)["title"] == kind.capitalize()
    assert program("schema", kind, "--json").out == done.out


def test_init_writes_files_that_work(program: Program, solver: FakeSolver) -> None:
    done = program("init", "--teams", "20")
    assert done.code == 0
    assert program.files() == {"trencadis-policy.toml", "trencadis.toml", "snapshot.json"}
    policy = Path("trencadis-policy.toml").read_text()
    assert load_policy(policy, toml=True) == Policy()
    for name in Policy.model_fields:
        if name != "schema_version":
            # Set, left out as absent, or a table.
            marks = (f"\n{name} =", f"\n# {name} =", f"[{name}]")
            before = next(policy.partition(mark)[0] for mark in marks if mark in policy)
            assert before.rstrip("\n[").rpartition("\n")[2].startswith("#"), name
    snap, warnings = load_snapshot(Path("snapshot.json").read_bytes())
    assert warnings == []
    assert [queue.name for queue in snap.queues] == [f"team-{n}" for n in range(1, 21)]
    assert program("solve", "snapshot.json").code == 0
    assert solver.calls[0][0].policy == Policy()


def test_init_overwrites_only_by_force(program: Program) -> None:
    Path("there").mkdir()
    Path("there/trencadis.toml").write_text("mine")
    done = program("init", "--teams", "2", "--dir", "there")
    assert done.code == 2
    assert "trencadis.toml in there would be overwritten" in done.err
    assert program.files() == {"there", "there/trencadis.toml"}
    done = program("init", "--teams", "2", "--dir", "there", "--force", "--json")
    assert done.code == 0
    assert len(json.loads(done.out)["written"]) == 3
    assert Path("there/trencadis.toml").read_text() != "mine"


def test_generate_is_a_function_of_its_options(program: Program) -> None:
    options = ("generate", "--nodes", "5", "--pending", "7", "--load", "0.5", "--queues", "3")
    first = program(*options, "--seed", "4")
    assert first.code == 0
    snap, _ = load_snapshot(first.out)
    assert len(snap.nodes) == 5
    assert sum(job.state == "pending" for job in snap.jobs) == 7
    assert program(*options, "--seed", "4").out == first.out
    assert program(*options, "--seed", "5").out != first.out
    assert program(*options, "--seed", "4", "-o", "g.json").out == ""
    assert Path("g.json").read_text() == first.out


NODES_CSV = "sn,cpu_milli,memory_mib,gpu,model\nnode-1,64000,262144,2,V100M16\n"
PODS_CSV = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "pod-1,6000,1024,1,1000,,LS,Running,0,12537496,0\n"
    "pod-2,6000,1024,1,1000,,LS,Running,10,12537496,10\n"
)


def test_import_openb(program: Program) -> None:
    Path("nodes.csv").write_text(NODES_CSV)
    Path("pods.csv").write_text(PODS_CSV)
    done = program("import", "openb", "nodes.csv", "pods.csv", "--running", "1", "--pending", "1")
    assert done.code == 0, done.err
    snap, _ = load_snapshot(done.out)
    assert [job.state for job in snap.jobs] == ["running", "pending"]


@pytest.mark.parametrize("bad", ["missing", "directory", "empty", "binary", "header", "row"])
def test_import_openb_refuses_what_is_not_the_trace(program: Program, bad: str) -> None:
    Path("nodes.csv").write_text(NODES_CSV)
    pods = Path("pods.csv")
    match bad:
        case "directory":
            pods.mkdir()
        case "empty":
            pods.write_text("")
        case "binary":
            pods.write_bytes(b"\xff\x00\xfe")
        case "header":
            pods.write_text("a,b\n1,2\n")
        case "row":
            pods.write_text(PODS_CSV.replace("6000", "-6e99"))
    before = program.files()
    done = program("import", "openb", "nodes.csv", "pods.csv", "-o", "snap.json")
    assert done.code == 65
    assert "pods.csv" in done.err
    assert "Traceback" not in done.err
    assert program.files() == before


SLURM_NODES = {
    "nodes": [
        {
            "name": "n1",
            "state": ["IDLE"],
            "cpus": 64,
            "real_memory": 262_144,
            "gres": "gpu:h100:8",
            "gres_used": "gpu:h100:0",
            "partitions": ["main"],
        }
    ],
    "last_update": {"set": True, "infinite": False, "number": 1_767_614_400},
}


def test_import_slurm(program: Program) -> None:
    Path("jobs.json").write_text('{"jobs": []}')
    nodes = json.dumps(SLURM_NODES)
    done = program("import", "slurm", "--jobs", "jobs.json", "--nodes", "-", stdin=nodes)
    assert done.code == 0, done.err
    snap, _ = load_snapshot(done.out)
    assert [node.gpu_count for node in snap.nodes] == [8]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 10**5, b'{"jobs": 1}', b'{"jobs": [1]}']
)
def test_import_slurm_refuses_what_is_not_slurms(program: Program, text: bytes) -> None:
    Path("nodes.json").write_text(json.dumps(SLURM_NODES))
    Path("jobs.json").write_bytes(text)
    before = program.files()
    done = program("import", "slurm", "--jobs", "jobs.json", "--nodes", "nodes.json", "-o", "s")
    assert done.code == 65
    assert done.out == ""
    assert "jobs" in done.err
    assert "Traceback" not in done.err
    assert program.files() == before


def test_warnings_go_to_stderr(program: Program) -> None:
    snap = snapshot(node("n1", 8), job("a7", 9))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "stdin: 1 warning" in done.err
    assert "job a7 asks for 9 GPUs on one node; the largest node has 8." in done.err
    assert "largest node" not in done.out


def test_the_instances_can_be_shown(program: Program) -> None:
    paths = sorted(INSTANCES.glob("*.json"))
    assert paths
    for path in paths:
        done = program("show", path)
        assert done.code == 0, (path.name, done.err)
