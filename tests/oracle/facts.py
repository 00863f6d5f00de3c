"""What a snapshot says before anything starts: units, sizes, tiers, who takes part (§1, §2)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime

from oracle.mend import two_jobs
from trencadis.models import Job, Missing, Node, Queue, Request, Snapshot, TaskAllocation
from trencadis.models.mig import MigTable
from trencadis.models.units import mig_tables


def instant(moment: datetime) -> int:
    """Seconds since 1970 UTC."""
    return int(moment.timestamp())


def ceil_div(above: int, below: int) -> int:
    return -(-above // below)


def uses_gpus(request: Request) -> bool:
    return request.gpus > 0 or request.share is not None or has_mig(request)


def has_mig(request: Request) -> bool:
    return bool(request.mig) or request.mig_memory_mib > 0 or request.mig_compute_milli > 0


def by_index(snapshot: Snapshot) -> Snapshot:
    """Shareable nodes whose GPUs others choose, as if the choice were ours: whoever has it can make
    the same. What was expected of running jobs counts, unless something else has the GPU."""
    others = {
        node.name
        for node in snapshot.nodes
        if node.precision == "node"
        and node.shareable
        and node.nvlink.kind == "none"
        and not node.mig
    }
    nodes = tuple(
        node.model_copy(update={"precision": "gpu"}) if node.name in others else node
        for node in snapshot.nodes
    )
    tenants = [job for job in snapshot.jobs if job.state in ("running", "draining")]
    full: dict[tuple[str, int], int] = {}

    def size(job: Job) -> int:
        return job.request.share.gpu_milli if job.request.share else 1_000

    for job in tenants:
        for task in job.allocation:
            for gpu in task.gpus or ():
                full[task.node, gpu] = full.get((task.node, gpu), 0) + size(job)
    found: dict[str, tuple[TaskAllocation, ...]] = {}
    for job in tenants:
        read = []
        for task in job.allocation:
            mine = task.expected if task.node in others and task.gpus is None else None
            if mine and all(full.get((task.node, g), 0) + size(job) <= 1_000 for g in mine):
                task = task.model_copy(update={"gpus": mine, "expected": None})  # noqa: PLW2901
                for gpu in mine:
                    full[task.node, gpu] = full.get((task.node, gpu), 0) + size(job)
            read.append(task)
        found[job.name] = tuple(read)
    jobs = tuple(
        job.model_copy(update={"allocation": found.get(job.name, job.allocation)})
        for job in snapshot.jobs
    )
    return snapshot.model_copy(update={"nodes": nodes, "jobs": jobs})


class Facts:
    """A snapshot with the quantities of §1 and §2 worked out."""

    def __init__(
        self, snapshot: Snapshot, barred: Mapping[str, Collection[str]] | None = None
    ) -> None:
        """`barred`: nodes that are reserved for others, by job that may not use them."""
        snapshot = two_jobs(by_index(snapshot))
        self.snapshot = snapshot
        self.barred = barred or {}
        self.policy = snapshot.policy
        self.now = instant(snapshot.now)
        self.node: dict[str, Node] = {node.name: node for node in snapshot.nodes}
        self.job: dict[str, Job] = {job.name: job for job in snapshot.jobs}
        self.queue: dict[str, Queue] = {queue.name: queue for queue in snapshot.queues}
        self.levels = len(snapshot.fabric.levels)
        self.U = self._unit()
        self.tables = mig_tables(snapshot)

        up = [node for node in snapshot.nodes if not node.down]
        self.gpus_by_model: dict[str, int] = {}
        for node in up:
            for model in node.healthy_gpus().values():
                self.gpus_by_model[model] = self.gpus_by_model.get(model, 0) + 1
        self.G = sum(self.gpus_by_model.values()) or max(1, len(up))
        self.C = sum(node.cpu_milli for node in up)
        self.M = sum(node.memory_mib for node in up)

        self.on_nodes = [job for job in snapshot.jobs if job.state in ("running", "draining")]
        self.eligible = [job for job in snapshot.jobs if self._is_eligible(job)]
        self.model_of = {job.name: self._model_of(job) for job in self.on_nodes}

    # §1

    def _unit(self) -> int:
        requests = [job.request for job in self.snapshot.jobs]
        requests += [entry.request for entry in self.policy.demand_profile]
        mig = any(node.mig for node in self.snapshot.nodes) or any(map(has_mig, requests))
        return 7_000 if mig else 1_000

    def task_units(self, request: Request) -> int:
        """Quota units of one task."""
        if request.gpus > 0:
            return request.gpus * self.U
        if request.share is not None:
            return request.share.gpu_milli * self.U // 1_000
        if not has_mig(request):
            return 0
        if not request.mig:
            counts = [0]
            for table in self.tables.values():
                fitting = [
                    (p.compute_slices, p.memory_slices, p.name)
                    for p in table.profiles
                    if "+" not in p.name
                    and "-" not in p.name
                    and p.memory_mib >= request.mig_memory_mib
                    and 1_000 * p.compute_slices >= request.mig_compute_milli * table.compute_slices
                ]
                if fitting:
                    counts.append(self._slice_units(table, min(fitting)[2]))
            return max(counts)
        return sum(self._profile_units(name) for name in request.mig)

    def _profile_units(self, name: str) -> int:
        counts = [
            self._slice_units(table, name)
            for table in self.tables.values()
            if table.profile(name) is not None
        ]
        if counts:
            return max(counts)
        match = re.match(r"(\d+)g\.", name)
        return int(match.group(1)) * self.U // 7 if match else 0

    def _slice_units(self, table: MigTable, name: str) -> int:
        profile = table.profile(name)
        assert profile is not None
        if self.policy.mig.count_by == "memory":
            return self.U * profile.memory_slices // table.memory_slices
        return self.U * profile.compute_slices // table.compute_slices

    def entries(self, job: Job) -> int:
        """How many tasks of it run, or would start."""
        if job.state in ("running", "draining"):
            return len(job.allocation)
        return job.tasks if job.min_tasks is None else job.min_tasks

    def units(self, job: Job) -> int:
        """Quota units of the job."""
        return self.entries(job) * self.task_units(job.request)

    def size(self, job: Job) -> int:
        n = job.gang_tasks if isinstance(job, Missing) else self.entries(job)
        terms = [1, n * self.task_units(job.request)]
        if self.C > 0:
            terms.append(ceil_div(n * job.request.cpu_milli * self.U * self.G, self.C))
        if self.M > 0:
            terms.append(ceil_div(n * job.request.memory_mib * self.U * self.G, self.M))
        return max(terms)

    # §2

    def _takes_part_alone(self, job: Job) -> bool:
        if job.state != "pending":
            return False
        if job.not_before is not None and instant(job.not_before) > self.now:
            return False
        if any(name in self.job for name in job.after):
            return False
        if any(hold.job == job.name for hold in self.snapshot.delayed):
            return False
        return not (has_mig(job.request) and job.communicates and self.entries(job) >= 2)

    def _is_eligible(self, job: Job) -> bool:
        if job.group is None:
            return self._takes_part_alone(job)
        members = [
            other
            for other in self.snapshot.jobs
            if other.group == job.group and other.state in ("pending", "held")
        ]
        return job in members and all(self._takes_part_alone(member) for member in members)

    def waited(self, job: Job) -> int:
        return max(0, self.now - instant(job.submit))

    def tier(self, job: Job) -> int:
        """Index of its tier, promotion by age included."""
        names = [tier.name for tier in self.policy.tiers]
        index = names.index(job.priority or self.policy.default_tier)
        if self.policy.promote_after_seconds is not None:
            index -= self.waited(job) // self.policy.promote_after_seconds
        return max(0, index)

    # models of GPUs

    def allowed_models(self, job: Job) -> set[str]:
        """Models it may run on; every model of the snapshot where it names none."""
        if job.gpu_models:
            return set(job.gpu_models)
        return {group.model for node in self.snapshot.nodes for group in node.gpus}

    def task_models(self, job: Job, task: TaskAllocation) -> set[str]:
        """Models that the task may be on: one where indices tell."""
        node = self.node[task.node]
        if task.gpus:
            return {model_at(node, index) for index in task.gpus}
        return {group.model for group in node.gpus} & self.allowed_models(job)

    def _model_of(self, job: Job) -> str | None:
        """The model a running job is on; None without GPUs, and where nothing tells."""
        request = job.request
        if not (request.gpus or request.share or has_mig(request)):
            return None
        for task in job.allocation:
            if task.gpus:
                return model_at(self.node[task.node], task.gpus[0])
        for task in job.allocation:
            models = {group.model for group in self.node[task.node].gpus}
            if len(models) == 1:
                return models.pop()
        return job.gpu_models[0] if len(set(job.gpu_models)) == 1 else None

    # queues

    def children(self, queue: Queue) -> list[Queue]:
        return [other for other in self.snapshot.queues if other.parent == queue.name]

    def leaves(self, queue: Queue) -> set[str]:
        """Names of the leaf queues of its subtree."""
        children = self.children(queue)
        if not children:
            return {queue.name}
        return set().union(*(self.leaves(child) for child in children))

    # fabric

    def level_depth(self, level: str) -> int:
        if level == "node":
            return self.levels + 1
        return [entry.name for entry in self.snapshot.fabric.levels].index(level) + 1

    def depth(self, nodes: set[str]) -> int:
        """Depth of a job whose tasks are on these nodes."""
        if len(nodes) == 1:
            return self.levels + 1
        paths = [self.node[name].fabric for name in nodes]
        common = 0
        while all(len(path) > common for path in paths):
            if len({path[common] for path in paths}) > 1:
                break
            common += 1
        return common

    def is_relaxed(self, job: Job) -> bool:
        """Whether its required level has become a preferred one."""
        topology = job.topology
        return (
            topology is not None
            and topology.mode == "required"
            and topology.relax_after_seconds is not None
            and self.waited(job) >= topology.relax_after_seconds
        )

    def required_depth(self, job: Job) -> int:
        """The depth that the job must reach: 0 where nothing is asked."""
        if self.entries(job) < 2:
            return 0
        needed = 0
        for level in self.snapshot.fabric.levels:
            if level.boundary:
                needed = max(needed, self.level_depth(level.name))
        topology = job.topology
        if topology is not None and topology.mode == "required" and not self.is_relaxed(job):
            needed = max(needed, self.level_depth(topology.level))
        return needed

    def preferred_depth(self, job: Job) -> int:
        """The depth below which a preference is missed: 0 where there is none."""
        topology = job.topology
        if topology is None or (topology.mode == "required" and not self.is_relaxed(job)):
            return 0
        return self.level_depth(topology.level)


def model_at(node: Node, index: int) -> str:
    """Model of the GPU with this index, healthy or not."""
    first = 0
    for group in node.gpus:
        if first <= index < first + group.count:
            return group.model
        first += group.count
    raise ValueError(f"node {node.name} has no GPU {index}")
