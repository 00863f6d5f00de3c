"""What nodes will have idle: what is there, with what has ended and without what is booked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.solver.capacity import Capacity, NodeState, node_state

Tenant = tuple[int | None, Job, TaskAllocation]
"""When it ends (None: it stays), whose task it is, and its places."""


@dataclass(frozen=True, slots=True)
class Booking:
    """Places of a job from one instant to another; None: for ever."""

    job: Job
    start: int
    end: int | None
    tasks: tuple[TaskAllocation, ...]

    def meets(self, start: int, end: int | None) -> bool:
        """Whether the two spans have an instant in common."""
        return (end is None or self.start < end) and (self.end is None or start < self.end)


class Forecast:
    """The nodes over time."""

    def __init__(self, snapshot: Snapshot, supply: Capacity, tenants: Iterable[Tenant]) -> None:
        self.supply = supply
        open_ = [node for node in snapshot.nodes if not (node.down or node.cordoned)]
        self._nodes = sorted(open_, key=lambda node: node.name)
        self._here: defaultdict[str, list[Tenant]] = defaultdict(list)
        for tenant in tenants:
            self._here[tenant[2].node].append(tenant)
        for here in self._here.values():
            # Who leaves last comes first, so that those still there are the first so many.
            here.sort(key=lambda t: (t[0] is not None, -(t[0] or 0), t[1].name))
        self.bookings: list[Booking] = []
        self._known: dict[tuple[str, int, tuple[str, ...]], NodeState | None] = {}

    def ends(self) -> set[int]:
        """Instants at which something ends."""
        found = {t[0] for here in self._here.values() for t in here if t[0] is not None}
        return found | {entry.end for entry in self.bookings if entry.end is not None}

    def states(self, start: int, end: int | None) -> tuple[NodeState, ...]:
        """What is idle all the time from `start` to `end`, in order of name."""
        booked: defaultdict[str, list[tuple[Job, TaskAllocation]]] = defaultdict(list)
        for entry in self.bookings:
            if entry.meets(start, end):
                for task in entry.tasks:
                    booked[task.node].append((entry.job, task))
        found = (self._at(node, start, booked) for node in self._nodes)
        return tuple(state for state in found if state is not None)

    def _at(
        self,
        node: Node,
        start: int,
        booked: defaultdict[str, list[tuple[Job, TaskAllocation]]],
    ) -> NodeState | None:
        """One node; None where an exclusive job is."""
        here: Sequence[Tenant] = self._here.get(node.name, ())
        still = sum(1 for end, _, _ in here if end is None or end > start)
        more = booked.get(node.name, [])
        key = (node.name, still, tuple(job.name for job, _ in more))
        if key not in self._known:
            occupants = [(job, task) for _, job, task in here[:still]] + more
            closed = any(job.exclusive for job, _ in occupants)
            self._known[key] = (
                None if closed else node_state(node, occupants, self.supply)
            )
        return self._known[key]
