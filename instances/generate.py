"""Synthetic clusters by size, load, mix and seed: nodes, fabric, queues, what runs, what waits."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from trencadis.instances.mix import GIB, Mix, Wheel
from trencadis.instances.parts import Parts
from trencadis.instances.workload import NOW, Clock, Shares, pending_jobs, running_jobs
from trencadis.models import (
    Fabric,
    FabricLevel,
    GpuGroup,
    Job,
    Limits,
    Node,
    NvLink,
    Policy,
    Queue,
    Quota,
    Snapshot,
)
from trencadis.models.policy import DEFAULT_SLOWDOWN_MILLI

FIRST, SECOND = "h100", "a100"
GPU_MEMORY_MIB = 80 * GIB
# CPUs and GiB per GPU: two kinds with ample of both, one short of CPUs, one short of memory.
AMPLE = ((28, 256), (24, 224))
LEAN = ((12, 128), (18, 96))
ORGANISATIONS = ("research", "product", "platform", "science", "partners")
LIMITED = 3
"""The first so many leaf queues have limits."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection, which takes a third of the time and finds nothing here."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_uncollected()
def generate(
    nodes: int = 100,
    pending: int = 200,
    load: float = 0.7,
    seed: int = 0,
    queues: int = 10,
    *,
    gang_fraction: float = 1 / 12,
    gpus_per_node: int = 8,
    lean_fraction: float = 0.2,
    second_model_fraction: float = 0.15,
    cpu_only_fraction: float = 0.04,
    broken_fraction: float = 0.004,
    nodes_per_leaf: int | None = None,
    mig: float = 0.0,
    share: float = 0.0,
) -> Snapshot:
    """A cluster in the middle of a working day; the same arguments always give the same snapshot.

    `load`: part of the GPUs that running jobs use. `gang_fraction`: part of the pending jobs that
    are gangs over 2 to 16 nodes. `lean_fraction`: part of the nodes whose CPUs or memory run out
    before their GPUs do. `broken_fraction`: part of the nodes with a broken GPU, and as many that
    are cordoned. `nodes_per_leaf`: 16, or 32 in large clusters, where absent. `mig`, `share`: part
    of the nodes whose GPUs are in MIG mode or shared, and of the pending jobs that ask for that.
    """
    if not (nodes >= 0 and pending >= 0 and queues >= 1 and 1 <= gpus_per_node <= 64):
        raise ValueError("nodes, pending: 0 or more; queues: 1 or more; gpus_per_node: 1 to 64")
    if not 0 <= load <= 1:
        raise ValueError(f"load is a fraction of the GPUs, 0 to 1 (got {load})")
    if not (mig >= 0 and share >= 0 and mig + share <= 1):
        raise ValueError("mig and share are fractions of the nodes, together at most 1")
    rng = random.Random(seed)
    per_leaf = nodes_per_leaf or (32 if nodes > 2_000 else 16)
    machines = _nodes(
        rng,
        nodes,
        gpus_per_node=gpus_per_node,
        lean_fraction=lean_fraction,
        second_fraction=second_model_fraction,
        broken_fraction=broken_fraction,
        per_leaf=per_leaf,
    )
    parts = Parts(seed, machines, mig, share, load)
    models = tuple(dict.fromkeys(group.model for node in machines for group in node.gpus))
    mix = Mix(
        rng,
        gpus_per_node=gpus_per_node,
        gpu_models=models or (FIRST,),
        nodes_per_leaf=per_leaf,
        nodes=nodes,
        cpu_only=cpu_only_fraction,
    )
    parents, leaves = _tree(queues)
    shares = Shares(
        running=Wheel(leaves, [rng.uniform(0.2, 1.8) for _ in leaves]),
        pending=Wheel(leaves, [rng.uniform(0.4, 1.6) for _ in leaves]),
    )
    clock = Clock(rng, pending)
    running = running_jobs(
        rng,
        mix,
        nodes=machines,
        apart=parts.apart,
        load=load,
        gang_fraction=gang_fraction,
        shares=shares,
        clock=clock,
    )
    waiting = pending_jobs(
        rng, mix, count=pending, gang_fraction=gang_fraction, shares=shares, clock=clock
    )
    machines, inference = parts.running(parts.nodes(machines), running)
    running += inference
    waiting = parts.pending(waiting)
    return Snapshot(
        now=NOW,
        nodes=machines,
        fabric=Fabric(
            levels=(FabricLevel(name="pod"), FabricLevel(name="spine"), FabricLevel(name="leaf"))
        ),
        queues=_queues(rng, parents, leaves, machines, running),
        jobs=(*running, *waiting),
        policy=Policy(
            slowdown_milli={**DEFAULT_SLOWDOWN_MILLI, "pod": 80},
            gpu_speed_milli={FIRST: 1_000, SECOND: 500},
        ),
    )


def _nodes(
    rng: random.Random,
    count: int,
    *,
    gpus_per_node: int,
    lean_fraction: float,
    second_fraction: float,
    broken_fraction: float,
    per_leaf: int,
) -> tuple[Node, ...]:
    """Nodes by leaf; a leaf has one GPU model, a rack of four has one kind of CPU and memory."""
    rack = 4 if count >= 80 else 1
    racks = -(-count // rack)
    lean_racks = set(rng.sample(range(racks), round(racks * lean_fraction)))
    kinds = [rng.choice(LEAN if r in lean_racks else AMPLE) for r in range(racks)]
    second_from = count - round(count * second_fraction)
    broken = set(rng.sample(range(count), round(count * broken_fraction)))
    cordoned = set(rng.sample(range(count), round(count * broken_fraction)))
    paths = _paths(second_from, count - second_from, per_leaf)
    nodes = []
    for i in range(count):
        cpus, gib = kinds[i // rack]
        group = GpuGroup(
            model=FIRST if i < second_from else SECOND,
            count=gpus_per_node,
            memory_mib=GPU_MEMORY_MIB,
            unhealthy=(rng.randrange(gpus_per_node),) if i in broken else (),
        )
        nodes.append(
            Node(
                name=f"node-{i:05d}",
                gpus=(group,),
                cpu_milli=cpus * 1_000 * gpus_per_node,
                memory_mib=gib * GIB * gpus_per_node,
                cordoned=i in cordoned,
                nvlink=NvLink(kind="nvswitch"),
                fabric=paths[i],
            )
        )
    return tuple(nodes)


def _paths(first: int, second: int, per_leaf: int) -> list[tuple[str, str, str]]:
    """Pod, spine and leaf of each node. Small clusters get a smaller fan-out, not one spine."""
    leaves = -(-first // per_leaf) - (-second // per_leaf)
    leaves_per_spine = 16 if leaves >= 32 else max(1, -(-leaves // 3))
    spines = -(-leaves // leaves_per_spine)
    spines_per_pod = 4 if spines >= 8 else 2
    paths = []
    for count, before in ((first, 0), (second, -(-first // per_leaf))):
        for i in range(count):
            leaf = before + i // per_leaf
            spine = leaf // leaves_per_spine
            paths.append(
                (
                    f"pod{spine // spines_per_pod + 1}",
                    f"spine{spine % spines_per_pod + 1}",
                    f"leaf{leaf % leaves_per_spine + 1}",
                )
            )
    return paths


def _tree(count: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Parent queues, and leaf queues with their parents: about three leaves to a parent."""
    parents = ORGANISATIONS[: max(1, min(len(ORGANISATIONS), round(count / 3)))]
    owners = [parents[i * len(parents) // count] for i in range(count)]
    return parents, {f"{owner}-{i:02d}": owner for i, owner in enumerate(owners)}


def _queues(
    rng: random.Random,
    parents: Sequence[str],
    leaves: dict[str, str],
    nodes: Sequence[Node],
    running: Sequence[Job],
) -> tuple[Queue, ...]:
    """Guarantees over 60 to 90 % of the GPUs, some limits; no limit is broken at the start."""
    capacity = Counter[str]()
    for node in nodes:
        capacity.update(node.healthy_gpus().values())
    total = capacity.total()
    used = Counter[str]()
    by_user: dict[str, Counter[str]] = {leaf: Counter() for leaf in leaves}
    for job in running:
        gpus = len(job.allocation) * job.request.gpus
        used[job.queue] += gpus
        by_user[job.queue][job.user] += gpus
    guaranteed = total * rng.uniform(0.62, 0.82)
    parts = {leaf: rng.uniform(0.5, 1.5) for leaf in leaves}
    guarantee = {leaf: int(guaranteed * part / sum(parts.values())) for leaf, part in parts.items()}
    queues = []
    for i, parent in enumerate(parents):
        sure = sum(guarantee[leaf] for leaf, owner in leaves.items() if owner == parent)
        # The first organisation may count on more than its teams may count on one by one.
        extra = int(0.06 * total) if i == 0 else 0
        queues.append(
            Queue(name=parent, weight=rng.randint(1, 4), guarantee=Quota(gpus=sure + extra))
        )
    for i, (leaf, owner) in enumerate(leaves.items()):
        own = guarantee[leaf]
        second = {SECOND: capacity[SECOND] // 5} if i == len(leaves) - 1 else {}
        limit = Limits()
        if i < LIMITED - 1:
            limit = Limits(quota=Quota(gpus=max(used[leaf], own) + max(1, own // 10)))
        elif i == LIMITED - 1:
            busiest = max(by_user[leaf].values(), default=0)
            limit = Limits(quota_per_user=Quota(gpus=busiest + max(1, own // 20)))
        queues.append(
            Queue(
                name=leaf,
                parent=owner,
                weight=rng.randint(1, 4),
                guarantee=Quota(gpus=own, by_model=second),
                limit=limit,
                past_usage_gpu_hours=int(used[leaf] * rng.uniform(0, 72)),
            )
        )
    return tuple(queues)
