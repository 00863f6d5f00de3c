"""An API server of a few verbs over HTTP, with controllers and kubelets behind it in a few lines.

It keeps resourceVersions and their conflicts, and the rules for gated pods: gates only go, a node
selector only grows while there is one. The Job controller acts before each request; pods are bound,
run and end when a test says `tick`.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Doc = dict[str, Any]
GROUPS = {
    "batch": "batch/v1",
    "policy": "policy/v1",
    "scheduling.k8s.io": "scheduling.k8s.io/v1",
    "kueue.x-k8s.io": "kueue.x-k8s.io/v1beta1",
    "batch.volcano.sh": "batch.volcano.sh/v1alpha1",
    "bus.volcano.sh": "bus.volcano.sh/v1alpha1",
    "scheduling.run.ai": "scheduling.run.ai/v1alpha2",
    "scheduling.volcano.sh": "scheduling.volcano.sh/v1beta1",
}
KINDS = {
    "nodes": "Node", "pods": "Pod", "jobs": "Job", "namespaces": "Namespace",
    "resourcequotas": "ResourceQuota", "poddisruptionbudgets": "PodDisruptionBudget",
    "priorityclasses": "PriorityClass", "workloads": "Workload", "commands": "Command",
    "clusterqueues": "ClusterQueue", "localqueues": "LocalQueue", "configmaps": "ConfigMap",
    "bindrequests": "BindRequest", "podgroups": "PodGroup",
}  # fmt: skip
KAI = "kai-scheduler"
CLUSTER_WIDE = ("nodes", "namespaces", "priorityclasses", "clusterqueues")


class WrongError(Exception):
    """An answer with a status of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def merged(base: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class World:
    """All objects by group version, resource, namespace and name; and what happens by itself."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str, str], Doc] = {}
        self.lock = threading.RLock()
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.asked: list[tuple[str, str, Any]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        """Called before each request; may raise WrongError, or change what is there."""
        self.lasts: dict[str, int] = {}
        """Ticks that the pods of a job run, by the job's name; 2 where nothing is said."""
        self.stuck: set[str] = set()
        """Nodes that bind nothing."""
        self.runs: list[tuple[str, str]] = []
        """Pod and node of each run, in order."""
        self.controllers = True
        self._numbers = itertools.count(1)

    def seconds(self) -> float:
        """As a monotonic clock has it."""
        return self.now.timestamp()

    # Objects

    def put(self, resource: str, record: Doc, group: str = "") -> Doc:
        with self.lock:
            record = copy.deepcopy(record)
            meta = record.setdefault("metadata", {})
            if "name" not in meta:
                meta["name"] = f"{meta['generateName']}{next(self._numbers)}"
            namespace = "" if resource in CLUSTER_WIDE else meta.setdefault("namespace", "ml")
            meta.setdefault("uid", f"uid-{next(self._numbers)}")
            meta.setdefault("creationTimestamp", stamp(self.now))
            record.setdefault("kind", KINDS[resource])
            key = (GROUPS.get(group, "v1"), resource, namespace, meta["name"])
            if key in self.objects:
                raise WrongError(409, f"{meta['name']} already exists")
            return self._keep(key, record)

    def _keep(self, key: tuple[str, str, str, str], record: Doc) -> Doc:
        record["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.objects[key] = record
        return record

    def of(self, resource: str, group: str = "") -> list[Doc]:
        version = GROUPS.get(group, "v1")
        with self.lock:
            return [r for k, r in self.objects.items() if k[:2] == (version, resource)]

    def pods(self, job: str = "") -> list[Doc]:
        owned = [p for p in self.of("pods") if not job or owner(p) == job]
        return sorted(owned, key=lambda p: p["metadata"]["name"])

    def job(self, name: str) -> Doc:
        return next(j for j in self.of("jobs", "batch") if j["metadata"]["name"] == name)

    def pod(self, name: str) -> Doc:
        return next(p for p in self.of("pods") if p["metadata"]["name"] == name)

    def touch(self, record: Doc) -> None:
        """A new version: somebody changed what doesn't matter."""
        record["metadata"]["resourceVersion"] = str(next(self._numbers))

    def _drop(self, record: Doc) -> None:
        self.objects = {k: r for k, r in self.objects.items() if r is not record}

    # Requests

    def answer(self, method: str, target: str, body: Any) -> Doc:
        path, _, query = target.partition("?")
        with self.lock:
            self.before(method, path)
            if self.controllers:
                self.sync()
            if method != "GET":
                self.asked.append((method, path, body))
            if path == "/version":
                return {"gitVersion": "v1.34.0"}
            if path == "/apis":
                return {
                    "groups": [
                        {"name": name, "preferredVersion": {"groupVersion": version}}
                        for name, version in GROUPS.items()
                    ]
                }
            return self._object(method, path, dict(urllib.parse.parse_qsl(query)), body)

    def _object(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Doc:
        parts = path.strip("/").split("/")
        version, rest = (
            ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        )
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, sub = (*rest, "", "")[:3]
        if resource not in KINDS:
            raise WrongError(404, f"no {resource}")
        if not name:
            if method == "POST":
                group = version.partition("/")[0] if "/" in version else ""
                meta = {**body["metadata"], **({"namespace": namespace} if namespace else {})}
                return self.put(resource, {**body, "metadata": meta}, group)
            return self._list(version, resource, namespace, query)
        key = (version, resource, namespace, name)
        record = self.objects.get(key)
        if record is None:
            raise WrongError(404, f"{resource} {name} not found")
        if method == "PATCH":
            return self._patch(key, record, body)
        if method == "DELETE":
            self._preconditions(record, body or {})
            self.delete(record)
        elif sub == "eviction":
            self._preconditions(record, body.get("deleteOptions") or {})
            self._evict(record)
        return record

    def _list(self, version: str, resource: str, namespace: str, query: Mapping[str, str]) -> Doc:
        found = [
            copy.deepcopy(record)
            for key, record in sorted(self.objects.items())
            if key[:2] == (version, resource) and namespace in ("", key[2])
        ]
        first, size = int(query.get("continue", 0)), int(query.get("limit", len(found) or 1))
        for record in found:
            record.pop("kind", None)  # items of a list don't say theirs
        more = {"continue": str(first + size)} if first + size < len(found) else {}
        kind = f"{KINDS[resource]}List"
        items = found[first : first + size]
        return {"apiVersion": version, "kind": kind, "metadata": more, "items": items}

    def _patch(self, key: tuple[str, str, str, str], record: Doc, body: Doc) -> Doc:
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, record["metadata"]["resourceVersion"]):
            raise WrongError(409, "the object has been modified")
        changed = merged(record, body)
        if key[1] == "pods":
            _check_pod(record, changed)
        return copy.deepcopy(self._keep(key, changed))

    def _preconditions(self, record: Doc, options: Doc) -> None:
        for field, value in (options.get("preconditions") or {}).items():
            if record["metadata"][field] != value:
                raise WrongError(409, f"precondition {field} doesn't hold")

    def _evict(self, pod: Doc) -> None:
        for budget in self.of("poddisruptionbudgets", "policy"):
            labels = budget["spec"]["selector"]["matchLabels"].items()
            if labels <= pod["metadata"].get("labels", {}).items():
                if budget["status"]["disruptionsAllowed"] < 1:
                    raise WrongError(429, "would violate the pod's disruption budget")
                budget["status"]["disruptionsAllowed"] -= 1
        self.delete(pod)

    def delete(self, pod: Doc) -> None:
        if not pod["spec"].get("nodeName"):
            self._drop(pod)
        elif "deletionTimestamp" not in pod["metadata"]:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
            pod["metadata"]["deletionTimestamp"] = stamp(self.now + timedelta(seconds=grace))
            self.touch(pod)

    # Controllers

    def sync(self) -> None:
        """The Job controller, once."""
        for job in self.of("jobs", "batch"):
            spec, status = job["spec"], job.setdefault("status", {})
            mine = self.pods(job["metadata"]["name"])
            done = sum(pod["status"]["phase"] == "Succeeded" for pod in mine)
            status["succeeded"] = done
            living = [
                p
                for p in mine
                if p["status"]["phase"] != "Succeeded" and "deletionTimestamp" not in p["metadata"]
            ]
            if done >= spec["completions"]:
                if not status.get("conditions"):
                    now = stamp(self.now)
                    complete = {"type": "Complete", "status": "True", "lastTransitionTime": now}
                    status["conditions"] = [complete]
            elif spec.get("suspend"):
                for pod in living:
                    self.delete(pod)
            elif len(mine) - done == len(living):
                for _ in range(min(spec["parallelism"], spec["completions"] - done) - len(living)):
                    self._make(job)

    def _make(self, job: Doc) -> None:
        meta = job["metadata"]
        template = job["spec"]["template"]
        owned = {"kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        own = copy.deepcopy(template.get("metadata", {}))
        own |= {"namespace": meta["namespace"], "ownerReferences": [owned]}
        own["name"] = f"{meta['name']}-{next(self._numbers)}"
        pod = {"metadata": own, "spec": copy.deepcopy(template["spec"])}
        self.put("pods", {**pod, "status": {"phase": "Pending"}})

    def tick(self, seconds: float = 1) -> None:
        """Binds what may be bound, ends what has run long enough or had its grace."""
        with self.lock:
            self.now += timedelta(seconds=seconds)
            for pod in self.of("pods"):
                meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
                if spec.get("nodeName"):
                    status["ran"] = status.get("ran", 0) + 1
                    if "deletionTimestamp" in meta:
                        if meta["deletionTimestamp"] <= stamp(self.now):
                            self._drop(pod)
                    elif status["phase"] == "Running" and status["ran"] >= self.lasts.get(
                        owner(pod), 2
                    ):
                        status["phase"] = "Succeeded"
                        status["conditions"] = []
                        self.touch(pod)
                elif not spec.get("schedulingGates") and "deletionTimestamp" not in meta:
                    self._bind(pod)
            self.sync()

    def _bind(self, pod: Doc) -> None:
        wanted = pod["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname")
        if pod["spec"].get("schedulerName") == KAI:
            wanted = self._asked(pod)
            if wanted is None:
                return
        names = [node["metadata"]["name"] for node in self.of("nodes")]
        for node in [wanted] if wanted else names:
            if node in names and node not in self.stuck and self._fits(pod, node):
                pod["spec"]["nodeName"] = node
                pod["status"] |= {"phase": "Running", "startTime": stamp(self.now)}
                pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
                self.runs.append((pod["metadata"]["name"], node))
                self.touch(pod)
                return

    def _asked(self, pod: Doc) -> str | None:
        """Where KAI's binder is asked to bind it."""
        for request in self.of("bindrequests", "scheduling.run.ai"):
            spec = request["spec"]
            if spec["podName"] == pod["metadata"]["name"]:
                if groups := spec.get("selectedGPUGroups"):
                    pod["metadata"].setdefault("labels", {})["runai-gpu-group"] = groups[0]
                return str(spec["selectedNode"])
        return None

    def _fits(self, pod: Doc, node: str) -> bool:
        record = self.node(node)
        offered = record["status"]["allocatable"]
        asked = {k: int(v) for k, v in requests_of(pod).items() if k in offered and k != "cpu"}
        fits = all(count <= self.free(node, key) for key, count in asked.items())
        return fits and not record["spec"].get("unschedulable")

    def node(self, name: str) -> Doc:
        return next(n for n in self.of("nodes") if n["metadata"]["name"] == name)

    def free(self, node: str, resource: str = "nvidia.com/gpu") -> int:
        """What a node has left of a resource."""
        used = sum(
            int(requests_of(pod).get(resource, 0))
            for pod in self.of("pods")
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] == "Running"
        )
        return int(self.node(node)["status"]["allocatable"][resource]) - used


def _check_pod(before: Doc, after: Doc) -> None:
    gates = [gate["name"] for gate in before["spec"].get("schedulingGates", [])]
    left = [gate["name"] for gate in after["spec"].get("schedulingGates", [])]
    if not set(left) <= set(gates):
        raise WrongError(422, "only deletion of scheduling gates is allowed")
    old = before["spec"].get("nodeSelector", {})
    new = after["spec"].get("nodeSelector", {})
    if new != old and not gates:
        raise WrongError(422, "pod updates may not change spec.nodeSelector")
    if not old.items() <= new.items():
        raise WrongError(422, "only additions to spec.nodeSelector are allowed")


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def owner(pod: Doc) -> str:
    owners = pod["metadata"].get("ownerReferences", [])
    return str(owners[0]["name"]) if owners else ""


def requests_of(pod: Doc) -> dict[str, str]:
    return dict(pod["spec"]["containers"][0]["resources"]["requests"])


@contextlib.contextmanager
def served(world: World) -> Iterator[str]:
    """The address of the world's API server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def _do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            try:
                status, found = 200, world.answer(self.command, self.path, body)
            except WrongError as error:
                status, found = error.status, {"kind": "Status", "message": str(error)}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# Objects in a line each


def node(name: str, gpus: int = 4, **labels: str) -> Doc:
    own = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    own |= {"nvidia.com/gpu.memory": "81559"} | labels
    offered = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"allocatable": offered, "capacity": offered}
    return {"metadata": {"name": name, "labels": own}, "spec": {}, "status": status}


def pod_spec(
    gpus: int,
    gate: str = "trencadis.io/placement",
    grace: int = 2,
    asks: dict[str, str] | None = None,
    **more: Any,
) -> Doc:
    limits = {"nvidia.com/gpu": str(gpus)} if asks is None else asks
    requests = {"cpu": "1", **limits}
    spec: Doc = {
        "containers": [
            {"name": "c", "image": "x", "resources": {"requests": requests, "limits": limits}}
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
    }
    if gate:
        spec["schedulingGates"] = [{"name": gate}]
    return {**spec, **more}


def job(name: str, gpus: int = 1, pods: int = 1, namespace: str = "ml", **more: Any) -> Doc:
    labels = more.pop("labels", {})
    annotations = more.pop("annotations", {})
    own = {"labels": labels, "annotations": more.pop("pod_annotations", {})}
    completions = more.pop("completions", pods)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {
            "parallelism": pods,
            "completions": completions,
            "template": {"metadata": own, "spec": pod_spec(gpus, **more)},
        },
    }
