"""What decides where a job fits and what that costs: needs, ways, alternatives, shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from trencadis.models import Job, Snapshot
from trencadis.models.units import uses_gpu
from trencadis.solver.admission import Admission
from trencadis.solver.capacity import Capacity, vector
from trencadis.solver.fabric import Tree, domain_cap, preferred_depth, required_depth, slowdown_at
from trencadis.solver.pieces import Piece
from trencadis.solver.worth import Rates, rest_of, size_of, speeds


@dataclass(frozen=True, slots=True)
class Need:
    """What is put into one bin as a whole: a task, or several tasks that must share a node."""

    gpus: int
    """Of all its tasks."""
    sets: int
    """Tasks in it."""
    need: tuple[int, ...]
    """CPU, memory, named resources of all its tasks."""
    model: str | None
    columns: int
    """Bit mask of the node columns it may use."""
    linked: bool
    """The GPUs of each task must be joined by NVLink."""
    union: bool
    """Its tasks talk through the node: NVLink should join all its GPUs."""
    unlinked_cost: int
    """Cost of each set that NVLink doesn't join."""
    tier: int
    """Whose stage pays that; -1 if it costs nothing."""
    exclusive: bool
    cap: int
    """Most of them on a node, for one owner; 0: any number."""
    owner: str
    """Set where the need belongs to one job alone."""
    pieces: tuple[Piece, ...] = ()
    """Slices and shares of all its tasks, task by task; each task's largest first."""

    @property
    def on_gpus(self) -> bool:
        """Whether it uses GPUs, whole or in pieces."""
        return bool(self.gpus or self.pieces)


def opened_need(model: str, dims: int) -> Need:
    """One whole GPU that is made into one of the second stage."""
    return Need(
        gpus=1, sets=1, need=(0,) * dims, model=model, columns=0, linked=False, union=False,
        unlinked_cost=0, tier=-1, exclusive=False, cap=0, owner="",
    )


@dataclass(frozen=True, slots=True)
class Way:
    """One way to place a job: on a model, in a domain of a depth. Jobs of many shapes share it."""

    need: Need
    count: int
    """Needs per job."""
    depth: int
    """0: needs go where they like; 1..D: in one domain of that depth; D + 1: one node."""
    segment: int
    """Needs per segment, where a job wider than its segments is counted by segments; else 0."""
    segment_depth: int
    most: int = 0
    """With segments of one: at most so many needs of a job in one domain of that depth."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way that a shape may go, and what it costs there."""

    way: Way
    cost: int
    """Spread, weighted GPU-seconds."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about a job that decides where it fits and what that costs."""

    alternatives: tuple[Alternative, ...]
    tier: int
    """Whose stage pays the spread; -1 if all ways are free."""
    tasks: int
    required: int
    """Depth that must be reached."""

    def models(self) -> tuple[str | None, ...]:
        """GPU models it can run on, in order."""
        return tuple(dict.fromkeys(alt.way.need.model for alt in self.alternatives))


class ShapeMaker:
    """Makes shapes; equal jobs get equal ones."""

    def __init__(
        self,
        snapshot: Snapshot,
        supply: Capacity,
        rates: Rates,
        fabric: Tree,
        admitted: Admission,
    ) -> None:
        self.snapshot = snapshot
        self.rates = rates
        self.fabric = fabric
        self.admitted = admitted
        self.supply = supply
        self.pcie = any(state.node.nvlink.kind != "nvswitch" for state in supply.empty)

    @cached_property
    def tasks(self) -> int:
        """Tasks of all jobs."""
        return sum(job.minimum for job in self.snapshot.jobs)

    def place_key(self, job: Job) -> tuple[object, ...]:
        """Jobs with equal keys fit the same places."""
        request = job.request
        several = job.minimum > 1
        return (
            request.gpus,
            request.mig,
            request.mig_memory_mib,
            request.mig_compute_milli,
            request.share,
            request.cpu_milli,
            request.memory_mib,
            tuple(sorted(request.resources.items())),
            tuple(sorted(job.gpu_models)),
            tuple(sorted(job.speed_milli.items())),
            self.admitted.masks[job.name],
            job.nvlink_required,
            job.exclusive,
            job.minimum,
            several and job.communicates,
            required_depth(self.snapshot, job, self.fabric),
            preferred_depth(self.snapshot, job, self.fabric) if several else 0,
            (job.segments.tasks, job.segments.level) if job.segments and several else None,
            job.max_tasks_per_node if several else None,
            domain_cap(job, self.fabric),
            job.name if job.rest_on else "",
        )

    def key(self, job: Job, tier: int, size: int) -> tuple[object, ...]:
        """Jobs with equal keys have equal shapes, owners aside."""
        return (*self.place_key(job), tier, size, rest_of(self.snapshot, job))

    def shape(self, job: Job, tier: int, size: int, owner: str) -> Shape:
        """The shape of a job; `owner` is its name if its needs are to be its own."""
        alternatives: list[Alternative] = []
        models: list[str | None]
        if uses_gpu(job.request):
            table = speeds(self.snapshot, job, self.supply.gpus_by_model)
            knife = self.supply.cutter
            models = [m for m in sorted(table) if knife.pieces(job.request, m) is not None]
        else:
            table, models = {}, [None]
        for model in models:
            speed = 1_000 if model is None else table[model]
            alternatives.extend(self._alternatives(job, tier, size, owner, model, speed))
        free = all(alt.cost == 0 for alt in alternatives)
        return Shape(
            alternatives=tuple(alternatives),
            tier=-1 if free else tier,
            tasks=job.minimum,
            required=required_depth(self.snapshot, job, self.fabric),
        )

    def _alternatives(
        self, job: Job, tier: int, size: int, owner: str, model: str | None, speed: int
    ) -> list[Alternative]:
        fabric, rates = self.fabric, self.rates
        rest = rest_of(self.snapshot, job)
        n, node_depth = job.minimum, fabric.depth + 1
        cap = job.max_tasks_per_node or n
        each = () if model is None else self.supply.cutter.pieces(job.request, model)
        assert each is not None

        found: list[Alternative] = []

        def bundle(tasks: int, union: bool, mask: int | None = None) -> Need:
            """`tasks` tasks of the job that share a node."""
            gpus = tasks * job.request.gpus
            together = union and tasks > 1 and gpus > 1
            cost = 0
            if self.pcie:
                size_of_set = gpus if together else job.request.gpus
                cost = rates.unlinked(tier, size_of_set, rest, speed)
            need = tuple(tasks * amount for amount in vector(job, self.supply.resources))
            # What takes nothing of a node is bounded by its number alone, that of all jobs alike.
            bounded = cap if n > 1 and owner else 0
            if not (gpus or each or any(need) or bounded):
                bounded = max(n, self.tasks)
            return Need(
                gpus=gpus,
                sets=tasks,
                need=need,
                model=model,
                columns=self.admitted.masks[job.name] if mask is None else mask,
                linked=job.nvlink_required and job.request.gpus > 1,
                union=together,
                unlinked_cost=cost,
                tier=tier if cost else -1,
                exclusive=job.exclusive,
                cap=bounded // tasks,
                owner=owner,
                pieces=each * tasks,
            )

        def cost(depth: int) -> int:
            slow = slowdown_at(self.snapshot, job, rates, fabric, depth)
            return rates.spread(tier, size, rest, speed, slow)

        if job.rest_on:
            return self._near(job, tier, speed, lambda mask: bundle(1, False, mask))
        if n == 1:
            return [Alternative(Way(bundle(1, False), 1, node_depth, 0, 0), cost(node_depth))]
        segment, segment_depth = 0, 0
        if job.segments and job.segments.tasks > 1:
            segment, segment_depth = job.segments.tasks, fabric.depth_of(job.segments.level)
        most, apart = domain_cap(job, fabric)
        cheapest: int | None = None
        for depth in range(required_depth(self.snapshot, job, fabric), node_depth + 1):
            price = cost(depth)
            # A finer domain is a restriction: worth a column only if it costs less.
            if cheapest is not None and price >= cheapest:
                continue
            way: Way | None
            if most:
                way = Way(bundle(1, False), n, depth, 1, apart, most) if depth < apart else None
            elif depth == node_depth:
                way = (
                    Way(bundle(n, job.communicates), 1, depth, 0, 0)
                    if n <= cap
                    else None
                )
            elif depth < segment_depth == node_depth:
                way = (
                    Way(bundle(segment, False), n // segment, depth, 0, 0)
                    if segment <= cap
                    else None
                )
            elif depth < segment_depth:
                way = Way(bundle(1, False), n, depth, segment, segment_depth)
            else:
                way = Way(bundle(1, False), n, depth, 0, 0)
            if way is not None:
                cheapest = price
                found.append(Alternative(way, price))
        # Tasks that must share a node may talk as if they did not.
        apart_there = Way(bundle(n, False), 1, node_depth, 0, 0)
        if all(alt.way.depth == node_depth and alt.way != apart_there for alt in found) and found:
            found.append(Alternative(apart_there, cost(fabric.depth)))
        return found

    def _near(
        self, job: Job, tier: int, speed: int, need: Callable[[int], Need]
    ) -> list[Alternative]:
        """Ways of what a gang lacks: how near to the rest its nodes are decides the cost, and
        nothing else does. `need`: of a task on nodes in these columns."""
        rates, fabric = self.rates, self.fabric
        whole = size_of(job, job.gang_size, rates, self.supply)
        depth_of_all = fabric.depth + 1 if job.minimum == 1 else 0
        found: list[Alternative] = []
        for depth, mask in enumerate(self.admitted.near[job.name]):
            slow = slowdown_at(self.snapshot, job, rates, fabric, depth)
            price = rates.spread(tier, whole, rest_of(self.snapshot, job), speed, slow)
            if mask and not (found and price >= found[-1].cost):
                way = Way(need(mask), job.minimum, depth_of_all, 0, 0)
                found.append(Alternative(way, price))
        return found
