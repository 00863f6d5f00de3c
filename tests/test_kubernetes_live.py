"""Kubernetes as a native scheduler, over HTTP: what is read, and what is sent when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_server import World, WrongError, job, node, pod_spec, served

from trencadis.adapters.kubernetes.live import KubernetesCluster, load_config
from trencadis.adapters.live.cluster import JobView, RefusedError, UnavailableError
from trencadis.models import InvalidInputError, TaskAllocation
from trencadis.models.check import check

TEXT = """
[live]
mode = "enforce"
scope = { namespaces = ["ml"] }
[kubernetes]
pods_timeout_seconds = 1
"""


@pytest.fixture
def world() -> World:
    made = World()
    for number in (1, 2, 3):
        made.put("nodes", node(f"n{number}"))
    made.put("namespaces", {"metadata": {"name": "ml"}})
    return made


@pytest.fixture
def kubeconfig(world: World, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "kubeconfig"
    with served(world) as address:
        path.write_text(json.dumps(kube_config(address)))
        yield path


def kube_config(address: str) -> dict[str, Any]:
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [context],
        "clusters": [{"name": "x", "cluster": {"server": address}}],
        "users": [{"name": "x", "user": {}}],
    }  # fmt: skip


def cluster(world: World, kubeconfig: Path, text: str = TEXT) -> KubernetesCluster:
    config = load_config(text)
    options = config.kubernetes.model_copy(update={"kubeconfig": str(kubeconfig)})
    config = config.model_copy(update={"kubernetes": options})
    return KubernetesCluster(config, clock=lambda: world.now)


def put(world: World, *jobs: dict[str, Any]) -> None:
    for entry in jobs:
        world.put("jobs", entry, "batch")
    world.sync()


def places(world: World, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in world.pods(name)]


def on(*nodes: str) -> list[TaskAllocation]:
    return [TaskAllocation(node=name) for name in nodes]


def started(kube: KubernetesCluster, world: World, name: str, *nodes: str) -> JobView:
    """The job runs on these nodes."""
    view = kube.read({}).jobs[f"ml/{name}"]
    kube.start(f"ml/{name}", on(*nodes), view)
    world.tick()
    return kube.read({}).jobs[f"ml/{name}"]


def test_what_is_ours(world: World, kubeconfig: Path) -> None:
    put(
        world,
        job("gang", gpus=2, pods=2),
        job("other", namespace="elsewhere"),
        job("off", annotations={"trencadis.io/off": "please"}),
        job("ungated", gate=""),
        job("theirs", gate="somebody.else/gate"),
    )
    world.put("pods", {"metadata": {"name": "bare"}, "spec": pod_spec(1), "status": {}})
    world.job("off")["spec"]["suspend"] = False
    reading = cluster(world, kubeconfig).read({})
    check(reading.snapshot)
    found = {entry.name: entry for entry in reading.snapshot.jobs}
    assert {name for name, view in reading.jobs.items() if view.managed} == {"ml/gang", "ml/bare"}
    assert {n for n, e in found.items() if e.state == "pending"} == {"ml/gang", "ml/bare"}
    assert found["ml/gang"].tasks == 2
    assert found["ml/gang"].request.gpus == 2
    assert reading.jobs["ml/ungated"].state == "released"
    assert not reading.jobs["ml/bare"].stoppable
    assert reading.jobs["ml/gang"].stoppable


def test_a_gang_goes_where_it_is_sent(world: World, kubeconfig: Path) -> None:
    put(world, job("gang", gpus=2, pods=3))
    kube = cluster(world, kubeconfig)
    assert started(kube, world, "gang", "n2", "n2", "n3").state == "running"
    assert places(world, "gang") == ["n2", "n2", "n3"]
    patches = [body for method, _, body in world.asked if method == "PATCH"]
    # All are named before any is let go, each on the version that was read.
    assert ["nodeSelector" in body["spec"] for body in patches] == [True] * 3 + [False] * 3
    assert all(body["metadata"]["resourceVersion"] for body in patches)
    world.asked.clear()
    kube.start("ml/gang", on("n2", "n2", "n3"), kube.read({}).jobs["ml/gang"])
    assert world.asked == []  # twice does no harm


def test_a_pod_that_changed_otherwise_is_still_placed(world: World, kubeconfig: Path) -> None:
    put(world, job("a"))
    kube = cluster(world, kubeconfig)
    kube.read({})
    world.touch(world.pods("a")[0])
    kube.start("ml/a", on("n1"), JobView("ml/a", "waiting"))
    world.tick()
    assert places(world, "a") == ["n1"]


@pytest.mark.parametrize("what", ["gone", "anew", "ungated", "pinned"])
def test_a_pod_that_is_another_one_is_not_placed(world: World, kubeconfig: Path, what: str) -> None:
    put(world, job("a"))
    kube = cluster(world, kubeconfig)
    kube.read({})
    (pod,) = world.pods("a")
    world.touch(pod)
    world.controllers = False
    if what in ("gone", "anew"):
        world.delete(pod)
    if what == "anew":
        world.put("pods", {**pod, "metadata": {**pod["metadata"], "uid": "another"}})
    if what == "ungated":
        pod["spec"]["schedulingGates"] = []
    if what == "pinned":
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n3"}
    with pytest.raises(RefusedError):
        kube.start("ml/a", on("n1"), JobView("ml/a", "waiting"))
    assert all(p["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname") != "n1"
               for p in world.pods("a"))  # fmt: skip


def test_a_start_that_isnt_whole_is_one_start(world: World, kubeconfig: Path) -> None:
    """Cut off after the first gate, with one pod bound: it counts as there, and is taken back."""
    put(world, job("gang", gpus=2, pods=3))
    kube = cluster(world, kubeconfig)
    view = kube.read({}).jobs["ml/gang"]
    gates = iter(range(9))

    def cut(method: str, path: str) -> None:
        if method == "PATCH" and next(gates) == 4:
            raise WrongError(503, f"no {path} today")

    world.before = cut
    with pytest.raises(UnavailableError):
        kube.start("ml/gang", on("n1", "n1", "n2"), view)
    world.before = lambda *_: None
    world.tick()
    assert sorted(places(world, "gang")) == ["", "", "n1"]
    reading = kube.read({})
    check(reading.snapshot)
    (found,) = reading.snapshot.jobs
    assert [t.node for t in found.allocation] == ["n1", "n1", "n2"]
    assert reading.jobs["ml/gang"].state == "released"
    kube.withdraw("ml/gang", {})
    assert kube.read({}).jobs["ml/gang"].state == "leaving"
    world.tick(5)
    reading = kube.read({})
    assert reading.jobs["ml/gang"].state == "waiting"
    assert reading.jobs["ml/gang"].managed
    assert reading.snapshot.jobs[0].tasks == 3
    # What starts then are new pods, on new terms.
    assert started(kube, world, "gang", "n3", "n3", "n2").state == "running"
    assert places(world, "gang") == ["n3", "n3", "n2"]
    assert not world.job("gang")["spec"]["suspend"]


def test_named_but_not_let_go_is_made_anew(world: World, kubeconfig: Path) -> None:
    put(world, job("a", pods=2))
    kube = cluster(world, kubeconfig)
    view = kube.read({}).jobs["ml/a"]
    numbers = iter(range(9))

    def cut(method: str, _path: str) -> None:
        if method == "PATCH" and next(numbers) == 2:
            raise WrongError(500, "no")

    world.before = cut
    with pytest.raises(UnavailableError):
        kube.start("ml/a", on("n1", "n1"), view)
    world.before = lambda *_: None
    reading = kube.read({})
    assert reading.jobs["ml/a"].state == "waiting"
    assert reading.snapshot.jobs[0].node_selector == {}
    kube.withdraw("ml/a", {})
    kube.read({})
    kube.restore("ml/a", {})
    kube.read({})
    assert {p["spec"].get("nodeSelector") is None for p in world.pods("a")} == {True}
    assert kube.read({}).jobs["ml/a"].state == "waiting"


def test_what_runs_is_not_taken_back(world: World, kubeconfig: Path) -> None:
    put(world, job("a"))
    kube = cluster(world, kubeconfig)
    kube.start("ml/a", on("n1"), kube.read({}).jobs["ml/a"])
    kube.read({})
    world.tick()
    with pytest.raises(RefusedError, match="on their nodes"):
        kube.withdraw("ml/a", {})
    assert not world.job("a")["spec"].get("suspend")


def test_stopping_goes_through_the_owner(world: World, kubeconfig: Path) -> None:
    put(world, job("a", pods=2, grace=5))
    kube = cluster(world, kubeconfig)
    assert started(kube, world, "a", "n1", "n2").state == "running"
    kube.warn("ml/a")
    view = kube.read({}).jobs["ml/a"]
    assert (view.state, view.nodes) == ("leaving", ("n1", "n2"))
    (leaving,) = kube.read({}).snapshot.jobs
    assert leaving.state == "draining"
    assert leaving.drain_ends is not None
    world.tick(6)
    view = kube.read({}).jobs["ml/a"]
    assert (view.state, view.managed, places(world, "a")) == ("waiting", True, [])
    assert world.job("a")["metadata"]["annotations"].keys() == {"trencadis.io/suspended"}
    assert started(kube, world, "a", "n3", "n3").state == "running"
    assert world.job("a")["metadata"]["annotations"] == {}
    assert [run[1] for run in world.runs] == ["n1", "n2", "n3", "n3"]


def test_a_budget_keeps_its_pods_even_from_two_stops_at_once(
    world: World, kubeconfig: Path
) -> None:
    put(world, *(job(name, labels={"app": "web"}) for name in ("a", "b", "c")))
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 1, "desiredHealthy": 2},
    }
    kube = cluster(world, kubeconfig)
    world.lasts = dict.fromkeys("abc", 99)
    for name in "abc":
        started(kube, world, name, "n1")
    world.put("poddisruptionbudgets", budget, "policy")
    kube.read({})
    world.controllers = False  # the budget's status and the Job's pods are as before the first stop
    kube.stop("ml/a")
    with pytest.raises(RefusedError, match="PodDisruptionBudget web"):
        kube.stop("ml/b")
    assert not world.job("b")["spec"].get("suspend")


def test_bare_pods_are_evicted_only_if_that_is_allowed(world: World, kubeconfig: Path) -> None:
    record = {"metadata": {"name": "bare", "labels": {"app": "x"}}, "spec": pod_spec(1)}
    world.put("pods", {**record, "status": {"phase": "Pending"}})
    kube = cluster(world, kubeconfig)
    assert not started(kube, world, "bare", "n2").stoppable
    with pytest.raises(RefusedError):
        kube.stop("ml/bare")
    kube = cluster(world, kubeconfig, TEXT + "evict_bare_pods = true")
    assert kube.read({}).jobs["ml/bare"].stoppable
    budget = {
        "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    kept = world.put("poddisruptionbudgets", budget, "policy")
    with pytest.raises(RefusedError, match="disruption budget"):
        kube.stop("ml/bare")
    kept["status"]["disruptionsAllowed"] = 1
    kube.stop("ml/bare")
    assert kube.read({}).jobs["ml/bare"].state == "leaving"
    world.tick(3)
    assert kube.read({}).jobs == {}


def test_kueue_workloads_are_made_inactive(world: World, kubeconfig: Path) -> None:
    put(world, job("a"))
    uid = world.job("a")["metadata"]["uid"]
    owned = {"kind": "Job", "name": "a", "uid": uid, "controller": True}
    template = world.job("a")["spec"]["template"]
    workload = {
        "metadata": {"name": "job-a", "ownerReferences": [owned]},
        "spec": {"active": True, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    kept = world.put("workloads", workload, "kueue.x-k8s.io")
    kube = cluster(world, kubeconfig)
    (name,) = kube.read({}).jobs
    kube.start(name, on("n1"), kube.read({}).jobs[name])
    world.tick()
    kube.read({})
    kube.stop(name)
    (kept,) = world.of("workloads", "kueue.x-k8s.io")
    assert kept["spec"]["active"] is False
    assert not world.job("a")["spec"].get("suspend")
    kube.read({})
    kube.restore(name, {})
    (kept,) = world.of("workloads", "kueue.x-k8s.io")
    assert kept["spec"]["active"] is True
    assert kept["metadata"]["annotations"] == {}


def test_volcano_jobs_get_commands(world: World, kubeconfig: Path) -> None:
    made = world.put("jobs", {"metadata": {"name": "v"}, "spec": {}}, "batch.volcano.sh")
    owned = {"kind": "Job", "name": "v", "uid": made["metadata"]["uid"], "controller": True}
    meta = {"name": "v-0", "ownerReferences": [owned]}
    world.put("pods", {"metadata": meta, "spec": pod_spec(1), "status": {"phase": "Pending"}})
    kube = cluster(world, kubeconfig)
    kube.start("ml/v", on("n1"), kube.read({}).jobs["ml/v"])
    world.tick()
    kube.read({})
    kube.stop("ml/v")
    kube.read({})
    kube.restore("ml/v", {})
    commands = world.of("commands", "bus.volcano.sh")
    assert [c["action"] for c in commands] == ["AbortJob", "ResumeJob"]
    assert {c["target"]["uid"] for c in commands} == {made["metadata"]["uid"]}


def volcano_job(world: World, name: str, pods: int) -> dict[str, Any]:
    spec = pod_spec(2, nodeSelector={"kubernetes.io/hostname": "n2"})
    template = {"metadata": {}, "spec": spec}
    tasks = [{"name": "w", "replicas": pods, "template": template}]
    record = {"metadata": {"name": name}, "spec": {"minAvailable": pods, "tasks": tasks}}
    return world.put("jobs", record, "batch.volcano.sh")


def volcano_pods(world: World, made: dict[str, Any], number: int) -> None:
    """What Volcano's controller makes: pods and their PodGroup."""
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    owned = [{"kind": "Job", "name": name, "uid": uid, "controller": True}]
    marks = {"scheduling.k8s.io/group-name": f"{name}-{uid}"}
    template = made["spec"]["tasks"][0]["template"]
    for index in range(number):
        meta = {"name": f"{name}-w-{index}", "ownerReferences": owned, "annotations": dict(marks)}
        spec = json.loads(json.dumps(template["spec"]))
        world.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
    if number:
        group = {"metadata": {"name": f"{name}-{uid}", "ownerReferences": owned},
                 "spec": {"minMember": number}}  # fmt: skip
        world.put("podgroups", group, "scheduling.volcano.sh")


def test_an_aborted_volcano_job_still_waits(world: World, kubeconfig: Path) -> None:
    """Aborted it has neither pods nor PodGroup; it waits as before, and is resumed."""
    made = volcano_job(world, "v", 2)
    volcano_pods(world, made, 2)
    name = f"ml/v-{made['metadata']['uid']}"
    kube = cluster(world, kubeconfig)
    before = next(j for j in kube.read({}).snapshot.jobs if j.name == name)
    kube.start(name, on("n2", "n2"), kube.read({}).jobs[name])
    world.tick()
    kube.read({})
    kube.stop(name)
    for pod in world.pods("v"):
        world._drop(pod)
    (group,) = world.of("podgroups", "scheduling.volcano.sh")
    world._drop(group)
    made = world.of("jobs", "batch.volcano.sh")[0]
    made["status"] = {"state": {"phase": "Aborted"}}
    reading = kube.read({})
    check(reading.snapshot)
    after = next(j for j in reading.snapshot.jobs if j.name == name)
    assert (reading.jobs[name].state, reading.jobs[name].managed) == ("waiting", True)
    wishes = {"state", "tasks", "request", "node_selector", "queue", "priority", "submit"}
    assert after.model_dump(include=wishes) == before.model_dump(include=wishes)

    def answer(method: str, path: str) -> None:
        if method == "POST" and path.endswith("commands"):
            volcano_pods(world, made, 2)

    world.before = answer
    kube.start(name, on("n2", "n2"), reading.jobs[name])
    world.tick()
    assert [pod["spec"]["nodeName"] for pod in world.pods("v")] == ["n2", "n2"]
    commands = world.of("commands", "bus.volcano.sh")
    assert [c["action"] for c in commands] == ["AbortJob", "ResumeJob"]
    assert world.of("jobs", "batch.volcano.sh")[0]["metadata"]["annotations"] == {}


def test_a_resume_that_was_cut_off_is_sent_again(world: World, kubeconfig: Path) -> None:
    made = volcano_job(world, "v", 1)
    made["status"] = {"state": {"phase": "Aborted"}}
    made["metadata"]["annotations"] = {"trencadis.io/suspended": "resuming 2026-03-01T12:00:00"}
    name = f"ml/v-{made['metadata']['uid']}"
    kube = cluster(world, kubeconfig)
    assert kube.read({}).jobs[name].state == "waiting"
    made["status"] = {"state": {"phase": "Pending"}}
    volcano_pods(world, made, 1)
    view = kube.read({}).jobs[name]
    assert (view.state, view.managed) == ("waiting", True)
    kube.start(name, on("n2"), view)
    assert world.of("commands", "bus.volcano.sh") == []
    assert world.of("jobs", "batch.volcano.sh")[0]["metadata"]["annotations"] == {}


def test_a_job_that_its_user_resumes_waits_again(world: World, kubeconfig: Path) -> None:
    put(world, job("a"))
    kube = cluster(world, kubeconfig)
    started(kube, world, "a", "n1")
    kube.stop("ml/a")
    world.tick(9)
    world.tick(9)
    world.job("a")["spec"]["suspend"] = False
    world.sync()
    view = kube.read({}).jobs["ml/a"]
    assert (view.state, view.managed) == ("waiting", True)
    kube.start("ml/a", on("n2"), view)
    world.tick()
    assert places(world, "a") == ["n2"]
    assert world.job("a")["metadata"]["annotations"] == {}


def test_given_back_on_nobodys_terms(world: World, kubeconfig: Path) -> None:
    put(world, job("waits", pods=2), job("sent", gpus=4), job("stopped"))
    world.stuck.add("n1")
    kube = cluster(world, kubeconfig)
    started(kube, world, "stopped", "n2")
    kube.stop("ml/stopped")
    world.tick(9)
    kube.start("ml/sent", on("n1"), kube.read({}).jobs["ml/sent"])
    reading = kube.read({})
    assert reading.jobs["ml/sent"].state == "released"
    for name in reading.jobs:
        kube.give_back(name, {})
    assert all(not pod["spec"]["schedulingGates"] for pod in world.pods())
    world.tick()
    assert places(world, "sent") == ["n3"]  # the native scheduler's own choice
    assert "" not in places(world, "waits") + places(world, "stopped")


def test_a_pod_made_again_beside_others_stops_none_of_them(world: World, kubeconfig: Path) -> None:
    """Cut off between its name and its gate, while its sibling runs on."""
    world.lasts = {"a": 99}
    put(world, job("a", pods=2))
    kube = cluster(world, kubeconfig)
    started(kube, world, "a", "n1", "n2")
    failed = world.pods("a")[1]
    failed["status"]["phase"] = "Failed"
    world._make(world.job("a"))
    reading = kube.read({})
    assert {n: v.state for n, v in reading.jobs.items()} == {
        "ml/a": "running",
        "ml/a#2": "waiting",
    }

    def cut(method: str, _path: str) -> None:
        if method == "PATCH" and any("nodeSelector" in body["spec"] for *_, body in world.asked):
            raise WrongError(500, "no")

    world.asked.clear()
    world.before = cut
    with pytest.raises(UnavailableError):
        kube.start("ml/a#2", on("n3"), reading.jobs["ml/a#2"])
    world.before = lambda *_: None
    reading = kube.read({})
    assert reading.jobs["ml/a#2"].state == "waiting"
    kube.withdraw("ml/a#2", {})
    assert not world.job("a")["spec"].get("suspend")
    reading = kube.read({})
    # It can go nowhere else any more.
    found = {entry.name: entry for entry in reading.snapshot.jobs}
    assert found["ml/a#2"].node_selector == {"kubernetes.io/hostname": "n3"}
    kube.start("ml/a#2", on("n3"), reading.jobs["ml/a#2"])
    kube.read({})
    world.tick()
    assert kube.read({}).jobs["ml/a"].nodes == ("n1", "n3")
    assert [node for _, node in world.runs] == ["n1", "n2", "n3"]


def test_pods_of_a_replica_set_are_evicted_or_removed(world: World, kubeconfig: Path) -> None:
    owned = {"kind": "ReplicaSet", "name": "r", "uid": "uid-r", "controller": True}
    for name in ("r-1", "r-2"):
        meta = {"name": name, "ownerReferences": [owned]}
        record = {"metadata": meta, "spec": pod_spec(1), "status": {"phase": "Pending"}}
        world.put("pods", record)
    world.stuck.add("n2")
    kube = cluster(world, kubeconfig)
    views = kube.read({}).jobs
    assert views.keys() == {"ml/r-1", "ml/r-2"}  # each by itself
    kube.start("ml/r-1", on("n1"), views["ml/r-1"])
    kube.start("ml/r-2", on("n2"), views["ml/r-2"])
    world.tick()
    assert {n: v.state for n, v in kube.read({}).jobs.items()} == {
        "ml/r-1": "running",
        "ml/r-2": "released",
    }
    kube.withdraw("ml/r-2", {})
    kube.stop("ml/r-1")
    assert {n: v.state for n, v in kube.read({}).jobs.items()} == {"ml/r-1": "leaving"}


def test_no_plan_counts_on_a_layout_that_is_not_sent(world: World, kubeconfig: Path) -> None:
    text = TEXT + '[policy.mig]\nreconfigure = "repack"\nmode = "free"\n'
    found = cluster(world, kubeconfig, text).read({}).snapshot
    assert {node.mig_reconfigure for node in found.nodes} == {"forbid"}


def test_a_job_with_less_left_than_it_runs_at_once(world: World, kubeconfig: Path) -> None:
    put(world, job("a", pods=2, completions=3))
    kube = cluster(world, kubeconfig)
    started(kube, world, "a", "n1", "n1")
    world.tick()
    world.tick()
    view = kube.read({}).jobs["ml/a"]
    assert (view.state, view.managed) == ("waiting", True)
    assert started(kube, world, "a", "n2").state == "running"
    world.tick()
    world.tick()
    view = kube.read({}).jobs["ml/a"]
    assert (view.state, view.finished, view.nodes) == ("ended", True, ("n1", "n2"))


def test_done_before_its_controller_says_so(world: World, kubeconfig: Path) -> None:
    put(world, job("a"))
    kube = cluster(world, kubeconfig)
    started(kube, world, "a", "n1")
    world.controllers = False
    world.pods("a")[0]["status"]["phase"] = "Succeeded"
    view = kube.read({}).jobs["ml/a"]
    assert (view.state, view.finished, view.nodes) == ("ended", True, ("n1",))


def test_reservations_are_taints(world: World, kubeconfig: Path) -> None:
    kube = cluster(world, kubeconfig)
    for _ in range(2):
        kube.reserve("trencadis-ml/a", "ml/a", ["n1", "n2"], world.now, world.now)
    assert kube.reservations() == ["trencadis-ml/a"]
    taints = {n["metadata"]["name"]: len(n["spec"].get("taints", [])) for n in world.of("nodes")}
    assert taints == {"n1": 1, "n2": 1, "n3": 0}
    assert not any(entry.taints for entry in kube.read({}).snapshot.nodes)
    with pytest.raises(RefusedError, match="kept for ml/a"):
        kube.reserve("trencadis-ml/b", "ml/b", ["n2"], world.now, world.now)
    kube.unreserve("trencadis-ml/a")
    kube.unreserve("trencadis-ml/a")
    assert kube.reservations() == []
    assert not any(n["spec"]["taints"] for n in world.of("nodes") if n["spec"])


def test_lists_of_many_pages(world: World, kubeconfig: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("trencadis.adapters.kubernetes.live.api.PAGE", 2)
    put(world, *(job(f"j{number}") for number in range(5)))
    assert len(cluster(world, kubeconfig).read({}).jobs) == 5


def test_objections(world: World, kubeconfig: Path) -> None:
    for name, value, policy in (("high", 9, "Never"), ("top", 99, "PreemptLowerPriority")):
        record = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        world.put("priorityclasses", record, "scheduling.k8s.io")
    cohort = {"metadata": {"name": "cq"}, "spec": {"preemption": {"withinClusterQueue": "Any"}}}
    world.put("clusterqueues", cohort, "kueue.x-k8s.io")
    found = cluster(world, kubeconfig, TEXT.replace('"ml"', '"ml", "no"')).objections()
    assert len(found) == 3
    assert found[0] == "namespace no of the scope is not there"
    assert "PriorityClass top" in found[1]
    assert "ClusterQueue cq" in found[2]
    assert cluster(world, kubeconfig, TEXT + 'native_preemption = "allow"').objections() == []


def test_away(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kube_config("http://127.0.0.1:9")))
    kube = cluster(World(), path)
    assert not kube.alive()
    with pytest.raises(UnavailableError, match="API server"):
        kube.read({})
    with pytest.raises(UnavailableError):
        kube.objections()


def test_configuration() -> None:
    config = load_config(TEXT)
    assert config.live.scope.pools == ("ml",)
    with pytest.raises(InvalidInputError) as error:
        load_config("[kubernetes]\ngats = 'x'\n[live]\nmode = 'maybe'")
    assert len(error.value.lines()) == 2
    with pytest.raises(InvalidInputError, match="TOML"):
        load_config("[")
