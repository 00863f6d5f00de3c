"""Which limits a start would break: queues, users, QOS, arrays, licences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trencadis.models import Job, Limits, Queue, Snapshot
from trencadis.models.trace import task_milli

Key = tuple[str, ...]


class Books:
    """What is in use by account, in milli-GPUs, jobs or licences."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.queues = {queue.name: queue for queue in snapshot.queues}
        self.qos = {entry.name: entry for entry in snapshot.qos}
        self.licences = {
            entry.name: max(0, entry.total - entry.used_elsewhere) for entry in snapshot.licences
        }
        self.used: Counter[Key] = Counter()

    def copy(self) -> Books:
        """Books that may be changed without changing these."""
        twin = object.__new__(Books)
        twin.__dict__.update(self.__dict__)
        twin.used = self.used.copy()
        return twin

    def chain(self, queue: str) -> list[str]:
        """The queue and those above it."""
        names = []
        current: str | None = queue
        while current is not None:
            names.append(current)
            current = self.queues[current].parent
        return names

    def allows(self, job: Job, tasks: int, model: str, *, starts: bool = True) -> bool:
        """Whether so many more tasks keep all limits; `starts`: the job is not in use yet."""
        return all(
            cap is None or self.used[key] + amount <= cap
            for key, amount, cap in self._lines(job, tasks, model, starts)
            if amount
        )

    def book(self, job: Job, tasks: int, model: str, *, starts: bool = True) -> None:
        """Notes that so many tasks of the job are in use."""
        for key, amount, _ in self._lines(job, tasks, model, starts):
            self.used[key] += amount

    def clear(self, job: Job, tasks: int, model: str, *, ends: bool = True) -> None:
        """Notes that they are no longer."""
        for key, amount, _ in self._lines(job, tasks, model, ends):
            self.used[key] -= amount

    def in_use(self, queue: str) -> int:
        """Milli-GPUs in use by the queue and those below it."""
        return self.used[("queue", queue, "gpus")]

    def _lines(
        self, job: Job, tasks: int, model: str, starts: bool
    ) -> Iterator[tuple[Key, int, int | None]]:
        milli = tasks * task_milli(job)
        jobs = 1 if starts else 0
        for name in self.chain(job.queue):
            yield from _account("queue", name, self.queues[name].limit, job, milli, jobs, model)
        if job.qos is not None:
            yield from _account("qos", job.qos, self.qos[job.qos].limit, job, milli, jobs, model)
        if job.array is not None:
            yield ("array", job.array.name), jobs, job.array.throttle
        for name, count in job.licences.items():
            yield ("licence", name), count * jobs, self.licences[name]


def leaf_queues(snapshot: Snapshot) -> list[Queue]:
    """The queues that have none below them, in the snapshot's order: jobs belong to these."""
    parents = {queue.parent for queue in snapshot.queues}
    return [queue for queue in snapshot.queues if queue.name not in parents]


def _account(
    kind: str, name: str, limits: Limits, job: Job, milli: int, jobs: int, model: str
) -> Iterator[tuple[Key, int, int | None]]:
    yield (kind, name, "gpus"), milli, limits.quota.total_milli()
    yield (kind, name, "jobs"), jobs, limits.jobs
    own = limits.quota_per_user
    yield (kind, name, "gpus", "user", job.user), milli, own.total_milli()
    yield (kind, name, "jobs", "user", job.user), jobs, limits.jobs_per_user
    for table, tail in ((limits.quota.by_model, ()), (own.by_model, ("user", job.user))):
        if model in table:
            yield (kind, name, "model", model, *tail), milli, table[model] * 1_000
