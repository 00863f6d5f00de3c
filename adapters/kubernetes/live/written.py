"""Decides how a plan's actions look as kubectl commands, for whoever sends them by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Api, Json
from trencadis.adapters.kubernetes.live.kube import KubernetesCluster
from trencadis.adapters.live.carry import Step, rehearse
from trencadis.adapters.live.cluster import Reading, RefusedError
from trencadis.adapters.live.context import Context
from trencadis.models import Plan


@dataclass(frozen=True, slots=True)
class Request:
    """One write."""

    method: str
    path: str
    body: Json

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"method": self.method, "path": self.path, "body": self.body}

    def kubectl(self) -> str:
        """The same as a line for a shell.

        A patch carries the version that was read, except where an earlier line of the same script
        changes the object: then only the first is bound to it.
        """
        text = shlex.quote(json.dumps(self.body, separators=(",", ":")))
        if self.method != "PATCH":
            verb = {"POST": "create", "DELETE": "delete"}[self.method]
            return f"kubectl {verb} --raw {shlex.quote(self.path)} -f - <<< {text}"
        *_, resource, name = self.path.split("/")
        parts = self.path.strip("/").split("/")
        group = "" if parts[0] == "api" else f".{parts[2]}.{parts[1]}"
        within = ["-n", parts[parts.index("namespaces") + 1]] if "namespaces" in parts[:-2] else []
        words = ["kubectl", *within, "patch", f"{resource}{group}", name, "--type", "merge", "-p"]
        return f"{shlex.join(words)} {text}"


@dataclass(slots=True)
class Recorder:
    """`Api` that reads really, and writes down what it is told to write."""

    api: Api
    requests: list[Request] = field(default_factory=list)
    _changed: dict[str, Json] = field(default_factory=dict)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """As the API server has it, with what was noted since."""
        found = self._changed.get(path) or self.api.get(path, query)
        items = found.get("items")
        if not isinstance(items, list):
            return found
        known = [self._changed.get(f"{path}/{records.name(item)}", item) for item in items]
        return {**found, "items": known}

    def patch(self, path: str, body: Json) -> Json:
        """Notes it. The answer has no version: the true one isn't known before it is sent."""
        meta = {k: v for k, v in body.get("metadata", {}).items() if v or k != "resourceVersion"}
        noted = {**body, **({"metadata": meta} if meta else {})}
        if not meta:
            noted.pop("metadata", None)
        self.requests.append(Request("PATCH", path, noted))
        found: Json = _merged(self._changed.get(path) or self.api.get(path), body)
        found["metadata"].pop("resourceVersion", None)
        self._changed[path] = found
        return found

    def post(self, path: str, body: Json) -> Json:
        """Notes it."""
        self.requests.append(Request("POST", path, body))
        return body

    def delete(self, path: str, body: Json) -> Json:
        """Notes it."""
        self.requests.append(Request("DELETE", path, body))
        return body


def _merged(base: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386) applied."""
    if not isinstance(patch, dict):
        return patch
    found = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


def written(context: Context, plan: Plan) -> tuple[Sequence[Step], list[Request]]:
    """The steps of a plan, and the requests of those that may be sent at once.

    Starts that wait for victims are left out: their room isn't there yet.
    """
    cluster = context.cluster
    assert isinstance(cluster, KubernetesCluster)
    recorder = Recorder(cluster.api)
    reading = cluster.read(context.store.terms())
    steps = rehearse(context, plan, reading.snapshot, reading)
    cluster.api = recorder
    try:
        done = [_write(cluster, step, plan, reading) for step in steps]
    finally:
        cluster.api = recorder.api
    return done, recorder.requests


def _write(cluster: KubernetesCluster, step: Step, plan: Plan, reading: Reading) -> Step:
    if step.blocked is not None or step.needless is not None:
        return step
    try:
        if step.kind == "preempt":
            cluster.stop(step.job)
        elif step.kind == "start":
            start = next(start for start in plan.starts if start.job == step.job)
            if start.waits_for:
                return _skipped(step, f"it waits for {', '.join(start.waits_for)} to leave")
            if cluster.suspended(step.job):
                cluster.restore(step.job, {})
                return _skipped(step, "its owner makes its pods first: plan again then")
            cluster.start(step.job, start.allocation, reading.jobs[step.job])
        elif step.kind == "reconfigure":
            cluster.layouts.change(step.nodes[0], step.job)
        elif step.kind == "move":
            return _skipped(step, "it is stopped first, and starts when its pods are made anew")
        else:
            return _skipped(step, "a reservation is the loop's own, and ends with it")
    except RefusedError as error:
        return _skipped(step, str(error))
    return step


def _skipped(step: Step, why: str) -> Step:
    return Step(step.kind, step.job, step.nodes, why)
