"""Decides what a node is from all that nvidia-smi printed on it, and puts the snapshot together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trencadis.adapters.kubernetes.gpus import UNKNOWN_MODEL
from trencadis.adapters.mig_starts import arrange
from trencadis.adapters.nvidia_smi.mig_lists import (
    MigLists,
    read_instances,
    read_placements,
    read_profiles,
)
from trencadis.adapters.nvidia_smi.query import Gpu, Query, read_query
from trencadis.adapters.nvidia_smi.topo import Matrix, read_topo
from trencadis.adapters.slurm.report import Report
from trencadis.models.cluster import GpuGroup, MigGpu, MigInstance, Node, NvLink
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.jobs import Job, Request, TaskAllocation
from trencadis.models.load import decode
from trencadis.models.queues import Queue
from trencadis.models.snapshot import Snapshot

PROCESSES = "processes"
"""Queue of what runs there already."""


@dataclass(slots=True)
class _Read:
    query: Query | None = None
    matrix: Matrix | None = None
    lists: MigLists = field(default_factory=MigLists)


def read_nvidia_smi(
    documents: Iterable[tuple[str, str | bytes]],
    *,
    node: str = "localhost",
    cpu_milli: int | None = None,
    memory_mib: int | None = None,
    now: datetime | None = None,
) -> tuple[Snapshot, list[Fault]]:
    """A snapshot of one node, and what is not carried over as it stands.

    The documents, each told apart by its content: `-q -x`, `topo -m`, `mig -lgi`, `mig -lgip`,
    `mig -lgipp`. Any of them will do; the query tells models, health and processes, the matrix
    NVLink and the number of CPUs, the lists where MIG instances are. GPUs with compute processes
    are taken by jobs in the queue `processes`, which nobody preempts. Raises InvalidInputError.
    """
    report = Report()
    read = _Read()
    for document, content in documents:
        try:
            _read(document, decode(content), read)
        except InvalidInputError as error:
            for fault in error.faults:
                path = fault.path if ":" in fault.path else f"{document}:{fault.path}"
                report.fault(path, fault.message)
    report.stop()
    gpus = _gpus(read, report)
    groups, mig = _groups(gpus, read, report), _mig(gpus, read, report)
    if cpu_milli is None:
        cpu_milli = read.matrix.cpus * 1_000 if read.matrix is not None else 0
    if not cpu_milli or not memory_mib:
        report.warn("node", "nvidia-smi doesn't tell CPUs or memory: what isn't given counts as 0")
    nvlink = read.matrix.nvlink if read.matrix is not None else NvLink()
    if read.matrix is None and len(gpus) > 1:
        report.warn("node", "no topo -m: GPUs count as joined by PCIe only")
    made = Node(
        name=node,
        gpus=groups,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib or 0,
        nvlink=nvlink,
        mig=mig,
    )
    at = now or (read.query.at if read.query is not None else None)
    if at is None:
        report.warn(
            "now", "the documents don't tell their time: the clock of this machine is taken"
        )
        at = datetime.now(UTC)
    jobs = _processes(made, read, at)
    queues = (Queue(name=PROCESSES),) if jobs else ()
    return Snapshot(now=at, nodes=(made,), jobs=jobs, queues=queues), report.warnings()


def _read(document: str, text: str, read: _Read) -> None:
    if text.lstrip().startswith("<"):
        read.query = read_query(text, document)
        return
    lists = (read_instances, read_profiles, read_placements)
    if any([reader(text, read.lists) for reader in lists]):  # noqa: C419 - a capture may hold all
        return
    if "GPU0" in text:
        read.matrix = read_topo(text, document)
        return
    message = "not a document of nvidia-smi: -q -x, topo -m, mig -lgi, mig -lgip or mig -lgipp"
    raise InvalidInputError([Fault(f"{document}:$", message)])


def _gpus(read: _Read, report: Report) -> list[Gpu]:
    """The GPUs by index; those that no document describes count as broken."""
    if read.query is not None:
        gpus = list(read.query.gpus)
        if read.query.attached != len(gpus):
            report.warn(
                "node", f"{read.query.attached} GPUs are attached; the query has {len(gpus)}"
            )
        if read.matrix is not None and read.matrix.gpus != len(gpus):
            report.fault("node", f"the query has {len(gpus)} GPUs, the matrix {read.matrix.gpus}")
        beyond = [gpu for gpu in read.lists.gpus() if gpu >= len(gpus)]
        if beyond:
            report.fault("node", f"MIG lists have GPU {beyond[0]}; the query {len(gpus)} GPUs")
        report.stop()
        return gpus
    told = read.lists.gpus()
    count = max([gpu + 1 for gpu in told], default=0)
    if read.matrix is not None:
        count = max(count, read.matrix.gpus)
    if count > 1_024:
        report.fault("node", f"there is a GPU {count - 1}; a node has 1024 at most")
        report.stop()
    known = set(range(read.matrix.gpus)) if read.matrix is not None else told
    report.warn("node", f"no -q -x: the model is called {UNKNOWN_MODEL}")
    if len(known | told) < count:
        report.warn("node", "GPUs that no document describes count as broken")
    return [
        Gpu(UNKNOWN_MODEL, 0, index not in known | told, False, index in told, ())
        for index in range(count)
    ]


def _groups(gpus: list[Gpu], read: _Read, report: Report) -> tuple[GpuGroup, ...]:
    groups: list[GpuGroup] = []
    for index, gpu in enumerate(gpus):
        if gpu.broken and read.query is not None:
            report.warn("node", "a GPU needs a reset or has failed memory: it counts as broken")
        bad = (index,) if gpu.broken else ()
        last = groups[-1] if groups else None
        same = last is not None and (last.model, last.memory_mib) == (gpu.model, gpu.memory_mib)
        if last is not None and same and last.count < 64:
            groups[-1] = last.model_copy(
                update={"count": last.count + 1, "unhealthy": (*last.unhealthy, *bad)}
            )
        else:
            group = GpuGroup(model=gpu.model, count=1, memory_mib=gpu.memory_mib, unhealthy=bad)
            groups.append(group)
    return tuple(groups)


def _mig(gpus: list[Gpu], read: _Read, report: Report) -> tuple[MigGpu, ...]:
    found = []
    for index, gpu in enumerate(gpus):
        if not gpu.mig and index not in read.lists.gpus():
            continue
        listed = read.lists.instances.get(index)
        if listed is None and gpu.slices:
            names = [entry.profile for entry in gpu.slices]
            instances = arrange(names, gpu.model, gpu.memory_mib)
            if instances is None:
                report.warn("node", f"GPU {index}: {', '.join(names)} fit no layout: left out")
            else:
                report.warn(
                    "node",
                    "no mig -lgi: a legal layout of the same slices stands for the real one",
                )
        else:
            instances = tuple(sorted((listed or {}).values(), key=lambda entry: entry.start))
        found.append(MigGpu(gpu=index, instances=instances or ()))
    for index, instance in read.lists.illegal():
        report.warn(
            "node", f"GPU {index}: {instance.profile} at {instance.start} is no listed placement"
        )
    return tuple(found)


def _processes(node: Node, read: _Read, at: datetime) -> tuple[Job, ...]:
    jobs = []
    layouts = {entry.gpu: entry.instances for entry in node.mig}
    for index, gpu in enumerate(read.query.gpus if read.query is not None else ()):
        if gpu.busy:
            place = TaskAllocation(node=node.name, gpus=(index,))
            jobs.append(_process(f"{PROCESSES}/{index}", Request(gpus=1), place, at))
        taken: set[int] = set()
        for entry in gpu.slices:
            if not entry.busy:
                continue
            instance = _instance(index, entry.instance_id, entry.profile, layouts, read, taken)
            if instance is not None:
                taken.add(instance.start)
                place = TaskAllocation(node=node.name, gpus=(index,), mig=(instance,))
                request = Request(mig=(instance.profile,))
                jobs.append(_process(f"{PROCESSES}/{index}-{instance.start}", request, place, at))
    return tuple(jobs)


def _instance(
    gpu: int,
    number: int,
    profile: str,
    layouts: dict[int, tuple[MigInstance, ...]],
    read: _Read,
    taken: set[int],
) -> MigInstance | None:
    listed = read.lists.instances.get(gpu, {}).get(number)
    if listed is not None:
        return listed
    return next(
        (i for i in layouts.get(gpu, ()) if i.profile == profile and i.start not in taken), None
    )


def _process(job: str, request: Request, place: TaskAllocation, at: datetime) -> Job:
    return Job(
        name=job,
        queue=PROCESSES,
        submit=at,
        start=at,
        state="running",
        request=request,
        allocation=(place,),
        communicates=False,
        preemptible=False,
        requeueable=False,
    )
