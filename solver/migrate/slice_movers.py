"""Which tasks with MIG slices may be moved, and what a move costs (docs/problem.md, 10)."""

from __future__ import annotations

from dataclasses import dataclass

from trencadis.models import Job, MigInstance, TaskAllocation
from trencadis.models.broken import lost_tasks
from trencadis.models.units import asks_for_mig
from trencadis.solver.capacity import running_model, vector
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.victims import may_preempt, may_restart, seconds_lost

Gpu = tuple[str, int]
"""Node and index."""


@dataclass(frozen=True, slots=True)
class SliceMover:
    """A task with one slice that may be restarted on another: of a job of one task, or of a service
    with replicas to spare."""

    job: Job
    index: int
    """Its position among the job's tasks."""
    gpus: int
    """Quota units."""
    need: tuple[int, ...]
    cost: int
    model: str

    @property
    def name(self) -> str:
        """What tells it from other movers. No job's name has a line break."""
        return f"{self.job.name}\n{self.index}"

    @property
    def task(self) -> TaskAllocation:
        """Where it was."""
        return self.job.allocation[self.index]

    @property
    def gpu(self) -> Gpu:
        """The GPU that it was on."""
        return self.task.node, (self.task.gpus or (0,))[0]

    @property
    def instance(self) -> MigInstance:
        """The slice that it had."""
        return self.task.mig[0]

    @property
    def home(self) -> str:
        """Its GPU: those on one may be sent away together."""
        return place(*self.gpu, 0)


@dataclass(frozen=True, slots=True)
class SliceTrip:
    """A task that goes to another slice."""

    mover: SliceMover
    gpu: Gpu
    start: int

    @property
    def key(self) -> tuple[str, str]:
        """Who goes where."""
        return self.mover.name, place(*self.gpu, self.start)

    @property
    def instance(self) -> MigInstance:
        """The new slice."""
        return MigInstance(profile=self.mover.instance.profile, start=self.start)

    @property
    def task(self) -> TaskAllocation:
        """The task there."""
        node, gpu = self.gpu
        return TaskAllocation(node=node, gpus=(gpu,), mig=(self.instance,))


def place(node: str, gpu: int, start: int) -> str:
    """A start on a GPU as one word."""
    return f"{node}\n{gpu}\n{start}"


def slice_movers(read: Facts) -> dict[str, SliceMover]:
    """The tasks with slices that the rules and this version let move, by name."""
    snapshot = read.snapshot
    if not may_preempt(snapshot):
        return {}
    nodes = {node.name: node for node in snapshot.nodes}
    broken = lost_tasks(snapshot) if snapshot.policy.repairs else {}
    sizes = read.values.rates.sizes
    found: dict[str, SliceMover] = {}
    for job in snapshot.jobs:
        if job.state != "running" or job.name in broken or not asks_for_mig(job.request):
            continue
        if not may_restart(snapshot, job) or job.exclusive or job.segments is not None:
            continue
        service = job.min_replicas > 0
        spare = len(job.allocation) > job.min_replicas if service else len(job.allocation) == 1
        model = running_model(job, nodes)
        if not spare or job.max_tasks_per_domain is not None or model is None:
            continue
        if any(len(task.mig) != 1 or len(task.gpus or ()) != 1 for task in job.allocation):
            continue
        units = sizes.task(job.request)
        need = vector(job, read.capacity.resources)
        for index, task in enumerate(job.allocation):
            seconds = seconds_lost(snapshot, job.model_copy(update={"allocation": (task,)}))
            cost = -(-seconds * units // sizes.unit)
            mover = SliceMover(job, index, units, need, cost, model)
            found[mover.name] = mover
    return found
