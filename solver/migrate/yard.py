"""The nodes while jobs are being moved: what is idle, where a job fits, what F is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.solver.admission import admission
from trencadis.solver.bin_types import bin_fragmentation
from trencadis.solver.capacity import NodeState, capacity, occupants, vector
from trencadis.solver.migrate.movers import Mover
from trencadis.solver.model.problem import Facts
from trencadis.solver.score import fragmentation, leftovers
from trencadis.solver.spread import spread_cost


@dataclass(frozen=True, slots=True)
class Trip:
    """A job that goes to another node."""

    mover: Mover
    node: str
    tasks: tuple[TaskAllocation, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Job and node."""
        return self.mover.job.name, self.node


class _View:
    """Idle GPUs by node and model, and what else is free."""

    def __init__(self, snapshot: Snapshot, resources: tuple[str, ...]) -> None:
        supply, here = capacity(snapshot), occupants(snapshot)
        self.states = {state.name: state for state in supply.states}
        self.idle: dict[str, dict[str, set[int]]] = {}
        self.free: dict[str, list[int]] = {}
        for name, state in self.states.items():
            models = set(state.node.healthy_gpus().values())
            self.idle[name] = {model: set(state.idle.get(model, ())) for model in sorted(models)}
            node = state.node
            free = [node.cpu_milli, node.memory_mib]
            free += [node.resources.get(key, 0) for key in resources]
            for job, _ in here.get(name, ()):
                takes = vector(job, resources)
                free = [have - use for have, use in zip(free, takes, strict=True)]
            self.free[name] = free

    def change(self, trip: Trip, *, back: bool) -> None:
        """The job leaves its node and is on the other; `back`: the reverse."""
        mover, healthy = trip.mover, self.states[trip.mover.node].node.healthy_gpus()
        old = {i for task in mover.job.allocation for i in task.gpus or () if i in healthy}
        new = {i for task in trip.tasks for i in task.gpus or ()}
        for name, gpus, leaves in ((mover.node, old, not back), (trip.node, new, back)):
            if mover.model is not None:
                pool = self.idle[name][mover.model]
                if leaves:
                    pool |= gpus
                else:
                    pool -= gpus
            sign = 1 if leaves else -1
            self.free[name] = [
                have + sign * use for have, use in zip(self.free[name], mover.need, strict=True)
            ]


class Yard:
    """Jobs on nodes. Some room is kept for waiting jobs: it counts as idle, but no job moves there.

    `read`: the facts of the snapshot before any move; `snapshot`: with the moves made so far;
    `taken`: the same with those running who are to start on what is idle.
    """

    def __init__(
        self, read: Facts, snapshot: Snapshot, taken: Snapshot, movers: Mapping[str, Mover]
    ) -> None:
        resources = read.capacity.resources
        self._read = read
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._view, self._room = _View(snapshot, resources), _View(taken, resources)
        self._open = {
            name
            for name, state in self._view.states.items()
            if name in self._room.states and _plain(snapshot, state)
        }
        self.movers = {
            name: mover for name, mover in sorted(movers.items()) if mover.node in self._open
        }
        up = [self._nodes[name] for name in sorted(self._open)]
        self._admitted = admission(snapshot, [m.job for m in self.movers.values()], up)
        self._known: dict[Hashable, int] = {}

    @property
    def nodes(self) -> list[str]:
        """Nodes among which jobs may move."""
        return sorted(self._open)

    def total(self) -> int:
        """F of the cluster before any move, GPU-seconds."""
        left = leftovers(self._read, {})
        layouts = sum(rest.layout_cost() for rest in left.values())
        return sum(fragmentation(self._read, left).values()) + layouts

    def fragmentation(self, name: str) -> int:
        """F of a node as it is now."""
        state, idle = self._view.states[name], self._view.idle[name]
        if not any(idle.values()):
            return 0
        free = tuple(max(0, have) for have in self._view.free[name])
        explicit = state.node.nvlink.kind == "links"
        key = (
            tuple((m, tuple(sorted(g)) if explicit else len(g)) for m, g in idle.items()),
            free,
            state.node.nvlink,
        )
        if key not in self._known:
            listed = {model: tuple(sorted(gpus)) for model, gpus in idle.items() if gpus}
            self._known[key] = bin_fragmentation(self._read.profile, state, listed, free)
        return self._known[key]

    def trip(self, mover: Mover, node: str) -> Trip | None:
        """The job on the lowest idle GPUs of the node; None if it may not go or doesn't fit."""
        if node == mover.node or node not in self._open:
            return None
        if not self._admitted.masks[mover.job.name] >> self._admitted.column[node] & 1:
            return None
        pool = self._room.idle[node].get(mover.model or "", set())
        if len(pool) < mover.gpus:
            return None
        if any(want > max(0, have) for want, have in zip(mover.need, self._room.free[node],
                                                         strict=True)):
            return None
        chips, each = sorted(pool), mover.job.request.gpus
        tasks = tuple(
            TaskAllocation(node=node, gpus=tuple(chips[i * each : (i + 1) * each]))
            for i in range(len(mover.job.allocation))
        )
        if mover.gpus > 1 and self._spread(mover, tasks) > self._spread(
            mover, mover.job.allocation
        ):
            return None
        return Trip(mover, node, tasks)

    def _spread(self, mover: Mover, tasks: tuple[TaskAllocation, ...]) -> int:
        return spread_cost(self._read, mover.job, tasks, mover.model, self._nodes)

    def go(self, trip: Trip) -> int:
        """Makes the move; returns by how much F changes."""
        before = self.fragmentation(trip.mover.node) + self.fragmentation(trip.node)
        self._view.change(trip, back=False)
        self._room.change(trip, back=False)
        return self.fragmentation(trip.mover.node) + self.fragmentation(trip.node) - before

    def undo(self, trip: Trip) -> None:
        """Takes the move back; the last one first."""
        self._view.change(trip, back=True)
        self._room.change(trip, back=True)

    def state(self) -> Hashable:
        """What further moves cost depends on nothing but who is where."""
        return ()

    def kinds(self) -> Callable[[Mover], list[str]]:
        """One node of each kind that is not full, by name: which of equal ones makes no
        difference."""
        places = self._kinds()
        return lambda _: places

    def _kinds(self) -> list[str]:
        found: dict[Hashable, str] = {}
        for name in self.nodes:
            idle, node = self._room.idle[name], self._nodes[name]
            if not any(idle.values()):
                continue
            key = (
                tuple((m, len(gpus)) for m, gpus in idle.items()),
                tuple(self._room.free[name]),
                self.fragmentation(name),
                self._admitted.column[name],
                name if node.nvlink.kind == "links" else node.nvlink.kind,
            )
            found.setdefault(key, name)
        return sorted(found.values())

    def steps(self, trips: Iterable[Trip]) -> list[int]:
        """The step of each of these moves, which come in an order that works: as many at once as
        need nothing that another one of the step leaves. They must not have been made here."""
        found: list[int] = []
        step: list[Trip] = []
        for trip in trips:
            if step and not self._fits_beside(trip, step):
                for done in step:
                    self.go(done)
                step = []
                found.append((found[-1] if found else 0) + 1)
            else:
                found.append(found[-1] if found else 1)
            step.append(trip)
        return found

    def _fits_beside(self, trip: Trip, step: list[Trip]) -> bool:
        there = [other for other in step if other.node == trip.node]
        pool = set(self._view.idle[trip.node].get(trip.mover.model or "", set()))
        for other in there:
            pool -= {i for task in other.tasks for i in task.gpus or ()}
        if not {i for task in trip.tasks for i in task.gpus or ()} <= pool:
            return False
        return all(
            have - sum(other.mover.need[d] for other in there) >= want
            for d, (want, have) in enumerate(
                zip(trip.mover.need, self._view.free[trip.node], strict=True)
            )
        )


def _plain(snapshot: Snapshot, state: NodeState) -> bool:
    """Whether the node has nothing but whole GPUs whose indices are known."""
    mig = snapshot.policy.mig.mode == "free" or state.node.mig_mode_changes
    return not (state.counted or state.node.mig or state.node.shareable or mig)


def moved(snapshot: Snapshot, trips: Iterable[Trip]) -> Snapshot:
    """The snapshot with these jobs where they go."""
    return relocated(snapshot, {trip.mover.job.name: trip.tasks for trip in trips})


def relocated(snapshot: Snapshot, to: Mapping[str, tuple[TaskAllocation, ...]]) -> Snapshot:
    """The snapshot with these running jobs elsewhere."""
    return _with(snapshot, {name: {"allocation": tasks} for name, tasks in to.items()})


def started(
    snapshot: Snapshot, places: Mapping[str, tuple[TaskAllocation, ...]]
) -> Snapshot:
    """The snapshot with these waiting jobs running."""
    return _with(
        snapshot,
        {
            name: {"state": "running", "start": snapshot.now, "allocation": tasks}
            for name, tasks in places.items()
        },
    )


def _with(snapshot: Snapshot, updates: Mapping[str, Mapping[str, object]]) -> Snapshot:
    jobs: list[Job] = []
    for job in snapshot.jobs:
        update = updates.get(job.name)
        jobs.append(job.model_copy(update=update) if update else job)
    return snapshot.model_copy(update={"jobs": tuple(jobs)})
