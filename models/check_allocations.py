"""Whether what jobs and holds occupy exists, has the right shape and belongs to one only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trencadis.models.check_cluster import indices
from trencadis.models.faults import Fault
from trencadis.models.jobs import Job, TaskAllocation
from trencadis.models.snapshot import Snapshot
from trencadis.models.units import asks_for_mig


class _Owner(NamedTuple):
    """Who occupies a GPU."""

    text: str
    job: str
    kind: str
    """`running`, `draining`, `delayed_start` or `reservation`."""
    whole: bool


def check_allocations(snapshot: Snapshot) -> list[Fault]:
    """Faults of allocations and holds.

    A GPU has one whole owner, with these exceptions: a hold may lie on what a draining job is about
    to leave, a reservation on what runs now and will have ended by then, and several holds of one
    pending job on each other.
    """
    if _plainly_sound(snapshot):
        return []
    faults: list[Fault] = []
    ground = _Ground(snapshot)
    for number, job in enumerate(snapshot.jobs):
        allocation = job.allocation
        if job.state in ("running", "draining"):
            if job.start is None or not 0 < len(allocation) <= job.tasks:
                faults.extend(_shape(number, job))
            owner = _Owner(f"job {job.name}", job.name, job.state, _whole(job))
            ground.occupy(f"$.jobs[{number}].allocation", job, allocation, owner)
        elif allocation:
            faults.extend(_shape(number, job))
    jobs = {job.name: job for job in snapshot.jobs} if snapshot.holds else {}
    for number, hold in enumerate(snapshot.holds):
        path = f"$.holds[{number}]"
        held = jobs.get(hold.job)
        if held is None:
            faults.append(
                Fault(f"{path}.job", f"the hold is for job {hold.job}, which isn't there")
            )
            continue
        if not hold.allocation:
            faults.append(Fault(f"{path}.allocation", f"the hold for job {hold.job} holds nothing"))
        owner = _Owner(f"the hold for job {hold.job}", hold.job, hold.kind, _whole(held))
        ground.occupy(f"{path}.allocation", held, hold.allocation, owner)
    return faults + ground.faults


def _plainly_sound(snapshot: Snapshot) -> bool:
    """Whether all tasks have GPUs of their own, seen at a glance; False: look closer.

    Most snapshots are sound, and a set of bits per node is several times faster than owners.
    """
    free = {node.name: (1 << node.gpu_count) - 1 for node in snapshot.nodes}
    for job in snapshot.jobs:
        allocation = job.allocation
        if job.state not in ("running", "draining"):
            if allocation:
                return False
            continue
        if job.start is None or not 0 < len(allocation) <= job.tasks:
            return False
        wanted = job.request.gpus
        for task in allocation:
            left = free.get(task.node)
            if left is None:
                return False
            if task.gpus is None:
                continue
            bits = 0
            for gpu in task.gpus:
                bits |= 1 << gpu
            if len(task.gpus) != wanted or bits.bit_count() != wanted or bits & ~left:
                return False
            free[task.node] = left ^ bits
    return not snapshot.holds


def _whole(job: Job) -> bool:
    return job.request.gpus > 0


def _shape(number: int, job: Job) -> Iterator[Fault]:
    """Whether state, start and allocation belong together."""
    path = f"$.jobs[{number}]"
    entries = len(job.allocation)
    if not job.on_nodes:
        yield Fault(
            f"{path}.allocation",
            f"job {job.name} is {job.state}, yet has an allocation of {entries} entries",
        )
        return
    if job.start is None:
        yield Fault(f"{path}.start", f"job {job.name} is {job.state}, yet has no start")
    if entries == 0:
        yield Fault(f"{path}.allocation", f"job {job.name} is {job.state}, yet has no allocation")
    elif entries > job.tasks:
        yield Fault(
            f"{path}.allocation",
            f"job {job.name} has {entries} entries (one per task); it has {job.tasks} tasks",
        )


class _Ground:
    """The nodes' GPUs and who occupies them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.faults: list[Fault] = []
        self._gpu_count = {node.name: node.gpu_count for node in snapshot.nodes}
        self._first: dict[tuple[str, int], _Owner] = {}
        self._further: dict[tuple[str, int], list[_Owner]] = {}
        self._instances: dict[tuple[str, int, int], _Owner] = {}

    def occupy(
        self, path: str, job: Job, allocation: tuple[TaskAllocation, ...], owner: _Owner
    ) -> None:
        """Note the faults of one allocation, and its GPUs."""
        wanted = 1 if job.request.share is not None else job.request.gpus
        for entry, task in enumerate(allocation):
            count = self._gpu_count.get(task.node)
            if count is None:
                message = f"{owner.text} is on node {task.node}, which isn't there"
                self.faults.append(Fault(f"{path}[{entry}].node", message))
                continue
            gpus = task.gpus
            if gpus is None:
                continue
            if asks_for_mig(job.request):
                self._slices(f"{path}[{entry}]", task, owner)
            elif len(gpus) != wanted:
                message = f"{owner.text} lists {len(gpus)} GPUs; each task asks for {wanted}"
                self.faults.append(Fault(f"{path}[{entry}].gpus", message))
            for gpu in gpus:
                key = task.node, gpu
                if gpu >= count:
                    message = f"{owner.text} is on GPU {gpu} of node {task.node}: {indices(count)}"
                    self.faults.append(Fault(f"{path}[{entry}].gpus", message))
                elif key in self._first:
                    self._meet(f"{path}[{entry}].gpus", key, owner)
                else:
                    self._first[key] = owner

    def _slices(self, path: str, task: TaskAllocation, owner: _Owner) -> None:
        """Note whether instances and GPUs of a MIG task belong together, and are its own."""
        gpus = task.gpus or ()
        if task.mig and len(gpus) != len(task.mig):
            message = (
                f"{owner.text} lists {len(task.mig)} MIG instances and {len(gpus)} GPUs; "
                "gpus names the GPU of each instance"
            )
            self.faults.append(Fault(f"{path}.gpus", message))
            return
        for gpu, instance in zip(gpus, task.mig, strict=False):
            key = task.node, gpu, instance.start
            other = self._instances.get(key)
            self._instances[key] = owner
            if other is None:
                continue
            alone = owner._replace(whole=True)
            if other is owner or _clash(other._replace(whole=True), alone):
                what = f"start {instance.start} of GPU {gpu} of node {task.node}"
                message = f"{other.text} and {owner.text} both have the MIG instance at {what}"
                self.faults.append(Fault(f"{path}.mig", message))

    def _meet(self, path: str, key: tuple[str, int], owner: _Owner) -> None:
        """Note a fault if the GPU has an owner that this one may not share it with."""
        others = self._further.setdefault(key, [])
        for rival in (self._first[key], *others):
            if _clash(rival, owner):
                self.faults.append(Fault(path, _sentence(rival, owner, key[1], key[0])))
                break
        others.append(owner)


def _clash(first: _Owner, second: _Owner) -> bool:
    """Whether the two may not have the same GPU. `first` came first: jobs before holds."""
    if first is second:
        return first.whole
    if not (first.whole or second.whole):
        return False
    job_then_hold = second.kind in ("delayed_start", "reservation")
    if first.job == second.job:
        return first.kind in ("running", "draining")
    if job_then_hold and first.kind == "draining":
        return False
    return not (second.kind == "reservation" and first.kind == "running")


def _sentence(first: _Owner, second: _Owner, gpu: int, node: str) -> str:
    if first is second:
        return f"{first.text} has GPU {gpu} of node {node} twice"
    return f"{first.text} and {second.text} both have GPU {gpu} of node {node}"
