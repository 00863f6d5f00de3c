"""The live loop against a real API server, scheduler and Job controller: eight nodes, 64 GPUs."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes_lab.lab import Lab, gang, lab, missing
from live_desk import LiveDesk
from loopback import free_ports

from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.written import Request
from trencadis.adapters.live.store import Store

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
QUEUES = ("alpha", "beta", "gamma")
# GPUs of a pod, pods, how many gangs of a queue, where all must be.
KINDS = ((1, 2, 3, ""), (2, 1, 2, ""), (4, 2, 2, "lab/rack"), (8, 2, 1, "lab/rack"),
         (8, 3, 1, "lab/block"), (8, 1, 1, ""))  # fmt: skip
CONFIG = """
[live]
mode = "enforce"
interval_seconds = 1.0
start_timeout_seconds = 15
retry_after_seconds = 2
missed_rounds = 4
scope = {{ namespaces = ["alpha", "beta", "gamma"] }}

[kubernetes]
kubeconfig = "{kubeconfig}"
levels = ["lab/block", "lab/rack"]

[policy]
default_tier = "low"
tiers = [{{ name = "high", weight = 16 }}, {{ name = "low", weight = 1 }}]
preemption = {{ grace_seconds = 2, min_runtime_seconds = 0, checkpoint_interval_seconds = 1, \
restart_seconds = 1, restart_seconds_multi_node = 1 }}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


class Desk(LiveDesk):
    """`trencadis kubernetes` on the lab, with the rights of the guide."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab = lab
        super().__init__("kubernetes", directory, CONFIG.format(kubeconfig=lab.ours))

    def planned(self) -> dict[str, list[list[str]]]:
        """Nodes of each start of each job, one a task, by the rounds' plans."""
        store = Store(self.state)
        rows = store.rows("SELECT plan FROM rounds ORDER BY id")
        store.close()
        found: defaultdict[str, list[list[str]]] = defaultdict(list)
        for (text,) in rows:
            for start in json.loads(text).get("starts", ()):
                found[start["job"]].append(sorted(task["node"] for task in start["allocation"]))
        return found

    def tail(self) -> str:
        pods = [
            " ".join(
                [records.name(p), records.phase(p), records.node(p), *records.gates(p),
                 f"deleted {records.deleted(p)}" if records.deleted(p) else ""]
            )
            for p in self.lab.pods()
            if records.phase(p) != "Succeeded"
        ]  # fmt: skip
        return "\n".join([*self.logged(25), *pods])

    def until_done(self, seconds: float) -> None:
        self.lab.wait(self.lab.done, self.tail, seconds)


@pytest.fixture
def desk(cluster: Lab, tmp_path: Path) -> Iterator[Desk]:
    yield Desk(cluster, tmp_path)
    cluster.clear()


def submit_thirty(lab: Lab) -> dict[str, tuple[int, str]]:
    """Ten gangs for each queue, in an order of their own; pods and level by job."""
    draw = random.Random(1)
    wishes = [
        (queue, f"{queue[0]}{number}-{index}", gpus, pods, level)
        for queue in QUEUES
        for number, (gpus, pods, many, level) in enumerate(KINDS)
        for index in range(many)
    ]
    draw.shuffle(wishes)
    found = {}
    for queue, name, gpus, pods, level in wishes:
        seconds = draw.randint(2, 4)
        lab.submit(queue, gang(name, gpus, pods, seconds, together=level))
        found[f"{queue}/{name}"] = (pods, level)
    return found


def where(lab: Lab) -> dict[str, list[str]]:
    """Nodes of the pods that were done, by job."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for pod in lab.pods():
        if records.phase(pod) == "Succeeded":
            owner = records.controller(pod)["name"]
            found[f"{records.namespace(pod)}/{owner}"].append(records.node(pod))
    return {name: sorted(nodes) for name, nodes in found.items()}


def assert_ran_where_planned(desk: Desk, jobs: dict[str, tuple[int, str]]) -> None:
    """Every pod was done once, on the node that the last plan to start its job named."""
    desk("run", "--rounds", "1")
    nodes = where(desk.lab)
    assert {name: len(found) for name, found in nodes.items()} == {
        name: pods for name, (pods, _) in jobs.items()
    }
    planned = desk.planned()
    assert {name: planned[name][-1] for name in jobs} == nodes
    for name, (_, level) in jobs.items():
        racks = {(int(node[1:]) + 1) // 2 for node in nodes[name]}
        blocks = {(int(node[1:]) + 3) // 4 for node in nodes[name]}
        assert level != "lab/rack" or len(racks) == 1, name
        assert level != "lab/block" or len(blocks) == 1, name
    assert desk.events("started-elsewhere") == []


def test_thirty_gangs_in_three_queues(desk: Desk) -> None:
    jobs = submit_thirty(desk.lab)
    assert len(jobs) == 30
    began = time.monotonic()
    with desk.running("run", "--workers", "2"):
        desk.until_done(180)
    print(f"{len(jobs)} gangs, {sum(p for p, _ in jobs.values())} pods, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    assert_ran_where_planned(desk, jobs)
    pods = sum(pods for pods, _ in jobs.values())
    assert len(desk.lab.runs) == pods
    assert sorted(name for name, _ in desk.events("started")) == sorted(jobs)


def test_killed_at_any_moment_and_begun_again(desk: Desk) -> None:
    jobs = submit_thirty(desk.lab)
    draw = random.Random(2)
    kills = 0
    end = time.monotonic() + 240
    while not desk.lab.done():
        assert time.monotonic() < end, desk.tail()
        process = desk.begin("run", "--workers", "2")
        try:
            process.wait(draw.uniform(2.0, 7.0) if kills < 8 else 3)
        except subprocess.TimeoutExpired:
            if kills < 8:
                process.send_signal(signal.SIGKILL)
                kills += 1
            else:
                desk.until_done(180)
                process.terminate()
            process.wait(30)
    desk("run", "--rounds", "1")
    nodes = where(desk.lab)
    # Nothing double: each index of each gang was done once.
    assert {name: len(found) for name, found in nodes.items()} == {
        name: pods for name, (pods, _) in jobs.items()
    }
    planned = desk.planned()
    for name in jobs:
        assert nodes[name] in planned[name], name
    assert kills >= 3
    assert desk.events("started-elsewhere") == []


def test_preemption_through_the_owner_within_budgets(desk: Desk) -> None:
    """Low gangs fill the cluster; those under a budget stay whatever comes."""
    lab = desk.lab
    kept, going = [], []
    for number in range(8):
        covered = number < 4
        name = f"low{number}"
        labels = {"app": "kept"} if covered else {}
        lab.submit("alpha", gang(name, 8, 1, 60 if covered else 25, labels=labels, grace=3))
        (kept if covered else going).append(name)
    budget = {
        "metadata": {"name": "kept"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "kept"}}},
    }
    lab.api.post("/apis/policy/v1/namespaces/alpha/poddisruptionbudgets", budget)
    with desk.running("run", "--workers", "2"):
        lab.wait(lambda: len(lab.runs) == 8, desk.tail, 40)
        for number in range(2):
            wish = gang(f"high{number}", 8, 1, 2, priority="high")
            lab.submit("beta", wish)
        begun = {"high0", "high1"}
        lab.wait(lambda: begun <= {job for _, job, _ in lab.runs}, desk.tail, 60)
        lab.wait(lambda: len(desk.events("preempted")) >= 2, desk.tail, 30)
        victims = {name.partition("/")[2] for name, _ in desk.events("preempted")}
        assert victims <= set(going)
        # They run again, through the same Job, whose backoff limit is 0.
        lab.wait(
            lambda: all(Counter(j for _, j, _ in lab.runs)[v] == 2 for v in victims),
            desk.tail,
            60,
        )
    assert Counter(job for _, job, _ in lab.runs)["low0"] == 1
    failed = [job for job in lab.jobs() if "Failed" in records.conditions(job)]
    assert failed == []


def test_the_watchdog_takes_gates_off(desk: Desk) -> None:
    """The loop is killed for good; the scheduler places what is left by itself."""
    jobs = submit_thirty(desk.lab)
    process = desk.begin("run", "--workers", "2")
    desk.lab.wait(lambda: desk.lab.runs, desk.tail, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with desk.running("watchdog", "--period", "1"):
        desk.until_done(240)
    assert len(desk.events("given-back")) > 0
    assert {n: len(w) for n, w in where(desk.lab).items()} == {n: p for n, (p, _) in jobs.items()}


def test_kubectl_carries_out_what_is_written(desk: Desk) -> None:
    lab = desk.lab
    for number in range(3):
        lab.submit("alpha", gang(f"k{number}", 4, 2, 60))
    lab.wait(lambda: len(lab.pods("alpha")) == 6, desk.tail)
    desk("snapshot", "-o", "snap.json")
    solve = "from trencadis.cli import main; main()"
    words = [sys.executable, "-c", solve, "solve", "snap.json", "-o", "plan.json"]
    subprocess.run(words, cwd=desk.directory, check=True, capture_output=True)
    script = desk("apply", "plan.json", "--dry-run")
    assert not any(records.node(pod) for pod in lab.pods())
    lab.kubectl(script)
    lab.wait(lambda: len(lab.runs) == 6, desk.tail)
    starts = json.loads((desk.directory / "plan.json").read_text())["starts"]
    planned = {s["job"]: sorted(t["node"] for t in s["allocation"]) for s in starts}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for _, job, node in lab.runs:
        found[f"alpha/{job}"].append(node)
    assert {name: sorted(nodes) for name, nodes in found.items()} == planned


def test_kubectl_takes_every_form_of_line(desk: Desk) -> None:
    """A preemption through the owner, an eviction, and a pod taken away before it runs."""
    lab = desk.lab
    lab.submit("alpha", gang("stopped", 1, 1, 60, gated=False, grace=1))
    lab.submit("alpha", gang("evicted", 1, 1, 60, gated=False, grace=1))
    lab.submit("alpha", gang("gated", 1, 1, 60))
    lab.wait(lambda: len(lab.runs) == 2 and len(lab.pods("alpha")) == 3, desk.tail)
    names = {records.controller(pod)["name"]: records.name(pod) for pod in lab.pods("alpha")}
    path = f"/api/v1/namespaces/alpha/pods/{names['evicted']}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    eviction |= {"metadata": {"name": names["evicted"], "namespace": "alpha"}}
    jobs = "/apis/batch/v1/namespaces/alpha/jobs"
    suspend = {"metadata": {"annotations": {"x": "y"}}, "spec": {"suspend": True}}
    lines = [
        Request("PATCH", f"{jobs}/stopped", suspend),
        Request("POST", path, eviction),
        Request("DELETE", f"/api/v1/namespaces/alpha/pods/{names['gated']}", {}),
    ]
    lab.kubectl("\n".join(line.kubectl() for line in lines))

    def gone() -> bool:
        return not {records.name(pod) for pod in lab.pods("alpha")} & set(names.values())

    lab.wait(gone, desk.tail)
    assert set(lab.removed) == {names["stopped"], names["evicted"]}


# kube-scheduler with `trencadis serve` as its extender


class Service:
    """`trencadis serve`, fed with the state of the lab once a second."""

    def __init__(self, lab: Lab, port: int, directory: Path) -> None:
        self.lab, self.directory = lab, directory
        self.url = f"http://127.0.0.1:{port}"
        self.words = ["serve", "--port", str(port), "--workers", "1", "--threads", "1"]
        self.words += ["--round-time", "1", "--kube-api", lab.url, "--kube-ca", str(lab.authority)]
        self.words += ["--kube-token", str(lab.token)]
        self.named: defaultdict[str, set[str]] = defaultdict(set)
        """Nodes that a plan named, by pod."""
        self.alone: set[str] = set()
        """Pods that the scheduler bound while the service had no plan: it decides alone then."""
        self.fresh = False
        self._stop = threading.Event()
        self._feeder = threading.Thread(target=self._feed)

    def begin(self) -> subprocess.Popen[bytes]:
        self.fresh = True
        code = "from trencadis.cli import main; main()"
        with (self.directory / "serve.log").open("ab") as log:
            words = [sys.executable, "-c", code, *self.words]
            return subprocess.Popen(words, cwd=self.directory, stdout=log, stderr=log)

    @contextmanager
    def fed(self) -> Iterator[None]:
        self._feeder.start()
        try:
            yield
        finally:
            self._stop.set()
            self._feeder.join()

    def _feed(self) -> None:
        while not self._stop.wait(0.7):
            state = self.lab.kubectl("kubectl get nodes,pods,priorityclasses -A -o json")
            try:
                self._ask("/v1/snapshot?format=kubernetes&wait=5", state.encode())
                plan = json.loads(self._ask("/v1/plan"))
            except OSError:
                continue  # it has been killed, or has no plan yet
            if self.fresh:
                bound = [pod for pod in self.lab.pods("alpha") if records.node(pod)]
                self.alone.update(f"alpha/{records.name(pod)}" for pod in bound)
                self.fresh = False
            for start in plan.get("plan", plan).get("starts", ()):
                self.named[start["job"]].update(task["node"] for task in start["allocation"])

    def _ask(self, path: str, data: bytes | None = None) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", data, timeout=10) as answer:
            return bytes(answer.read())

    def has_named(self, name: str, _: str, node: str) -> bool:
        """Whether a plan named the node for the pod."""
        return node in self.named[f"alpha/{name}"]

    def tail(self) -> str:
        log = self.directory / "serve.log"
        pods = [f"{records.name(p)} {records.phase(p)} {records.node(p)}" for p in self.lab.pods()]
        return "\n".join([*log.read_text().splitlines()[-15:], *pods])


def test_the_scheduler_asks_the_service(tmp_path: Path) -> None:
    """Ungated pods are bound where the plans say; the service is killed and comes back."""
    (port,) = free_ports(1)
    with lab(tmp_path, extender=f"http://127.0.0.1:{port}/scheduler") as cluster:
        service = Service(cluster, port, tmp_path)
        draw = random.Random(3)
        process = service.begin()
        try:
            with service.fed():
                cluster.wait(lambda: not service.fresh, service.tail, 60)
                for number in range(24):
                    wish = gang(f"s{number}", draw.choice((1, 2, 4, 8)), 2, 3, gated=False)
                    cluster.submit("alpha", wish)
                cluster.wait(lambda: len(cluster.runs) >= 10, service.tail, 60)
                before = len(cluster.runs)
                process.send_signal(signal.SIGKILL)
                process.wait()
                assert not service.alone
                assert all(service.has_named(*run) for run in cluster.runs[:before])
                process = service.begin()
                cluster.wait(lambda: not service.fresh, service.tail, 60)
                for number in range(6):
                    cluster.submit("alpha", gang(f"t{number}", 4, 2, 2, gated=False))
                cluster.wait(cluster.done, service.tail, 120)
        finally:
            process.terminate()
            process.wait(30)
        # Nothing double, and with a plan nothing but by the plan.
        assert len({name for name, _, _ in cluster.runs}) == len(cluster.runs) == 60
        alone = service.alone - {f"alpha/{name}" for name, _, _ in cluster.runs[:before]}
        planned = [run for run in cluster.runs if f"alpha/{run[0]}" not in alone]
        assert len(planned) >= before + 12
        assert all(service.has_named(*run) for run in planned)
