"""Decides by which calls pods are placed, taken back and stopped. Each may be done twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from trencadis.adapters.kubernetes.fields import at, mapping
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Api, ConflictError, Json, MissingError, listing
from trencadis.adapters.kubernetes.live.devices import Devices
from trencadis.adapters.kubernetes.live.lists import PODS, VOLCANO_BUS, Lists
from trencadis.adapters.kubernetes.live.owners import COMMANDS, Owner, Owners
from trencadis.adapters.kubernetes.live.promised import group_of
from trencadis.adapters.kubernetes.live.views import Gang
from trencadis.adapters.live.cluster import RefusedError, UnavailableError
from trencadis.models import TaskAllocation

TRIES = 4
"""Times that a pod is read again because others changed what doesn't concern us."""
POLL_S = 0.2
_UNMARKED = {records.SUSPENDED: None, records.GROUP: None}


@dataclass(slots=True)
class Acts:
    """The calls of one cluster, against one reading."""

    api: Api
    lists: Lists
    owners: Owners
    gate: str
    hostnames: dict[str, str]
    devices: Devices
    clock: Callable[[], datetime]
    timeout: float

    # Placing

    def place(self, gang: Gang, tasks: Sequence[TaskAllocation]) -> None:
        """Names a node for each pod, then lets them all go.

        All are named before any is let go: a pod that can't be named keeps its gang together.
        """
        pods = self.made(gang)
        if len(pods) < len(tasks):
            raise RefusedError(f"{len(pods)} pods wait for {len(tasks)} nodes")
        began = self.clock().isoformat()
        chosen = list(zip(pods, tasks, strict=False))
        freed = self.let_go([self._named(pod, task, began) for pod, task in chosen])
        self.devices.bind(self.api, self.lists, list(zip(freed, tasks, strict=True)))

    def let_go(self, pods: Sequence[Json]) -> list[Json]:
        """Takes our gate off each; the pods after that."""
        return [self._patched(pod, self._without_gate) for pod in pods]

    def _named(self, pod: Json, task: TaskAllocation, began: str) -> Json:
        node = task.node
        hostname = self.hostnames.get(node, node)
        marks = self.devices.marks(task)

        def change(now: Json) -> Json | None:
            selector = mapping(at(now, "spec", "nodeSelector"))
            before = selector.get(records.HOSTNAME, hostname)
            if before != hostname:
                raise RefusedError(f"pod {records.name(now)} already goes to {before}")
            same = all(records.annotation(now, key) == value for key, value in marks.items())
            if records.pin(now) == node and same:
                return None
            if self.gate not in records.gates(now):
                raise RefusedError(f"pod {records.name(now)} waits no more")
            return {
                "metadata": {"annotations": {records.NODE: node, records.START: began, **marks}},
                "spec": {"nodeSelector": {records.HOSTNAME: hostname}},
            }

        return self._patched(pod, change)

    def _without_gate(self, now: Json) -> Json | None:
        gates = records.gates(now)
        if self.gate not in gates:
            return None
        return {"spec": {"schedulingGates": [{"name": g} for g in gates if g != self.gate]}}

    def _patched(self, pod: Json, change: Callable[[Json], Json | None]) -> Json:
        """The pod after the change, which must still hold for the pod as it is then."""
        path = self.lists.path(PODS, records.namespace(pod), records.name(pod))
        now = pod
        for _ in range(TRIES):
            body = change(now)
            if body is None:
                return now
            meta = {**mapping(body.get("metadata")), "resourceVersion": records.version(now)}
            try:
                return self.api.patch(path, {**body, "metadata": meta})
            except ConflictError:
                now = self.api.get(path)
            if records.uid(now) != records.uid(pod) or not records.living(now):
                raise RefusedError(f"pod {records.name(pod)} is another one by now")
        raise RefusedError(f"pod {records.name(pod)} changes all the time")

    # Owners

    def made(self, gang: Gang) -> Sequence[Json]:
        """The gang's pods that wait; a suspended owner is resumed, and makes them first."""
        if not gang.owner.suspended:
            if gang.owner.mark:  # others have resumed it
                self.api.patch(gang.owner.path, {"metadata": {"annotations": _UNMARKED}})
            return gang.pods
        self.resume(gang.owner)
        if gang.mixed:
            # Which of its pods are this job's, the next reading tells.
            raise UnavailableError(f"{gang.owner.path} was resumed: its pods are still to come")
        return self._waited_for(
            gang, lambda pods: len(pods) >= gang.tasks, "hasn't made its pods in time"
        )

    def suspend(self, gang: Gang) -> None:
        """Has the owner take its pods away, each with its grace."""
        owner = gang.owner
        if owner.record is None or owner.suspended or at(owner.record, "spec", "suspend"):
            return
        if owner.way == "command":
            self._mark(owner, {}, group_of(gang.pods))
            self._command(owner, "AbortJob")
            return
        spec = {"suspend": True} if owner.way == "suspend" else {"active": False}
        self._mark(owner, {"spec": spec})

    def resume(self, owner: Owner) -> None:
        """Lets the owner make its pods again."""
        if owner.record is None or not owner.suspended:
            return
        if owner.way == "command":
            stamp = f"{records.RESUMING} {self.clock().isoformat(timespec='seconds')}"
            self.api.patch(owner.path, {"metadata": {"annotations": {records.SUSPENDED: stamp}}})
            self._command(owner, "ResumeJob")
        spec = {"suspend": {"suspend": False}, "inactive": {"active": True}}.get(owner.way)
        meta = {"annotations": _UNMARKED}
        self.api.patch(owner.path, {"metadata": meta, **({"spec": spec} if spec else {})})

    def renew(self, gang: Gang) -> Sequence[Json]:
        """Has the owner make all pods of the gang anew, gated and on no node's terms."""
        self.suspend(gang)
        old = {records.uid(pod) for pod in gang.pods}
        self._waited_for(
            gang,
            lambda pods: not old & {records.uid(pod) for pod in pods},
            "hasn't taken its pods away in time",
        )
        self.resume(Owner(gang.owner.way, gang.owner.path, self.api.get(gang.owner.path)))
        if gang.owner.way == "inactive":
            return ()  # made when Kueue admits it again
        return self._waited_for(
            gang, lambda pods: len(pods) >= gang.tasks, "hasn't made its pods in time"
        )

    def _mark(self, owner: Owner, more: Json, group: str = "") -> None:
        assert owner.record is not None
        stamp = self.clock().isoformat(timespec="seconds")
        marks = {records.SUSPENDED: stamp, **({records.GROUP: group} if group else {})}
        meta: Json = {"annotations": marks}
        try:
            meta["resourceVersion"] = records.version(owner.record)
            self.api.patch(owner.path, {"metadata": meta, **more})
        except ConflictError:
            # Its controller counts its pods in its status all the time. Only its identity matters.
            now = self.api.get(owner.path)
            if records.uid(now) != records.uid(owner.record):
                raise RefusedError(f"{records.name(now)} is another one by now") from None
            meta["resourceVersion"] = records.version(now)
            self.api.patch(owner.path, {"metadata": meta, **more})

    def _command(self, owner: Owner, action: str) -> None:
        assert owner.record is not None
        if VOLCANO_BUS not in self.lists.versions:
            raise RefusedError(f"Volcano's commands ({VOLCANO_BUS}) aren't served here")
        namespace, name = records.namespace(owner.record), records.name(owner.record)
        body = {
            "apiVersion": self.lists.versions[VOLCANO_BUS],
            "kind": "Command",
            "metadata": {"generateName": f"{name}-trencadis-", "namespace": namespace},
            "action": action,
            "reason": "trencadis",
            "target": {
                "apiVersion": owner.record.get("apiVersion", "batch.volcano.sh/v1alpha1"),
                "kind": "Job",
                "name": name,
                "uid": records.uid(owner.record),
                "controller": True,
            },
        }
        self.api.post(self.lists.path(COMMANDS, namespace), body)

    def _waited_for(
        self, gang: Gang, there: Callable[[list[Json]], bool], otherwise: str
    ) -> list[Json]:
        end = time.monotonic() + self.timeout
        while True:
            pods = self.current(gang)
            if there(pods):
                return pods
            if time.monotonic() >= end:
                raise RefusedError(f"the owner {otherwise}")
            time.sleep(POLL_S)

    def current(self, gang: Gang) -> list[Json]:
        """The pods of the gang's owner by now, in order, without those that are over."""
        known = {records.uid(pod) for pod in gang.pods}
        found = [
            pod
            for pod in listing(self.api, self.lists.path(PODS, gang.namespace))["items"]
            if records.phase(pod) not in records.OVER
            and (
                self.owners.of_pod(pod).path == gang.owner.path
                if gang.owner.path
                else records.uid(pod) in known
            )
        ]
        return sorted(found, key=records.order)

    def parted(self, gang: Gang) -> tuple[list[Json], bool]:
        """The gang's own pods by now, and whether its owner has others that run."""
        pods = self.current(gang)
        own = {records.uid(pod) for pod in gang.pods}
        others = any(
            records.node(pod) and records.living(pod) and records.uid(pod) not in own
            for pod in pods
        )
        mine = [pod for pod in pods if records.uid(pod) in own or not own]
        # Those of one group are one start: they go together.
        return (pods, False) if gang.mixed else (mine, others)

    # Eviction

    def evict(self, gang: Gang) -> None:
        """By the eviction API, which keeps disruption budgets."""
        for pod in gang.pods:
            path = self.lists.path(PODS, gang.namespace, records.name(pod))
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": records.name(pod), "namespace": gang.namespace},
                "deleteOptions": {"preconditions": {"uid": records.uid(pod)}},
            }
            try:
                self.api.post(f"{path}/eviction", body)
            except MissingError:
                continue

    def remove(self, pods: Sequence[Json]) -> None:
        """Deletes pods that run nowhere yet."""
        for pod in pods:
            path = self.lists.path(PODS, records.namespace(pod), records.name(pod))
            known = {"uid": records.uid(pod), "resourceVersion": records.version(pod)}
            try:
                self.api.delete(path, {"preconditions": known})
            except MissingError:
                continue
