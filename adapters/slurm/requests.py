"""Decides into which tasks a waiting job's request falls, and what each of them needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trencadis.adapters.slurm.fields import Record, count, name, number, text
from trencadis.adapters.slurm.gres import SHARED, Gres, parse_gres, parse_tres
from trencadis.adapters.slurm.nodes import resource_keys
from trencadis.models.base import GPU_MILLI, MAX_COUNT
from trencadis.models.jobs import Request, Share

MAX_TASKS = 10_000
"""Jobs without GPUs are read task by task up to here, node by node beyond."""


class UnmappableError(ValueError):
    """The schema can't say this; the job must not start."""


@dataclass(slots=True)
class Devices:
    """Generic resources of one task, sorted by what they are here."""

    gpus: int = 0
    model: str = ""
    parts: dict[str, int] = field(default_factory=dict)
    """Shards and MPS units."""
    resources: dict[str, int] = field(default_factory=dict)
    cpus: int = 0
    licences: dict[str, int] = field(default_factory=dict)

    def times(self, factor: int) -> Devices:
        """The resources of so many tasks."""
        return Devices(
            self.gpus * factor,
            self.model,
            {key: value * factor for key, value in self.parts.items()},
            {key: value * factor for key, value in self.resources.items()},
            self.cpus * factor,
            dict(self.licences),
        )

    def __bool__(self) -> bool:
        return bool(self.gpus or self.parts or self.resources)


@dataclass(frozen=True, slots=True)
class Shape:
    """The tasks of a job."""

    tasks: int
    request: Request
    models: tuple[str, ...] = ()
    max_per_node: int | None = None
    licences: dict[str, int] = field(default_factory=dict)
    note: str = ""
    """What was guessed."""


def sort_devices(found: list[Gres]) -> Devices:
    """Raises UnmappableError for GPUs of two types in one task, which one model can't be."""
    devices = Devices()
    models: set[str] = set()
    for entry in found:
        if entry.count == 0:
            continue
        if entry.is_gpu:
            devices.gpus += entry.count
            models.add(entry.type)
        elif entry.name in SHARED:
            devices.parts[entry.name] = devices.parts.get(entry.name, 0) + entry.count
        elif entry.name == "cpu":
            devices.cpus = entry.count
        elif entry.name.startswith("license/"):
            devices.licences[name(entry.name[8:], "licence")] = entry.count
        elif entry.name not in ("mem", "node", "billing") and not entry.name.startswith("bb/"):
            for key in resource_keys(entry):
                amount = min(devices.resources.get(key, 0) + entry.count, MAX_COUNT)
                devices.resources[key] = amount
    if len(models) > 1:
        raise UnmappableError(f"GPUs of several types in one request ({', '.join(sorted(models))})")
    if devices.gpus and devices.parts:
        raise UnmappableError("whole GPUs and parts of GPUs in one request")
    devices.model = models.pop() if models else ""
    return devices


def read_shape(record: Record, largest: dict[str, int], parts: dict[str, int]) -> Shape:
    """The tasks of a waiting job. Raises UnmappableError.

    `largest` is the number of GPUs on the largest node by model ("" for any), `parts` the shards
    or MPS units that one GPU has. What a job asks for per node makes a task per node; per task, a
    task each; per job, one task if a node is large enough. The totals that Slurm prints
    (tres_req_str) count GPUs only at sites that account for them, so they are not used for GPUs.
    """
    return _Reader(record, largest, parts).shape()


class _Reader:
    def __init__(self, record: Record, largest: dict[str, int], parts: dict[str, int]) -> None:
        self.record = record
        self.largest = largest
        self.parts = parts
        self.per = {}
        for unit in ("node", "task", "socket", "job"):
            try:
                listed = parse_gres(text(record.get(f"tres_per_{unit}")))
            except ValueError as error:
                raise UnmappableError(f"tres_per_{unit}: {error}") from None
            self.per[unit] = sort_devices(listed)
        self.required = parse_tres(text(record.get("tres_req_str")))
        self.most_nodes = count(record.get("max_nodes"))
        estimate = count(record.get("node_count")) or 1
        least = self.required.get("node") or 1
        # Only -N makes the number of nodes part of the request; else it is Slurm's estimate, as it
        # is inside a range of nodes.
        self.fixed = self.most_nodes > 0 or least > 1
        self.nodes = estimate
        if self.fixed:
            self.nodes = max(least, min(estimate, self.most_nodes))
        self.cpus = count(record.get("cpus"))
        self.per_node = count(record.get("tasks_per_node"))
        self.cpus_per_task = max(1, count(record.get("cpus_per_task")), self.per["task"].cpus)
        self.tasks = count(record.get("tasks"))
        self.note = ""

    def shape(self) -> Shape:
        per = self.per
        if per["socket"]:
            sockets = count(self.record.get("sockets_per_node"))
            if not sockets:
                raise UnmappableError("GPUs per socket without a number of sockets per node")
            per["node"] = per["node"] if per["node"] else per["socket"].times(sockets)
        if per["node"]:
            if per["job"].gpus and per["node"].gpus:
                self.nodes = max(1, per["job"].gpus // per["node"].gpus)
            return self._by_node(self.nodes, per["node"])
        if per["task"]:
            return self._by_task(per["task"])
        if per["job"]:
            return self._by_job(per["job"])
        whole = self.fixed or self.tasks <= 1 or self.tasks > MAX_TASKS
        if whole or count(self.record.get("memory_per_node")):
            return self._by_node(self.nodes, Devices())
        most = self.per_node or None
        return self._made(self.tasks, Devices(), self.cpus_per_task, most)

    def _by_node(self, nodes: int, devices: Devices) -> Shape:
        if self.most_nodes > nodes:
            self.note = "a range of nodes: as many as Slurm estimates"
        cpus = max(
            -(-self.cpus // nodes),
            count(self.record.get("minimum_cpus_per_node")),
            self.per_node * self.cpus_per_task,
        )
        return self._made(nodes, devices, cpus, 1 if nodes > 1 else None)

    def _by_task(self, devices: Devices) -> Shape:
        tasks = self.tasks or 1
        if self.per["job"].gpus and devices.gpus:
            tasks = max(1, self.per["job"].gpus // devices.gpus)
        most = self.per_node or None
        if self.fixed:
            if tasks % self.nodes == 0:
                return self._by_node(self.nodes, devices.times(tasks // self.nodes))
            most = -(-tasks // self.nodes)
            self.note = "tasks that don't divide by the nodes: the number of nodes is not kept"
        return self._made(tasks, devices, self.cpus_per_task, most)

    def _by_job(self, devices: Devices) -> Shape:
        if not devices.gpus:
            return self._by_node(self.nodes, self._split(devices, self.nodes))
        if devices.gpus > 100_000:
            raise UnmappableError("more than 100,000 GPUs")
        if self.fixed:
            if devices.gpus % self.nodes == 0:
                return self._by_node(self.nodes, self._split(devices, self.nodes))
            self.note = "GPUs per job that don't divide by the nodes: one task per GPU"
            cpus = -(-self.cpus // devices.gpus)
            most = -(-devices.gpus // self.nodes)
            return self._made(devices.gpus, self._split(devices, devices.gpus), cpus, most)
        largest = self.largest.get(devices.model, 0)
        if devices.gpus <= largest or not largest:
            return self._by_node(1, devices)
        nodes = next(
            n
            for n in range(2, devices.gpus + 1)
            if not devices.gpus % n and devices.gpus // n <= largest
        )
        self.note = "GPUs per job that no node has: spread evenly over the fewest nodes"
        return self._by_node(nodes, self._split(devices, nodes))

    def _split(self, devices: Devices, by: int) -> Devices:
        return Devices(
            devices.gpus // by,
            devices.model,
            {key: -(-value // by) for key, value in devices.parts.items()},
            {key: -(-value // by) for key, value in devices.resources.items()},
        )

    def _made(self, tasks: int, devices: Devices, cpus: int, most: int | None) -> Shape:
        cpus = max(cpus, self._per_gpu("cpus_per_tres") * devices.gpus)
        memory = self._memory(tasks, devices.gpus, cpus)
        if tasks > 100_000 or devices.gpus > 1_024:
            raise UnmappableError("more than 100,000 tasks, or more than 1,024 GPUs in a task")
        self._on_one_gpu(tasks, devices, most)
        return Shape(
            tasks=tasks,
            request=Request(
                gpus=devices.gpus,
                share=share_of(devices.parts, self.parts),
                cpu_milli=min(cpus * 1_000, MAX_COUNT),
                memory_mib=min(memory, MAX_COUNT),
                resources={k: min(v, MAX_COUNT) for k, v in devices.resources.items() if v},
            ),
            models=(name(devices.model, "gpu"),) if devices.model else (),
            max_per_node=most,
            licences=self.per["task"].licences | self.per["job"].licences,
            note=self.note,
        )

    def _on_one_gpu(self, tasks: int, devices: Devices, most: int | None) -> None:
        """What a job has of a node's shards is of one GPU (measured: docs/decisions/074)."""
        for kind, wanted in devices.parts.items():
            whole = self.parts.get(kind, wanted)
            if wanted > whole:
                raise UnmappableError(f"{wanted} {kind}s of one GPU, which has {whole}")
        if devices.parts and tasks > 1 and most != 1:
            raise UnmappableError("parts of one GPU for several tasks on a node")

    def _memory(self, tasks: int, gpus: int, cpus: int) -> int:
        if per_node := number(self.record.get("memory_per_node")):
            return max(0, math.ceil(per_node * min(self.nodes, tasks) / tasks))
        if per_cpu := number(self.record.get("memory_per_cpu")):
            return max(0, per_cpu) * cpus
        if per_gpu := self._per_gpu("memory_per_tres"):
            return per_gpu * gpus
        # 0 per node means all of it or none asked for; where Slurm counts memory, the total tells.
        return -(-self.required.get("mem", 0) // tasks)

    def _per_gpu(self, key: str) -> int:
        try:
            return sum(entry.count for entry in parse_gres(text(self.record.get(key))))
        except ValueError as error:
            raise UnmappableError(f"{key}: {error}") from None


def share_of(parts: dict[str, int], whole: dict[str, int]) -> Share | None:
    """Shards or MPS units as a share of a GPU.

    Rounded down where a GPU has so few that no sum of shares can be taken for less than it is (its
    square is at most 1,000): three of three fill a GPU. Else rounded up.
    """
    if not parts:
        return None
    milli = 0
    for key, amount in parts.items():
        all_of_it = max(1, whole.get(key, 1))
        up = 0 if all_of_it**2 <= GPU_MILLI else all_of_it - 1
        milli += (GPU_MILLI * amount + up) // all_of_it
    return Share(gpu_milli=max(1, min(GPU_MILLI, milli)))
