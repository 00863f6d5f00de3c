"""Whether the MIG instances of a GPU can be there together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from trencadis.models.cluster import MigInstance
from trencadis.models.faults import Fault
from trencadis.models.instances import held_instances
from trencadis.models.mig import MigTable
from trencadis.models.snapshot import Snapshot
from trencadis.models.units import mig_tables


def check_layouts(snapshot: Snapshot) -> Iterator[Fault]:
    """Faults of layouts whose geometry is known: instances that would share memory slices. GPUs
    and starts must have been checked."""
    listed = {(node.name, gpu.gpu): gpu for node in snapshot.nodes for gpu in node.mig}
    there: defaultdict[tuple[str, int], set[MigInstance]] = defaultdict(set)
    for key, gpu in listed.items():
        there[key].update(gpu.instances)
    for key, instances in held_instances(snapshot).items():
        there[key].update(instances)
    if not there:
        return
    tables = mig_tables(snapshot)
    for number, node in enumerate(snapshot.nodes):
        models = [group.model for group in node.gpus for _ in range(group.count)]
        for index, model in enumerate(models):
            clash = _clash(tables.get(model), there.get((node.name, index), set()))
            if clash:
                first, second = clash
                yield Fault(
                    f"$.nodes[{number}].mig",
                    f"MIG instances {first.profile} at {first.start} and {second.profile} at "
                    f"{second.start} of GPU {index} of node {node.name} overlap",
                )


def _clash(
    table: MigTable | None, instances: set[MigInstance]
) -> tuple[MigInstance, MigInstance] | None:
    """The first two of these that overlap."""
    if table is None:
        return None
    end, last = 0, None
    for instance in sorted(instances, key=lambda entry: (entry.start, entry.profile)):
        profile = table.profile(instance.profile)
        if profile is None:
            continue
        if last is not None and instance.start < end:
            return last, instance
        end, last = instance.start + profile.memory_slices, instance
    return None
