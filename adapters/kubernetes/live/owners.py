"""Decides through whom a pod is stopped: its owner, or nobody but the eviction API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trencadis.adapters.kubernetes.fields import at, mapping, text
from trencadis.adapters.kubernetes.kueue import QUEUE_LABEL
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Json
from trencadis.adapters.kubernetes.live.lists import (
    JOB_SET,
    JOBS,
    KUEUE,
    VOLCANO_BUS,
    VOLCANO_JOB,
    Lists,
)

Way = Literal["suspend", "inactive", "command", "evict", "bare", "none"]
"""`evict`: its controller makes the pod again, and doesn't mind. `bare`: nobody makes it again."""

_SUSPENDED = {"Job": JOBS, "JobSet": (JOB_SET, "jobsets")}
_REPLACING = ("ReplicaSet", "StatefulSet", "ReplicationController")
WORKLOADS = (KUEUE, "workloads")
COMMANDS = (VOLCANO_BUS, "commands")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who stops and resumes the pods of a gang."""

    way: Way
    path: str = ""
    record: Json | None = None

    @property
    def suspended(self) -> bool:
        """Whether we have suspended it, and neither we nor others have resumed it."""
        mark = self.mark
        if self.way == "suspend":
            return bool(mark) and bool(at(self.record, "spec", "suspend"))
        if self.way == "inactive":
            return bool(mark) and at(self.record, "spec", "active") is False
        if mark.startswith(records.RESUMING):
            return at(self.record, "status", "state", "phase") in ("Aborting", "Aborted")
        return bool(mark)

    @property
    def mark(self) -> str:
        """What we have noted on it; empty where nothing."""
        return "" if self.record is None else records.annotation(self.record, records.SUSPENDED)

    @property
    def suspendable(self) -> bool:
        """Whether its pods can be taken back as if they had never been."""
        return self.way in ("suspend", "inactive", "command")


@dataclass(slots=True)
class Owners:
    """The owners of one reading, by UID and by name."""

    lists: Lists
    _by_uid: dict[str, tuple[tuple[str, str], Json]]
    _workloads: dict[str, Json]
    """Kueue's, by the UID of what they stand for."""
    _by_name: dict[tuple[str, str], str]

    @classmethod
    def of(cls, lists: Lists) -> Owners:
        """All that may stop pods."""
        by_uid = {
            records.uid(record): (kind, record)
            for kind in (*_SUSPENDED.values(), (VOLCANO_JOB, "jobs"))
            for record in lists.of(kind)
        }
        workloads: dict[str, Json] = {}
        by_name: dict[tuple[str, str], str] = {}
        for uid, (_, record) in by_uid.items():
            by_name.setdefault((records.namespace(record), records.name(record)), uid)
        for workload in lists.of(WORKLOADS):
            uid = text(records.controller(workload).get("uid"))
            workloads.setdefault(uid, workload)
            by_name.setdefault((records.namespace(workload), records.name(workload)), uid)
        return cls(lists, by_uid, workloads, by_name)

    def of_pod(self, pod: Mapping[str, Any]) -> Owner:
        """Who stops this pod."""
        reference = records.controller(pod)
        if not reference:
            return Owner("bare")
        if reference.get("kind") in _REPLACING:
            return Owner("evict")
        return self.of_object(text(reference.get("uid")))

    def of_object(self, uid: str) -> Owner:
        """Who stops the pods of the owner with this UID: itself, or who owns it in turn."""
        found = self._by_uid.get(uid)
        if found is None:
            return Owner("none")
        kind, record = found
        above = text(records.controller(record).get("uid"))
        if above in self._by_uid:
            return self.of_object(above)
        if above:
            return Owner("none")
        place = records.namespace(record), records.name(record)
        if kind[0] == VOLCANO_JOB:
            return Owner("command", self.lists.path(kind, *place), record)
        workload = self._workloads.get(uid)
        if workload is not None:
            where = records.namespace(workload), records.name(workload)
            return Owner("inactive", self.lists.path(WORKLOADS, *where), workload)
        if QUEUE_LABEL in mapping(at(record, "metadata", "labels")):
            return Owner("none")  # Kueue's, and its Workload isn't made yet
        return Owner("suspend", self.lists.path(kind, *place), record)

    def of_name(self, namespace: str, name: str) -> Owner:
        """Who stops the pods that an object of this name, or its Workload, announces."""
        uid = self._by_name.get((namespace, name))
        return Owner("none") if uid is None else self.of_object(uid)
