"""A cluster at later instants if nothing starts: the nodes of `at_time`, asked many times over."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from trencadis.models import Hold, Job, Node, Snapshot
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
    """Who has left by when, and who has come whose nodes are reserved."""

    def __init__(
        self,
        snapshot: Snapshot,
        supply: Capacity,
        job: Job,
        behind: Sequence[Hold] = (),
        *,
        parts: bool,
    ) -> None:
        """`job`: for which it is asked. `behind`: reservations that it may not delay. `parts`: with
        what becomes of GPUs in parts."""
        self.snapshot, self.supply, self.job = snapshot, supply, job
        self.parts = snapshot if parts else None
        self.held = hold_ends(snapshot)
        here = occupants(snapshot)
        self.nodes = []
        for node in sorted(snapshot.nodes, key=lambda node: node.name):
            if not (node.down or node.cordoned):
                on = here.get(node.name, [])
                order = sorted((self._leaves(job), i) for i, (job, _) in enumerate(on))
                self.nodes.append(_Stay(node, [on[i] for _, i in order], [at for at, _ in order]))

        self.reserved: defaultdict[str, list[tuple[Hold, datetime, Occupants]]]
        self.reserved = defaultdict(list)
        jobs = {entry.name: entry for entry in snapshot.jobs}
        for hold in behind:
            end = self.held.get(hold.job) or NEVER
            for name in {task.node for task in hold.allocation}:
                tasks = [(jobs[hold.job], task) for task in hold.allocation if task.node == name]
                self.reserved[name].append((hold, end, tasks))

    def turns(self) -> list[datetime]:
        """Instants at which reservations take room away: between them it only grows."""
        found = set()
        for entries in self.reserved.values():
            for hold, _, _ in entries:
                found.add(hold.at)
                if self.job.runtime_seconds is not None:
                    # Whoever starts later than this is still there when it is due.
                    last = hold.at - timedelta(seconds=self.job.runtime_seconds)
                    found.add(last + timedelta(seconds=1))
        return sorted(instant for instant in found if instant > self.snapshot.now)

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
            reserved = self.reserved.get(stay.node.name)
            if reserved:
                state = self._beside(stay, left, reserved, instant)
            else:
                if left not in stay.states:
                    stay.states[left] = self._state(stay.node, stay.here[left:])
                state = stay.states[left]
            if state is not None:
                found.append(state)
        return found

    def _state(self, node: Node, here: Occupants) -> NodeState | None:
        if any(job.exclusive and job.on_nodes for job, _ in here):
            return None
        return node_state(node, here, self.supply, self.parts)

    def _beside(
        self,
        stay: _Stay,
        left: int,
        reserved: Sequence[tuple[Hold, datetime, Occupants]],
        instant: datetime,
    ) -> NodeState | None:
        """A node that is reserved: closed to whoever would delay that, then taken, then free."""
        here = stay.here[left:]
        runtime = self.job.runtime_seconds
        for hold, end, tasks in reserved:
            if instant < hold.at:
                if runtime is None or instant + timedelta(seconds=runtime) > hold.at:
                    return None
            elif instant < end:
                if any(job.exclusive for job, _ in tasks):
                    return None
                here = [*here, *tasks]
        return self._state(stay.node, here)
