"""Decides what a pod asks for: the sum of its containers, its slices, its share of a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from trencadis.adapters.kubernetes.fields import (
    MIB,
    Json,
    at,
    down,
    listed,
    mapping,
    quantity,
    text,
    up,
)
from trencadis.models.jobs import Request, Share

GPU = "nvidia.com/gpu"
SHARED_GPU = "nvidia.com/gpu.shared"
MIG = re.compile(r"nvidia\.com/mig-(\d+g\.\d+gb(?:[.+-][a-z.+-]+)?)(\.shared)?")
HAMI = ("nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage")
_ATTRIBUTE = re.compile(r"\.(me(?:\.all)?)$")
_BYTES = re.compile(r"memory|ephemeral-storage|hugepages-.*")
Amounts = dict[str, Fraction]


def profile_of(name: str) -> str:
    """A profile by its name in a resource, which has a dot for the plus sign of an attribute."""
    return _ATTRIBUTE.sub(r"+\1", name)


class UnmappableError(ValueError):
    """The pod asks for what the schema can't say."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How GPUs are shared in this cluster."""

    parts: int = 0
    """Replicas of one GPU; 0 where the device plugin shares none."""
    all_shared: bool = False
    """Whether a plain GPU request means a replica, as no GPU is offered whole."""
    memory_mib: int = 0
    """Memory of the smallest GPU, MiB; 0 where unknown."""


@dataclass(slots=True)
class Claimed:
    """What a pod's resource claims ask for."""

    gpus: int = 0
    mig: list[str] = field(default_factory=list)
    resources: dict[str, int] = field(default_factory=dict)


def amounts(table: Any, path: str = "") -> Amounts:
    """A table of quantities. Raises UnmappableError where one isn't."""
    found: Amounts = {}
    for key, value in mapping(table).items():
        number = quantity(value)
        if number is None or number < 0:
            raise UnmappableError(f"{path}{key} is not a quantity")
        found[str(key)] = number
    return found


def pod_amounts(spec: Json) -> Amounts:
    """What the scheduler counts for a pod: containers and sidecars, or the largest init container
    with the sidecars before it, and the overhead; totals given for the pod itself outrank them."""
    running: Amounts = {}
    peak: Amounts = {}
    for container in listed(spec.get("initContainers")):
        asked = _container(container)
        if container.get("restartPolicy") == "Always":
            _add(running, asked)
            asked = running
        else:
            asked = _sum(running, asked)
        _raise(peak, asked)
    for container in listed(spec.get("containers")):
        _add(running, _container(container))
    _raise(peak, running)
    own = _container(spec)
    peak.update(own)
    _add(peak, amounts(spec.get("overhead")))
    return {key: value for key, value in peak.items() if value > 0}


def _container(container: Json) -> Amounts:
    """Requests; a limit is the request where there is none."""
    resources = container.get("resources")
    return amounts(at(resources, "limits")) | amounts(at(resources, "requests"))


def _add(total: Amounts, more: Mapping[str, Fraction]) -> None:
    for key, value in more.items():
        total[key] = total.get(key, Fraction(0)) + value


def _sum(first: Amounts, second: Amounts) -> Amounts:
    total = dict(first)
    _add(total, second)
    return total


def _raise(peak: Amounts, other: Amounts) -> None:
    for key, value in other.items():
        peak[key] = max(peak.get(key, Fraction(0)), value)


def read_request(
    spec: Json,
    annotations: Mapping[str, str],
    sharing: Sharing,
    claimed: Claimed | None = None,
    *,
    on_shared_node: bool = False,
) -> Request:
    """One pod's request. Raises UnmappableError."""
    asked = pod_amounts(spec)
    claims = claimed or Claimed()
    gpus = _whole(asked, GPU) + claims.gpus
    mig = list(claims.mig)
    for key in sorted(asked):
        found = MIG.fullmatch(key)
        if found is not None:
            if found.group(2):
                raise UnmappableError("it asks for a shared MIG slice")
            mig.extend([profile_of(found.group(1))] * min(_whole(asked, key), 1_024))
    mig.extend(_annotated_slices(annotations))
    allocated = _hami_slices(annotations)
    if annotations.get("nvidia.com/vgpu-mode") == "mig" and not allocated:
        raise UnmappableError("it asks HAMi for a slice, which its scheduler chooses")
    if allocated:
        # HAMi has cut the slice for a pod that asked for memory.
        mig, gpus, share = allocated, 0, None
    else:
        share = _share(asked, annotations, sharing, gpus, on_shared_node=on_shared_node)
        if share is not None:
            gpus = 0
    if sum((bool(gpus), bool(mig), share is not None)) > 1:
        raise UnmappableError("it asks for whole GPUs, slices and shares at once")
    if gpus > 1_024:
        raise UnmappableError(f"it asks for {gpus} GPUs on one node")
    return Request(
        gpus=gpus,
        mig=tuple(sorted(mig)),
        share=share,
        cpu_milli=up(asked.get("cpu", Fraction(0)) * 1_000),
        memory_mib=up(asked.get("memory", Fraction(0)) / MIB),
        resources={"pods": 1} | claims.resources | _others(asked),
    )


def other(key: str) -> bool:
    """Whether a resource is carried over as a count of its own."""
    return not (
        key in ("cpu", "memory", "pods", GPU, SHARED_GPU, *HAMI) or MIG.fullmatch(key) is not None
    )


def counted(key: str, value: Fraction, *, asked: bool) -> int:
    """The amount of such a resource; bytes in MiB."""
    amount = value / MIB if _BYTES.fullmatch(key) else value
    return up(amount) if asked else down(amount)


def _others(asked: Amounts) -> dict[str, int]:
    found = {key: counted(key, value, asked=True) for key, value in asked.items() if other(key)}
    return {key: value for key, value in found.items() if value}


def _whole(asked: Amounts, key: str) -> int:
    value = asked.get(key, Fraction(0))
    if value.denominator != 1:
        raise UnmappableError(f"it asks for a part of {key}")
    return int(value)


def _annotated_slices(annotations: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for key, value in annotations.items():
        match = MIG.fullmatch(key)
        number = quantity(value)
        if match is not None and number is not None and 0 < number <= 1_024:
            found.extend([profile_of(match.group(1))] * int(number))
    return found


def _hami_slices(annotations: Mapping[str, str]) -> list[str]:
    try:
        rows = listed(json.loads(annotations.get("hami.io/vgpu-mig-allocations", "[]")))
    except (ValueError, RecursionError):
        return []
    found = [text(row.get("profile")) for row in rows]
    return [profile for profile in found if MIG.fullmatch(f"nvidia.com/mig-{profile}")]


def _share(
    asked: Amounts,
    annotations: Mapping[str, str],
    sharing: Sharing,
    gpus: int,
    *,
    on_shared_node: bool,
) -> Share | None:
    """A part of a GPU: KAI's annotations, HAMi's resources, or replicas of the device plugin."""
    fraction = quantity(annotations.get("gpu-fraction"))
    if fraction is not None and 0 < fraction < 1:
        _only_one(quantity(annotations.get("gpu-fraction-num-devices", "1")))
        # Rounded down, so that parts which make a whole together fit one GPU.
        memory_mib = down(fraction * sharing.memory_mib)
        return Share(gpu_milli=up(fraction * 1_000), memory_mib=memory_mib)
    memory = quantity(annotations.get("gpu-memory"))
    if memory is not None and memory > 0:
        if not sharing.memory_mib:
            raise UnmappableError("it asks for GPU memory, and no node tells how much a GPU has")
        return _by_memory(memory, sharing)
    if any(key in asked for key in HAMI):
        _only_one(Fraction(gpus))
        cores = asked.get("nvidia.com/gpucores", Fraction(0)) * 10
        mib = asked.get("nvidia.com/gpumem", Fraction(0))
        percent = asked.get("nvidia.com/gpumem-percentage")
        if percent is not None:
            mib = max(mib, percent * sharing.memory_mib / 100)
        by_memory = _by_memory(mib, sharing).gpu_milli if sharing.memory_mib and mib else 1
        milli = up(cores) or by_memory
        return Share(gpu_milli=min(1_000, max(1, milli)), memory_mib=up(mib))
    replicas = _whole(asked, SHARED_GPU)
    if replicas == 0 and (sharing.all_shared or on_shared_node):
        replicas = gpus
    if replicas == 0:
        return None
    _only_one(Fraction(replicas))
    return Share(gpu_milli=max(1, 1_000 // max(1, sharing.parts)))


def _by_memory(mib: Fraction, sharing: Sharing) -> Share:
    milli = min(1_000, max(1, up(mib * 1_000 / sharing.memory_mib)))
    return Share(gpu_milli=milli, memory_mib=up(mib))


def _only_one(number: Fraction | None) -> None:
    if number is None or number != 1:
        raise UnmappableError("it asks for shares of several GPUs")
