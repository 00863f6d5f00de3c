"""Where a gang goes: admission, capacity, one GPU model, the nearest domain, then a ranking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.models.base import seconds
from trencadis.solver.admission import admission
from trencadis.solver.gpus import LinkGraph, link_graph, subsets
from trencadis.whatif.cluster import Bools, ClusterState, Ints
from trencadis.whatif.fabric import Fabric

NO_MODEL = -1
"""The model of jobs without GPUs."""
PLENTY = 1 << 40
TASK_MARK = "#task-"


def whole_name(name: str) -> str:
    """The job's name, where tasks are scheduled as jobs of their own (`job#task-3`)."""
    return name.partition(TASK_MARK)[0]


class Ranking(Protocol):
    """Which of the nodes that fit is taken: the one with the least value, then the first."""

    def nodes(self, state: ClusterState, job: Job, rows: Ints, model: int) -> Ints:
        """A value for each of the rows, were a task placed there on a GPU of the model."""
        ...

    def gpu(self, state: ClusterState, job: Job, row: int, fitting: Ints) -> int:
        """The GPU, one of `fitting`, on which a share goes."""
        ...


class Placer:
    """Finds allocations; knows what never changes: admission, fabric, NVLink, speeds."""

    def __init__(self, snapshot: Snapshot, jobs: Iterable[Job]) -> None:
        self.snapshot = snapshot
        self.fabric = Fabric(snapshot)
        lasting = [node.model_copy(update={"free_until": None}) for node in snapshot.nodes]
        admitted = admission(snapshot, jobs, lasting)
        column = np.array([admitted.column[node.name] for node in snapshot.nodes], dtype=np.int64)
        by_mask = {
            mask: np.array([bool(mask >> int(c) & 1) for c in column], dtype=bool)
            for mask in set(admitted.masks.values())
        }
        self._admitted = {name: by_mask[mask] for name, mask in admitted.masks.items()}
        self._free_until: Ints | None = None
        if any(node.free_until is not None for node in snapshot.nodes):
            self._free_until = np.array(
                [PLENTY if n.free_until is None else seconds(n.free_until) for n in snapshot.nodes],
                dtype=np.int64,
            )
        switched = [node.nvlink.kind == "nvswitch" for node in snapshot.nodes]
        self.nvswitch: Bools = np.array(switched, dtype=bool)
        self.links: dict[int, LinkGraph] = {
            i: link_graph(node.nvlink, node.gpu_count, len(node.gpus) == 1)
            for i, node in enumerate(snapshot.nodes)
            if node.nvlink.kind == "links"
        }

    def speed(self, job: Job, model: str) -> int:
        """Thousandths of the speed that the job's duration is about."""
        policy = self.snapshot.policy
        return job.speed_milli.get(model, policy.gpu_speed_milli.get(model, 1_000))

    def slowdown(self, job: Job, allocation: tuple[TaskAllocation, ...]) -> int:
        """Thousandths of its time that a job loses on these GPUs to network and PCIe."""
        slow = self.fabric.slowdown_of(job, allocation)
        if job.request.gpus > 1 and not self.linked(allocation):
            slow += self.fabric.pcie
        return slow

    def models_for(self, state: ClusterState, job: Job) -> list[list[int]]:
        """Models that the job may use, fastest first, equals together."""
        if not job.request.gpus and job.request.share is None:
            return [[NO_MODEL]]
        groups: dict[int, list[int]] = {}
        for position, name in enumerate(state.models):
            if not job.gpu_models or name in job.gpu_models:
                groups.setdefault(-self.speed(job, name), []).append(position)
        return [groups[speed] for speed in sorted(groups)]

    def open_to(self, state: ClusterState, job: Job, now: int) -> Bools:
        """Nodes on which a task of the job may start now, were there room."""
        admitted = self._admitted[whole_name(job.name)]
        usable: Bools = state.up & state.open & admitted & (state.closed == 0)
        if job.exclusive:
            usable &= state.tasks == 0
        if self._free_until is not None:
            end = PLENTY if job.runtime_seconds is None else now + job.runtime_seconds
            usable &= (self._free_until == PLENTY) | (end <= self._free_until)
        return usable

    def slots(self, state: ClusterState, job: Job, model: int, now: int) -> Ints:
        """How many tasks of the job fit on each node, on GPUs of one model."""
        request = job.request
        tasks = job.tasks
        found: Ints
        if request.share is not None:
            fits = (state.gpus >= request.share.gpu_milli) & (state.model == model)
            room = np.maximum(0, state.most_sharers[:, None] - state.sharers)
            count = np.where(fits, np.minimum(state.gpus // request.share.gpu_milli, room), 0)
            found = count.sum(axis=1)
        elif request.gpus:
            found = state.whole_idle(model) // request.gpus
        else:
            found = np.full(len(state.names), tasks, dtype=np.int64)
        need = state.need(job)
        for column in np.flatnonzero(need):
            found = np.minimum(found, np.maximum(0, state.rest[:, column]) // need[column])
        if job.max_tasks_per_node is not None:
            found = np.minimum(found, job.max_tasks_per_node)
        found = np.where(self.open_to(state, job, now), np.minimum(found, tasks), 0)
        if job.nvlink_required and request.gpus > 1:
            found = self._linked_slots(state, job, model, found)
        return found

    def place(
        self,
        state: ClusterState,
        job: Job,
        now: int,
        ranking: Ranking,
        tasks: int | None = None,
    ) -> tuple[TaskAllocation, ...] | None:
        """An allocation for so many tasks (the minimum where None), or None. Changes nothing.

        The fastest model on which all tasks fit; on it the deepest level with a domain that holds
        them; the domain with the least room; its nodes with most room first, so that a gang spans
        few, and the last tasks where the ranking says.
        """
        count = job.minimum if tasks is None else tasks
        for group in self.models_for(state, job):
            slots = {model: self.slots(state, job, model, now) for model in group}
            models = [model for model in group if slots[model].sum() >= count]
            if not models:
                continue
            if count == 1:
                row, model = self._single(state, job, slots, models, ranking)
                return self.seat(state, job, [(row, 1)], model, ranking)
            for model in models:
                rows = self._gang(state, job, slots[model], count, now, ranking, model)
                if rows is not None:
                    return self.seat(state, job, rows, model, ranking)
        return None

    def _single(
        self,
        state: ClusterState,
        job: Job,
        slots: dict[int, Ints],
        models: list[int],
        ranking: Ranking,
    ) -> tuple[int, int]:
        best: tuple[int, int, int] | None = None
        for model in models:
            rows = np.flatnonzero(slots[model])
            values = ranking.nodes(state, job, rows, model)
            position = int(np.argmin(values))
            found = (int(values[position]), int(rows[position]), model)
            best = found if best is None else min(best, found)
        assert best is not None
        return best[1], best[2]

    def _gang(
        self,
        state: ClusterState,
        job: Job,
        slots: Ints,
        count: int,
        now: int,
        ranking: Ranking,
        model: int,
    ) -> list[tuple[int, int]] | None:
        required = self.fabric.required_depth(job, now - seconds(job.submit))
        for depth in range(self.fabric.depth + 1, required - 1, -1):
            column = self.fabric.domains[:, depth]
            room = np.bincount(column, weights=slots).astype(np.int64)
            enough = np.flatnonzero(room >= count)
            if not len(enough):
                continue
            domain = enough[np.argmin(room[enough])]
            rows = np.flatnonzero((column == domain) & (slots > 0))
            return self._spread(state, job, rows, slots, count, ranking, model)
        return None

    def _spread(
        self,
        state: ClusterState,
        job: Job,
        rows: Ints,
        slots: Ints,
        count: int,
        ranking: Ranking,
        model: int,
    ) -> list[tuple[int, int]]:
        """Full nodes first; what is left on the node that fits it best."""
        values = ranking.nodes(state, job, rows, model)
        order = np.lexsort((rows, values, -slots[rows]))
        chosen: list[tuple[int, int]] = []
        left = count
        for position in order:
            row = int(rows[position])
            here = min(left, int(slots[row]))
            if here == left:
                rest = [p for p in order[len(chosen) :] if slots[rows[p]] >= left]
                last = min(rest, key=lambda p: (slots[rows[p]], values[p], rows[p]))
                return [*chosen, (int(rows[last]), left)]
            chosen.append((row, here))
            left -= here
        raise AssertionError("the domain has room for the gang")

    def seat(
        self,
        state: ClusterState,
        job: Job,
        rows: list[tuple[int, int]],
        model: int,
        ranking: Ranking,
    ) -> tuple[TaskAllocation, ...]:
        """GPU indices for so many tasks on each row."""
        allocation: list[TaskAllocation] = []
        for row, count in rows:
            name = state.names[row]
            if job.request.share is not None:
                free = state.gpus[row].copy()
                sharers = state.sharers[row].copy()
                milli = job.request.share.gpu_milli
                for _ in range(count):
                    open_gpus = (free >= milli) & (sharers < state.most_sharers[row])
                    fitting = np.flatnonzero(open_gpus & (state.model[row] == model))
                    gpu = ranking.gpu(state, job, row, fitting)
                    free[gpu] -= milli
                    sharers[gpu] += 1
                    allocation.append(
                        TaskAllocation(node=name, gpus=(gpu,), share=job.request.share)
                    )
                continue
            for gpus in self._sets(job, row, state.idle_gpus(row, model), count):
                allocation.append(TaskAllocation(node=name, gpus=gpus))
        return tuple(allocation)

    def _sets(self, job: Job, row: int, idle: list[int], count: int) -> list[tuple[int, ...]]:
        """GPUs of each task: joined by NVLink where that can be, else the lowest indices."""
        size = job.request.gpus
        graph = self.links.get(row)
        chosen: list[tuple[int, ...]] = []
        for _ in range(count):
            gpus = tuple(idle[:size])
            if graph is not None and size > 1:
                mask = sum(1 << i for i in idle)
                linked = next((s for s in subsets(mask, size) if graph.linked(s)), None)
                if linked is not None:
                    gpus = tuple(i for i in idle if linked >> i & 1)
            chosen.append(gpus)
            idle = [i for i in idle if i not in gpus]
        return chosen

    def _linked_slots(self, state: ClusterState, job: Job, model: int, found: Ints) -> Ints:
        result = np.where(self.nvswitch, found, 0)
        for row, graph in self.links.items():
            sets = self._sets(job, row, state.idle_gpus(row, model), int(found[row]))
            linked = (graph.linked(sum(1 << i for i in gpus)) for gpus in sets)
            result[row] = next((n for n, fits in enumerate(linked) if not fits), len(sets))
        return result

    def linked(self, allocation: Iterable[TaskAllocation]) -> bool:
        """Whether NVLink joins the GPUs of every task."""
        for task in allocation:
            gpus = task.gpus or ()
            row = self.fabric.row[task.node]
            if len(gpus) < 2 or self.nvswitch[row]:
                continue
            graph = self.links.get(row)
            if graph is None or not graph.linked(sum(1 << i for i in gpus)):
                return False
        return True
