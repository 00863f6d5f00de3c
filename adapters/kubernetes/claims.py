"""Decides what DRA says: devices of ResourceSlices as GPUs and slices, what claims ask and hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trencadis.adapters.kubernetes.fields import Json, at, listed, mapping, name, text, whole
from trencadis.adapters.kubernetes.gpus import UNKNOWN_MODEL, Devices, groups_of
from trencadis.adapters.kubernetes.nodes import KubeNode, stand_in
from trencadis.adapters.kubernetes.objects import Object, Objects
from trencadis.adapters.kubernetes.resources import Claimed, UnmappableError
from trencadis.adapters.slurm.report import Report
from trencadis.models.base import MAX_COUNT
from trencadis.models.cluster import MigGpu, MigInstance

GROUP = "resource.k8s.io"
NVIDIA = "gpu.nvidia.com"
MIG_CLASS = "mig.nvidia.com"

_PROFILE = re.compile(r"profile\s*==\s*['\"]([0-9]g\.[0-9]+gb[a-z.+-]*)['\"]")
_NAME = re.compile(r"gpu-(\d{1,4})(?:-mig-\d+g\d+gb.*?-(\d{1,3})-(\d{1,2}))?")


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a slice: a GPU of a node, or a MIG instance of one."""

    node: str
    gpu: int
    instance: MigInstance | None = None


@dataclass(slots=True)
class Claims:
    """Claims and templates by namespace and name, and devices by driver, pool and name."""

    specs: dict[tuple[str, str], Json] = field(default_factory=dict)
    templates: dict[tuple[str, str], Json] = field(default_factory=dict)
    held: dict[tuple[str, str], list[Device]] = field(default_factory=dict)

    def of_pod(self, namespace: str, spec: Json, status: Json) -> tuple[Claimed, list[Device]]:
        """What a pod's claims ask for, and which devices they hold. Raises UnmappableError."""
        asked = Claimed()
        devices: list[Device] = []
        statuses = {
            text(entry.get("name")): text(entry.get("resourceClaimName"))
            for entry in listed(status.get("resourceClaimStatuses"))
        }
        for entry in listed(spec.get("resourceClaims")):
            claim = statuses.get(text(entry.get("name"))) or text(entry.get("resourceClaimName"))
            template = text(entry.get("resourceClaimTemplateName"))
            found = self.specs.get((namespace, claim))
            if found is None and template:
                found = self.templates.get((namespace, template))
            if found is None:
                raise UnmappableError(f"its resource claim {claim or template} isn't listed")
            _ask(found, asked)
            devices.extend(self.held.get((namespace, claim), []))
        return asked, devices


def read_claims(objects: Objects, nodes: dict[str, KubeNode], report: Report) -> Claims:
    """Adds the devices of slices to the nodes; returns the claims."""
    claims = Claims()
    devices = _slices(objects.of(GROUP, "ResourceSlice"), nodes, report)
    for entry in objects.of(GROUP, "ResourceClaimTemplate"):
        claims.templates[entry.namespace, entry.name] = mapping(entry.spec.get("spec"))
    for entry in objects.of(GROUP, "ResourceClaim"):
        key = entry.namespace, entry.name
        claims.specs[key] = entry.spec
        for result in listed(at(entry.status, "allocation", "devices", "results")):
            where = tuple(text(result.get(part)) for part in ("driver", "pool", "device"))
            device = devices.get(where)
            if device is not None:
                claims.held.setdefault(key, []).append(device)
                pin(device, nodes)
            elif where[0] == NVIDIA:
                report.warn(entry.path, "a claim holds a device that no ResourceSlice lists")
    return claims


def _slices(
    found: list[Object], nodes: dict[str, KubeNode], report: Report
) -> dict[tuple[str, ...], Device]:
    devices: dict[tuple[str, ...], Device] = {}
    by_node: dict[str, list[Json]] = {}
    for entry in found:
        driver, pool = text(entry.spec.get("driver")), text(at(entry.spec, "pool", "name"))
        node = name(entry.spec.get("nodeName"), "")
        if not driver or not pool:
            report.fault(f"{entry.path}.spec", "driver and pool.name are required")
            continue
        listed_devices = listed(entry.spec.get("devices"))
        if not node:
            report.warn(entry.path, "devices that don't belong to one node are left out")
            continue
        if node not in nodes:
            report.warn(
                f"{entry.path}.spec.nodeName",
                "devices of a node that isn't listed: a cordoned node stands for it",
            )
            stand_in(node, entry.path, nodes)
        if driver != NVIDIA:
            resources = dict(nodes[node].node.resources)
            key = f"dra/{name(driver, 'driver')}"[:253]
            resources[key] = min(MAX_COUNT, resources.get(key, 0) + len(listed_devices))
            nodes[node].set(resources=dict(sorted(resources.items())))
            continue
        by_node.setdefault(node, []).extend(listed_devices)
        for device in listed_devices:
            read = _device(node, device)
            if read is not None:
                devices[driver, pool, text(device.get("name"))] = read
    for node, rows in by_node.items():
        _add_gpus(nodes[node], rows)
    return devices


def _attribute(device: Json, key: str) -> str:
    # Before resource.k8s.io/v1 the attributes were one level down.
    attributes = mapping(device.get("attributes")) or mapping(at(device, "basic", "attributes"))
    return text(at(attributes, key, "string")) or text(at(attributes, f"{NVIDIA}/{key}", "string"))


def _device(node: str, device: Json) -> Device | None:
    found = _NAME.match(text(device.get("name")))
    if found is None:
        return None
    gpu, profile, start = int(found.group(1)), _attribute(device, "profile"), found.group(3)
    if profile and start is not None and int(start) <= 15:
        return Device(node, gpu, MigInstance(profile=profile, start=int(start)))
    return None if profile else Device(node, gpu)


def _add_gpus(node: KubeNode, rows: list[Json]) -> None:
    """GPUs by DRA count where the device plugin offers none."""
    read = [(row, _device(node.name, row)) for row in rows]
    indices = [device.gpu for _, device in read if device is not None]
    if node.devices.groups or not indices:
        return
    count = min(1_024, max(indices) + 1)
    products = [_attribute(row, "productName") for row, _ in read]
    model = name(next((p.replace(" ", "-") for p in products if p), ""), UNKNOWN_MODEL)
    memory = [
        whole(at(row, "capacity", "memory", "value")) for row, d in read if d and not d.instance
    ]
    mib = min((m // 2**20 for m in memory if m), default=0)
    # A device that draws on counters is a place where an instance may be made; the others exist.
    made: dict[int, list[MigInstance]] = {}
    for row, device in read:
        if device is not None and device.instance is not None:
            there = made.setdefault(device.gpu, [])
            if not row.get("consumesCounters"):
                there.append(device.instance)
    whole_gpus = {device.gpu for _, device in read if device is not None and not device.instance}
    node.devices = Devices(groups=groups_of(model, count, mib), exact=True)
    node.set(
        gpus=node.devices.groups,
        precision="mig",
        mig=tuple(
            MigGpu(gpu=gpu, instances=tuple(made[gpu]))
            for gpu in sorted(made)
            if made[gpu] or gpu not in whole_gpus
        ),
    )


def pin(device: Device, nodes: Mapping[str, KubeNode]) -> None:
    """An instance that a claim holds exists."""
    if device.instance is None or device.node not in nodes:
        return
    node = nodes[device.node]
    table = {entry.gpu: entry.instances for entry in node.node.mig}
    there = table.get(device.gpu, ())
    if all(instance.start != device.instance.start for instance in there):
        table[device.gpu] = (*there, device.instance)
    node.set(mig=tuple(MigGpu(gpu=gpu, instances=table[gpu]) for gpu in sorted(table)))


def _ask(spec: Json, asked: Claimed) -> None:
    for request in listed(at(spec, "devices", "requests")):
        exact = mapping(request.get("exactly")) or request
        if request.get("firstAvailable"):
            raise UnmappableError("its resource claim lists alternatives")
        if exact.get("allocationMode") == "All":
            raise UnmappableError("its resource claim asks for all devices of a node")
        device_class = text(exact.get("deviceClassName"))
        count = whole(exact.get("count")) or 1
        expressions = [
            text(at(selector, "cel", "expression")) for selector in listed(exact.get("selectors"))
        ]
        profiles = [m.group(1) for e in expressions if (m := _PROFILE.search(e))]
        if device_class == MIG_CLASS:
            if len(profiles) != 1 or len(expressions) != 1 or "||" in expressions[0]:
                raise UnmappableError("its claim for a MIG device doesn't name one profile")
            asked.mig.extend([profiles[0]] * min(count, 64))
        elif expressions:
            raise UnmappableError("its resource claim selects devices by an expression")
        elif device_class == NVIDIA:
            asked.gpus += count
        else:
            key = f"dra/{name(device_class, 'device')}"[:253]
            asked.resources[key] = min(MAX_COUNT, asked.resources.get(key, 0) + count)


__all__ = ["GROUP", "Claims", "Device", "pin", "read_claims"]
