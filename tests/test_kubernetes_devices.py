"""What is finer than a node: MIG configurations by label, HAMi's GPUs, KAI's binder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import Program
from kube_loop import TEXT, context, loop
from kube_server import KAI, World, job, node
from live_fake import KilledError
from test_kubernetes_live import cluster, kubeconfig, put
from test_kubernetes_loop import Mortal, desk

from trencadis.adapters.kubernetes.live.api import HttpApi
from trencadis.adapters.kubernetes.live.mig_configs import (
    UnreadableError,
    applied,
    choose,
    offered,
    parse,
)
from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.loop import Loop
from trencadis.models import GpuGroup, MigGpu, MigInstance, Node, Plan, Snapshot, TaskAllocation
from trencadis.solver.round import Options, solve

__all__ = ["kubeconfig"]
CONFIG, STATE, OURS = "nvidia.com/mig.config", "nvidia.com/mig.config.state", "trencadis.io/mig"
CONFIGS = """
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-3g:
  - device-filter: ["0x20B010DE"]
    devices: all
    mig-enabled: true
    mig-devices: {"3g.20gb": 2}
  - device-filter: ["0x233010DE", "0x20B210DE"]
    devices: all
    mig-enabled: true
    mig-devices: {"3g.40gb": 2}
  half:
  - {devices: [0], mig-enabled: true, mig-devices: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}
  - {devices: [1], mig-enabled: false}
  eight:
  - {devices: [0, 7], mig-enabled: true, mig-devices: {"1g.10gb": 7}}
"""
MIG_TEXT = TEXT + 'mig_configs = "gpu-operator/mig"\nmig_timeout_seconds = 20\n'
OPTIONS = Options(time_limit_s=2, workers=1)


def plan(snapshot: Snapshot) -> Plan:
    return solve(snapshot, OPTIONS)


def mig_node(name: str) -> dict[str, Any]:
    labels = {"nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed"}
    labels |= {CONFIG: "all-disabled", STATE: "success", "nvidia.com/gpu.count": "2"}
    return node(name, 2, **labels)


@pytest.fixture
def world() -> World:
    made = World()
    for name in ("n1", "n2"):
        made.put("nodes", mig_node(name))
    made.put("namespaces", {"metadata": {"name": "ml"}})
    meta = {"name": "mig", "namespace": "gpu-operator"}
    made.put("configmaps", {"metadata": meta, "data": {"config.yaml": CONFIGS}})
    return made


def labels(world: World, name: str) -> dict[str, str]:
    return dict(world.node(name)["metadata"]["labels"])


def marks(world: World, name: str) -> dict[str, str]:
    return dict(world.node(name)["metadata"].get("annotations", {}))


def manager(world: World, then: str = "success") -> None:
    """mig-manager and the device plugin: one step for each node whose label is new."""
    for record in world.of("nodes"):
        own = record["metadata"]["labels"]
        if own.get(STATE) == "pending":
            if then == "success":
                made = Node(name="n", gpus=(GpuGroup(model="H100-80GB", count=2),))
                (known,) = world.of("configmaps")
                layouts = applied(parse(known["data"]["config.yaml"])[own[CONFIG]], made)
                assert layouts is not None
                slices, whole = offered(layouts)
                offers = record["status"]["allocatable"]
                for key in [key for key in offers if "mig-" in key]:
                    del offers[key]
                offers |= {f"nvidia.com/mig-{k}": str(n) for k, n in slices.items()}
                offers["nvidia.com/gpu"] = str(whole)
                record["status"]["capacity"] = offers
            own[STATE] = then
            world.touch(record)
        elif STATE not in own:
            own[STATE] = "pending"
            world.touch(record)


def wishing(name: str, **slices: int) -> dict[str, Any]:
    asks = {f"nvidia.com/mig-{key[1:].replace('_', '.')}": str(n) for key, n in slices.items()}
    return job(name, asks=asks)


# Configurations


def h100(gpus: int = 2, mig: tuple[MigGpu, ...] = ()) -> Node:
    group = GpuGroup(model="NVIDIA-H100-80GB-HBM3", count=gpus, memory_mib=81_559)
    return Node(name="n", gpus=(group,), mig=mig)


def test_what_configurations_make() -> None:
    found = {name: applied(parts, h100()) for name, parts in parse(CONFIGS).items()}
    assert found == {
        "all-3g": (("3g.40gb", "3g.40gb"),) * 2,  # the filter for another model's is passed over
        "all-disabled": (None, None),
        "eight": None,  # there is no GPU 7
        "half": (("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"), None),
    }


def test_the_nearest_that_has_room() -> None:
    configs = parse(CONFIGS)
    three = (("3g.40gb",), None)
    assert choose(configs, h100(), three, {"3g.40gb": 1}, 0) == "half"
    assert choose(configs, h100(), three, {"3g.40gb": 1}, 1) == "half"
    assert choose(configs, h100(), three, {"3g.40gb": 3}, 0) == "all-3g"
    assert choose(configs, h100(), three, {"3g.40gb": 3}, 1) is None
    assert choose(configs, h100(), three, {"7g.80gb": 1}, 0) is None
    there = MigGpu(gpu=0, instances=tuple(MigInstance(profile="3g.40gb", start=s) for s in (0, 4)))
    both = h100(mig=(there, there.model_copy(update={"gpu": 1})))
    assert choose(configs, both, (None, None), {}, 2) == "all-disabled"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "no mig-configs"),
        ("[", "not YAML"),
        ("mig-configs: 7", "no mig-configs"),
        ("mig-configs: {a: []}", "a is empty"),
        ("mig-configs: {a: [{mig-enabled: true}]}", "for which devices"),
    ],
)
def test_unreadable_configurations(written: str, words: str) -> None:
    with pytest.raises(UnreadableError, match=words):
        parse(written)


def test_two_filters_of_which_either_may_hold() -> None:
    row = "{{device-filter: [x], devices: all, mig-enabled: true, mig-devices: {{'{}': 1}}}}"
    written = f"mig-configs: {{a: [{row.format('3g.40gb')}, {row.format('2g.20gb')}]}}"
    assert applied(parse(written)["a"], h100()) is None


# The loop


def rounds(world: World, running: Loop, number: int, then: str = "success") -> None:
    for _ in range(number):
        assert running.round()
        world.tick(2)
        manager(world, then)


def test_a_node_gets_the_layout_that_waiting_jobs_need(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    put(world, *(wishing(f"w{i}", _3g_40gb=1) for i in range(3)), job("whole", gpus=2))
    world.lasts = dict.fromkeys(("w0", "w1", "w2", "whole"), 99)
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    running = loop(live, solve=plan)
    assert running.round()
    (changed,) = [name for name in ("n1", "n2") if OURS in marks(world, name)]
    assert labels(world, changed)[CONFIG] == "all-3g"
    assert STATE not in labels(world, changed)
    assert world.node(changed)["spec"]["unschedulable"]
    # All of it on the version that was read, the cordon first.
    patches = [body for method, path, body in world.asked if path.endswith(changed)]
    assert ["spec" in body for body in patches] == [True, False]
    assert all(body["metadata"]["resourceVersion"] for body in patches)
    rounds(world, running, 6)
    assert OURS not in marks(world, changed)
    assert "unschedulable" not in world.node(changed)["spec"]
    where = {pod["metadata"]["name"].rpartition("-")[0]: pod["spec"].get("nodeName")
             for pod in world.pods()}  # fmt: skip
    assert {where[f"w{i}"] for i in range(3)} == {changed}
    assert where["whole"] not in (None, changed)
    kinds = [k for (k,) in live.store.rows("SELECT kind FROM events WHERE kind LIKE 'reconf%'")]
    assert kinds == ["reconfigure", "reconfigured"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_killed_while_a_layout_changes(
    world: World, kubeconfig: Path, tmp_path: Path, at: int, after: bool
) -> None:
    put(world, wishing("w", _3g_40gb=1))
    world.lasts = {"w": 99}
    api = HttpApi(cluster(world, kubeconfig).config.kubernetes)
    mortal: Any = Mortal(api, at, after=after)
    for _ in range(12):
        live = context(world, kubeconfig, tmp_path / "state", mortal, MIG_TEXT)
        try:
            loop(live, solve=plan).round()
        except KilledError:
            pass
        finally:
            live.store.close()
        world.tick(2)
        manager(world)
    (pod,) = world.pods("w")
    assert pod["status"]["phase"] == "Running"
    for name in ("n1", "n2"):
        assert OURS not in marks(world, name)
        assert "unschedulable" not in world.node(name)["spec"]


def test_what_is_being_made_is_waited_for(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    """Rounds go on while mig-manager works: no further node is cut for the same jobs."""
    for name in ("n3", "n4"):
        world.put("nodes", mig_node(name))
    put(world, *(wishing(f"w{i}", _3g_40gb=1) for i in range(4)))
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    running = loop(live, solve=plan)
    for _ in range(4):
        assert running.round()
        world.tick(1)
    changed = [name for name in ("n1", "n2", "n3", "n4") if OURS in marks(world, name)]
    configs = [labels(world, name)[CONFIG] for name in changed]
    offered_ = {"all-3g": 4, "half": 1}
    assert sum(offered_[name] for name in configs) >= 4
    assert sum(offered_[name] for name in configs[1:]) < 4
    rows = live.store.rows("SELECT detail FROM events WHERE kind = 'reconfigure-skipped'")
    assert any("being made" in detail for (detail,) in rows)


def test_mig_is_turned_off_for_a_job_with_whole_gpus(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    for name in ("n1", "n2"):
        record = world.node(name)
        record["metadata"]["labels"][CONFIG] = "all-3g"
        offers = {**record["status"]["allocatable"], "nvidia.com/gpu": "0"}
        record["status"]["allocatable"] = {**offers, "nvidia.com/mig-3g.40gb": "4"}
        record["status"]["capacity"] = record["status"]["allocatable"]
        world.touch(record)
    put(world, job("whole", asks={"nvidia.com/gpu": "2"}))
    world.lasts = {"whole": 99}
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    running = loop(live, solve=plan)
    assert running.round()
    (changed,) = [name for name in ("n1", "n2") if OURS in marks(world, name)]
    assert labels(world, changed)[CONFIG] == "all-disabled"
    rounds(world, running, 6)
    assert "unschedulable" not in world.node(changed)["spec"]
    (pod,) = world.pods("whole")
    assert pod["spec"]["nodeName"] == changed


def test_what_failed_is_not_tried_again(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    put(world, wishing("w", _3g_40gb=2))
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    running = loop(live, solve=plan)
    rounds(world, running, 12, "failed")
    for name in ("n1", "n2"):
        assert marks(world, name) == {"trencadis.io/mig-failed": "all-3g"}
        assert "unschedulable" not in world.node(name)["spec"]
    (number,) = live.store.rows("SELECT COUNT(*) FROM events WHERE kind = 'reconfigure-failed'")
    assert number[0] == 2


def test_a_manager_that_never_begins(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    put(world, wishing("w", _3g_40gb=2))
    world.node("n2")["spec"]["unschedulable"] = True
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    running = loop(live, solve=plan)
    running.round()
    assert OURS in marks(world, "n1")
    world.tick(10)
    running.round()
    assert OURS in marks(world, "n1")
    world.tick(30)
    running.round()
    assert labels(world, "n1")[CONFIG] == "all-disabled"
    assert "unschedulable" not in world.node("n1")["spec"]
    assert world.node("n2")["spec"]["unschedulable"]  # somebody else's


def test_a_pod_that_comes_in_between(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    put(world, wishing("w", _3g_40gb=2))
    world.node("n2")["spec"]["unschedulable"] = True
    late = job("late", gpus=1, gate="")

    def come(method: str, path: str) -> None:
        if method == "PATCH" and path.endswith("n1") and not world.pods("late"):
            put(world, late)
            world.pods("late")[0]["spec"]["nodeName"] = "n1"
            world.pods("late")[0]["status"]["phase"] = "Running"

    world.before = come
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    assert loop(live, solve=plan).round()
    assert labels(world, "n1")[CONFIG] == "all-disabled"
    assert "unschedulable" not in world.node("n1")["spec"]
    assert live.store.rows("SELECT kind FROM events WHERE kind = 'reconfigure-refused'")


def test_no_plan_counts_on_what_no_configuration_makes(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    """Of an H100's profiles the configurations have three, in numbers of their own."""
    put(world, wishing("w", _7g_80gb=1), wishing("five", _1g_10gb=5))
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    snapshot = live.cluster.read({}).snapshot
    (table,) = snapshot.policy.mig.tables.values()
    assert {p.name: p.most for p in table.profiles} == {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 2}
    decided = plan(snapshot)
    assert decided.starts == ()
    assert [entry.job for entry in decided.pending] == ["ml/five", "ml/w"]
    running = loop(live, solve=plan)
    rounds(world, running, 4)
    assert not any(path.startswith("/api/v1/nodes") for _, path, _ in world.asked)


def test_what_is_there_may_stay_though_no_configuration_makes_it(
    world: World, kubeconfig: Path
) -> None:
    """A node that was cut by hand has its slices; the other can't be made like it."""
    for record in world.of("nodes"):
        if record["metadata"]["name"] == "n1":
            offers = record["status"]["allocatable"]
            offers |= {"nvidia.com/gpu": "0", "nvidia.com/mig-7g.80gb": "2"}
            record["status"]["capacity"] = offers
            record["metadata"]["labels"][CONFIG] = "by-hand"
    put(world, *(wishing(f"w{i}", _7g_80gb=1) for i in range(2)))
    snapshot = cluster(world, kubeconfig, MIG_TEXT).read({}).snapshot
    decided = plan(snapshot)
    assert {start.allocation[0].node for start in decided.starts} == {"n1"}
    assert len(decided.starts) == 2
    assert decided.reconfigures == ()


def test_a_mixture_that_no_configuration_makes(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    """Slices of two configurations on one node: those of the higher tier get theirs."""
    text = (
        CONFIGS.partition("  half:")[0]
        + """  all-1g:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
"""
    )
    (known,) = world.of("configmaps")
    known["data"] = {"config.yaml": text}
    world.node("n2")["spec"]["unschedulable"] = True
    for name, value in (("urgent", 1_000), ("idle", 1)):
        entry = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        world.put("priorityclasses", entry, "scheduling.k8s.io")
    urgent = wishing("urgent", _3g_40gb=1)
    idle = [wishing(f"idle{i}", _1g_10gb=1) for i in range(2)]
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    for entry in idle:
        entry["spec"]["template"]["spec"]["priorityClassName"] = "idle"
    put(world, urgent, *idle)
    world.lasts = dict.fromkeys(("urgent", "idle0", "idle1"), 99)
    # As by default, the next rounds come before those that look elsewhere are offered this again.
    config = MIG_TEXT.replace("retry_after_seconds = 2", "retry_after_seconds = 60")
    live = context(world, kubeconfig, tmp_path / "state", text=config)
    assert len(plan(live.cluster.read({}).snapshot).starts) == 3
    running = loop(live, solve=plan)
    rounds(world, running, 5)
    assert labels(world, "n1")[CONFIG] == "all-3g"
    (pod,) = world.pods("urgent")
    assert pod["status"]["phase"] == "Running"
    told = live.store.rows("SELECT detail FROM events WHERE kind = 'start-skipped'")
    assert any("gets no MIG layout with room for it" in detail for (detail,) in told)
    # The others get theirs where there is a node for it.
    del world.node("n2")["spec"]["unschedulable"]
    rounds(world, running, 6)
    assert labels(world, "n2")[CONFIG] == "all-1g"
    assert all(pod["status"]["phase"] == "Running" for pod in world.pods())


def test_handing_back_frees_the_nodes(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    put(world, wishing("w", _3g_40gb=1))
    live = context(world, kubeconfig, tmp_path / "state", text=MIG_TEXT)
    loop(live, solve=plan).round()
    (changed,) = [name for name in ("n1", "n2") if OURS in marks(world, name)]
    given, leaving = hand_back(live, "test")
    assert (given, leaving) == (["ml/w"], [changed])
    manager(world)
    manager(world)
    assert hand_back(live, "test")[1] == []
    assert "unschedulable" not in world.node(changed)["spec"]


def test_configurations_that_cannot_be_read(world: World, kubeconfig: Path) -> None:
    text = TEXT + 'mig_configs = "gpu-operator/other"\n'
    reading = cluster(world, kubeconfig, text).read({})
    assert any("no MIG configurations" in str(warning) for warning in reading.warnings)
    assert {entry.mig_reconfigure for entry in reading.snapshot.nodes} == {"forbid"}


def test_kubectl_lines_of_a_change(world: World, kubeconfig: Path, program: Program) -> None:
    put(world, wishing("w", _3g_40gb=1))
    config = desk(kubeconfig)
    file = program.directory / config
    file.write_text(file.read_text() + '\nmig_configs = "gpu-operator/mig"\n')
    assert program("kubernetes", "snapshot", "--config", config, "-o", "snap.json").code == 0
    assert program("solve", "snap.json", "-o", "plan.json").code == 0
    told = program("kubernetes", "apply", "plan.json", "--config", config, "--dry-run")
    cordon, label = told.out.splitlines()
    assert "kubectl patch nodes n" in cordon
    assert '"unschedulable":true' in cordon
    assert '"labels":{"nvidia.com/mig.config":"half","nvidia.com/mig.config.state":null}' in label
    assert "another MIG layout first" in told.err
    assert not marks(world, "n1")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


# HAMi


def hami(world: World) -> None:
    rows = [{"id": f"GPU-{i}", "index": i, "count": 10, "devmem": 81_559, "type": "H100",
             "health": True} for i in range(2)]  # fmt: skip
    for record in world.of("nodes"):
        record["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(rows)}


SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "40000", "nvidia.com/gpucores": "50"}


def test_hami_is_told_the_gpu(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    hami(world)
    world.stuck = {"n1", "n2"}
    put(world, *(job(f"s{i}", asks=SHARE) for i in range(3)), job("w", gpus=2))
    mine = job("mine", asks=SHARE, pod_annotations={"nvidia.com/use-gpuuuid": "GPU-1"})
    put(world, mine)
    live = context(world, kubeconfig, tmp_path / "state")
    running = loop(live, solve=plan)
    assert running.round()
    planned = {
        start["job"]: start["allocation"][0]
        for (text,) in live.store.rows("SELECT plan FROM rounds")
        for start in json.loads(text).get("starts", ())
    }
    assert set(planned) == {"ml/s0", "ml/s1", "ml/s2", "ml/w"} - (
        {"ml/s2"} if len(planned) == 3 else set()
    )
    for name, task in planned.items():
        (pod,) = world.pods(name.removeprefix("ml/"))
        found = pod["metadata"]["annotations"]
        assert found["nvidia.com/use-gpuuuid"] == ",".join(f"GPU-{gpu}" for gpu in task["gpus"])
    # Until HAMi has bound them they count on these GPUs.
    reading = live.cluster.read({})
    for entry in reading.snapshot.jobs:
        if entry.name in planned:
            assert list(entry.allocation[0].gpus or ()) == planned[entry.name]["gpus"]
    assert {entry.name: entry.state for entry in reading.snapshot.jobs}["ml/mine"] == "held"


# KAI

HALF = {"gpu-fraction": "0.5"}


def kai_job(name: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    made = job(name, gpus=gpus, schedulerName=KAI, **more)
    if "pod_annotations" in more:
        requests = made["spec"]["template"]["spec"]["containers"][0]["resources"]
        requests["requests"].pop("nvidia.com/gpu")
        requests["limits"].pop("nvidia.com/gpu")
    return made


def requests(world: World) -> dict[str, dict[str, Any]]:
    return {
        request["spec"]["podName"].rpartition("-")[0]: request["spec"]
        for request in world.of("bindrequests", "scheduling.run.ai")
    }


def test_kais_binder_is_told_the_gpu(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    # All run only if the shares are together.
    put(world, kai_job("gang", gpus=2), kai_job("w0"), *(
        kai_job(f"s{i}", pod_annotations=HALF) for i in range(2)))  # fmt: skip
    world.lasts = dict.fromkeys(("gang", "w0", "w1", "s0", "s1", "s2", "s3"), 99)
    live = context(world, kubeconfig, tmp_path / "state")
    running = loop(live, solve=plan)
    assert running.round()
    made = requests(world)
    assert made["gang"]["receivedResourceType"] == "Regular"
    assert made["gang"]["receivedGPU"] == {"count": 2, "portion": "1.00"}
    assert made["s0"]["receivedResourceType"] == "Fraction"
    assert made["s0"]["receivedGPU"] == {"count": 1, "portion": "0.500"}
    assert made["s0"]["selectedGPUGroups"] == made["s1"]["selectedGPUGroups"]
    world.tick()
    assert all(pod["status"]["phase"] == "Running" for pod in world.pods())
    # KAI keeps a whole GPU for those that share it, by a pod of its own.
    shared = made["s0"]["selectedNode"]
    keeper = {"metadata": {"name": "gpu-reservation", "namespace": "kai-resource-reservation",
                           "labels": {"runai-gpu-group": made["s0"]["selectedGPUGroups"][0]}},
              "spec": {**job("x", gpus=1)["spec"]["template"]["spec"], "nodeName": shared},
              "status": {"phase": "Running"}}  # fmt: skip
    world.put("pods", keeper)
    world.put("nodes", mig_node("n3"))
    put(world, kai_job("w1"), *(kai_job(f"s{i}", pod_annotations=HALF) for i in (2, 3)))
    assert running.round()
    world.tick()
    made = requests(world)
    assert all(pod["status"]["phase"] == "Running" for pod in world.pods())
    assert made["s2"]["selectedGPUGroups"] == made["s3"]["selectedGPUGroups"]
    assert made["s2"]["selectedGPUGroups"] != made["s0"]["selectedGPUGroups"]


def test_a_group_with_room_is_joined(world: World, kubeconfig: Path) -> None:
    # Both that wait fit only if the share joins the one that is there.
    put(world, kai_job("a", pod_annotations=HALF), kai_job("b", pod_annotations=HALF), kai_job("w"))
    (there,) = world.pods("a")
    there["metadata"]["labels"] = {"runai-gpu-group": "g1"}
    there["spec"] |= {"nodeName": "n2", "schedulingGates": []}
    there["status"]["phase"] = "Running"
    world.node("n1")["spec"]["unschedulable"] = True
    kube = cluster(world, kubeconfig)
    reading = kube.read({})
    starts = {start.job: start.allocation for start in plan(reading.snapshot).starts}
    assert starts.keys() == {"ml/b", "ml/w"}
    (task,) = starts["ml/b"]
    assert (task.node, task.gpus) == ("n2", (0,))
    kube.start("ml/b", [task], reading.jobs["ml/b"])
    assert requests(world)["b"]["selectedGPUGroups"] == ["g1"]
    # KAI's own scheduler may have been quicker.
    world.put("bindrequests", {"metadata": {"name": "x"}, "spec": {"podName": "x"}},
              "scheduling.run.ai")  # fmt: skip
    kube.start("ml/b", [task], reading.jobs["ml/b"])
    assert len(world.of("bindrequests", "scheduling.run.ai")) == 2


def test_what_kais_scheduler_has_to_name_is_left_to_it(world: World, kubeconfig: Path) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    put(world, kai_job("claims", gpus=0, resourceClaims=claims), kai_job("plain", gpus=2))
    kube = cluster(world, kubeconfig)
    views = kube.read({}).jobs
    for name in ("claims", "plain"):
        kube.start(f"ml/{name}", [TaskAllocation(node="n1")], views[f"ml/{name}"])
    assert requests(world).keys() == {"plain"}
    assert requests(world)["plain"]["receivedGPU"] == {"count": 2, "portion": "1.00"}
    assert not any(pod["spec"]["schedulingGates"] for pod in world.pods())


def test_what_is_gone_is_refused_before_it_is_sent(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    """Half a GPU each: when the plan comes to be carried out, one place is taken."""
    put(world, kai_job("a", pod_annotations=HALF), kai_job("b", pod_annotations=HALF))
    live = context(world, kubeconfig, tmp_path / "state")

    def late(snapshot: Snapshot) -> Plan:
        made = plan(snapshot)
        for name in ("n1", "n2"):
            world.put("pods", {
                "metadata": {"name": f"taken-{name}"}, "status": {"phase": "Running"},
                "spec": {**job("x", gpus=2)["spec"]["template"]["spec"], "nodeName": name},
            })  # fmt: skip
        return made

    assert loop(live, solve=late).round()
    assert requests(world) == {}
    rows = live.store.rows("SELECT detail FROM events WHERE kind = 'start-skipped'")
    assert len(rows) == 2
    assert TaskAllocation(node="n1").gpus is None
