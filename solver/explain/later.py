"""A cluster at later instants if nothing starts: the nodes of `at_time`, asked many times over."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trencadis.models import Job, Node, Snapshot
from trencadis.solver.capacity import Capacity, NodeState, node_state
from trencadis.solver.explain.changes import end_of, hold_ends
from trencadis.solver.explain.menus import HOLD, Occupants, occupants

NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Stay:
    """One node: its tasks, those that leave first in front."""

    node: Node
    here: Occupants
    leave: list[datetime]
    """When they do, in the same order."""
    states: dict[int, NodeState | None] = field(default_factory=dict)
    """By the number of those that have left; None where an exclusive job keeps the node."""


class Later:
    """Who has left by when."""

    def __init__(self, snapshot: Snapshot, supply: Capacity, *, parts: bool) -> None:
        """`parts`: with what becomes of GPUs in parts."""
        self.snapshot, self.supply = snapshot, supply
        self.parts = snapshot if parts else None
        self.held = hold_ends(snapshot)
        here = occupants(snapshot)
        self.nodes = []
        for node in sorted(snapshot.nodes, key=lambda node: node.name):
            if not (node.down or node.cordoned):
                on = here.get(node.name, [])
                order = sorted((self._leaves(job), i) for i, (job, _) in enumerate(on))
                self.nodes.append(_Stay(node, [on[i] for _, i in order], [at for at, _ in order]))

    def _leaves(self, job: Job) -> datetime:
        """When a job that runs, drains or has GPUs on hold leaves them."""
        held = self.held.get(job.name.removeprefix(HOLD))
        end = end_of(job) if job.on_nodes else None
        ends = [held] if held is not None else []
        if end is not None and end > self.snapshot.now:
            ends.append(end)
        return min(ends, default=NEVER)

    def there(self, job: Job, instant: datetime) -> bool:
        """Whether a job is still there, running or not."""
        return self._leaves(job) > instant

    def states(self, instant: datetime) -> list[NodeState]:
        """The nodes that take work, by name."""
        found = []
        for stay in self.nodes:
            left = bisect_right(stay.leave, instant)
            if left not in stay.states:
                here = stay.here[left:]
                closed = any(job.exclusive and job.on_nodes for job, _ in here)
                stay.states[left] = (
                    None if closed else node_state(stay.node, here, self.supply, self.parts)
                )
            state = stay.states[left]
            if state is not None:
                found.append(state)
        return found
