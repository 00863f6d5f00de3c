"""Every published sample of a cluster's state: imported, solved, verified."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command import Program
from kube_docs import Read, listing, node, pod

from trencadis.adapters.kubernetes import read_kubernetes
from trencadis.adapters.nvidia_smi import read_nvidia_smi
from trencadis.adapters.service.sessions import documents_of
from trencadis.models import InvalidInputError, Snapshot
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

DATA = os.environ.get("TRENCADIS_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data"
FORMATS = Path(DATA) / "formats"
there = pytest.mark.skipif(not FORMATS.is_dir(), reason="the samples are not beside the repository")

NODES = ("k8s/node-2xT4-wholegpu.yaml", "k8s/node-a100-mig-mixed-2g.10gb+3x1g.5gb.yaml")
PODS = ("k8s/pod-runai-fraction.yaml", "k8s/pod-runai-mig-1g.5gb.yaml")
SAMPLES = (
    *((name,) for name in (*NODES, "k8s/node-a100-mig-7g.40gb.yaml", *PODS)),
    (*NODES, *PODS),
    ("kueue/admissioncheck.yaml", "kueue/workload-admitted-tas.json"),
    ("kueue/sample-gpu-queues.yaml", "kueue/sample-job-required.yaml"),
    ("kueue/sample-queues.yaml", "kueue/sample-jobset-tas-sliced.yaml"),
    ("kueue/sample-dra-counter-queues.yaml", "kueue/sample-dra-counter-job.yaml"),
    ("volcano/podgroup-queue-hypernode.yaml",),
    ("volcano/queues.hierarchical.yaml",),
    ("kai/snapshot.synthetic.json",),
    ("kai/snapshot.synthetic.zip",),
    ("dra/gpu-test4-mig-claims.yaml", "dra/resourceslice-mig-counters.synthetic.yaml"),
)


def documents(*names: str) -> list[tuple[str, str | bytes]]:
    """Samples as kubectl would print them; those in YAML as the lists that -o json gives."""
    yaml = pytest.importorskip("yaml")
    found: list[tuple[str, str | bytes]] = []
    for name in names:
        data = (FORMATS / name).read_bytes()
        if name.endswith(".yaml"):
            items = [entry for entry in yaml.safe_load_all(data) if entry]
            data = json.dumps({"kind": "List", "items": items}, default=str).encode()
        found.append((name, data))
    return found


def sound(snapshot: Snapshot) -> set[str]:
    """Solves; the plan must keep every rule. Which jobs start."""
    plan = solve(snapshot, Options(workers=1))
    assert verify(snapshot, plan).violations == ()
    return {start.job for start in plan.starts}


def read(*names: str) -> Read:
    return Read(read_kubernetes(documents(*names)))


@there
@pytest.mark.parametrize("names", SAMPLES, ids="+".join)
def test_every_sample_is_read_and_solved(names: tuple[str, ...]) -> None:
    sound(read(*names).snapshot)


BY_NAME = ("Jobs", "Nodes", "Queues", "Tasks")
"""Tables of a session, whose keys are no fields."""


def strange(value: Any, key: str = "") -> Any:
    """The same with fields that nobody has heard of in every object."""
    if isinstance(value, dict):
        found = {key: strange(entry, key) for key, entry in value.items()}
        # A table of quantities or names has no room for others.
        plain = all(isinstance(entry, str | int | float) for entry in value.values())
        tables = plain or key in BY_NAME
        return found if tables else {**found, "x-unheard-of": {"a": [1, None, {"b": "c"}]}}
    return [strange(entry) for entry in value] if isinstance(value, list) else value


@there
@pytest.mark.parametrize("names", [n for n in SAMPLES if "zip" not in n[0]], ids="+".join)
def test_unknown_fields_are_tolerated(names: tuple[str, ...]) -> None:
    plain = documents(*names)
    odd = [(name, json.dumps(strange(json.loads(data)))) for name, data in plain]
    before, after = read_kubernetes(plain), read_kubernetes(odd)
    assert after.snapshot == before.snapshot
    assert len(after.warnings) == len(before.warnings)


@there
@pytest.mark.parametrize("names", [n for n in SAMPLES if "node-" in n[0]], ids="+".join)
def test_what_is_missing_is_reported(names: tuple[str, ...]) -> None:
    samples = [(name, json.loads(data)) for name, data in documents(*names)]
    for _, document in samples:
        for item in document["items"]:
            if item["kind"] == "Node":
                item["status"]["allocatable"].pop("cpu")
    with pytest.raises(InvalidInputError) as error:
        read_kubernetes([(name, json.dumps(document)) for name, document in samples])
    assert "allocatable.cpu" in error.value.lines()[0]
    assert "required quantity is missing" in error.value.lines()[0]


@there
def test_a_session_of_volcano() -> None:
    body = (FORMATS / "volcano/extender.onSessionOpen.request.json").read_bytes()
    found = Read(read_kubernetes([("session", documents_of(body))]))
    job = found.jobs["team-a/job1"]
    # One pod of four is made: a gang of fewer than its minimum doesn't start.
    assert (job.state, job.request.gpus, job.queue) == ("held", 8, "q1")
    assert sound(found.snapshot) == set()
    odd = json.loads(body)
    odd["Jobs"]["team-a/job1"]["MinAvailable"] = 1
    grown = read_kubernetes([("session", documents_of(json.dumps(strange(odd)).encode()))])
    assert sound(grown.snapshot) == {"team-a/job1"}
    del odd["Nodes"]["n1"]["Allocatable"]["MilliCPU"]
    with pytest.raises(InvalidInputError, match="cpu"):
        read_kubernetes([("session", documents_of(json.dumps(odd).encode()))])


@there
def test_a_capability_and_a_reservation_of_hami() -> None:
    """A node registered with the capability, and a pod that has the reservation."""
    sample = json.loads((FORMATS / "mig/hami-capability-and-reservation.json").read_bytes())
    capability, reservation = (sample[key] for key in sorted(sample) if key != "_source")
    rows = [
        {"id": reservation["gpuUUID"], "count": 7, "devmem": 40_536, "devcore": 100, "index": 0,
         "type": "NVIDIA-NVIDIA A100-SXM4-40GB", "mode": "mig", "health": True,
         "migProfiles": [capability]},
        {"id": "GPU-plain", "count": 10, "devmem": 40_536, "devcore": 100, "index": 1,
         "type": "NVIDIA-NVIDIA A100-SXM4-40GB", "mode": "hami-core", "health": True},
    ]  # fmt: skip
    asks = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}
    container = {"containers": [{"resources": {"limits": asks}}]}
    key = "hami.io/vgpu-mig-allocations"
    there = {"metadata": {"annotations": {key: json.dumps([reservation])}}}
    wish = {"metadata": {"annotations": {"nvidia.com/vgpu-mode": "mig"}}}
    found = Read(read_kubernetes([("list", listing(
        node("a", metadata={"annotations": {"hami.io/node-nvidia-register": json.dumps(rows)}}),
        pod("m", 1, on="a", spec=container, **there), pod("wish", 0, spec=container, **wish),
        *(pod(f"s{i}", 0, spec=container) for i in range(6)),
    ))]))  # fmt: skip
    (mig,) = found.nodes["a"].mig
    assert [(i.profile, i.start) for i in mig.instances] == [("2g.10gb", 2)]
    (task,) = found.jobs["ml/m"].allocation
    assert (task.gpus, task.mig[0].start) == ((0,), reservation["placement"]["start"])
    assert found.jobs["ml/wish"].state == "held"
    # Five times 8,000 MiB fit the GPU that isn't cut; the slices are HAMi's to give.
    assert len(sound(found.snapshot)) == 5


@there
def test_a_mig_node_has_the_layout_that_its_annotation_gives() -> None:
    found = read(*NODES, *PODS)
    (mig,) = found.nodes["qa-mig-worker-gpu-a100"].mig
    assert [(i.profile, i.start) for i in mig.instances] == [
        ("2g.10gb", 0),
        ("1g.5gb", 4),
        ("1g.5gb", 5),
        ("1g.5gb", 6),
    ]
    (job,) = [job for job in found.jobs.values() if job.request.mig]
    assert (job.allocation[0].gpus, job.allocation[0].mig[0].start) == ((0,), 6)
    (share,) = [job.request.share for job in found.jobs.values() if job.request.share]
    assert (share.gpu_milli, share.memory_mib) == (500, 7_680)
    assert found.warned("isn't listed")


@there
def test_an_admitted_workload_is_where_kueue_put_it() -> None:
    found = read("kueue/admissioncheck.yaml", "kueue/workload-admitted-tas.json")
    job = found.jobs["team-a/job-train-1"]
    assert (job.state, job.queue, job.tasks, job.request.gpus) == ("running", "cq-a", 6, 8)
    assert {task.node for task in job.allocation} == {
        *(f"block-1-rack-1-node-{i}" for i in range(1, 5)),
        *(f"block-1-rack-2-node-{i}" for i in range(1, 3)),
    }
    queue = found.queues["cq-a"]
    assert (queue.guarantee.gpus, queue.limit.quota.gpus) == (64, 96)


@there
def test_the_archive_and_its_json_say_the_same() -> None:
    packed, plain = (read(f"kai/snapshot.synthetic.{end}") for end in ("zip", "json"))
    assert packed.jobs.keys() == plain.jobs.keys() == {"team-a/train-0", "team-b/old-0"}
    assert plain.queues["team-a"].guarantee.gpus == 8
    assert plain.queues["team-a"].parent == "org"
    assert plain.nodes["n1"].fabric == ("r1",)
    assert sound(plain.snapshot) == set()  # 4 of the 8 GPUs are taken


@there
def test_a_pod_group_without_pods_waits_for_its_minimum() -> None:
    samples = documents("volcano/podgroup-queue-hypernode.yaml")
    found = Read(read_kubernetes(samples))
    job = found.jobs["team-a/job1"]
    assert (job.tasks, job.request.gpus, job.queue) == (4, 8, "team-a")
    assert job.segments is not None
    nodes = ("nodes", listing(*(node(f"n{i}", gpus=16) for i in range(1, 3))))
    assert sound(read_kubernetes([*samples, nodes]).snapshot) == {"team-a/job1"}


@there
def test_paths_and_weights_of_volcano_queues() -> None:
    queues = read("volcano/queues.hierarchical.yaml").queues
    assert (queues["root-eng-prod"].parent, queues["root-eng-prod"].weight) == ("root/eng", 8)
    assert (queues["root/sci"].parent, queues["root/sci"].weight) == (None, 8)


# nvidia-smi


def smi(*names: str) -> tuple[Snapshot, list[str]]:
    files = [(name, (FORMATS / "nvidia-smi" / name).read_bytes()) for name in names]
    snapshot, warnings = read_nvidia_smi(files, cpu_milli=64_000, memory_mib=512_000)
    sound(snapshot)
    return snapshot, [str(warning) for warning in warnings]


@there
def test_a_query_tells_profiles_by_their_sizes() -> None:
    snapshot, warnings = smi("q-x.a100-sxm4-80gb.mig-4x1g.20gb.driver535.xml")
    (made,) = snapshot.nodes
    assert (made.gpus[0].model, made.gpus[0].memory_mib) == ("NVIDIA-A100-SXM4-80GB", 81_920)
    (mig,) = made.mig
    assert [(i.profile, i.start) for i in mig.instances] == [("1g.20gb", s) for s in (0, 2, 4, 6)]
    assert any("attached" in line for line in warnings)  # four GPUs, one of them in the document


@there
def test_instances_are_where_the_list_says() -> None:
    snapshot, _ = smi("mig-lgi.holes.txt")
    (made,) = snapshot.nodes
    assert made.gpus[0].unhealthy == (0, 1, 2)
    (mig,) = made.mig
    assert (mig.gpu, [i.start for i in mig.instances]) == (3, [0, 1, 5])


@there
@pytest.mark.parametrize(
    ("name", "gpus", "links", "cpus"),
    [
        ("topo-m.4xa100-with-nics.txt", 4, ((0, 1),), 112),
        ("topo-m.6gpu-ansi-header.txt", 6, (), 96),
        ("topo-m.a100-nvlink-pairs.txt", 8, ((0, 2), (1, 3), (4, 5), (6, 7)), 64),
    ],
)
def test_matrices(name: str, gpus: int, links: tuple[tuple[int, int], ...], cpus: int) -> None:
    snapshot, _ = read_nvidia_smi([(name, (FORMATS / "nvidia-smi" / name).read_bytes())])
    (made,) = snapshot.nodes
    assert (made.gpu_count, made.nvlink.links, made.cpu_milli) == (gpus, links, cpus * 1_000)


@there
def test_lists_of_profiles_and_placements() -> None:
    for name in ("mig-lgip.h100-nvl-94gb.txt", "mig-lgipp.all-models.txt"):
        snapshot, _ = smi(name)
        assert snapshot.nodes[0].mig[0].gpu == 0


ROW = "GPU{i}\t" + "{cells}" + "\t0-15\t0"


def matrix(size: int, linked: set[tuple[int, int]]) -> str:
    def cell(i: int, j: int) -> str:
        return " X " if i == j else "NV18" if (min(i, j), max(i, j)) in linked else "SYS"

    head = "\t" + "\t".join(f"GPU{i}" for i in range(size)) + "\tCPU Affinity\tNUMA Affinity"
    rows = [ROW.format(i=i, cells="\t".join(cell(i, j) for j in range(size))) for i in range(size)]
    return "\n".join([f"\x1b[4m{head}\x1b[0m", *rows])


def test_all_pairs_linked_is_a_switch() -> None:
    every = {(i, j) for i in range(8) for j in range(i)} | {
        (j, i) for i in range(8) for j in range(i)
    }
    snapshot, _ = read_nvidia_smi([("topo", matrix(8, every))])
    assert snapshot.nodes[0].nvlink.kind == "nvswitch"
    assert snapshot.nodes[0].cpu_milli == 16_000


QUERY = """<?xml version="1.0" ?><nvidia_smi_log><timestamp>Fri Aug  4 11:44:30 2023</timestamp>
<attached_gpus>2</attached_gpus>
<gpu><product_name>NVIDIA H200</product_name><product_architecture>Hopper</product_architecture>
<fb_memory_usage><total>143771 MiB</total></fb_memory_usage>
<mig_mode><current_mig>Disabled</current_mig></mig_mode>
<processes><process_info><pid>7</pid><type>C</type></process_info></processes></gpu>
<gpu><product_name>NVIDIA H200</product_name><product_architecture>Hopper</product_architecture>
<fb_memory_usage><total>143771 MiB</total></fb_memory_usage>
<mig_mode><current_mig>Enabled</current_mig></mig_mode>
<mig_devices>
<mig_device><gpu_instance_id>2</gpu_instance_id><device_attributes><shared>
<multiprocessor_count>60</multiprocessor_count></shared></device_attributes>
<fb_memory_usage><total>71424 MiB</total></fb_memory_usage></mig_device>
<mig_device><gpu_instance_id>9</gpu_instance_id><device_attributes><shared>
<multiprocessor_count>16</multiprocessor_count></shared></device_attributes>
<fb_memory_usage><total>16384 MiB</total></fb_memory_usage></mig_device>
</mig_devices>
<processes><process_info><gpu_instance_id>9</gpu_instance_id><pid>8</pid><type>C</type>
</process_info></processes></gpu></nvidia_smi_log>"""

LGI = """| GPU instances: |
|   1  MIG 3g.71gb            9        2          4:4     |
|   1  MIG 1g.18gb           19        9          2:1     |
"""


def test_documents_join_and_processes_occupy() -> None:
    for lists, start in (((), 4), ((("lgi", LGI),), 2)):
        snapshot, _ = read_nvidia_smi([("q", QUERY), *lists], cpu_milli=1_000, memory_mib=1_000)
        (made,) = snapshot.nodes
        profiles = sorted(i.profile for i in made.mig[0].instances)
        assert profiles == ["1g.18gb", "3g.71gb"]
        jobs = {job.name: job for job in snapshot.jobs}
        assert jobs["processes/0"].request.gpus == 1
        (busy,) = [job for job in snapshot.jobs if job.request.mig]
        assert busy.request.mig == ("1g.18gb",)
        assert busy.allocation[0].mig[0].start == start
        sound(snapshot)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<a>", "not XML"),
        ("<a/>", "not nvidia_smi_log"),
        ("<nvidia_smi_log/>", "lists no GPU"),
        ("hello", "not a document of nvidia-smi"),
        ("GPU0", "0 rows"),
        ("", "empty"),
    ],
)
def test_broken_documents(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_nvidia_smi([("f", text)])
    assert words in str(caught.value)


# Commands


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def test_the_commands(program: Program) -> None:
    Path("nodes.json").write_text(listing(node("a")))
    done = program("import", "kubernetes", "nodes.json", "-", stdin=listing(pod("p")))
    assert done.code == 0
    assert [job["name"] for job in json.loads(done.out)["jobs"]] == ["ml/p"]
    Path("topo").write_text(matrix(2, {(0, 1)}))
    done = program("import", "nvidia-smi", "topo", "--cpus", "8", "-o", "snap.json")
    assert done.code == 0
    assert "model is called gpu" in done.err
    assert json.loads(Path("snap.json").read_text())["nodes"][0]["cpu_milli"] == 8_000
    Path("bad.json").write_text('{"kind": "Pod"}')
    done = program("import", "kubernetes", "bad.json")
    assert (done.code, done.out) == (65, "")
    assert "bad.json:$.metadata.name: required field is missing" in done.err
