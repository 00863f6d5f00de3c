"""Decides which GPUs and slices running pods have, where neither pod nor node tells."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trencadis.adapters.kubernetes.claims import Device, pin
from trencadis.adapters.kubernetes.fields import at, listed, mapping, text, whole
from trencadis.adapters.kubernetes.gangs import Task
from trencadis.adapters.kubernetes.gpus import UNKNOWN_MODEL, groups_of
from trencadis.adapters.kubernetes.nodes import KubeNode
from trencadis.adapters.slurm.report import Report
from trencadis.models.base import MAX_COUNT
from trencadis.models.cluster import MigGpu, MigInstance
from trencadis.models.jobs import Request, TaskAllocation

DEVICES = "trencadis.io/devices"
"""Annotation of a pod: GPUs, or slices, of the node that a start of ours named."""
GPU_GROUP_LABELS = ("runai-gpu-group", "kai.scheduler/gpu-group")
_PROFILE = re.compile(r"\dg\.\d+gb[a-z.+-]*")


@dataclass(slots=True)
class _Use:
    """What is taken on a node."""

    whole: set[int] = field(default_factory=set)
    counted: int = 0
    """GPUs of pods that don't say which."""
    slices: set[tuple[int, int]] = field(default_factory=set)
    """GPU and start."""
    shared: dict[int, int] = field(default_factory=dict)
    """Milli-GPU by GPU."""
    groups: dict[str, int] = field(default_factory=dict)
    """GPU by KAI's GPU group."""


class Occupancy:
    """Gives each running pod its place, pods that tell theirs first."""

    def __init__(self, nodes: dict[str, KubeNode], report: Report) -> None:
        self._nodes, self._report = nodes, report
        self._uses: dict[str, _Use] = {}

    def place(self, placed: list[tuple[Task, Request]]) -> dict[int, TaskAllocation]:
        """Allocation by position in the list."""
        told = {number: self._told(task, request) for number, (task, request) in enumerate(placed)}
        found: dict[int, TaskAllocation] = {}
        for number in sorted(told, key=lambda n: (told[n] is None, n)):
            task, request = placed[number]
            known = told[number]
            found[number] = self._one(task, request, known or [])
        return found

    def groups(self) -> dict[tuple[str, int], str]:
        """KAI's groups by node and GPU."""
        return {
            (node, gpu): label
            for node, use in self._uses.items()
            for label, gpu in use.groups.items()
        }

    def _told(self, task: Task, request: Request) -> list[tuple[int, MigInstance | None]] | None:
        """GPUs or slices as DRA claims or annotations give them."""
        if task.devices:
            return [(device.gpu, device.instance) for device in task.devices]
        node = self._nodes[task.node]
        if request.mig and (found := _annotated(task.annotations, node)):
            return found
        return None if node.node.precision == "node" else _planned(task.annotations)

    def _one(
        self, task: Task, request: Request, told: list[tuple[int, MigInstance | None]]
    ) -> TaskAllocation:
        node = self._nodes[task.node]
        use = self._uses.setdefault(task.node, _Use())
        if not node.listed:
            _grow(node, request)
        if request.mig:
            return self._slices(task, request, node, use, told)
        if request.share is not None:
            gpu = self._shared(task, request, node, use, [gpu for gpu, _ in told])
            return TaskAllocation(node=task.node, gpus=None if gpu is None else (gpu,))
        gpus = tuple(sorted({gpu for gpu, _ in told}))
        free = not any(g in use.whole or g >= node.node.gpu_count for g in gpus)
        if request.gpus and len(gpus) == request.gpus and free:
            use.whole.update(gpus)
            return TaskAllocation(node=task.node, gpus=gpus)
        if request.gpus and node.numbered:
            whole = self._any_whole(request.gpus, node, use)
            if whole is not None:
                return TaskAllocation(node=task.node, gpus=whole)
        use.counted += request.gpus
        return TaskAllocation(node=task.node, gpus=None if request.gpus else ())

    def _any_whole(self, number: int, node: KubeNode, use: _Use) -> tuple[int, ...] | None:
        """The first GPUs that nobody else has."""
        cut = {entry.gpu for entry in node.node.mig}
        taken = use.whole | cut | use.shared.keys()
        free = [gpu for gpu in node.node.healthy_gpus() if gpu not in taken]
        if len(free) < number:
            return None
        use.whole.update(free[:number])
        return tuple(free[:number])

    def _slices(
        self,
        task: Task,
        request: Request,
        node: KubeNode,
        use: _Use,
        told: list[tuple[int, MigInstance | None]],
    ) -> TaskAllocation:
        for gpu, instance in told:
            if node.devices.exact and instance is not None and gpu < node.node.gpu_count:
                pin(Device(node.name, gpu, instance), self._nodes)
        there = {
            (entry.gpu, i.start): i.profile for entry in node.node.mig for i in entry.instances
        }
        chosen: list[tuple[int, MigInstance]] = []
        for profile in request.mig:
            wanted = [(g, i.start) for g, i in told if i is not None and i.profile == profile]
            spots = [*wanted, *sorted(key for key, kind in there.items() if kind == profile)]
            spot = next((s for s in spots if there.get(s) == profile and s not in use.slices), None)
            if spot is None:
                self._report.warn(
                    task.path, "runs on slices that its node doesn't list: only noted as running"
                )
                return TaskAllocation(node=task.node)
            use.slices.add(spot)
            chosen.append((spot[0], MigInstance(profile=profile, start=spot[1])))
        return TaskAllocation(
            node=task.node,
            gpus=tuple(gpu for gpu, _ in chosen),
            mig=tuple(instance for _, instance in chosen),
        )

    def _shared(
        self, task: Task, request: Request, node: KubeNode, use: _Use, told: list[int]
    ) -> int | None:
        """The GPU of its group, else one where it fits beside others, else an empty one."""
        milli = request.share.gpu_milli if request.share is not None else 0
        label = next((task.labels[key] for key in GPU_GROUP_LABELS if key in task.labels), "")
        taken = use.whole | {entry.gpu for entry in node.node.mig}
        healthy = [gpu for gpu in node.node.healthy_gpus() if gpu not in taken]
        if label in use.groups:
            gpu = use.groups[label]
        elif told and told[0] in healthy and not (label and told[0] in use.groups.values()):
            gpu = told[0]
        else:
            fitting = [
                g
                for g in healthy
                if use.shared.get(g, 0) + milli <= 1_000 and not (label and use.shared.get(g))
            ]
            if not fitting:
                return None
            gpu = max(fitting, key=lambda g: (use.shared.get(g, 0), -g))
        if label:
            use.groups[label] = gpu
        use.shared[gpu] = use.shared.get(gpu, 0) + milli
        return gpu


def _grow(node: KubeNode, request: Request) -> None:
    """Makes room on a stand-in for one more pod."""
    before = node.node
    resources = dict(before.resources)
    for key, amount in request.resources.items():
        resources[key] = min(MAX_COUNT, resources.get(key, 0) + amount)
    gpus = min(1_024, before.gpu_count + request.gpus + (1 if request.share else 0))
    model = before.gpus[0].model if before.gpus else UNKNOWN_MODEL
    mig = list(before.mig)
    for offset, profile in enumerate(request.mig):
        # A GPU of its own for each slice: where they are together is not known.
        mig.append(MigGpu(gpu=gpus + offset, instances=(MigInstance(profile=profile, start=0),)))
    if node.node.mig and request.mig and not before.gpus:
        mig = list(before.mig)
    gpus += len(request.mig) if len(mig) > len(before.mig) else 0
    node.set(
        cpu_milli=min(MAX_COUNT, before.cpu_milli + request.cpu_milli),
        memory_mib=min(MAX_COUNT, before.memory_mib + request.memory_mib),
        resources=dict(sorted(resources.items())),
        gpus=groups_of(model, gpus, 0),
        mig=tuple(mig),
        shareable=before.shareable or request.share is not None,
        max_jobs_per_gpu=max(before.max_jobs_per_gpu, 1),
    )


def _planned(annotations: Mapping[str, str]) -> list[tuple[int, MigInstance | None]] | None:
    """What a plan of ours had in mind for the pod."""
    found: list[tuple[int, MigInstance | None]] = []
    for row in listed(_json(annotations.get(DEVICES, ""))):
        gpu, start, profile = whole(row.get("gpu")), whole(row.get("start")), row.get("profile")
        if gpu is None or not 0 <= gpu < 1_024:
            return None
        if profile is None:
            found.append((gpu, None))
        elif start is not None and 0 <= start <= 15 and _PROFILE.fullmatch(text(profile)):
            found.append((gpu, MigInstance(profile=text(profile), start=start)))
    return found or None


def _annotated(
    annotations: Mapping[str, str], node: KubeNode
) -> list[tuple[int, MigInstance | None]]:
    """Slices by annotations: Run:ai's device, HAMi's allocations."""
    found: list[tuple[int, MigInstance | None]] = []
    device = _json(annotations.get("runai-mig-device", ""))
    profile = _PROFILE.search(text(at(device, "name")))
    gpu, start = whole(at(device, "gpuindex")), whole(at(device, "position"))
    if profile and gpu is not None and start is not None and 0 <= start <= 15:
        found.append((gpu, MigInstance(profile=profile.group(0), start=start)))
    for row in listed(_json(annotations.get("hami.io/vgpu-mig-allocations", ""))):
        index = node.devices.uuids.get(text(row.get("gpuUUID")))
        start = whole(at(mapping(row.get("placement")), "start"))
        name = text(row.get("profile"))
        if (
            index is not None
            and start is not None
            and 0 <= start <= 15
            and _PROFILE.fullmatch(name)
        ):
            found.append((index, MigInstance(profile=name, start=start)))
    return found


def _json(written: str) -> object:
    try:
        return json.loads(written) if written else None
    except (ValueError, RecursionError):
        return None
