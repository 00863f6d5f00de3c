"""What is free on each node and GPU while a replay goes on: numpy arrays, one row per node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.models.base import GPU_MILLI

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class ClusterState:
    """Free milli-GPUs per GPU, free CPU, memory and named resources per node.

    Amounts may fall below 0 where a delayed start holds what a draining job still has: nothing
    fits there, and the sum is right again once the victim is gone.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        nodes = snapshot.nodes
        self.names = tuple(node.name for node in nodes)
        self.row = {name: i for i, name in enumerate(self.names)}
        self.resources = tuple(sorted({name for node in nodes for name in node.resources}))
        self.models = tuple(sorted({group.model for node in nodes for group in node.gpus}))
        width = max((node.gpu_count for node in nodes), default=0)
        shape = (len(nodes), max(1, width))
        self.capacity: Ints = np.zeros(shape, dtype=np.int64)
        """Milli-GPU by node and GPU index: 1,000, or 0 where there is no healthy GPU."""
        self.model: Ints = np.full(shape, -1, dtype=np.int64)
        """Position in `models`, -1 where there is no healthy GPU."""
        for i, node in enumerate(nodes):
            mig = {entry.gpu for entry in node.mig}
            for gpu, name in node.healthy_gpus().items():
                if gpu not in mig:
                    self.capacity[i, gpu] = GPU_MILLI
                    self.model[i, gpu] = self.models.index(name)
        self.rest_capacity: Ints = np.array([self._rest(node) for node in nodes], dtype=np.int64)
        self.rest_capacity = self.rest_capacity.reshape(len(nodes), 2 + len(self.resources))
        """CPU, memory, named resources by node."""
        self.gpus = self.capacity.copy()
        """Free milli-GPU."""
        self.rest = self.rest_capacity.copy()
        self.up: Bools = np.array([not node.down for node in nodes], dtype=bool)
        self.open: Bools = np.array([not node.cordoned for node in nodes], dtype=bool)
        self.tasks: Ints = np.zeros(len(nodes), dtype=np.int64)
        """Tasks on each node."""
        self.closed: Ints = np.zeros(len(nodes), dtype=np.int64)
        """Tasks of exclusive jobs on each node."""
        self.sharers: Ints = np.zeros(shape, dtype=np.int64)
        """Shares on each GPU."""
        self.most_sharers: Ints = np.array(
            [node.max_jobs_per_gpu if node.shareable else 0 for node in nodes], dtype=np.int64
        )

    def _rest(self, node: Node) -> list[int]:
        named = [node.resources.get(name, 0) for name in self.resources]
        return [node.cpu_milli, node.memory_mib, *named]

    def copy(self) -> ClusterState:
        """A state that may be changed without changing this one."""
        twin = object.__new__(ClusterState)
        twin.__dict__.update(self.__dict__)
        for name in ("gpus", "rest", "up", "tasks", "closed", "sharers"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def need(self, job: Job) -> Ints:
        """CPU, memory and named resources of one task."""
        request = job.request
        unknown = sorted(request.resources.keys() - set(self.resources))
        named = [request.resources.get(name, 0) for name in self.resources]
        if unknown:  # a resource that no node has: more than anywhere
            return np.full(2 + len(self.resources), 1 << 60, dtype=np.int64)
        return np.array([request.cpu_milli, request.memory_mib, *named], dtype=np.int64)

    def take(self, job: Job, allocation: Iterable[TaskAllocation]) -> None:
        """Books the tasks of a job."""
        self._book(job, allocation, -1)

    def release(self, job: Job, allocation: Iterable[TaskAllocation]) -> None:
        """Gives back what `take` booked."""
        self._book(job, allocation, 1)

    def _book(self, job: Job, allocation: Iterable[TaskAllocation], sign: int) -> None:
        need = self.need(job)
        share = job.request.share
        milli = GPU_MILLI if share is None else share.gpu_milli
        for task in allocation:
            row = self.row[task.node]
            for gpu in task.gpus or ():
                self.gpus[row, gpu] += sign * milli
                if share is not None:
                    self.sharers[row, gpu] -= sign
            self.rest[row] += sign * need
            self.tasks[row] -= sign
            if job.exclusive:
                self.closed[row] -= sign

    @property
    def healthy(self) -> int:
        """GPUs on nodes that are up."""
        return int(self.capacity[self.up].sum()) // GPU_MILLI

    @property
    def node_milli(self) -> int:
        """Milli-GPUs of the largest node."""
        return int(self.capacity.sum(axis=1).max(initial=0))

    def idle_milli(self) -> int:
        """Milli-GPUs free on nodes that are up."""
        return int(np.maximum(self.gpus, 0)[self.up].sum())

    def whole_idle(self, model: int) -> Ints:
        """Wholly idle GPUs of a model by node."""
        whole = (self.gpus == GPU_MILLI) & (self.model == model)
        counted: Ints = whole.sum(axis=1)
        return counted

    def idle_gpus(self, row: int, model: int) -> list[int]:
        """Indices of the wholly idle GPUs of a model on one node."""
        idle = np.flatnonzero((self.gpus[row] == GPU_MILLI) & (self.model[row] == model))
        return [int(gpu) for gpu in idle]

    def overbooked(self, allocation: Iterable[TaskAllocation]) -> bool:
        """Whether some node of the allocation has less than nothing left, or is down."""
        rows = sorted({self.row[task.node] for task in allocation})
        return bool(
            (self.gpus[rows] < 0).any() or (self.rest[rows] < 0).any() or not self.up[rows].all()
        )
