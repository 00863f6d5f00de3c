"""When a waiting job may start: at best, likely, at worst, and what each of them supposes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from trencadis.models import Job, Node, Snapshot
from trencadis.models.base import seconds
from trencadis.models.explanation import NEVER, Reason, StartRange
from trencadis.solver.capacity import capacity, running_model
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import end_of
from trencadis.solver.explain.queueing import MOST_STEPS, Client, Queueing
from trencadis.solver.explain.reasons import Reasons, waiting
from trencadis.solver.explain.said import some
from trencadis.solver.greedy import order

BLOCKED = NEVER | {Reason.OUTAGE, Reason.WINDOW, Reason.KIND_OF_GPU}
"""Reasons that no end of a running job ends."""
AWAY = BLOCKED | {
    Reason.DEPENDENCY, Reason.NOT_BEFORE, Reason.HELD_GPUS, Reason.LIMIT, Reason.THROTTLE,
    Reason.LICENCE, Reason.LENDING,
}
"""Reasons of jobs that are not in anybody's way."""


class Outlook:
    """Start ranges of the jobs that wait under one plan."""

    def __init__(self, reasons: Reasons, following: Snapshot) -> None:
        self.reasons, self.following = reasons, following
        facts = reasons.scene.facts
        waits = {job.name for job in waiting(reasons.scene)}
        self.order = [
            job.name for unit in order(facts) for job in unit if job.name in waits
        ]
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
        if case.job.name not in self.order or code in AWAY or not case.single:
            said.append("likely and worst depend on rules, not on room alone")
            return StartRange(best=best, assumptions=tuple(said))
        ahead = self.order[: self.order.index(case.job.name)]
        likely, worst = self._served(case.job.name, ahead)
        if likely is not None:
            likely = max(likely, best)
        if worst is not None and likely is not None:
            worst = max(worst, likely)
        said.append(
            f"likely: what comes first ({some(len(ahead), 'waiting job')}) starts as it fits, by "
            "GPUs, CPU, memory and required levels"
        )
        said.append("worst: all of them, and all that runs, has ended")
        return StartRange(best=best, likely=likely, worst=worst, assumptions=tuple(said))

    def _end(self, job: Job) -> datetime | None:
        """When it is estimated to end; None where unknown or overdue."""
        end = end_of(job)
        return end if end is not None and end > self.following.now else None

    def _served(
        self, name: str, ahead: list[str]
    ) -> tuple[datetime | None, datetime | None]:
        """When the job starts if served after those ahead, and when all of them have ended."""
        scene = self.reasons.scene
        queue = Queueing(
            capacity(self.following), scene.facts.fabric, dict(scene.facts.admission.column)
        )
        begin = seconds(self.following.now)
        last: int | None = begin
        nodes = {node.name: node for node in self.following.nodes}
        index = {state.name: i for i, state in enumerate(queue.supply.states)}
        for job in self.following.jobs:
            if job.on_nodes:
                last = self._book(queue, job, nodes, index, last)
        clients = [self._client(other) for other in ahead if self._in_the_way(other)]
        own = self._client(name)
        now: int | None = begin
        likely: int | None = None
        for _ in range(MOST_STEPS):
            assert now is not None
            full: set[object] = set()
            left = []
            for client in clients:
                if client.key in full or not queue.start(client, now):
                    full.add(client.key)
                    left.append(client)
                    continue
                runtime = client.job.runtime_seconds
                last = None if last is None or runtime is None else max(last, now + runtime)
            clients = left
            if likely is None and queue.fits(own):
                likely = now
            if not clients and likely is not None:
                break
            now = queue.step(now, begin)
            if now is None:
                break
        worst = last if not clients else None
        return _instant(likely), _instant(worst)

    def _in_the_way(self, name: str) -> bool:
        job = self.reasons.scene.facts.values.eligible[name]
        return self.reasons.of(job).code not in AWAY

    def _client(self, name: str) -> Client:
        facts = self.reasons.scene.facts
        job = facts.values.eligible[name]
        ways = tuple(
            sorted(self.reasons.scene.shape(job).alternatives, key=lambda entry: entry.cost)
        )
        return Client(job, ways, facts.maker.place_key(job))

    def _book(
        self,
        queue: Queueing,
        job: Job,
        nodes: Mapping[str, Node],
        index: Mapping[str, int],
        last: int | None,
    ) -> int | None:
        """Books the end of a running job; when the last of them ends, None if one doesn't say."""
        end = self._end(job)
        if end is None:
            return None
        parts = []
        model = running_model(job, nodes)
        for task in job.allocation:
            if task.node in index:
                gpus = job.request.gpus if model in queue.gpus else 0
                parts.append((index[task.node], model or "", gpus))
        queue.release(seconds(end), job, parts)
        return None if last is None else max(last, seconds(end))


def _instant(value: int | None) -> datetime | None:
    return None if value is None else datetime.fromtimestamp(value, UTC)
