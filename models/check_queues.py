"""Whether the queues form a forest: parents that exist, no cycles, no name twice."""

from __future__ import annotations

from collections.abc import Iterator

from trencadis.models.check_cluster import duplicates
from trencadis.models.faults import Fault
from trencadis.models.snapshot import Snapshot


def check_queues(snapshot: Snapshot) -> list[Fault]:
    """Faults of queues and QOS."""
    faults = [
        *duplicates("$.queues", "queue", (queue.name for queue in snapshot.queues)),
        *duplicates("$.qos", "QOS", (entry.name for entry in snapshot.qos)),
    ]
    names = {queue.name for queue in snapshot.queues}
    for number, queue in enumerate(snapshot.queues):
        if queue.parent is not None and queue.parent not in names:
            faults.append(
                Fault(
                    f"$.queues[{number}].parent",
                    f"queue {queue.name} names {queue.parent} as its parent, which isn't a queue",
                )
            )
    faults.extend(_cycles(snapshot))
    return faults


def _cycles(snapshot: Snapshot) -> Iterator[Fault]:
    """One fault per cycle, at the first of its queues that the snapshot lists."""
    parent = {queue.name: queue.parent for queue in snapshot.queues}
    settled: set[str] = set()
    for number, queue in enumerate(snapshot.queues):
        chain: dict[str, None] = {}
        here: str | None = queue.name
        while here is not None and here not in settled and here not in chain:
            chain[here] = None
            here = parent.get(here)
        if here is not None and here in chain:
            names = list(chain)
            cycle = [*names[names.index(here) :], here]
            at = number if here == queue.name else _index(snapshot, here)
            yield Fault(
                f"$.queues[{at}].parent",
                f"the parents of queue {here} form a cycle: {' -> '.join(cycle)}",
            )
        settled.update(chain)


def _index(snapshot: Snapshot, name: str) -> int:
    return next(index for index, queue in enumerate(snapshot.queues) if queue.name == name)
