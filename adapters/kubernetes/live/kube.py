"""Kubernetes as a native scheduler: how it is read, and by which calls it is steered."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trencadis.adapters.kubernetes.live import records, taints
from trencadis.adapters.kubernetes.live.acts import Acts
from trencadis.adapters.kubernetes.live.api import Api, HttpApi, listing
from trencadis.adapters.kubernetes.live.budgets import objection
from trencadis.adapters.kubernetes.live.config import KubernetesConfig
from trencadis.adapters.kubernetes.live.devices import Devices
from trencadis.adapters.kubernetes.live.lists import NODES, Lists, read_lists, read_versions
from trencadis.adapters.kubernetes.live.mig_limits import limited
from trencadis.adapters.kubernetes.live.preemption import objections
from trencadis.adapters.kubernetes.live.prepare import Prepared, prepare
from trencadis.adapters.kubernetes.live.relayout import NodeLayouts
from trencadis.adapters.kubernetes.live.views import Gang, make_gangs, make_views
from trencadis.adapters.kubernetes.snapshot import read_kubernetes
from trencadis.adapters.live.cluster import (
    PREFIX,
    JobView,
    Reading,
    RefusedError,
    Terms,
    UnavailableError,
)
from trencadis.models import Job, Queue, Snapshot, TaskAllocation


def _now() -> datetime:
    return datetime.now(UTC)


class KubernetesCluster:
    """`adapters.live.cluster.Cluster` for Kubernetes."""

    def __init__(
        self,
        config: KubernetesConfig,
        api: Api | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.config = config
        self.api = api or HttpApi(config.kubernetes)
        self._clock = clock
        self._prepared: Prepared | None = None
        self._gangs: dict[str, Gang] = {}
        self._devices = Devices()
        self.layouts = NodeLayouts(lambda: self.api, self._lists, config.kubernetes, clock)

    # Reading

    def read(self, remembered: Mapping[str, Terms]) -> Reading:
        """All objects, as a snapshot and views. What a start changes says so itself."""
        del remembered
        options = self.config.kubernetes
        try:
            lists = read_lists(self.api)
        except RefusedError as error:
            raise UnavailableError(str(error)) from None
        # After the lists: nothing in them is younger.
        now = self._clock()
        nodes = lists.of(NODES)
        prepared = prepare(lists, options.gate, now)
        documents = [
            (f"{resource}.{group}" if group else resource, json.dumps(listed))
            for (group, resource), listed in lists.found.items()
        ]
        imported = read_kubernetes(
            documents,
            now=now,
            gangs=options.gangs,
            gates=[options.gate],
            levels=options.levels,
            policy=self.config.policy,
        )
        found = imported.snapshot
        self._gangs = make_gangs(found.jobs, imported.pods, prepared)
        self._prepared = prepared
        self._devices = Devices(imported.uuids, dict(imported.groups), options.kai_scheduler)
        views = make_views(found, self._gangs, prepared, self.config)
        # In the shadow nobody would make the layouts that its plans count on.
        shadow = self.config.live.mode == "shadow"
        configs, faults = ({}, []) if shadow else self.layouts.configs()
        fitted = self._fitted(found, views)
        free = self.layouts.fitted(fitted, nodes, configs)
        fitted = fitted.model_copy(update={"nodes": free})
        if configs:
            fitted = limited(fitted, configs)
        return Reading(fitted, views, [*imported.warnings, *faults])

    def _fitted(self, snapshot: Snapshot, views: Mapping[str, JobView]) -> Snapshot:
        scope = self.config.live.scope
        queues = {queue.name: queue for queue in (*snapshot.queues, *self.config.queues)}
        return snapshot.model_copy(
            update={
                "jobs": tuple(self._job(job, views[job.name]) for job in snapshot.jobs),
                "nodes": tuple(
                    node
                    if scope.has_node(node.name)
                    else node.model_copy(update={"cordoned": True})
                    for node in snapshot.nodes
                ),
                # Lost pods are made anew by their owners.
                "policy": snapshot.policy.model_copy(update={"repairs": False}),
                "queues": tuple(_queue(queues[key], snapshot) for key in sorted(queues)),
            }
        )

    def _job(self, job: Job, view: JobView) -> Job:
        update: dict[str, Any] = {}
        outside = any(not self.config.live.scope.has_node(t.node) for t in job.allocation)
        if not view.stoppable or outside:
            update["preemptible"] = False
        if job.state == "pending" and not view.managed:
            update["state"] = "held"
        return job.model_copy(update=update) if update else job

    def objections(self) -> list[str]:
        """Kubernetes' and Kueue's own preemption, and namespaces that aren't there."""
        allow = self.config.kubernetes.native_preemption == "allow"
        return objections(self.api, self.config.live.scope, allow=allow)

    def alive(self) -> bool:
        """Whether the API server answers."""
        try:
            self.api.get("/version")
        except (RefusedError, UnavailableError):
            return False
        return True

    # Acting

    def start(
        self, job: str, tasks: Sequence[TaskAllocation], view: JobView, *, reserved: bool = False
    ) -> None:
        """Names a node for each pod, then takes the gates off. Taints for it would keep it out."""
        del view
        if reserved:
            self.unreserve(PREFIX + job)
        self._acts.place(self._gang(job), tasks)

    def withdraw(self, job: str, terms: Terms) -> None:
        """Has the owner make the pods anew, which then wait gated. Bound ones end with them."""
        del terms
        gang = self._gang(job)
        pods, others = self._acts.parted(gang)
        if gang.owner.suspended or not any(records.pin(pod) or self._ungated(pod) for pod in pods):
            return
        if all(records.node(pod) for pod in pods):
            raise RefusedError("all its pods are on their nodes by now")
        if gang.owner.suspendable and not others:
            self._within_budgets(gang, [pod for pod in pods if records.node(pod)])
            self._acts.suspend(gang)
        elif gang.owner.way == "evict":
            self._acts.remove([pod for pod in pods if not records.node(pod)])
        elif any(self._ungated(pod) for pod in pods):
            raise RefusedError("gates can't be put back, and nobody can make its pods anew")

    def restore(self, job: str, terms: Terms) -> None:
        """Has a suspended owner make its pods again: gated, and on no node's terms."""
        del terms
        self._acts.resume(self._gang(job).owner)

    def warn(self, job: str) -> None:
        """Stops it: Kubernetes sends the signal, and gives the pods their grace, by itself."""
        self.stop(job)

    def stop(self, job: str) -> None:
        """Through the owner, which makes the pods anew; by eviction where that is no owner's."""
        gang = self._gang(job)
        if gang.owner.suspendable:
            # All that its owner runs goes with it.
            pods = self._acts.current(gang)
            self._within_budgets(gang, [pod for pod in pods if records.node(pod)])
            self._acts.suspend(gang)
        elif gang.owner.way == "evict" or (
            gang.owner.way == "bare" and self.config.kubernetes.evict_bare_pods
        ):
            self._acts.evict(gang)
        else:
            raise RefusedError("nobody would make its pods again")

    def give_back(self, job: str, terms: Terms) -> None:
        """Takes the gates off, on no node's terms."""
        del terms
        gang = self._gang(job)
        pods = self._acts.made(gang)
        named = any(records.pin(pod) and not records.node(pod) for pod in pods)
        if gang.owner.suspendable and named and not gang.owner.suspended:
            pods, others = self._acts.parted(gang)
            if not others and not all(records.node(pod) for pod in pods):
                pods = self._acts.renew(gang)
        self._acts.let_go([pod for pod in pods if not records.node(pod)])

    def _within_budgets(self, gang: Gang, pods: Sequence[dict[str, Any]]) -> None:
        why = objection(self.api, self._known.lists, gang.namespace, pods)
        if why is not None:
            raise RefusedError(why)

    def reserve(
        self, name: str, job: str, nodes: Sequence[str], start: datetime, end: datetime
    ) -> None:
        """A taint on whole nodes, which has no end. What runs there goes on."""
        del job, end
        if start > self._clock():
            raise RefusedError("Kubernetes keeps no nodes from a later time on")
        taints.reserve(self.api, self._lists(), name, nodes)

    def unreserve(self, name: str) -> None:
        """Takes its taints away."""
        taints.release(self.api, self._lists(), self._reserved().get(name, ()))

    def reservations(self) -> list[str]:
        """Names in the annotations of tainted nodes."""
        return sorted(name for name in self._reserved() if name.startswith(PREFIX))

    def _reserved(self) -> dict[str, list[dict[str, Any]]]:
        return taints.reserved(listing(self.api, self._lists().path(NODES))["items"])

    def suspended(self, job: str) -> bool:
        """Whether its owner is to make its pods again before it can start."""
        return self._gang(job).owner.suspended

    # The last reading

    @property
    def _known(self) -> Prepared:
        if self._prepared is None:
            self.read({})
        assert self._prepared is not None
        return self._prepared

    def _lists(self) -> Lists:
        """For paths alone, which need no reading."""
        if self._prepared is not None:
            return self._prepared.lists
        return Lists(versions=read_versions(self.api))

    @property
    def _acts(self) -> Acts:
        known, options = self._known, self.config.kubernetes
        return Acts(
            self.api,
            known.lists,
            known.owners,
            options.gate,
            known.hostnames,
            self._devices,
            self._clock,
            options.pods_timeout_seconds,
        )

    def _gang(self, job: str) -> Gang:
        _ = self._known
        if job not in self._gangs:
            raise RefusedError(f"job {job} is no longer there")
        return self._gangs[job]

    def _ungated(self, pod: dict[str, Any]) -> bool:
        return self.config.kubernetes.gate not in records.gates(pod)


def _queue(queue: Queue, snapshot: Snapshot) -> Queue:
    """A configured queue keeps its place in the tree that was read."""
    read = next((entry for entry in snapshot.queues if entry.name == queue.name), queue)
    if queue.parent is None and read.parent is not None:
        return queue.model_copy(update={"parent": read.parent})
    return queue
