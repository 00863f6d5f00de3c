"""Whom a strict FIFO queue holds back, and behind whom (problem.md, 4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trencadis.models import Job, Missing
from trencadis.solver.verify.situation import Situation
from trencadis.solver.verify.targets import Targets
from trencadis.solver.verify.units import Ask

Pool = frozenset[str] | None
"""GPU models that a job allows, empty for all; None for a job without GPUs."""


class Order:
    """The strict queues of a situation."""

    def __init__(self, situation: Situation, targets: Targets) -> None:
        self.of = situation
        self.targets = targets
        self.queues: dict[str, list[Job]] = {
            name: []
            for name, queue in situation.tree.queues.items()
            if queue.order == "strict_fifo" and situation.tree.is_leaf(name)
        }
        for job in situation.eligible.values():
            if job.queue in self.queues and not isinstance(job, Missing):
                self.queues[job.queue].append(job)
        for jobs in self.queues.values():
            jobs.sort(key=self._place)

    def blocked(
        self, started: Collection[str], queues: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Jobs that may not start if just these do: job -> the one before it that waits."""
        behind: dict[str, str] = {}
        for name in self.queues if queues is None else queues:
            waiting: dict[Pool, str] = {}
            ahead: list[Job] = []
            for job in self.queues[name]:
                # Equal places don't hold each other back.
                if ahead and self._place(ahead[0]) != self._place(job):
                    for other in ahead:
                        pool = _pool(other, self.of.asks[other.name])
                        if other.name in started or pool in waiting:
                            continue
                        if self.targets.could_run(other):
                            waiting[pool] = other.name
                    ahead = []
                ahead.append(job)
                mine = _pool(job, self.of.asks[job.name])
                for pool, other_name in waiting.items():
                    if _meet(mine, pool):
                        behind[job.name] = other_name
                        break
        return behind

    def _place(self, job: Job) -> tuple[int, int]:
        return self.of.tiers[job.name], self.of.submits[job.name]


def _pool(job: Job, ask: Ask) -> Pool:
    return frozenset(job.gpu_models) if ask.on_gpus else None


def _meet(one: Pool, other: Pool) -> bool:
    if one is None or other is None:
        return one is other
    return not one or not other or not one.isdisjoint(other)
