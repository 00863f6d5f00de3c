"""GPUs in MIG mode while slices are being moved: who has which instance, what stands idle, what F
is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from trencadis.models import Job, MigInstance, Snapshot, TaskAllocation
from trencadis.models.instances import held_instances
from trencadis.models.plan import Reconfigure
from trencadis.solver.admission import admission
from trencadis.solver.bin_types import bin_fragmentation
from trencadis.solver.capacity import NodeState, capacity, occupants, running_model, vector
from trencadis.solver.cuts import cuts_of
from trencadis.solver.fabric import required_depth
from trencadis.solver.layouts import keep_idle
from trencadis.solver.migrate.slice_movers import Gpu, SliceMover, SliceTrip, place
from trencadis.solver.model.problem import Facts
from trencadis.solver.pieces import MigCut, Piece
from trencadis.solver.spread import spread_cost

MOST_STARTS = 6
"""Starts on other GPUs that are tried for a slice on clusters that are not searched whole."""


class Side:
    """What is in use, by GPU, and free, by node."""

    def __init__(self, snapshot: Snapshot, read: Facts) -> None:
        self.used: dict[Gpu, set[MigInstance]] = held_instances(snapshot)
        self.here: dict[str, list[tuple[Job, TaskAllocation]]] = occupants(snapshot)
        resources = read.capacity.resources
        self.free: dict[str, list[int]] = {}
        for state in read.capacity.states:
            node = state.node
            free = [node.cpu_milli, node.memory_mib]
            free += [node.resources.get(key, 0) for key in resources]
            for job, _ in self.here.get(state.name, ()):
                free = [a - b for a, b in zip(free, vector(job, resources), strict=True)]
            self.free[state.name] = free

    def put(self, job: Job, need: Sequence[int], task: TaskAllocation) -> None:
        """A task comes."""
        for gpu, instance in zip(task.gpus or (), task.mig, strict=True):
            self.used.setdefault((task.node, gpu), set()).add(instance)
        self.here.setdefault(task.node, []).append((job, task))
        self.free[task.node] = [a - b for a, b in zip(self.free[task.node], need, strict=True)]

    def take(self, job: Job, need: Sequence[int], task: TaskAllocation) -> None:
        """A task leaves."""
        for gpu, instance in zip(task.gpus or (), task.mig, strict=True):
            self.used[task.node, gpu].remove(instance)
        here = self.here[task.node]
        gone = next(i for i, e in enumerate(here) if e[0].name == job.name and e[1] == task)
        del here[gone]
        self.free[task.node] = [a + b for a, b in zip(self.free[task.node], need, strict=True)]


class SliceYard:
    """Slices on GPUs in MIG mode. Those who can start on what is idle have their room: it counts as
    idle, but nobody moves there.

    `read`: the facts before any move; `taken`: the snapshot with those running who are to start.
    """

    def __init__(self, read: Facts, taken: Snapshot, movers: Mapping[str, SliceMover]) -> None:
        self.read, self.knife = read, read.capacity.cutter
        self.view, self.room = Side(read.snapshot, read), Side(taken, read)
        open_then = {state.name: set(state.cut_gpus) for state in capacity(taken).states}
        self.states = {
            state.name: state for state in read.capacity.states if state.name in open_then
        }
        self.cuts: dict[Gpu, MigCut] = {
            (name, gpu): cut
            for name, state in self.states.items()
            for cut, gpu in zip(state.cuts, state.cut_gpus, strict=True)
            if isinstance(cut, MigCut) and gpu in open_then[name]
        }
        """GPUs open to slices, as they were."""
        listed = {
            (node.name, entry.gpu): set(entry.instances)
            for node in read.snapshot.nodes
            for entry in node.mig
        }
        self.present = {
            gpu: frozenset(listed[gpu] | self.view.used.get(gpu, set())) for gpu in self.cuts
        }
        self.movers = {name: m for name, m in sorted(movers.items()) if m.gpu in self.cuts}
        self.tasks = {m.job.name: list(m.job.allocation) for m in self.movers.values()}
        jobs = list({m.job.name: m.job for m in self.movers.values()}.values())
        self.nodes_by_name = {node.name: node for node in read.snapshot.nodes}
        self._admitted = admission(
            read.snapshot, jobs, [state.node for state in self.states.values()]
        )
        self._before: list[frozenset[MigInstance]] = []
        self._whole: dict[Hashable, int] = {}
        self._cuts: dict[Hashable, MigCut] = {}

    @property
    def nodes(self) -> list[str]:
        """All starts of the profiles that movers have."""
        return [place(*gpu, start) for gpu in sorted(self.cuts) for start in self._starts(gpu)]

    def _starts(self, gpu: Gpu) -> list[int]:
        table = self.knife.tables[self.cuts[gpu].model]
        asked = {mover.instance.profile for mover in self.movers.values()}
        return sorted({s for p in table.profiles if p.name in asked for s in p.starts})

    def state(self) -> Hashable:
        """The layouts: what stands idle already costs nothing."""
        return tuple(self.present.values())

    def kinds(self) -> Callable[[SliceMover], list[str]]:
        """For a mover: the starts at which F of the GPU grows least, and all on its own GPU."""
        known: dict[tuple[str, str], list[str]] = {}

        def places(mover: SliceMover) -> list[str]:
            key = mover.model, mover.instance.profile
            if key not in known:
                known[key] = self._best_starts(*key)
            task = self.tasks[mover.job.name][mover.index]
            own = task.node, (task.gpus or (0,))[0]
            here = [place(*own, start) for start in self._starts(own)]
            return [*here, *(where for where in known[key] if where not in here)]

        return places

    def _best_starts(self, model: str, profile: str) -> list[str]:
        """Starts of a profile, the best for F first; of those alike in all that is read here, one.
        """
        piece, cost = Piece(profile), self.read.profile.cut_cost
        found: dict[Hashable, tuple[int, str]] = {}
        for gpu, base in sorted(self.cuts.items()):
            if base.model != model:
                continue
            name = gpu[0]
            state, now = self.states[name], self.cut(gpu, self.view)
            beside = name if state.idle_count else None
            taken = self.room.used.get(gpu, set())
            for start, after in self.knife.places(now, piece):
                new = MigInstance(profile=profile, start=start)
                if self.knife.mig_cut(model, [*_sorted(taken), new], (), fixed=False) is None:
                    continue
                paid = 0 if new in self.present[gpu] else self.knife.reconfigure_seconds
                change = cost(after) - cost(now) + paid
                key = change, self._admitted.column[name], tuple(self.room.free[name]), beside
                found.setdefault(key, (change, place(*gpu, start)))
        return [where for _, where in sorted(found.values())[:MOST_STARTS]]

    def trip(self, mover: SliceMover, where: str) -> SliceTrip | None:
        """The task at a start; None if it may not go or doesn't fit."""
        name, index, start = where.split("\n")
        trip = SliceTrip(mover, (name, int(index)), int(start))
        return trip if self.fits(trip) else None

    def fits(self, trip: SliceTrip) -> bool:
        """Whether the move can be made now."""
        mover, gpu = trip.mover, trip.gpu
        cut = self.cuts.get(gpu)
        if cut is None or cut.model != mover.model:
            return False
        used, new = self.room.used.get(gpu, set()), trip.instance
        if new in used or (cut.fixed and new not in self.present[gpu]):
            return False
        if self.knife.mig_cut(cut.model, [*_sorted(used), new], (), fixed=False) is None:
            return False
        here = self.tasks[mover.job.name][mover.index].node
        if gpu[0] != here:
            return self._may_go(trip)
        # It needs what it has; a node that gives more than it has can't give that again.
        return all(
            have >= 0 or not want
            for want, have in zip(mover.need, self.view.free[here], strict=True)
        )

    def _may_go(self, trip: SliceTrip) -> bool:
        """Whether another node admits the task, has CPU and memory, and is near enough."""
        job, name = trip.mover.job, trip.gpu[0]
        if not self._admitted.masks[job.name] >> self._admitted.column[name] & 1:
            return False
        free = self.room.free[name]
        if any(want > max(0, have) for want, have in zip(trip.mover.need, free, strict=True)):
            return False
        tasks = list(self.tasks[job.name])
        tasks[trip.mover.index] = trip.task
        most = job.max_tasks_per_node
        if most is not None and sum(task.node == name for task in tasks) > most:
            return False
        if len(tasks) == 1:
            return True
        fabric = self.read.fabric
        least = fabric.common_depth([task.node for task in job.allocation])
        if job.min_replicas and not job.communicates:
            # Replicas need not stay together; what is required holds at each step.
            least = required_depth(self.read.snapshot, job, fabric)
        if fabric.common_depth([task.node for task in tasks]) < least:
            return False
        return self._spread(job, tasks) <= self._spread(job, job.allocation)

    def _spread(self, job: Job, tasks: Sequence[TaskAllocation]) -> int:
        model = running_model(job, self.nodes_by_name)
        return spread_cost(self.read, job, tasks, model, self.nodes_by_name)

    def go(self, trip: SliceTrip) -> int:
        """Makes the move; returns by how much F changes, and what a new layout costs."""
        change, layout = self.change(trip)
        return change + (0 if layout is None else layout.idle_gpu_seconds)

    def change(self, trip: SliceTrip) -> tuple[int, Reconfigure | None]:
        """Makes the move; returns the change of F, and of the layout."""
        mover = trip.mover
        old = self.tasks[mover.job.name][mover.index]
        left: Gpu = (old.node, (old.gpus or (0,))[0])
        touched = {left, trip.gpu}
        before = self._fragmentation(touched)
        layout = self._relaid(trip)
        self._before.append(self.present[trip.gpu])
        if layout is not None:
            self.present[trip.gpu] = frozenset(layout.after)
        for side in (self.view, self.room):
            side.take(mover.job, mover.need, old)
            side.put(mover.job, mover.need, trip.task)
        self.tasks[mover.job.name][mover.index] = trip.task
        return self._fragmentation(touched) - before, layout

    def undo(self, trip: SliceTrip) -> None:
        """Takes the move back; the last one first. Each mover moves once."""
        mover = trip.mover
        for side in (self.view, self.room):
            side.take(mover.job, mover.need, trip.task)
            side.put(mover.job, mover.need, mover.task)
        self.tasks[mover.job.name][mover.index] = mover.task
        self.present[trip.gpu] = self._before.pop()

    def _relaid(self, trip: SliceTrip) -> Reconfigure | None:
        """The new layout of the GPU to which a task goes, if it takes one."""
        there = self.present[trip.gpu]
        if trip.instance in there:
            return None
        used = self.view.used.get(trip.gpu, set())
        after = keep_idle(
            self.knife, trip.mover.model, [*_sorted(used), trip.instance], _sorted(there - used)
        )
        return Reconfigure(
            node=trip.gpu[0],
            gpu=trip.gpu[1],
            step=0,
            before=tuple(_sorted(there)),
            after=after,
            idle_gpu_seconds=self.knife.reconfigure_seconds,
        )

    def cut(self, gpu: Gpu, side: Side) -> MigCut:
        """A GPU as it is now, to one side or the other."""
        base, used = self.cuts[gpu], frozenset(side.used.get(gpu, ()))
        idle = self.present[gpu] - used if base.fixed else frozenset()
        key = base.model, base.fixed, used, idle
        if key not in self._cuts:
            cut = self.knife.mig_cut(base.model, _sorted(used), _sorted(idle), fixed=base.fixed)
            assert cut is not None
            self._cuts[key] = cut
        return self._cuts[key]

    def _fragmentation(self, gpus: set[Gpu]) -> int:
        """F of these GPUs, and of the whole GPUs beside them."""
        profile = self.read.profile
        parts = sum(profile.cut_cost(self.cut(gpu, self.view)) for gpu in gpus)
        return parts + sum(self._beside(name) for name in {name for name, _ in gpus})

    def _beside(self, name: str) -> int:
        state = self.states[name]
        if not state.idle_count:
            return 0
        free = tuple(max(0, have) for have in self.view.free[name])
        key = name, free, not self.view.here.get(name)
        if key not in self._whole:
            now = self._now(state, free)
            self._whole[key] = bin_fragmentation(self.read.profile, now, now.idle, free)
        return self._whole[key]

    def _now(self, state: NodeState, free: tuple[int, ...]) -> NodeState:
        here = self.view.here.get(state.name, [])
        blanks = cuts_of(self.read.snapshot, self.knife, state.node, here).blanks
        return replace(state, free=free, blanks=blanks, vacant=not here)

    def on(self) -> dict[Gpu, list[SliceMover]]:
        """The movers by the GPU that they are on now."""
        found: dict[Gpu, list[SliceMover]] = {}
        for mover in self.movers.values():
            task = self.tasks[mover.job.name][mover.index]
            found.setdefault((task.node, (task.gpus or (0,))[0]), []).append(mover)
        return found


def _sorted(instances: set[MigInstance] | frozenset[MigInstance]) -> list[MigInstance]:
    return sorted(instances, key=lambda instance: (instance.start, instance.profile))
