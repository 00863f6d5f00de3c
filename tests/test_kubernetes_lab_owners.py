"""Those whom the loop acts through, on a real API server: Kueue, Volcano, KAI, mig-manager."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_lab.lab import SECONDS, Lab, gang, lab, missing
from kubernetes_lab.owners import (
    GROUPS,
    KUEUE,
    QUEUE,
    VOLCANO,
    KaiBinder,
    Kueue,
    MigManager,
    Volcano,
    define,
    path_of,
)
from live_desk import LiveDesk
from test_kubernetes_lab import CONFIG, Desk

from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Json, listing

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
RIGHTS = [
    ("kueue.x-k8s.io", "workloads", ["patch"]),
    ("batch.volcano.sh", "jobs", ["patch"]),
    ("bus.volcano.sh", "commands", ["create"]),
    ("scheduling.run.ai", "bindrequests", ["create"]),
    ("", "nodes", ["patch"]),
    ("", "configmaps", ["get"]),
]
"""Beyond those that docs/kubernetes.md asks for in any case, as it says."""
LONG = 900
"""Seconds that only a hurry ends."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        define(running)
        root = "/apis/rbac.authorization.k8s.io/v1"
        rules = [{"apiGroups": [g], "resources": [r], "verbs": v} for g, r, v in RIGHTS]
        running.api.post(f"{root}/clusterroles", {"metadata": {"name": "more"}, "rules": rules})
        group = "rbac.authorization.k8s.io"
        running.api.post(f"{root}/clusterrolebindings", {
            "metadata": {"name": "more"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "more"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "trencadis"}],
        })  # fmt: skip
        running.create(KUEUE, "ResourceFlavor", {"metadata": {"name": "default"}, "spec": {}})
        running.create(KUEUE, "ClusterQueue", cluster_queue())
        local = {"metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}
        running.create(KUEUE, "LocalQueue", local, "alpha")
        running.create(GROUPS, "Queue", {"metadata": {"name": "vq"}, "spec": {"weight": 1}})
        yield running


def cluster_queue() -> Json:
    flavor = {"name": "default", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 64}]}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    return {"metadata": {"name": "cq"}, "spec": spec}


@pytest.fixture
def desk(cluster: Lab, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(cluster, tmp_path)
    # A nominal quota is a guarantee, which nobody's priority breaks: here it is none.
    made.config.write_text(made.config.read_text() + '\n[[queues]]\nname = "cq"\n')
    yield made
    cluster.controllers.clear()
    for version, plural in ((VOLCANO, "jobs"), (KUEUE, "workloads")):
        for record in listing(cluster.api, path_of(version, plural))["items"]:
            where = records.namespace(record), records.name(record)
            cluster.api.delete(path_of(version, plural, *where), {})
    cluster.clear()


def begun(lab: Lab) -> Counter[str]:
    return Counter(owner for _, owner, _ in lab.runs)


def assert_stopped_and_run_again(desk: Desk, low: list[str], high: list[str]) -> None:
    """Victims got their grace, and ran again through the same owner, once each."""
    victims = [name.partition("/")[2] for name, _ in desk.events("preempted")]
    assert len(victims) == len(high)
    names = {name: next(n for n in low if n in name) for name in victims}
    times = begun(desk.lab)
    for name in low:
        assert times[name] == 1 + (name in names.values()), name
    assert all(times[name] == 1 for name in high)
    assert len(desk.lab.removed) == len(victims)
    assert desk.events("started-elsewhere") == []


def test_preemption_through_kueue(desk: Desk) -> None:
    lab, kueue = desk.lab, Kueue(desk.lab)
    low = [f"k{number}" for number in range(8)]
    for name in low:
        wish = gang(name, 8, 1, LONG, grace=2)
        wish["metadata"]["labels"] = {QUEUE: "lq"}
        wish["spec"]["suspend"] = True
        lab.submit("alpha", wish)
    high = ["high0", "high1"]
    with desk.running("run", "--workers", "1"):
        lab.wait(lambda: len(lab.runs) == 8, desk.tail, 60)
        for name in high:
            lab.submit("beta", gang(name, 8, 1, 2, priority="high"))
        lab.wait(lambda: len(lab.runs) == 12, desk.tail, 120)
        lab.hurry = True
        desk.until_done(60)
    assert kueue.done["deactivated"] == 2
    assert kueue.done["admitted"] == 10
    assert_stopped_and_run_again(desk, low, high)
    assert [j for j in lab.jobs() if "Failed" in records.conditions(j)] == []
    workloads = listing(lab.api, path_of(KUEUE, "workloads"))["items"]
    assert all(workload["spec"]["active"] for workload in workloads)


def volcano_job(name: str, gpus: int, pods: int, seconds: float) -> Json:
    template = gang(name, gpus, pods, seconds, grace=2)["spec"]["template"]
    template["metadata"]["annotations"] = {SECONDS: str(seconds)}
    tasks = [{"name": "w", "replicas": pods, "template": template}]
    spec = {"minAvailable": pods, "queue": "vq", "schedulerName": "volcano", "tasks": tasks}
    return {"metadata": {"name": name}, "spec": spec}


def test_preemption_through_volcano(desk: Desk) -> None:
    lab, volcano = desk.lab, Volcano(desk.lab)
    low = [f"v{number}" for number in range(4)]
    for name in low:
        lab.create(VOLCANO, "Job", volcano_job(name, 8, 2, LONG), "alpha")
    high = ["high0", "high1"]

    def done() -> bool:
        jobs = listing(lab.api, path_of(VOLCANO, "jobs"))["items"]
        phases = [job.get("status", {}).get("state", {}).get("phase") for job in jobs]
        return set(phases) == {"Completed"} and lab.done()

    with desk.running("run", "--workers", "1"):
        lab.wait(lambda: len(lab.runs) == 8, desk.tail, 60)
        for name in high:
            lab.submit("beta", gang(name, 8, 1, 2, priority="high"))
        lab.wait(lambda: len(lab.runs) == 12, desk.tail, 120)
        lab.hurry = True
        lab.wait(done, desk.tail, 60)
    # One gang of two nodes makes room for both; it was aborted and resumed as a whole.
    victims = [name for name, _ in desk.events("preempted")]
    assert len(victims) == 1
    assert volcano.done == {"AbortJob": 1, "ResumeJob": 1}
    times = begun(lab)
    assert sorted(times[name] for name in low) == [2, 2, 2, 4]
    assert desk.events("started-elsewhere") == []


def test_kais_binder_binds_where_the_plan_says(desk: Desk) -> None:
    lab, binder = desk.lab, KaiBinder(desk.lab)
    wishes = [(f"g{i}", 4, 2, {}) for i in range(2)] + [
        (f"s{i}", 0, 1, {"gpu-fraction": "0.5"}) for i in range(4)
    ]
    for name, gpus, pods, marks in wishes:
        wish = gang(name, gpus, pods, 15)
        template = wish["spec"]["template"]
        template["spec"]["schedulerName"] = "kai-scheduler"
        template["metadata"]["annotations"] |= marks
        if not gpus:
            template["spec"]["containers"][0]["resources"]["limits"].pop("nvidia.com/gpu")
        lab.submit("alpha", wish)
    with desk.running("run", "--workers", "1"):
        desk.until_done(90)
    assert binder.done == {"Succeeded": 8}
    planned = {name: {n for p in plans for n in p} for name, plans in desk.planned().items()}
    for _, owner, node in lab.runs:
        assert node in planned[f"alpha/{owner}"]
    shares = [pod for pod in lab.pods("alpha") if records.annotation(pod, "gpu-fraction")]
    groups = Counter(pod["metadata"]["labels"]["runai-gpu-group"] for pod in shares)
    assert sum(groups.values()) == 4
    assert max(groups.values()) <= 2
    assert desk.events("started-elsewhere") == []


MIG_CONFIGS = """
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-balanced:
  - device-filter: ["0x233010DE"]
    devices: all
    mig-enabled: true
    mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
"""


def offers(config: str) -> dict[str, str]:
    if config == "all-disabled":
        return {"nvidia.com/gpu": "8"}
    slices = {"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8}
    found = {f"nvidia.com/mig-{key}": str(count) for key, count in slices.items()}
    return {"nvidia.com/gpu": "0", **found}


@pytest.fixture
def manager(cluster: Lab) -> Iterator[MigManager]:
    """mig-manager, on nodes that it may cut; they are whole again afterwards."""
    lab = cluster
    lab.api.post("/api/v1/namespaces", {"metadata": {"name": "gpu-operator"}})
    lab.api.post("/api/v1/namespaces/gpu-operator/configmaps", {
        "metadata": {"name": "mig"}, "data": {"config.yaml": MIG_CONFIGS}})  # fmt: skip
    labels = {"nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed"}
    labels |= {MigManager.CONFIG: "all-disabled", MigManager.STATE: "success"}
    for number in range(1, 9):
        lab.api.patch(f"/api/v1/nodes/n{number}", {"metadata": {"labels": labels}})
    yield MigManager(lab, offers)
    lab.controllers.clear()
    for name in cut(lab):
        old = dict.fromkeys(offers("all-balanced")) | {"nvidia.com/gpu": "8"}
        status = {"status": {"allocatable": old, "capacity": old}}
        lab.api.patch(f"/api/v1/nodes/{name}/status", status)
    gone = dict.fromkeys([*labels], None)
    for number in range(1, 9):
        body = {"metadata": {"labels": gone}, "spec": {"unschedulable": None}}
        lab.api.patch(f"/api/v1/nodes/n{number}", body)
    lab.clear()


def cut(lab: Lab) -> list[str]:
    nodes = listing(lab.api, "/api/v1/nodes")["items"]
    return [records.name(node) for node in nodes
            if node["metadata"]["labels"].get(MigManager.CONFIG) == "all-balanced"]  # fmt: skip


def submit_slices(lab: Lab, *names: str) -> None:
    for name in names:
        made = gang(name, 0, 1, 60)
        limits = made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        del limits["nvidia.com/gpu"]
        limits["nvidia.com/mig-3g.40gb"] = "1"
        lab.submit("alpha", made)


def test_mig_layouts_for_those_who_wait(manager: MigManager, tmp_path: Path) -> None:
    """The loop has a node cut; then kubectl does, by the lines of --dry-run."""
    lab = manager.lab
    text = CONFIG.replace("levels =", 'mig_configs = "gpu-operator/mig"\nlevels =')
    desk = LiveDesk("kubernetes", tmp_path, text.format(kubeconfig=lab.ours))

    def tail() -> str:
        return "\n".join(desk.logged(25))

    submit_slices(lab, *(f"m{number}" for number in range(6)))
    with desk.running("run", "--workers", "1"):
        lab.wait(lambda: len(lab.runs) == 6, tail, 60)
    (first,) = cut(lab)
    assert {node for _, _, node in lab.runs} == {first}
    assert manager.done == {"pending": 1, "success": 1}
    record = lab.api.get(f"/api/v1/nodes/{first}")
    assert "unschedulable" not in record["spec"]
    assert not records.annotation(record, "trencadis.io/mig")
    # Two slices are left there; the third of these needs another node.
    submit_slices(lab, *(f"x{number}" for number in range(3)))
    lab.wait(lambda: len(lab.pods("alpha")) == 9, tail)
    code = "from trencadis.cli import main; main()"
    for attempt in range(2):
        desk("snapshot", "-o", "snap.json")
        solve = [sys.executable, "-c", code, "solve", "snap.json", "-o", "plan.json"]
        subprocess.run(solve, cwd=tmp_path, check=True, capture_output=True)
        script = desk("apply", "plan.json", "--dry-run", code=None)
        plan = json.loads((tmp_path / "plan.json").read_text())
        assert bool(plan.get("reconfigures")) == (attempt == 0)
        lab.kubectl(script)
        if attempt == 0:
            lab.wait(lambda: manager.done["success"] == 2, tail)
            desk("apply", "plan.json", "--yes", code=3)  # frees the node; the plan is over
    lab.wait(lambda: len(lab.runs) == 9, tail)
    assert len(cut(lab)) == 2
