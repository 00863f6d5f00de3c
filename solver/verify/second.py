"""GPUs in MIG mode and shared GPUs: what they hold, what still fits, what is lost (problem.md, 3).

The tables are facts and come with the schema; all that is concluded from them is worked out here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trencadis.models import Job, MigInstance, Node, Snapshot, TaskAllocation
from trencadis.models.mig import MigTable

Instance = tuple[str, int]
"""Profile and start."""


@dataclass(frozen=True, slots=True)
class Mig:
    """A GPU in MIG mode."""

    model: str
    used: frozenset[Instance]
    idle: frozenset[Instance]
    fixed: bool
    cost: int = 0
    """What its new layout costs, GPU-seconds."""
    off: int | None = None
    """What it costs to turn MIG off, where that is allowed and nobody uses the GPU."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A GPU that jobs share, and what is left of it."""

    model: str
    milli: int
    memory: int | None
    """MiB; None where unknown."""
    slots: int


@dataclass(frozen=True, slots=True)
class Second:
    """The second stage of a node."""

    gpus: Mapping[int, Mig | Shared] = field(default_factory=dict)
    turn_on: frozenset[str] = frozenset()
    """Models of which idle GPUs may be put in MIG mode."""
    slots: int = 0
    """Shares that an idle GPU takes."""
    memory: tuple[tuple[str, int | None], ...] = ()
    """MiB of a GPU by model, where these may be shared."""
    spent: int = 0
    """What it costs that MIG was turned off on GPUs which are whole now."""
    _known: list[tuple[object, ...]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def key(self) -> tuple[object, ...]:
        """Equal for nodes that no task tells apart; worked out once."""
        if not self._known:
            self._known.append(self._key())
        return self._known[0]

    def _key(self) -> tuple[object, ...]:
        gpus = [
            (gpu.model, "mig", tuple(sorted(gpu.used)), tuple(sorted(gpu.idle)), gpu.fixed, gpu.off)
            if isinstance(gpu, Mig)
            else (gpu.model, "shared", gpu.milli, gpu.memory or -1, gpu.memory is None, gpu.slots)
            for gpu in self.gpus.values()
        ]
        return (
            tuple(sorted(gpus, key=repr)), tuple(sorted(self.turn_on)), self.slots, self.memory
        )

    @property
    def cost(self) -> int:
        """What new layouts cost, and MIG turned off."""
        return self.spent + sum(gpu.cost for gpu in self.gpus.values() if isinstance(gpu, Mig))

    def offs(self) -> dict[int, Mig]:
        """GPUs on which MIG may be turned off, the cheapest first."""
        found = {
            index: gpu
            for index, gpu in self.gpus.items()
            if isinstance(gpu, Mig) and gpu.off is not None
        }
        return dict(sorted(found.items(), key=lambda item: (item[1].off or 0, item[0])))

    def turned_off(self, gpus: Iterable[int]) -> Second:
        """The same with MIG turned off on these GPUs, which are taken as whole ones."""
        offs = self.offs()
        gone = [index for index in gpus if index in offs]
        if not gone:
            return self
        left = {index: gpu for index, gpu in self.gpus.items() if index not in gone}
        spent = self.spent + sum(offs[index].off or 0 for index in gone)
        return replace(self, gpus=left, spent=spent)


def second_of(
    snapshot: Snapshot,
    tables: Mapping[str, MigTable],
    node: Node,
    tenants: Sequence[tuple[Job | None, TaskAllocation]],
    *,
    counted: bool,
) -> Second:
    """The second stage of a node with these tasks on it."""
    if counted or not (node.mig or node.shareable or tenants or node.gpus):
        return Second()
    models = node.healthy_gpus()
    gpus: dict[int, Mig | Shared] = {}
    gpus.update(_shared(node, models, tenants))
    gpus.update(_mig(snapshot, tables, node, models, tenants))
    vague = any(job is None or (job.request.share and not task.gpus) for job, task in tenants)
    changeable = _changeable(snapshot, tables, node, vacant=not tenants)
    slots = node.max_jobs_per_gpu if node.shareable and not vague else 0
    memory = tuple((m, _memory(node, m)) for m in sorted({g.model for g in node.gpus}) if slots)
    return Second(gpus, changeable, slots, memory)


def _changeable(
    snapshot: Snapshot, tables: Mapping[str, MigTable], node: Node, *, vacant: bool
) -> frozenset[str]:
    """Models of which idle GPUs may be put in MIG mode, and out of it."""
    policy = snapshot.policy.mig
    allowed = policy.mode == "free" or (policy.mode == "per_node" and node.mig_mode_changes)
    if not allowed or node.precision != "mig" or _fixed(snapshot, node):
        return frozenset()
    here = {group.model for group in node.gpus} & tables.keys()
    return frozenset(m for m in here if vacant or tables[m].mode_change == "live")


def _fixed(snapshot: Snapshot, node: Node) -> bool:
    return (node.mig_reconfigure or snapshot.policy.mig.reconfigure) == "forbid"


def _memory(node: Node, model: str) -> int | None:
    return min(group.memory_mib for group in node.gpus if group.model == model) or None


def _mig(
    snapshot: Snapshot,
    tables: Mapping[str, MigTable],
    node: Node,
    models: Mapping[int, str],
    tenants: Sequence[tuple[Job | None, TaskAllocation]],
) -> dict[int, Mig]:
    if node.precision != "mig" or not node.mig:
        return {}
    used: dict[int, list[Instance]] = {}
    other: set[int] = set()
    for job, task in tenants:
        request = job.request if job is not None else None
        asks = request is not None and (
            request.mig or request.mig_memory_mib or request.mig_compute_milli
        )
        if not asks:
            other.update(task.gpus or ())
            continue
        if not task.mig or len(task.gpus or ()) != len(task.mig):
            return {}
        for gpu, instance in zip(task.gpus or (), task.mig, strict=True):
            used.setdefault(gpu, []).append((instance.profile, instance.start))
    changeable = _changeable(snapshot, tables, node, vacant=not tenants)
    rates = snapshot.policy.mig
    found: dict[int, Mig] = {}
    for entry in node.mig:
        model = models.get(entry.gpu)
        if model is None or model not in tables or entry.gpu in other:
            continue
        mine = used.get(entry.gpu, [])
        listed = {(i.profile, i.start) for i in entry.instances}
        idle = listed - set(mine)
        if legal(tables[model], [*mine, *idle]):
            found[entry.gpu] = Mig(
                model,
                frozenset(mine),
                frozenset(idle),
                _fixed(snapshot, node),
                off=rates.mode_seconds + (rates.reconfigure_seconds if idle else 0)
                if model in changeable and not mine and node.nvlink.kind != "links"
                else None,
            )
    return found


def _shared(
    node: Node, models: Mapping[int, str], tenants: Sequence[tuple[Job | None, TaskAllocation]]
) -> dict[int, Shared]:
    shares: dict[int, list[tuple[int, int]]] = {}
    other = {entry.gpu for entry in node.mig}
    for job, task in tenants:
        share = job.request.share if job is not None else None
        for gpu in task.gpus or ():
            if share is None:
                other.add(gpu)
            else:
                shares.setdefault(gpu, []).append((share.gpu_milli, share.memory_mib))
    found: dict[int, Shared] = {}
    for gpu, here in shares.items():
        if gpu not in other and gpu in models:
            memory = _memory(node, models[gpu])
            found[gpu] = Shared(
                models[gpu],
                max(0, 1_000 - sum(milli for milli, _ in here)),
                None if memory is None else max(0, memory - sum(mib for _, mib in here)),
                max(0, node.max_jobs_per_gpu - len(here)) if node.shareable else 0,
            )
    return found


def legal(table: MigTable, layout: Collection[Instance]) -> bool:
    """Whether a GPU can have just these instances."""
    profiles = {profile.name: profile for profile in table.profiles}
    numbers = Counter(name for name, _ in layout)
    if not numbers.keys() <= profiles.keys():
        return False
    if any(count > profiles[name].most for name, count in numbers.items()):
        return False
    ends = 0
    for start, name in sorted((start, name) for name, start in layout):
        if start not in profiles[name].starts or start < ends:
            return False
        ends = start + profiles[name].memory_slices
    return all(
        sum(n * profiles[name].engines.get(engine, 0) for name, n in numbers.items()) <= most
        for engine, most in table.engines.items()
    )


def names(instances: Iterable[MigInstance]) -> set[Instance]:
    """Profiles and starts."""
    return {(instance.profile, instance.start) for instance in instances}
