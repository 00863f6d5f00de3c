"""What can take work, in classes: nodes that admit the same patterns at the same costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trencadis.solver.admission import Admission
from trencadis.solver.bin_types import Classifier
from trencadis.solver.capacity import Capacity, NodeState
from trencadis.solver.demand import Demand
from trencadis.solver.fabric import Domain, Tree
from trencadis.solver.fragmentation import Profile
from trencadis.solver.patterns.whole import (
    BinType,
    Pattern,
    Slot,
    TooManyPatternsError,
    enumerate_patterns,
)
from trencadis.solver.shapes import Need


@dataclass(frozen=True, slots=True)
class BinClass:
    """Interchangeable nodes."""

    type: BinType
    nodes: tuple[NodeState, ...]
    slots: tuple[Slot, ...]
    slot_of: Mapping[int, int]
    """Free slot by index of a need that this class can hold."""
    located_slot_of: Mapping[int, int]
    """Slot by index of a located need."""
    patterns: tuple[Pattern, ...] | None
    """The empty one first; None: too many, the class is pooled."""
    cells: Mapping[Domain, tuple[NodeState, ...]]
    """The nodes by domain, where tasks must be counted by domain; else empty."""
    family: int
    """Classes of one family map needs to slots alike."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The supply of a round, in classes."""

    needs: tuple[Need, ...]
    """Needs that may go anywhere."""
    located: tuple[Need, ...]
    """Needs that are counted by domain."""
    fillers: frozenset[int]
    """Indices of needs without GPUs that share nodes: kept out of patterns."""
    located_fillers: frozenset[int]
    classes: tuple[BinClass, ...]
    grain: int
    """Depth of the domains by which located needs are counted."""
    flows: Mapping[tuple[int, int], tuple[tuple[int, int], ...]]
    """(family, need) -> the (class, slot) pairs that can hold it."""


def supply(
    capacity: Capacity,
    demand: Demand,
    admitted: Admission,
    fabric: Tree,
    profile: Profile,
    pattern_limit: int,
    singled: frozenset[str],
) -> Supply:
    """Sorts nodes into classes and lists the patterns of each.

    `singled`: names of nodes that are to be classes of their own.
    """
    needs: dict[Need, int] = {}
    located: dict[Need, int] = {}
    grain = 0
    for shape in demand.shapes:
        for alt in shape.alternatives:
            way = alt.way
            if 1 <= way.depth <= fabric.depth or way.segment:
                located.setdefault(way.need, len(located))
                grain = max(grain, way.depth, way.segment_depth)
            else:
                needs.setdefault(way.need, len(needs))
    classifier = Classifier(capacity, tuple(needs), tuple(located), profile)
    wanted = _wanted(demand, needs), _wanted(demand, located)
    groups: defaultdict[tuple[BinType, str], list[NodeState]] = defaultdict(list)
    for state in capacity.states:
        key = classifier.bin_type(state, admitted.column[state.name])
        groups[(key, state.name if state.name in singled else "")].append(state)
    families: dict[tuple[object, ...], int] = {}
    cache: dict[BinType, tuple[Pattern, ...] | None] = {}
    classes: list[BinClass] = []
    flows: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for (bin_type, _), states in groups.items():
        slots, slot_of, located_slot_of = classifier.slots(bin_type)
        if bin_type not in cache:
            most = [0] * len(slots)
            for asked, slot_by_need in zip(wanted, (slot_of, located_slot_of), strict=True):
                for need, slot in slot_by_need.items():
                    most[slot] += asked[need]
            cache[bin_type] = _patterns(bin_type, slots, most, profile, pattern_limit, classifier)
        patterns = cache[bin_type]
        cells: defaultdict[Domain, list[NodeState]] = defaultdict(list)
        if located_slot_of or (classifier.located_fillers and grain):
            for state in states:
                cells[fabric.path[state.name][:grain]].append(state)
        alone = states[0].name if states[0].name in singled else ""
        family = families.setdefault((*classifier.family_key(bin_type), alone), len(families))
        for need, slot in slot_of.items():
            flows[(family, need)].append((len(classes), slot))
        classes.append(
            BinClass(
                type=bin_type,
                nodes=tuple(states),
                slots=slots,
                slot_of=slot_of,
                located_slot_of=located_slot_of,
                patterns=patterns,
                cells={domain: tuple(members) for domain, members in cells.items()},
                family=family,
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


def _wanted(demand: Demand, needs: Mapping[Need, int]) -> Counter[int]:
    """By need: how many of it all jobs that could ask for it would take."""
    jobs: Counter[int] = Counter()
    for cls in demand.classes:
        for member in cls.members:
            jobs[member.shape] += len(cls.units)
    asked: Counter[int] = Counter()
    for s, shape in enumerate(demand.shapes):
        for alt in shape.alternatives:
            if alt.way.need in needs:
                asked[needs[alt.way.need]] += jobs[s] * alt.way.count
    return asked


def _patterns(
    bin_type: BinType,
    slots: Sequence[Slot],
    most: Sequence[int],
    profile: Profile,
    limit: int,
    classifier: Classifier,
) -> tuple[Pattern, ...] | None:
    fillers = bool(classifier.fillers or classifier.located_fillers)
    try:
        return tuple(enumerate_patterns(bin_type, slots, most, profile, limit, fillers))
    except TooManyPatternsError:
        return None
