"""A real control plane on loopback: etcd, API server, scheduler, controller manager; no kubelet.

Everything is in one directory and ends with `stop`. A thread stands for the machines: it says that
bound pods run, that they are done after the seconds of their annotation, and removes pods that were
deleted when their grace is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from kubernetes_lab.build import build, program
from loopback import free_ports

from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import HttpApi, Json, listing
from trencadis.adapters.kubernetes.live.config import KubernetesOptions
from trencadis.adapters.live.cluster import RefusedError, UnavailableError

SECONDS = "lab/seconds"
"""Annotation of a pod: how long it runs."""
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md"
CONTROLLERS = "job-controller,disruption-controller"
TOKEN, OURS = "lab-token", "trencadis-token"


def missing() -> str | None:
    """Why there can be no lab on this machine."""
    absent = [word for word in ("etcd", "openssl", "kubectl") if shutil.which(word) is None]
    if absent:
        return f"no {', '.join(absent)} on this machine"
    if program().is_file():
        return None
    if shutil.which("go") is None:
        return "the lab isn't built, and there is no Go toolchain"
    if "TRENCADIS_LAB_BUILD" not in os.environ:
        return "the lab isn't built: python tests/kubernetes_lab/build.py"
    return None


class Lab:
    """One cluster: nodes n1 to n8 of eight GPUs, two to a rack, four to a block."""

    def __init__(self, directory: Path, *, extender: str | None = None) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.ours = directory / "kubeconfig-trencadis"
        """With the rights that docs/kubernetes.md asks for, and no others."""
        self.program = build()
        etcd, peers, api, scheduler, manager = free_ports(5)
        self.ports = {"etcd": etcd, "peers": peers, "api": api}
        self.ports |= {"scheduler": scheduler, "manager": manager}
        self.url = f"https://127.0.0.1:{api}"
        self.authority = directory / "certs" / "apiserver.crt"
        self.token = directory / "token"
        self.extender = extender
        self.runs: list[tuple[str, str, str]] = []
        """Pod, its Job and its node, of each run that the machines saw begin."""
        self.ended: list[str] = []
        """UIDs of pods that were done."""
        self.removed: list[str] = []
        """Pods that had to leave."""
        self.hurry = False
        """Whether pods are done at once, however long they were to run."""
        self.controllers: list[Callable[[], None]] = []
        """Stand-ins, each called again and again."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._kubelets = threading.Thread(target=self._machines)
        self._write()
        self.api: HttpApi

    def _write(self) -> None:
        key = self.directory / "accounts.key"
        words = ["openssl", "genrsa", "-out", str(key), "2048"]
        subprocess.run(words, check=True, capture_output=True)
        self.token.write_text(TOKEN)
        users = f'{TOKEN},lab,lab,"system:masters"\n{OURS},trencadis,trencadis\n'
        (self.directory / "tokens.csv").write_text(users)
        server = {"server": self.url, "certificate-authority": str(self.authority)}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "clusters": [{"name": "lab", "cluster": server}],
        }  # fmt: skip
        for path, token in ((self.kubeconfig, TOKEN), (self.ours, OURS)):
            users = [{"name": "lab", "user": {"token": token}}]
            path.write_text(json.dumps({**config, "users": users}))
        extenders = [
            {
                "urlPrefix": self.extender, "filterVerb": "filter", "weight": 5,
                "prioritizeVerb": "prioritize", "nodeCacheCapable": True, "ignorable": False,
                "managedResources": [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}],
            }
        ]  # fmt: skip
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
            "extenders": extenders if self.extender else [],
        }
        (self.directory / "scheduler.yaml").write_text(json.dumps(scheduler))

    # Processes

    def start(self) -> None:
        """Starts everything, and registers the nodes."""
        here, ports = self.directory, self.ports
        client, peer = (f"http://127.0.0.1:{ports[key]}" for key in ("etcd", "peers"))
        self._begin(
            "etcd", str(shutil.which("etcd")), "--data-dir", f"{here}/etcd",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        )  # fmt: skip
        key = f"{here}/accounts.key"
        self._begin(
            "kube-apiserver", str(self.program), "kube-apiserver",
            "--etcd-servers", client, "--bind-address", "127.0.0.1",
            "--secure-port", str(ports["api"]), "--cert-dir", f"{here}/certs",
            "--token-auth-file", f"{here}/tokens.csv", "--authorization-mode", "RBAC",
            "--service-account-issuer", "https://lab", "--service-account-key-file", key,
            "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.99.0.0/24",
            "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition",
        )  # fmt: skip
        self.wait(self.authority.is_file, self.tail("kube-apiserver"))
        self.api = HttpApi(KubernetesOptions(kubeconfig=str(self.kubeconfig)))
        self.wait(self._ready, self.tail("kube-apiserver"), 90)
        for number in range(1, 9):
            self._register(number)
        for namespace in ("alpha", "beta", "gamma"):
            self.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self._grant()
        for label, value in (("high", 100), ("low", 0)):
            record = {"metadata": {"name": label}, "value": value, "preemptionPolicy": "Never"}
            self.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", record)
        common = ["--bind-address", "127.0.0.1", "--cert-dir", f"{here}/certs"]
        self._begin(
            "kube-scheduler", str(self.program), "kube-scheduler",
            "--config", f"{here}/scheduler.yaml", "--secure-port", str(ports["scheduler"]), *common,
        )  # fmt: skip
        self._begin(
            "kube-controller-manager", str(self.program), "kube-controller-manager",
            "--kubeconfig", str(self.kubeconfig), "--controllers", CONTROLLERS,
            "--leader-elect=false", "--secure-port", str(ports["manager"]), *common,
        )  # fmt: skip
        self._kubelets.start()

    def _grant(self) -> None:
        (role,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", GUIDE.read_text(), re.DOTALL)
        root = "/apis/rbac.authorization.k8s.io/v1"
        self.api.post(f"{root}/clusterroles", yaml.safe_load(role))
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": "trencadis"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "trencadis"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "trencadis"}],
        }
        self.api.post(f"{root}/clusterrolebindings", binding)
        # The API server learns of new rights by watching itself, a moment later.
        self.wait(self._granted, self.tail("kube-apiserver"))

    def _granted(self) -> bool:
        try:
            return bool(HttpApi(KubernetesOptions(kubeconfig=str(self.ours))).get("/apis"))
        except RefusedError:
            return False

    def _begin(self, part: str, *words: str) -> None:
        with (self.directory / f"{part}.log").open("ab") as log:
            self._processes[part] = subprocess.Popen(words, stdout=log, stderr=log, cwd="/")

    def _ready(self) -> bool:
        try:
            # The API server's own priority classes and namespaces come a moment after it.
            self.api.get("/api/v1/namespaces/default")
            return bool(self.api.get("/version"))
        except (RefusedError, UnavailableError):
            return False

    def stop(self) -> None:
        """Ends everything, in the order in which it hurts least."""
        self._stop.set()
        if self._kubelets.is_alive():
            self._kubelets.join()
        for part in reversed(self._processes):
            process = self._processes[part]
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def tail(self, part: str) -> Callable[[], str]:
        """The end of a log, when it is asked for."""
        path = self.directory / f"{part}.log"
        return lambda: "\n".join(path.read_text().splitlines()[-20:])

    def wait(
        self, until: Callable[[], object], why: Callable[[], str], seconds: float = 30
    ) -> None:
        """Until the condition holds; the programs have no other way to tell."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise AssertionError(why())
            time.sleep(0.2)

    # Machines

    def _register(self, number: int) -> None:
        name = f"n{number}"
        labels = {
            "kubernetes.io/hostname": name,
            "lab/block": f"b{(number + 3) // 4}",
            "lab/rack": f"r{(number + 1) // 2}",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.memory": "81559",
        }
        self.api.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        offered = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
        ready = {"type": "Ready", "status": "True", "reason": "Lab"}
        status = {"capacity": offered, "allocatable": offered, "conditions": [ready]}
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def _machines(self) -> None:
        while not self._stop.wait(0.2):
            with contextlib.suppress(RefusedError, UnavailableError):
                for pod in self.pods():
                    self._machine(pod)
            for controller in self.controllers:
                with contextlib.suppress(RefusedError, UnavailableError):
                    controller()

    def _machine(self, pod: Json) -> None:
        """What kubelet would do next with a pod of its node."""
        if not records.node(pod):
            return
        path = f"/api/v1/namespaces/{records.namespace(pod)}/pods/{records.name(pod)}"
        now = datetime.now(UTC)
        leaves = records.deleted(pod)
        if leaves is not None:
            if leaves <= now:
                self.removed.append(records.name(pod))
                body = {"gracePeriodSeconds": 0, "preconditions": {"uid": records.uid(pod)}}
                self.api.delete(path, body)
        elif records.phase(pod) == "Pending":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(now)}
            scheduled = {"type": "PodScheduled", "status": "True"}
            status = {"phase": "Running", "startTime": stamp(now), "conditions": [scheduled, ready]}
            self.api.patch(f"{path}/status", {"status": status})
            owner = str(records.controller(pod).get("name", ""))
            self.runs.append((records.name(pod), owner, records.node(pod)))
        elif records.phase(pod) == "Running":
            began = datetime.fromisoformat(pod["status"]["startTime"])
            wanted = float(records.annotation(pod, SECONDS) or 3)
            if self.hurry or (now - began).total_seconds() >= wanted:
                self.api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
                self.ended.append(records.uid(pod))

    # Objects

    def pods(self, namespace: str = "") -> list[Json]:
        """All pods, or a namespace's."""
        within = f"/namespaces/{namespace}" if namespace else ""
        return list(listing(self.api, f"/api/v1{within}/pods")["items"])

    def jobs(self) -> list[Json]:
        """All Jobs."""
        return list(listing(self.api, "/apis/batch/v1/jobs")["items"])

    def submit(self, namespace: str, record: Json) -> Json:
        """A Job."""
        return self.api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", record)

    def create(self, version: str, kind: str, record: Json, namespace: str = "") -> Json:
        """An object of a kind that isn't Kubernetes' own, whose kind has to be told."""
        within = f"/namespaces/{namespace}" if namespace else ""
        path = f"/apis/{version}{within}/{kind.lower()}s"
        return self.api.post(path, {"apiVersion": version, "kind": kind, **record})

    def done(self) -> bool:
        """Whether all Jobs are complete."""
        return all("Complete" in records.conditions(job) for job in self.jobs())

    def clear(self) -> None:
        """Removes all Jobs, pods and budgets."""
        for namespace in ("alpha", "beta", "gamma"):
            for group, resource in (("batch", "jobs"), ("policy", "poddisruptionbudgets")):
                path = f"/apis/{group}/v1/namespaces/{namespace}/{resource}"
                for record in listing(self.api, path)["items"]:
                    body = {"propagationPolicy": "Background"}
                    self.api.delete(f"{path}/{records.name(record)}", body)
            for pod in self.pods(namespace):
                path = f"/api/v1/namespaces/{namespace}/pods/{records.name(pod)}"
                with contextlib.suppress(RefusedError):
                    self.api.patch(path, {"metadata": {"finalizers": None}})
                    self.api.delete(path, {"gracePeriodSeconds": 0})
        self.wait(lambda: not self.pods(), lambda: "pods stay")
        self.runs, self.ended, self.removed = [], [], []
        self.hurry = False

    def kubectl(self, script: str) -> str:
        """A script of kubectl lines."""
        done = subprocess.run(
            ["bash", "-e"],
            input=script,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def stamp(at: datetime) -> str:
    """An instant as the API has it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def gang(name: str, gpus: int, pods: int, seconds: float, **more: Any) -> Json:
    """A Job whose pods start together, gated unless told otherwise."""
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "2", "memory": "4Gi"}
    spec: Json = {
        "containers": [{"name": "c", "image": "lab", "resources": {"limits": limits}}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": more.get("grace", 2),
        "priorityClassName": more.get("priority", "low"),
    }
    if more.get("gated", True):
        spec["schedulingGates"] = [{"name": "trencadis.io/placement"}]
    annotations = {SECONDS: str(seconds)}
    if more.get("together"):
        annotations["kueue.x-k8s.io/podset-required-topology"] = more["together"]
    meta = {"annotations": annotations, "labels": more.get("labels", {})}
    return {
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"metadata": meta, "spec": spec},
        },
    }


@contextlib.contextmanager
def lab(directory: Path, *, extender: str | None = None) -> Iterator[Lab]:
    """A running cluster that is gone afterwards."""
    cluster = Lab(directory, extender=extender)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
