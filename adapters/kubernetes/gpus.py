"""Decides which GPUs a node has: from the GPU operator's labels, HAMi's registration, resources."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from trencadis.adapters.kubernetes.fields import at, down, listed, mapping, name, text, whole
from trencadis.adapters.kubernetes.objects import Object
from trencadis.adapters.kubernetes.resources import GPU, MIG, SHARED_GPU, Amounts, profile_of
from trencadis.adapters.mig_starts import spread
from trencadis.adapters.slurm.report import Report
from trencadis.models.cluster import GpuGroup, MigGpu, MigInstance, NvLink

UNKNOWN_MODEL = "gpu"
_ZERO = Fraction(0)
MAX_GROUP = 64
MOST_CUT = 16
"""GPUs of a node that are tried for slices."""
SHARES_PER_GPU = 100
"""The most shares of one GPU where the sharer sets no limit: KAI counts in hundredths."""

_SUFFIX = re.compile(r"-SHARED$|-MIG-.*$")
_PAIRED = re.compile(r"(A100|A800|H100|H800|H200|H20|B200|B300)-?SXM|HGX|GB[23]00|B[23]00")
_MIG_LINE = re.compile(r"\s*['\"]?(\d{1,2})['\"]?\s*:\s*['\"]?(\dg\.\d+gb[a-z.+-]*)['\"]?\s*")
_MIG_DEVICES = re.compile(r"\s*-?\s*devices:\s*\[([\d,\s]*)\]\s*")


@dataclass(slots=True)
class Devices:
    """The GPUs of a node."""

    groups: tuple[GpuGroup, ...] = ()
    mig: tuple[MigGpu, ...] = ()
    nvlink: NvLink = field(default_factory=NvLink)
    replicas: int = 0
    """Jobs that may share one GPU; 0 and 1: none do."""
    plugin_replicas: int = 0
    """Replicas that the device plugin offers of each GPU; 0 where it shares none."""
    uuids: dict[str, int] = field(default_factory=dict)
    """GPU index by UUID, where the node tells."""
    unknown: bool = False
    """Whether it has slices that fit no layout known here: they are not ours to give, or to cut."""
    exact: bool = False
    """Whether the owner of the node lets us choose GPU indices."""

    @property
    def memory_mib(self) -> int:
        """Memory of the smallest GPU; 0 where unknown."""
        return min((group.memory_mib for group in self.groups), default=0)


def groups_of(model: str, count: int, memory_mib: int, broken: int = 0) -> tuple[GpuGroup, ...]:
    """GPU groups of at most 64; the last GPUs are those that are broken."""
    groups = []
    count = min(count, 1_024)
    for first in range(0, count, MAX_GROUP):
        size = min(MAX_GROUP, count - first)
        bad = tuple(i for i in range(first, first + size) if i >= count - broken)
        groups.append(GpuGroup(model=model, count=size, memory_mib=memory_mib, unhealthy=bad))
    return tuple(groups)


def read_devices(
    entry: Object, allocatable: Amounts, capacity: Amounts, report: Report, *, shareable: bool
) -> Devices:
    """The GPUs of a node object."""
    registered = _registered(entry, report)
    if registered is not None:
        return registered
    labels = entry.labels
    product = name(labels.get("nvidia.com/gpu.product"), "")
    memory = whole(labels.get("nvidia.com/gpu.memory")) or 0
    plain = down(capacity.get(GPU, allocatable.get(GPU, _ZERO)))
    renamed = down(allocatable.get(SHARED_GPU, _ZERO))
    profiles = _profiles(allocatable)
    replicas = whole(labels.get("nvidia.com/gpu.replicas")) or 1
    if "-MIG-" in product and not profiles:
        return _single(entry, product, memory, plain, report)
    count = whole(labels.get("nvidia.com/gpu.count")) or 0
    if replicas > 1:
        count = count or (plain + renamed) // replicas
    elif not count:
        count = plain
    model = _SUFFIX.sub("", product) or UNKNOWN_MODEL
    if profiles and count <= plain:
        count = plain + _fewest(profiles, model, memory)
    if not count:
        return Devices(replicas=0)
    if not product:
        report.warn(
            f"{entry.path}.metadata.labels",
            f"no label nvidia.com/gpu.product: the model is called {UNKNOWN_MODEL}",
        )
    missing = 0
    if not profiles and replicas == 1:
        offered = down(allocatable.get(GPU, _ZERO))
        missing = max(0, count - offered)
        if missing:
            report.warn(
                f"{entry.path}.status.allocatable",
                "fewer GPUs are allocatable than installed: the last ones count as broken",
            )
    devices = Devices(
        groups=groups_of(model, count, memory, missing),
        nvlink=NvLink(kind="nvswitch" if count > 1 and _PAIRED.search(model) else "none"),
        replicas=replicas if replicas > 1 else SHARES_PER_GPU if shareable else 0,
        plugin_replicas=replicas if replicas > 1 else 0,
    )
    if profiles:
        layout = _layout(entry, profiles, count, plain, model, memory, report)
        devices.unknown = layout is None
        devices.mig = layout or tuple(MigGpu(gpu=g) for g in range(min(plain, count - 1), count))
    return devices


def _single(entry: Object, product: str, memory: int, count: int, report: Report) -> Devices:
    """Strategy `single`: slices are offered as GPUs, so they are GPUs of a smaller model."""
    report.warn(
        f"{entry.path}.metadata.labels",
        "MIG strategy single offers slices as GPUs: each is read as a GPU of its own model",
    )
    return Devices(groups=groups_of(product, count, memory))


def _fewest(profiles: list[str], model: str, memory: int) -> int:
    """GPUs that the slices of a node need at least, where no label tells how many there are."""
    sizes = range(1, MOST_CUT + 1)
    return next((n for n in sizes if spread(profiles, range(n), model, memory) is not None), 1)


def _profiles(allocatable: Amounts) -> list[str]:
    found: list[str] = []
    for key in sorted(allocatable):
        match = MIG.fullmatch(key)
        if match is not None and match.group(2) is None:
            found.extend([profile_of(match.group(1))] * min(down(allocatable[key]), 448))
    return found


def _layout(
    entry: Object,
    profiles: list[str],
    count: int,
    plain: int,
    model: str,
    memory: int,
    report: Report,
) -> tuple[MigGpu, ...] | None:
    """MIG state: as an annotation gives it if that agrees with the counts, else any legal one.

    None where none is legal.
    """
    told = _annotated(entry.annotations.get("run.ai/mig.config", ""), count)
    if sorted(i.profile for found in told.values() for i in found) == sorted(profiles):
        return tuple(MigGpu(gpu=gpu, instances=told[gpu]) for gpu in sorted(told))
    # Whole GPUs come first, as nothing says which they are.
    cut = spread(profiles, range(min(plain, count - 1), count), model, memory)
    if cut is None:
        report.warn(
            f"{entry.path}.status.allocatable",
            f"its MIG slices fit no layout of {count - plain} {model} known here: left out",
        )
        return None
    report.warn(
        f"{entry.path}.status.allocatable",
        "slices are counted, not placed: a legal layout of the same slices stands for the real one",
    )
    return tuple(MigGpu(gpu=gpu, instances=cut[gpu]) for gpu in sorted(cut))


def _annotated(config: str, count: int) -> dict[int, tuple[MigInstance, ...]]:
    """A mig-parted configuration with start positions, of which only these lines matter."""
    found: dict[int, list[MigInstance]] = {}
    current: list[int] = []
    for line in config.splitlines():
        if devices := _MIG_DEVICES.fullmatch(line):
            current = [int(word) for word in devices.group(1).replace(",", " ").split()]
        elif (entry := _MIG_LINE.fullmatch(line)) and int(entry.group(1)) <= 15:
            for gpu in current:
                if gpu < count:
                    instance = MigInstance(profile=entry.group(2), start=int(entry.group(1)))
                    found.setdefault(gpu, []).append(instance)
    return {gpu: tuple(sorted(i, key=lambda x: x.start)) for gpu, i in sorted(found.items())}


def _registered(entry: Object, report: Report) -> Devices | None:
    """HAMi's registration of a node: JSON, or `uuid,count,memory,cores,type,numa,health:…`."""
    written = entry.annotations.get("hami.io/node-nvidia-register", "")
    if not written:
        return None
    rows = _hami_rows(written)
    if not rows:
        report.warn(f"{entry.path}.metadata.annotations", "HAMi's registration can't be read")
        return None
    groups: list[GpuGroup] = []
    devices = Devices(exact=True)
    for index, row in enumerate(rows):
        model = name(row.get("type"), UNKNOWN_MODEL)
        memory = whole(row.get("devmem")) or 0
        broken = str(row.get("health")).lower() == "false"
        last = groups[-1] if groups else None
        bad = (index,) if broken else ()
        if last and (last.model, last.memory_mib) == (model, memory) and last.count < MAX_GROUP:
            groups[-1] = last.model_copy(
                update={"count": last.count + 1, "unhealthy": (*last.unhealthy, *bad)}
            )
        else:
            groups.append(GpuGroup(model=model, count=1, memory_mib=memory, unhealthy=bad))
        devices.uuids[text(row.get("id"))] = index
        if row.get("mode") == "mig":
            # HAMi cuts it as it likes; the slices of its pods are added when these are read.
            devices.mig = (*devices.mig, MigGpu(gpu=index))
        devices.replicas = max(devices.replicas, whole(row.get("count")) or 1)
    devices.groups = tuple(groups)
    return devices


def _hami_rows(written: str) -> Sequence[Mapping[str, object]]:
    try:
        rows = listed(json.loads(written))
    except (ValueError, RecursionError):
        keys = ("id", "count", "devmem", "devcore", "type", "numa", "health")
        parts = [row.split(",") for row in written.split(":") if row.count(",") >= 6]
        return [dict(zip(keys, part, strict=False)) for part in parts][:1_024]
    order = [(whole(at(row, "index")), position) for position, row in enumerate(rows)]
    order.sort(key=lambda entry: (entry[0] is None, entry))
    return [mapping(rows[position]) for _, position in order][:1_024]
