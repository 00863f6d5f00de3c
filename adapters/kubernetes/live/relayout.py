"""Decides how a node gets another MIG configuration: cordoned, labelled, and freed when it is done.

mig-manager does the work and doesn't drain. All that has to outlive this process is on the node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from trencadis.adapters.kubernetes.fields import at, instant, mapping, text, whole
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Api, ConflictError, Json, listing
from trencadis.adapters.kubernetes.live.config import KubernetesOptions
from trencadis.adapters.kubernetes.live.lists import NODES, PODS, Lists
from trencadis.adapters.kubernetes.live.mig_configs import (
    Layouts,
    Part,
    UnreadableError,
    applied,
    choose,
    offered,
    parse,
    present,
)
from trencadis.adapters.kubernetes.resources import GPU, MIG, pod_amounts, profile_of
from trencadis.adapters.live.cluster import Configuration, LayoutChange, RefusedError
from trencadis.models import Fault, Node, Snapshot
from trencadis.models.plan import Reconfigure

CHANGING = "trencadis.io/mig"
"""Annotation of a node that we have cordoned: which configuration it gets, since when, and what."""
FAILED = "trencadis.io/mig-failed"
"""Annotation of a node: a configuration that didn't work there. Take it off to have it retried."""
TRIES = 4
"""Times that a node is read again because others changed what doesn't concern us."""
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
Configs = dict[str, tuple[Part, ...]]


@dataclass(slots=True)
class NodeLayouts:
    """`adapters.live.cluster.Layouts` by node labels."""

    api: Callable[[], Api]
    lists: Callable[[], Lists]
    options: KubernetesOptions
    clock: Callable[[], datetime]
    records: dict[str, Json] = field(default_factory=dict)
    """The nodes of the last reading."""
    nodes: dict[str, Node] = field(default_factory=dict)
    """Those of them whose layout may change now."""
    known: Configs = field(default_factory=dict)
    """The configurations of the last reading."""

    # Reading

    def configs(self) -> tuple[Configs, list[Fault]]:
        """What mig-manager knows, and why it isn't known."""
        named = self.options.mig_configs
        if named is None:
            return {}, []
        namespace, _, name = named.partition("/")
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        try:
            data = mapping(self.api().get(path).get("data"))
            return parse(text(data.get("config.yaml"))), []
        except (RefusedError, UnreadableError) as error:
            why = f"no MIG configurations, so layouts stay as they are: {error}"
            return {}, [Fault(f"configmaps {named}", why)]

    def fitted(self, snapshot: Snapshot, raw: Sequence[Json], configs: Configs) -> tuple[Node, ...]:
        """The nodes of a snapshot, where only those keep a free hand that may get another one."""
        self.records = {records.name(node): node for node in raw}
        self.nodes, self.known = {}, configs
        busy = {
            task.node
            for job in snapshot.jobs
            for task in job.allocation
            if job.request.gpus or job.request.mig or job.request.share
        }
        found = []
        for node in snapshot.nodes:
            if node.name in busy or not self._may_change(node, configs):
                found.append(node.model_copy(update={"mig_reconfigure": "forbid"}))
                continue
            free = {"precision": "mig", "mig_mode_changes": True, "mig_reconfigure": None}
            self.nodes[node.name] = node.model_copy(update=free)
            found.append(self.nodes[node.name])
        return tuple(found)

    def _may_change(self, node: Node, configs: Configs) -> bool:
        labels = mapping(at(self.records.get(node.name), "metadata", "labels"))
        mine = self.records.get(node.name, {})
        there = mapping(at(mine, "status", "allocatable"))
        counted = GPU in there or any(MIG.fullmatch(key) for key in there)
        return (
            counted
            and node.precision != "gpu"
            and not (node.cordoned or node.down or records.annotation(mine, CHANGING))
            and (CONFIG in labels or labels.get("nvidia.com/mig.capable") == "true")
            and labels.get("nvidia.com/mig.strategy") == "mixed"
            and text(labels.get(STATE)) in ("", "success")
            and bool(self._able(node, configs))
        )

    def _able(self, node: Node, configs: Configs) -> Configs:
        """The configurations that would change something on a node."""
        failed = records.annotation(self.records.get(node.name, {}), FAILED)
        now = present(node)
        return {
            name: parts
            for name, parts in configs.items()
            if name != failed and applied(parts, node) not in (None, now)
        }

    # Acting

    def configuration(
        self,
        node: str,
        entries: Sequence[Reconfigure],
        slices: Mapping[str, int],
        gpus: int,
        *,
        stay: bool = False,
    ) -> Configuration:
        """One with room for all that the plan starts there."""
        there = self.nodes.get(node)
        if there is None:
            raise RefusedError("its MIG layout isn't ours to change now")
        have, free = offered(present(there))
        if stay and free >= gpus and all(have[name] >= n for name, n in slices.items()):
            return Configuration("", have, free)
        wanted = list(present(there))
        for entry in entries:
            before = tuple(sorted(i.profile for i in entry.before))
            if (wanted[entry.gpu] or ()) != before:
                raise RefusedError("its MIG layout has changed since")
            after = tuple(sorted(i.profile for i in entry.after))
            wanted[entry.gpu] = None if entry.turn_off else after
        able = self._able(there, self.known)
        name = choose(able, there, tuple(wanted), slices, gpus)
        if name is None:
            raise RefusedError("no MIG configuration of mig-manager's has room for the plan's jobs")
        return Configuration(name, *offered(applied(able[name], there) or ()))

    def coming(self) -> list[Configuration]:
        """What the annotations of the last reading promise."""
        found = []
        for record in self.records.values():
            if told := _told(record):
                offers = mapping(told.get("offers"))
                slices = {
                    profile_of(match.group(1)): whole(count) or 0
                    for key, count in offers.items()
                    if (match := MIG.fullmatch(str(key)))
                }
                name, gpus = text(told.get("config")), whole(offers.get(GPU)) or 0
                found.append(Configuration(name, slices, gpus))
        return found

    def change(self, node: str, name: str) -> None:
        """Cordons the node; labels it if no pod with GPUs has come in between."""
        record, there = self.records[node], self.nodes[node]
        layouts = applied(self.configs()[0].get(name, ()), there)
        if layouts is None:
            raise RefusedError(f"MIG configuration {name} is another one by now")
        told = {
            "config": name,
            "before": text(at(record, "metadata", "labels", CONFIG)),
            "since": self.clock().isoformat(timespec="seconds"),
            "offers": _resources(layouts),
        }
        marks = {CHANGING: json.dumps(told), FAILED: None}
        record = self._patch(record, {"annotations": marks}, {"unschedulable": True})
        if self._used(node):
            self._free(record)
            raise RefusedError("a pod with GPUs has come since")
        # The state is the last change's: without it, the next one to be told is of this one.
        self._patch(record, {"labels": {CONFIG: name, STATE: None}})

    def settle(self) -> list[LayoutChange]:
        """Frees the nodes where it is over: done, failed, or never begun."""
        found: list[LayoutChange] = []
        for record in listing(self.api(), self.lists().path(NODES))["items"]:
            if not records.annotation(record, CHANGING):
                continue
            try:
                found.append(self._settled(record))
            except ConflictError:
                continue  # the next look tells
        return found

    def _settled(self, record: Json) -> LayoutChange:
        told = _told(record)
        node, name = records.name(record), text(told.get("config"))
        labels = mapping(at(record, "metadata", "labels"))
        state = text(labels.get(STATE))
        if not name or text(labels.get(CONFIG)) != name:
            self._free(record)
            return LayoutChange(node, "reconfigure-undone", name, "its label names another one")
        if state == "failed":
            self._free(record, name)
            return LayoutChange(node, "reconfigure-failed", name, "mig-manager says so")
        if state == "success":
            if not _offers(record, mapping(told.get("offers"))):
                return LayoutChange(node, "reconfiguring", name, "its slices aren't offered yet")
            self._free(record)
            return LayoutChange(node, "reconfigured", name, "")
        since = instant(told.get("since"))
        late = timedelta(seconds=self.options.mig_timeout_seconds)
        if not state and (since is None or self.clock() - since > late):
            # Nobody has taken it up: with the old label back, nobody will once pods are there.
            self._free(record, name, {CONFIG: text(told.get("before")) or None})
            return LayoutChange(node, "reconfigure-failed", name, "mig-manager didn't begin")
        return LayoutChange(node, "reconfiguring", name, state or "mig-manager hasn't begun")

    def _used(self, node: str) -> bool:
        path, query = self.lists().path(PODS), {"fieldSelector": f"spec.nodeName={node}"}
        return any(
            records.node(pod) == node
            and records.phase(pod) not in records.OVER
            and any(key.startswith("nvidia.com/") for key in pod_amounts(pod["spec"]))
            for pod in listing(self.api(), path, query)["items"]
        )

    def _free(
        self, record: Json, failed: str | None = None, labels: Mapping[str, Any] | None = None
    ) -> None:
        marks = {CHANGING: None, **({} if failed is None else {FAILED: failed})}
        meta: Json = {"annotations": marks, **({} if labels is None else {"labels": labels})}
        self._patch(record, meta, {"unschedulable": None})

    def _patch(self, record: Json, meta: Json, spec: Json | None = None) -> Json:
        """On the version that was read, or a later one in which nothing of this has changed."""
        path, now = self.lists().path(NODES, name=records.name(record)), record
        for _ in range(TRIES):
            body: Json = {"metadata": {"resourceVersion": records.version(now), **meta}}
            try:
                return self.api().patch(path, {**body, **({} if spec is None else {"spec": spec})})
            except ConflictError:
                now = self.api().get(path)
            if _matters(now) != _matters(record):
                raise ConflictError(f"node {records.name(record)} has changed since")
        raise ConflictError(f"node {records.name(record)} changes all the time")


def _told(record: Json) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(records.annotation(record, CHANGING)))
    except (ValueError, RecursionError):
        return {}


def _matters(record: Json) -> tuple[Any, ...]:
    labels = mapping(at(record, "metadata", "labels"))
    marks = records.annotation(record, CHANGING), bool(at(record, "spec", "unschedulable"))
    return records.uid(record), labels.get(CONFIG), labels.get(STATE), *marks


def _resources(layouts: Layouts) -> dict[str, int]:
    """What the device plugin offers of such a node."""
    slices, gpus = offered(layouts)
    named = {f"nvidia.com/mig-{name.replace('+', '.')}": n for name, n in sorted(slices.items())}
    return {GPU: gpus, **named}


def _offers(record: Json, wanted: Mapping[str, Any]) -> bool:
    """Whether the device plugin offers this, and nothing else."""
    there = mapping(at(record, "status", "allocatable"))
    told = {key: whole(value) or 0 for key, value in there.items() if MIG.fullmatch(key)}
    told[GPU] = whole(there.get(GPU)) or 0
    return {k: n for k, n in told.items() if n} == {k: n for k, n in wanted.items() if n}
