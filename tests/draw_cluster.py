"""Tiny clusters: nodes, fabric, and what is still free on them while jobs are drawn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pen import Pen

from trencadis.models import (
    Fabric,
    FabricLevel,
    GpuGroup,
    MigGpu,
    MigInstance,
    Node,
    NvLink,
    Request,
    Taint,
    TaskAllocation,
    Window,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MODELS = ("a100", "h100")
MEMORY_MIB = {"a100": 40_960, "h100": 81_920}
PROFILES = {
    "a100": ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.10gb", "1g.5gb+me"),
    "h100": ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.20gb", "1g.10gb+me"),
}
"""MIG profiles: 1, 2, 3, 4 and 7 slices, one with double memory, one with media engines."""
LAYOUTS: tuple[tuple[tuple[int, int], ...], ...] = (
    (),
    ((2, 0),),
    ((0, 0), (0, 1), (0, 5)),
    ((2, 4), (1, 0)),
    ((3, 0), (2, 4)),
    ((1, 2),),
    ((5, 6), (6, 3)),
    ((0, 2), (1, 4)),
)
"""(profile, start) of the instances of a GPU."""
LEVELS = ("spine", "leaf")


class Cluster:
    """Nodes with what running and held tasks have left on them."""

    def __init__(self, nodes: list[Node], fabric: Fabric, by_count: set[str]) -> None:
        self.fabric = fabric
        self._nodes = nodes
        self.by_count = by_count
        """Nodes whose allocations tell no indices."""
        self.gpus: dict[str, dict[int, str]] = {}
        self.free: dict[str, dict[str, int]] = {}
        for node in nodes:
            mig = {entry.gpu for entry in node.mig}
            self.gpus[node.name] = {
                index: model for index, model in node.healthy_gpus().items() if index not in mig
            }
            room = {"cpu": node.cpu_milli, "memory": node.memory_mib, **node.resources}
            self.free[node.name] = room

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self._nodes)

    @property
    def models(self) -> tuple[str, ...]:
        found = {group.model for node in self._nodes for group in node.gpus}
        return tuple(sorted(found))

    @property
    def largest(self) -> int:
        """GPUs of the largest node, at least 1."""
        return max([1, *(node.gpu_count for node in self._nodes)])

    @property
    def supply(self) -> int:
        return sum(node.gpu_count for node in self._nodes)

    def levels(self) -> tuple[str, ...]:
        return (*(level.name for level in self.fabric.levels), "node")

    def take(
        self, request: Request, tasks: int, models: tuple[str, ...], order: tuple[str, ...]
    ) -> tuple[TaskAllocation, ...]:
        """Places the tasks first fit on one model; nothing, and no change, where they don't fit."""
        for model in (models or self.models) if request.gpus else ("",):
            gpus = {name: dict(left) for name, left in self.gpus.items()}
            free = {name: dict(left) for name, left in self.free.items()}
            placed: list[TaskAllocation] = []
            for name in (name for name in order for _ in range(tasks)):
                if len(placed) == tasks:
                    break
                chips = [index for index, here in gpus[name].items() if here == model]
                wanted = {"cpu": request.cpu_milli, "memory": request.memory_mib}
                wanted |= request.resources
                if len(chips) < request.gpus:
                    continue
                if any(free[name].get(key, 0) < count for key, count in wanted.items()):
                    continue
                mine = tuple(chips[: request.gpus])
                for index in mine:
                    del gpus[name][index]
                for key, count in wanted.items():
                    if count:
                        free[name][key] -= count
                known = name not in self.by_count
                placed.append(TaskAllocation(node=name, gpus=mine if known else None))
            if len(placed) == tasks:
                self.gpus, self.free = gpus, free
                return tuple(placed)
        return ()


def draw_cluster(pen: Pen) -> Cluster:
    fabric = _fabric(pen)
    count = pen.of(2, 3, 4, 1) if pen.has("gangs") else pen.between(1, 3)
    nodes = [_node(pen, f"n{i}", fabric, alone=count == 1) for i in range(count)]
    if count > 1 and pen.between(1, 3) == 3:
        nodes[1] = nodes[0].model_copy(update={"name": "n1"})
    by_count = {
        node.name
        for node in nodes
        if len(node.gpus) < 2 and (node.precision == "node" or pen.some("counted", 3))
    }
    return Cluster(nodes, fabric, by_count)


def _fabric(pen: Pen) -> Fabric:
    depth = pen.between(0, 2) if pen.has("fabric") else 0
    levels = LEVELS[2 - depth :]
    return Fabric(
        levels=tuple(
            FabricLevel(
                name=name,
                kind=pen.of(None, None, "odd"),
                boundary=pen.some("fabric", 4),
            )
            for name in levels
        )
    )


def _node(pen: Pen, name: str, fabric: Fabric, *, alone: bool) -> Node:
    if alone:
        gpus = pen.of(1, 2, 2, 3, 4, 4, 8)
    elif pen.has("gangs"):
        gpus = pen.of(1, 2, 2, 1, 4)
    else:
        gpus = pen.of(1, 2, 2, 3, 4)
    if pen.some("cpu", 8):
        gpus = 0
    groups: tuple[GpuGroup, ...] = ()
    if gpus:
        model = pen.of(*MODELS) if pen.has("models") else MODELS[0]
        broken = (pen.between(0, gpus - 1),) if pen.some("unhealthy", 2) else ()
        if pen.has("slices"):
            gpus = min(gpus, 3)
            broken = tuple(index for index in broken if index < gpus)
        if gpus == 4 and pen.some("models", 3):
            groups = (_group(pen, MODELS[1], 2), _group(pen, MODELS[0], 2))
        else:
            groups = (_group(pen, model, gpus, broken),)
    mig = _mig(pen, groups) if len(groups) == 1 else ()
    nvlink = _nvlink(pen, gpus)
    path = tuple(f"{level.name}{pen.of(0, 0, 1, 1, 2)}" for level in fabric.levels)
    counted = len(groups) < 2 and pen.some("counted", 3)
    return Node(
        name=name,
        gpus=groups,
        mig=mig,
        cpu_milli=pen.of(2_000, 3_000, 4_000, 8_000) if pen.has("cpu") else 0,
        memory_mib=pen.of(4_000, 1_000, 9_000, 2_000, 0) if pen.has("cpu") else 0,
        resources={"nic": pen.of(1, 2, 3)} if pen.has("resources") else {},
        labels={"zone": pen.of("east", "west")} if pen.some("labels", 1) else {},
        taints=_taints(pen),
        cordoned=pen.some("outages", 5),
        down=pen.some("outages", 5),
        free_until=NOW + timedelta(seconds=pen.of(600, 3_600, -60))
        if pen.some("outages", 3)
        else None,
        maintenance=_windows(pen) if pen.some("outages", 3) else (),
        health_score_milli=pen.of(1_000, 500, 400, 100) if pen.has("health") else 1_000,
        nvlink=nvlink,
        fabric=path if pen.between(1, 12) < 12 else path[:-1],
        precision="node" if counted else pen.of("mig", "mig", "gpu"),
        mig_reconfigure=pen.of(None, None, "forbid", "idle") if pen.has("slices") else None,
        mig_mode_changes=pen.some("slices", 2),
        shareable=pen.some("shares", 2),
        max_jobs_per_gpu=pen.of(1, 2, 3) if pen.has("shares") else 1,
    )


def _windows(pen: Pen) -> tuple[Window, ...]:
    """One or two windows: over, under way, or to come."""
    starts = [pen.of(600, 3_600, 0, -60, -7_200) for _ in range(pen.of(1, 1, 2))]
    return tuple(
        Window(start=NOW + timedelta(seconds=s), end=NOW + timedelta(seconds=s + 600))
        for s in starts
    )


def _group(pen: Pen, model: str, count: int, broken: tuple[int, ...] = ()) -> GpuGroup:
    known = pen.has("slices") or pen.has("mig")
    memory = MEMORY_MIB[model] if known else 0
    return GpuGroup(model=model, count=count, memory_mib=memory, unhealthy=broken)


def _mig(pen: Pen, groups: tuple[GpuGroup, ...]) -> tuple[MigGpu, ...]:
    few = not (pen.some("mig", 2) or (pen.has("slices") and pen.between(1, 4) < 4))
    if not groups or few:
        return ()
    profiles = PROFILES[groups[0].model]
    number = min(groups[0].count, pen.of(1, 1, 2) if pen.has("slices") else 1)
    return tuple(
        MigGpu(
            gpu=gpu,
            instances=tuple(
                MigInstance(profile=profiles[p], start=start) for p, start in pen.of(*LAYOUTS)
            ),
        )
        for gpu in range(number)
    )


def _taints(pen: Pen) -> tuple[Taint, ...]:
    if not pen.some("taints", 2):
        return ()
    return (
        Taint(
            key=pen.of("team", "spot"),
            value=pen.of("", "x"),
            effect=pen.of("NoSchedule", "NoExecute", "PreferNoSchedule"),
        ),
    )


def _nvlink(pen: Pen, gpus: int) -> NvLink:
    if gpus < 2 or not pen.has("nvlink") or pen.between(1, 4) == 1:
        return NvLink()
    if gpus > 4 or pen.between(1, 3) == 1:
        return NvLink(kind="nvswitch")
    pairs = {
        2: (((0, 1),),),
        3: (((0, 1),), ((0, 2), (1, 2)), ((1, 2),)),
        4: (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1), (1, 2), (2, 3)), ((0, 3), (1, 3))),
    }
    return NvLink(kind="links", links=pen.of(*pairs[gpus]))
