"""What could be idle once running jobs have gone: nodes that differ, in few classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from trencadis.solver.bin_classes import BinClass, Supply
from trencadis.solver.bin_types import Classifier, bin_graph
from trencadis.solver.capacity import NodeState
from trencadis.solver.demand import Demand
from trencadis.solver.fabric import Domain
from trencadis.solver.model.problem import Facts
from trencadis.solver.patterns.bins import BinType
from trencadis.solver.supply import sort_needs


def emptied(read: Facts, states: Sequence[NodeState], demand: Demand) -> Supply:
    """The supply of these states, each class without patterns and of nodes that differ."""
    needs, located, grain = sort_needs(demand, read.fabric)
    classifier = Classifier(read.capacity, tuple(needs), tuple(located), read.profile)
    groups: defaultdict[tuple[object, ...], list[NodeState]] = defaultdict(list)
    for state in states:
        kind = classifier.bin_type(state, read.admission.column[state.name])
        alike = kind.idle if kind.graph is not None else tuple(model for model, _ in kind.idle)
        groups[(kind.column, kind.graph, kind.nvswitch, kind.vacant, alike)].append(state)
    classes: list[BinClass] = []
    flows: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for members in groups.values():
        largest = _largest(classifier, members, read.admission.column[members[0].name])
        slots, slot_of, located_slot_of = classifier.slots(largest)
        cells: defaultdict[Domain, list[NodeState]] = defaultdict(list)
        if located_slot_of or (classifier.located_fillers and grain):
            for state in members:
                cells[read.fabric.path[state.name][:grain]].append(state)
        index = len(classes)
        for need, slot in slot_of.items():
            flows[(index, need)].append((index, slot))
        classes.append(
            BinClass(
                type=largest,
                nodes=tuple(members),
                slots=slots,
                slot_of=slot_of,
                located_slot_of=located_slot_of,
                patterns=None,
                cells={domain: tuple(inside) for domain, inside in cells.items()},
                family=index,
                pool=index,
                mixed=True,
            )
        )
    return Supply(
        needs=tuple(needs),
        located=tuple(located),
        fillers=classifier.fillers,
        located_fillers=classifier.located_fillers,
        classes=tuple(classes),
        grain=grain,
        flows={key: tuple(pairs) for key, pairs in flows.items()},
    )


def _largest(classifier: Classifier, members: Sequence[NodeState], column: int) -> BinType:
    """A type with all that any of these nodes has: what fits one of them fits it."""
    first = classifier.bin_type(members[0], column)
    graph = bin_graph(members[0].node) if first.graph is not None else None
    idle = first.idle
    if graph is None:
        # GPUs in MIG mode that may be turned into whole ones count as such.
        models = {model for state in members for model in state.idle}
        models |= {cut.model for state in members for cut in state.cuts}
        most = {model: max(state.takes(model) for state in members) for model in sorted(models)}
        idle = tuple((model, gpus) for model, gpus in most.items() if gpus)
    parts = bool(classifier.cut)
    return BinType(
        column=column,
        idle=idle,
        graph=first.graph,
        nvswitch=first.nvswitch,
        free=tuple(map(max, zip(*(state.free for state in members), strict=True))),
        vacant=first.vacant,
        cuts=tuple({cut for state in members for cut in state.cuts}) if parts else (),
        blanks=tuple(
            {blank.model: blank for state in members for blank in state.blanks.values()}.values()
        )
        if parts
        else (),
    )
