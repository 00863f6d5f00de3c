"""How long jobs run by their estimates, and when what is on the nodes ends."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

from trencadis.models import Job, Snapshot
from trencadis.models.base import seconds

LAST = int(datetime.max.replace(tzinfo=UTC).timestamp())
"""The end of the year 9999, the last instant that a plan can name."""


class Estimates:
    """Runtimes in seconds, ends in seconds since 1970; None: not known, so taken to stay."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = seconds(snapshot.now)
        self._median: dict[str, int] = {}
        if snapshot.policy.runtime_unknown == "queue_median":
            known: defaultdict[str, list[int]] = defaultdict(list)
            for job in snapshot.jobs:
                if job.runtime_seconds is not None:
                    known[job.queue].append(job.runtime_seconds)
            self._median = {queue: sorted(run)[len(run) // 2] for queue, run in known.items()}

    def runtime(self, job: Job) -> int | None:
        """Of the whole run: the job's estimate, or by policy the (upper) median of its queue's."""
        if job.runtime_seconds is not None:
            return job.runtime_seconds
        return self._median.get(job.queue)

    def end_from(self, job: Job, start: int) -> int | None:
        """When it ends if it starts then; None also where that is later than instants go."""
        runtime = self.runtime(job)
        return None if runtime is None or start + runtime > LAST else start + runtime

    def end(self, job: Job) -> int | None:
        """When a running or draining job ends; None where it should have ended already."""
        if job.state == "draining":
            end = None if job.drain_ends is None else seconds(job.drain_ends)
        else:
            end = None if job.start is None else self.end_from(job, seconds(job.start))
        return end if end is not None and end > self.now else None
