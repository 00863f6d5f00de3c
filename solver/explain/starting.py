"""When a waiting job may start: at best, likely, at worst, and what each of them supposes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property

from trencadis.models import Hold, Job, Node, Snapshot
from trencadis.models.base import seconds
from trencadis.models.explanation import NEVER, Reason, StartRange
from trencadis.solver.capacity import Capacity, running_model, vector
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import end_of
from trencadis.solver.explain.queueing import MOST_STEPS, Client, Due, Queueing
from trencadis.solver.explain.reasons import Reasons, waiting
from trencadis.solver.explain.said import names, some, when
from trencadis.solver.greedy import order

BLOCKED = NEVER | {Reason.OUTAGE, Reason.WINDOW, Reason.KIND_OF_GPU}
"""Reasons that no end of a running job ends."""
AWAY = BLOCKED | {
    Reason.DEPENDENCY, Reason.NOT_BEFORE, Reason.HELD_GPUS, Reason.LIMIT, Reason.THROTTLE,
    Reason.LICENCE, Reason.LENDING,
}
"""Reasons of jobs for which more than room has to come."""


class Outlook:
    """Start ranges of the jobs that wait under one plan."""

    def __init__(self, reasons: Reasons, following: Snapshot, left: Capacity) -> None:
        """`following`, `left`: the snapshot and its supply after the plan's actions."""
        self.reasons, self.following, self.left = reasons, following, left
        facts = reasons.scene.facts
        waits = {job.name for job in waiting(reasons.scene)}
        self.order = [
            job.name for unit in order(facts) for job in unit if job.name in waits
        ]
        self.reserved = {h.job: h for h in following.holds if h.kind == "reservation"}
        self.ranks = reasons.scene.kept.ranks
        running = [job for job in following.jobs if job.on_nodes]
        self.unknown = sum(1 for job in running if self._end(job) is None)

    def of(self, case: Case, code: Reason, best: datetime | None) -> StartRange | None:
        """The range of a job; `best`: when it fits if nobody else starts, None if never.

        None where no start can be expected as things are.
        """
        if code in BLOCKED:
            return None
        said = ["what runs ends when its estimate says", "no job that is yet to come passes it"]
        if self.unknown:
            said.append(f"{some(self.unknown, 'running job')} without an estimate stay")
        if best is None:
            return StartRange(assumptions=tuple(said))
        if case.parts:
            said.append("likely and worst are not worked out for parts of GPUs")
            return StartRange(best=best, assumptions=tuple(said))
        own = self.reserved.get(case.job.name)
        if own is not None:
            # Whoever comes later keeps off its nodes.
            at = max(own.at, best)
            said.append(f"nodes are reserved for it from {when(own.at)} on")
            return StartRange(best=best, likely=at, worst=at, assumptions=tuple(said))
        if case.job.name not in self.order or code in AWAY or not case.single:
            said.append("likely and worst depend on rules, not on room alone")
            return StartRange(best=best, assumptions=tuple(said))
        likely = self._served(case.job.name, last=False)
        worst = self._served(case.job.name, last=True)
        likely = None if likely is None else max(likely, best)
        worst = None if worst is None or likely is None else max(worst, likely)
        others = some(len(self.order) - 1, "other waiting job")
        said.append(
            f"likely: {others} and this one are served in order, each as soon as it fits by GPUs, "
            "CPU, memory and required levels"
        )
        if self.reserved:
            said.append(f"those with reservations ({names(sorted(self.reserved))}) start then")
        said.append("worst: all the others start first")
        return StartRange(best=best, likely=likely, worst=worst, assumptions=tuple(said))

    def _end(self, job: Job) -> datetime | None:
        """When it is estimated to end; None where unknown or overdue."""
        end = end_of(job)
        return end if end is not None and end > self.following.now else None

    def _served(self, name: str, last: bool) -> datetime | None:
        """When the job starts if the waiting jobs are served in order; `last`: it after all others.

        None if that is not within what is known, or beyond the instants that are looked at.
        """
        queue = self._beginning.copy()
        clients = list(self._clients)
        if all(client.job.name != name for client in clients):
            clients.append(self._client(name))
            rank = {other: i for i, other in enumerate(self.order)}
            clients.sort(key=lambda client: rank[client.job.name])
        if last:
            clients.sort(key=lambda client: client.job.name == name)
        begin = seconds(self.following.now)
        now: int | None = begin
        for _ in range(MOST_STEPS):
            assert now is not None
            full: set[object] = set()
            left: list[Client] = []
            for client in clients:
                own = client.job.name == name
                key = (client.key, queue.barred(client, now))
                waits = key in full or (own and last and bool(left))
                if waits or not queue.start(client, now):
                    full.add(key)
                    left.append(client)
                elif own:
                    return datetime.fromtimestamp(now, UTC)
            clients = left
            now = queue.step(now, begin)
            if now is None:
                return None
        return None

    @cached_property
    def _beginning(self) -> Queueing:
        """The nodes now, with what ends on them."""
        queue = Queueing(
            self.left,
            self.reasons.scene.facts.fabric,
            dict(self.reasons.scene.facts.admission.column),
        )
        nodes = {node.name: node for node in self.following.nodes}
        index = {state.name: i for i, state in enumerate(self.left.states)}
        for job in self.following.jobs:
            if job.on_nodes:
                self._book(queue, job, nodes, index)
        jobs = {job.name: job for job in self.following.jobs}
        for hold in self.reserved.values():
            if hold.job in self.ranks:
                self._reserve(queue, jobs[hold.job], hold, nodes, index)
        queue.arrive(seconds(self.following.now))
        return queue

    @cached_property
    def _clients(self) -> list[Client]:
        """Jobs that wait for room alone, in order."""
        jobs = self.reasons.scene.facts.values.eligible
        return [
            self._client(name)
            for name in self.order
            if name not in self.reserved and self.reasons.competes(jobs[name])
        ]

    def _client(self, name: str) -> Client:
        facts = self.reasons.scene.facts
        job = facts.values.eligible[name]
        ways = tuple(
            sorted(self.reasons.scene.shape(job).alternatives, key=lambda entry: entry.cost)
        )
        return Client(job, ways, facts.maker.place_key(job), self.ranks.get(name))

    def _reserve(
        self,
        queue: Queueing,
        job: Job,
        hold: Hold,
        nodes: Mapping[str, Node],
        index: Mapping[str, int],
    ) -> None:
        """Books a reservation."""
        model = running_model(job.model_copy(update={"allocation": hold.allocation}), nodes)
        gpus = job.request.gpus if model in queue.gpus else 0
        needs = vector(job, self.left.resources)
        at, runtime = seconds(hold.at), job.runtime_seconds
        queue.reserve(
            Due(
                at,
                None if runtime is None else at + runtime,
                self.ranks[job.name],
                tuple(
                    (index[task.node], model or "", gpus, needs)
                    for task in hold.allocation
                    if task.node in index
                ),
            )
        )

    def _book(
        self, queue: Queueing, job: Job, nodes: Mapping[str, Node], index: Mapping[str, int]
    ) -> None:
        """Books what a running job gives back when it ends, if that is known."""
        end = self._end(job)
        if end is None:
            return
        parts = []
        model = running_model(job, nodes)
        for task in job.allocation:
            if task.node in index:
                gpus = job.request.gpus if model in queue.gpus else 0
                parts.append((index[task.node], model or "", gpus))
        queue.release(seconds(end), job, parts)
