"""Decides which named MIG configuration gives a node what a plan wants: mig-parted's, as data.

The GPU operator's mig-manager applies one of these to a whole node; nothing else can be asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trencadis.adapters.kubernetes.fields import listed, mapping, text, whole
from trencadis.adapters.mig_starts import arrange
from trencadis.models import Node

Layout = tuple[str, ...] | None
"""Profiles of one GPU, sorted; None where MIG is off."""
Layouts = tuple[Layout, ...]
"""Those of a node's GPUs, in order."""


class UnreadableError(ValueError):
    """No configuration of mig-parted."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a configuration says of some GPUs."""

    filtered: bool
    """Whether it is for some models alone, told by PCI IDs, which the API server doesn't have."""
    gpus: frozenset[int] | None
    """None: all."""
    layout: Layout


def parse(written: str) -> dict[str, tuple[Part, ...]]:
    """The configurations by name, of `mig-configs`. Raises UnreadableError."""
    import yaml  # noqa: PLC0415

    try:
        found = mapping(yaml.safe_load(written)).get("mig-configs")
    except (yaml.YAMLError, RecursionError, ValueError):
        raise UnreadableError("it is not YAML") from None
    if not isinstance(found, Mapping) or not found:
        raise UnreadableError("it has no mig-configs")
    return {str(key): tuple(_parts(str(key), value)) for key, value in sorted(found.items())}


def _parts(name: str, value: Any) -> Iterable[Part]:
    rows = listed(value)
    if not rows:
        raise UnreadableError(f"configuration {name} is empty")
    for row in rows:
        devices = row.get("devices")
        gpus = None
        if isinstance(devices, list):
            indices = [whole(entry) for entry in devices]
            gpus = frozenset(index for index in indices if index is not None and index >= 0)
        elif text(devices) != "all":
            raise UnreadableError(f"configuration {name} doesn't say for which devices")
        profiles: list[str] = []
        for profile, count in mapping(row.get("mig-devices")).items():
            profiles.extend([str(profile)] * max(0, min(whole(count) or 0, 16)))
        on = row.get("mig-enabled") is True
        yield Part("device-filter" in row, gpus, tuple(sorted(profiles)) if on else None)


def present(node: Node) -> Layouts:
    """The layouts of a node's GPUs now."""
    by_gpu = {entry.gpu: entry.instances for entry in node.mig}
    return tuple(
        tuple(sorted(i.profile for i in by_gpu[gpu])) if gpu in by_gpu else None
        for gpu in range(node.gpu_count)
    )


def applied(parts: Sequence[Part], node: Node) -> Layouts | None:
    """The layouts that a configuration gives a node; None where that isn't certain.

    A part for some models counts as for this one exactly where its profiles fit this one's table.
    """
    models = node.healthy_gpus()
    memory = min((group.memory_mib for group in node.gpus), default=0)
    if len(models) < node.gpu_count or len(set(models.values())) != 1:
        return None
    model = models[0]
    found = list(present(node))
    set_by_filter: dict[int, Layout] = {}
    for part in parts:
        fits = part.layout is not None and arrange(part.layout, model, memory) is not None
        if part.layout is not None and not fits:
            if part.filtered:
                continue
            return None
        if part.filtered and part.layout is None:
            return None
        gpus = range(node.gpu_count) if part.gpus is None else sorted(part.gpus)
        if gpus and gpus[-1] >= node.gpu_count:
            return None
        for gpu in gpus:
            if part.filtered and set_by_filter.setdefault(gpu, part.layout) != part.layout:
                return None
            found[gpu] = part.layout
    return tuple(found)


def offered(layouts: Layouts) -> tuple[Counter[str], int]:
    """Slices by profile, and whole GPUs."""
    slices = Counter(profile for layout in layouts for profile in layout or ())
    return slices, sum(layout is None for layout in layouts)


def choose(
    configs: Mapping[str, Sequence[Part]],
    node: Node,
    wanted: Layouts,
    slices: Mapping[str, int],
    gpus: int,
) -> str | None:
    """The configuration with room for the slices and whole GPUs that the plan starts on the node.

    Of several the one that is nearest to the plan's layouts, then the first by name. As the device
    plugin counts slices of a node, it need not be the same on each GPU.
    """
    best: tuple[tuple[int, int, str], str] | None = None
    now = present(node)
    for name, parts in configs.items():
        layouts = applied(parts, node)
        if layouts is None or layouts == now:
            continue
        have, free = offered(layouts)
        if free < gpus or any(have[profile] < count for profile, count in slices.items()):
            continue
        target, _ = offered(wanted)
        far = sum(((have - target) + (target - have)).values())
        changed = sum(a != b for a, b in zip(layouts, now, strict=True))
        rank = (far, changed, name)
        if best is None or rank < best[0]:
            best = rank, name
    return None if best is None else best[1]
