"""Decides what a plan may cut GPUs into: what some configuration of mig-manager's can make.

Else a plan would count on slices that nobody can make, for jobs that then wait for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from trencadis.adapters.kubernetes.live.mig_configs import Layout, Part, applied, present
from trencadis.models import Node, Snapshot
from trencadis.models.mig import MigTable
from trencadis.models.units import mig_tables


def limited(snapshot: Snapshot, configs: Mapping[str, Sequence[Part]]) -> Snapshot:
    """The snapshot, whose tables have only profiles that there are or can be, as often as that.

    It admits too much, never too little: what a GPU may have beside what, and which GPUs of a node
    go together, is for the choice of a configuration (`mig_configs.choose`).
    """
    tables = mig_tables(snapshot)
    most: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seen: set[tuple[object, ...]] = set()
    for node in snapshot.nodes:
        if (alike := (node.gpus, node.mig)) in seen:
            continue
        seen.add(alike)
        models = node.healthy_gpus()
        for layouts in (present(node), *(applied(parts, node) for parts in configs.values())):
            for gpu, layout in enumerate(layouts or ()):
                if gpu in models:
                    most[models[gpu]] |= Counter(layout or ())
    for model, layout in _running(snapshot):
        most[model] |= Counter(layout)
    found = {model: _part(table, most[model]) for model, table in tables.items()}
    mig = snapshot.policy.mig.model_copy(update={"tables": {**snapshot.policy.mig.tables, **found}})
    policy = snapshot.policy.model_copy(update={"mig": mig})
    return snapshot.model_copy(update={"policy": policy})


def _running(snapshot: Snapshot) -> Iterable[tuple[str, Layout]]:
    """What jobs have on GPUs, should the nodes' lists lack it."""
    nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
    by_gpu: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for job in snapshot.jobs:
        for task in job.allocation:
            for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
                by_gpu[task.node, gpu].append(instance.profile)
    for (name, gpu), profiles in by_gpu.items():
        model = nodes[name].healthy_gpus().get(gpu) if name in nodes else None
        if model is not None:
            yield model, tuple(profiles)


def _part(table: MigTable, most: Counter[str]) -> MigTable:
    """The table with these profiles alone. All of it where it has none: then nothing is cut."""
    kept = tuple(
        profile.model_copy(update={"most": min(profile.most, most[profile.name])})
        for profile in table.profiles
        if most[profile.name]
    )
    return table.model_copy(update={"profiles": kept}) if kept else table
