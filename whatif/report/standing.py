"""How queues stand before and after a plan: their use against what they may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models import Queue, Snapshot
from trencadis.models.units import sizes


@dataclass(frozen=True, slots=True)
class Standing:
    """One queue with all queues below it, in GPUs."""

    name: str
    depth: int
    before: float
    after: float
    asked: float
    """Asked for by jobs that still wait afterwards."""
    guarantee: float | None
    limit: float | None

    @property
    def short(self) -> float:
        """GPUs below what the guarantee owes: no more than is used and asked for."""
        if self.guarantee is None:
            return 0.0
        return max(0.0, min(self.guarantee, self.after + self.asked) - self.after)


def standings(before: Snapshot, after: Snapshot) -> list[Standing]:
    """Parents before their children, siblings in the snapshot's order.

    A delayed start's GPUs count for its queue once it runs; draining jobs still count.
    """
    parents = {queue.name: queue.parent for queue in before.queues}
    use = [_used(snapshot, parents) for snapshot in (before, after)]
    asked = _asked(after, parents)
    children: dict[str | None, list[Queue]] = {}
    for queue in before.queues:
        children.setdefault(queue.parent, []).append(queue)
    found: list[Standing] = []

    def walk(parent: str | None, depth: int) -> None:
        for queue in children.get(parent, ()):
            guarantee = queue.guarantee.total_milli()
            limit = queue.limit.quota.total_milli()
            found.append(
                Standing(
                    queue.name,
                    depth,
                    use[0].get(queue.name, 0.0),
                    use[1].get(queue.name, 0.0),
                    asked.get(queue.name, 0.0),
                    None if guarantee is None else guarantee / 1_000,
                    None if limit is None else limit / 1_000,
                )
            )
            walk(queue.name, depth + 1)

    walk(None, 0)
    return found


def _used(snapshot: Snapshot, parents: Mapping[str, str | None]) -> dict[str, float]:
    return _sums(snapshot, parents, {"running", "draining"})


def _asked(snapshot: Snapshot, parents: Mapping[str, str | None]) -> dict[str, float]:
    return _sums(snapshot, parents, {"pending"})


def _sums(
    snapshot: Snapshot, parents: Mapping[str, str | None], states: set[str]
) -> dict[str, float]:
    size = sizes(snapshot)
    units: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.state in states:
            queue: str | None = job.queue
            while queue is not None:
                units[queue] = units.get(queue, 0) + size.job(job)
                queue = parents.get(queue)
    return {name: amount / size.unit for name, amount in units.items()}
