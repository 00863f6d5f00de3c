"""Stand-ins for those who own pods or place them: Kueue, Volcano, KAI's binder, mig-manager.

Each is a few lines that the lab calls again and again, and does on the real API server what the
real one does there: of all fields only those that decide whether and where pods are.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from kubernetes_lab.lab import Lab

from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Json, listing
from trencadis.adapters.live.cluster import RefusedError

KUEUE, VOLCANO = "kueue.x-k8s.io/v1beta2", "batch.volcano.sh/v1alpha1"
BUS, GROUPS = "bus.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
KAI = "scheduling.run.ai/v1alpha2"
KINDS = {
    KUEUE: ("Workload", "ClusterQueue", "LocalQueue", "ResourceFlavor"),
    VOLCANO: ("Job",),
    BUS: ("Command",),
    GROUPS: ("PodGroup", "Queue"),
    KAI: ("BindRequest",),
}
CLUSTER_WIDE = ("ClusterQueue", "ResourceFlavor", "Queue")
QUEUE = "kueue.x-k8s.io/queue-name"


def define(lab: Lab) -> None:
    """The kinds, with a schema that takes anything."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = []
    for version, kinds in KINDS.items():
        group, _, number = version.partition("/")
        for kind in kinds:
            plural = f"{kind.lower()}s"
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            served = {"name": number, "served": True, "storage": True}
            served |= {"schema": {"openAPIV3Schema": schema}}
            if kind != "Command":
                served["subresources"] = {"status": {}}
            names.append(f"{plural}.{group}")
            spec = {
                "group": group,
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "scope": "Cluster" if kind in CLUSTER_WIDE else "Namespaced",
                "versions": [served],
            }
            meta: Json = {"name": names[-1]}
            if group.endswith("k8s.io"):
                meta["annotations"] = {"api-approved.kubernetes.io": "unapproved, the lab's"}
            lab.api.post(path, {"metadata": meta, "spec": spec})

    def there() -> bool:
        found = (lab.api.get(f"{path}/{name}") for name in names)
        return all("Established" in records.conditions(entry) for entry in found)

    lab.wait(there, lambda: "the kinds aren't served")


def path_of(version: str, plural: str, namespace: str = "", name: str = "") -> str:
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{version}{within}/{plural}" + (f"/{name}" if name else "")


def owned(record: Json, version: str, kind: str) -> Json:
    reference = {"apiVersion": version, "kind": kind, "name": records.name(record)}
    return {**reference, "uid": records.uid(record), "controller": True}


class StandIn:
    """One controller: looks at everything, does what is next."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.api = lab, lab.api
        self.done: Counter[str] = Counter()
        """What it did, by word."""
        lab.controllers.append(self.step)

    def step(self) -> None:
        raise NotImplementedError

    def of(self, version: str, plural: str) -> list[Json]:
        return list(listing(self.api, path_of(version, plural))["items"])


class Kueue(StandIn):
    """Jobs with a queue's name have a Workload; it is admitted while it is active."""

    def step(self) -> None:
        workloads = {records.controller(w).get("uid"): w for w in self.of(KUEUE, "workloads")}
        for job in self.lab.jobs():
            queue = job["metadata"].get("labels", {}).get(QUEUE)
            if queue:
                self._reconcile(job, queue, workloads.get(records.uid(job)))

    def _reconcile(self, job: Json, queue: str, workload: Json | None) -> None:
        namespace, name = records.namespace(job), records.name(job)
        template, count = job["spec"]["template"], job["spec"]["parallelism"]
        if workload is None:
            meta = {"name": f"job-{name}", "ownerReferences": [owned(job, "batch/v1", "Job")]}
            sets = [{"name": "main", "count": count, "template": template}]
            spec = {"active": True, "queueName": queue, "podSets": sets}
            self.lab.create(KUEUE, "Workload", {"metadata": meta, "spec": spec}, namespace)
            return
        where = path_of(KUEUE, "workloads", namespace, records.name(workload))
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        held = records.conditions(workload)
        suspended = bool(job["spec"].get("suspend"))
        if "Complete" in records.conditions(job):
            if "Finished" not in held:
                self._say(where, workload, Finished="True")
        elif not workload["spec"].get("active", True):
            if "Evicted" not in held:
                self._say(where, workload, Evicted="True")
            elif not suspended:
                self.api.patch(path, {"spec": {"suspend": True}})
                self.done["deactivated"] += 1
            elif "QuotaReserved" in held and not job.get("status", {}).get("active"):
                self._say(where, workload, QuotaReserved="False", Admitted="False")
        elif "Admitted" not in held:
            assigned = [{"name": "main", "count": count, "flavors": {"nvidia.com/gpu": "default"}}]
            admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
            new = {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}
            self._say(where, workload, admission, **new)
        elif suspended and "Evicted" not in held:
            self.api.patch(path, {"spec": {"suspend": False}})
            self.done["admitted"] += 1

    def _say(self, path: str, workload: Json, admission: Any = None, **states: str) -> None:
        old = {c["type"]: c for c in workload.get("status", {}).get("conditions", [])}
        new = {key: {"type": key, "status": state, "reason": "Lab", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}
               for key, state in states.items()}  # fmt: skip
        status: Json = {"conditions": list((old | new).values())}
        if admission is not None:
            status["admission"] = admission
        self.api.patch(f"{path}/status", {"status": status})


class Volcano(StandIn):
    """Jobs make a PodGroup and pods; Commands abort and resume them."""

    def step(self) -> None:
        jobs = {records.uid(job): job for job in self.of(VOLCANO, "jobs")}
        for command in self.of(BUS, "commands"):
            self._command(command, jobs)
        pods = self.lab.pods()
        for job in jobs.values():
            mine = [p for p in pods if records.controller(p).get("uid") == records.uid(job)]
            self._sync(job, mine)

    def _command(self, command: Json, jobs: dict[str, Json]) -> None:
        namespace, name = records.namespace(command), records.name(command)
        # Taken away first, so that it is carried out once.
        self.api.delete(path_of(BUS, "commands", namespace, name), {})
        job = jobs.get(command["target"]["uid"])
        if job is None or command["target"]["kind"] != "Job":
            return
        phase = {"AbortJob": "Aborting", "ResumeJob": "Restarting"}[command["action"]]
        self.done[command["action"]] += 1
        self._phase(job, phase)

    def _phase(self, job: Json, phase: str) -> None:
        path = path_of(VOLCANO, "jobs", records.namespace(job), records.name(job))
        job["status"] = {**job.get("status", {}), "state": {"phase": phase}}
        self.api.patch(f"{path}/status", {"status": {"state": {"phase": phase}}})

    def _sync(self, job: Json, pods: list[Json]) -> None:
        phase = job.get("status", {}).get("state", {}).get("phase", "Pending")
        living = [pod for pod in pods if records.phase(pod) not in records.OVER]
        wanted = sum(task["replicas"] for task in job["spec"]["tasks"])
        if phase in ("Aborting", "Restarting"):
            for pod in living:
                if records.deleted(pod) is None:
                    path = f"/api/v1/namespaces/{records.namespace(pod)}/pods/{records.name(pod)}"
                    self.api.delete(path, {})
            if not living:
                group = f"{records.name(job)}-{records.uid(job)}"
                with contextlib.suppress(RefusedError):  # not there any more
                    where = path_of(GROUPS, "podgroups", records.namespace(job), group)
                    self.api.delete(where, {})
                self._phase(job, "Aborted" if phase == "Aborting" else "Pending")
        elif phase in ("Pending", "Running"):
            if sum(records.phase(pod) == "Succeeded" for pod in pods) == wanted:
                self._phase(job, "Completed")
            else:
                self._make(job, {records.name(pod) for pod in pods})

    def _make(self, job: Json, there: set[str]) -> None:
        namespace, name = records.namespace(job), records.name(job)
        group = f"{name}-{records.uid(job)}"
        mine = owned(job, VOLCANO, "Job")
        spec = {"minMember": job["spec"]["minAvailable"], "queue": job["spec"]["queue"]}
        with contextlib.suppress(RefusedError):  # there already
            meta = {"name": group, "ownerReferences": [mine]}
            self.lab.create(GROUPS, "PodGroup", {"metadata": meta, "spec": spec}, namespace)
        for task in job["spec"]["tasks"]:
            for index in range(task["replicas"]):
                if (own := f"{name}-{task['name']}-{index}") in there:
                    continue
                template = task["template"]
                marks = {**template["metadata"].get("annotations", {})}
                marks["scheduling.k8s.io/group-name"] = group
                meta = {"name": own, "annotations": marks, "ownerReferences": [mine],
                        "labels": {"volcano.sh/job-name": name}}  # fmt: skip
                body = {"metadata": meta, "spec": template["spec"]}
                self.api.post(f"/api/v1/namespaces/{namespace}/pods", body)


class KaiBinder(StandIn):
    """Binds the pods of BindRequests."""

    def step(self) -> None:
        for request in self.of(KAI, "bindrequests"):
            if request.get("status", {}).get("phase"):
                continue
            spec, namespace = request["spec"], records.namespace(request)
            path = f"/api/v1/namespaces/{namespace}/pods/{spec['podName']}"
            if groups := spec.get("selectedGPUGroups"):
                self.api.patch(path, {"metadata": {"labels": {"runai-gpu-group": groups[0]}}})
            target = {"apiVersion": "v1", "kind": "Node", "name": spec["selectedNode"]}
            binding = {"metadata": {"name": spec["podName"]}, "target": target}
            phase, reason = "Succeeded", ""
            try:
                self.api.post(f"{path}/binding", binding)
            except RefusedError as error:
                phase, reason = "Failed", str(error)
            self.done[phase] += 1
            where = path_of(KAI, "bindrequests", namespace, records.name(request))
            self.api.patch(f"{where}/status", {"status": {"phase": phase, "reason": reason}})


class MigManager(StandIn):
    """Gives a node what its label names, unless a pod has GPUs there; then the plugin offers it."""

    CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"

    def __init__(self, lab: Lab, offers: Callable[[str], dict[str, str]]) -> None:
        self.offers = offers
        super().__init__(lab)

    def step(self) -> None:
        for node in listing(self.api, "/api/v1/nodes")["items"]:
            labels = node["metadata"].get("labels", {})
            name, state = records.name(node), labels.get(self.STATE)
            if self.CONFIG not in labels or state in ("success", "failed"):
                continue
            if state is None:
                self._state(name, "pending")
                continue
            if any(records.node(p) == name and records.living(p) for p in self.lab.pods()):
                self._state(name, "failed")
                continue
            old = {k: None for k in node["status"]["allocatable"] if k.startswith("nvidia.com/")}
            new = {**old, **self.offers(labels[self.CONFIG])}
            status = {"status": {"allocatable": new, "capacity": new}}
            self.api.patch(f"/api/v1/nodes/{name}/status", status)
            self._state(name, "success")

    def _state(self, node: str, state: str) -> None:
        self.done[state] += 1
        self.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {self.STATE: state}}})
