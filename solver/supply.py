"""What can take work, in classes: nodes that admit the same patterns at the same costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from trencadis.solver.admission import Admission
from trencadis.solver.bin_classes import BinClass, Kind, Supply
from trencadis.solver.bin_types import Classifier
from trencadis.solver.capacity import Capacity, NodeState
from trencadis.solver.demand import Demand
from trencadis.solver.fabric import Domain, Tree
from trencadis.solver.fragmentation import Profile
from trencadis.solver.opened import (
    by_cut,
    by_hand,
    can_open,
    hands_of,
    is_hand,
    part_type,
    parts_of,
    whole_of,
)
from trencadis.solver.patterns.single import Single, is_single
from trencadis.solver.patterns.whole import (
    STATES,
    BinType,
    Pattern,
    Slot,
    TooManyPatternsError,
    enumerate_patterns,
)
from trencadis.solver.shapes import Need

FEW_STATES = 4
"""Of `STATES`, what is left after some lists were given up."""
MOST_TOGETHER = 150
"""Patterns of GPUs in parts up to which these are counted together with their node."""


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
    needs, located, grain = sort_needs(demand, fabric)
    classifier = Classifier(capacity, tuple(needs), tuple(located), profile)
    wanted = _wanted(demand, needs), _wanted(demand, located)
    groups: defaultdict[tuple[BinType, str], list[NodeState]] = defaultdict(list)
    for state in capacity.states:
        key = classifier.bin_type(state, admitted.column[state.name])
        groups[(key, state.name if state.name in singled else "")].append(state)
    maker = _Maker(classifier, wanted, fabric, grain, profile, pattern_limit)
    for (bin_type, alone), states in groups.items():
        maker.add(bin_type, alone, states)
    maker.add_parts()
    return Supply(
        needs=tuple(needs),
        located=tuple(located),
        fillers=classifier.fillers,
        located_fillers=classifier.located_fillers,
        classes=tuple(maker.classes),
        grain=grain,
        flows={key: tuple(pairs) for key, pairs in maker.flows.items()},
    )


def sort_needs(demand: Demand, fabric: Tree) -> tuple[dict[Need, int], dict[Need, int], int]:
    """The needs that may go anywhere, those that are counted by domain, each with its index, and
    the depth of these domains."""
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
    return needs, located, grain


class _Maker:
    """Makes the classes."""

    def __init__(
        self,
        classifier: Classifier,
        wanted: tuple[Mapping[int, int], Mapping[int, int]],
        fabric: Tree,
        grain: int,
        profile: Profile,
        limit: int,
    ) -> None:
        self.classifier, self.wanted, self.fabric, self.grain = classifier, wanted, fabric, grain
        self.profile, self.limit = profile, limit
        self.classes: list[BinClass] = []
        self.flows: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self._families: dict[tuple[object, ...], int] = {}
        self._patterns: dict[tuple[BinType, bool], tuple[Pattern, ...] | None] = {}
        self._singles: dict[tuple[tuple[Slot, ...], tuple[int, ...]], Single] = {}
        self._given_up = 0
        self._sizes: dict[BinType, int] = {}
        self._parts: defaultdict[tuple[BinType, str, int], list[NodeState]] = defaultdict(list)
        """GPUs in parts by type, by name of a node that is alone, and by pool."""

    def add(self, bin_type: BinType, alone: str, states: Sequence[NodeState]) -> None:
        """The class of these nodes; where they have too many patterns, one for their whole GPUs
        and one for each kind of GPU in parts."""
        slots = self.classifier.slots(bin_type)[0]
        if can_open(bin_type, slots, self.classifier.located) and self._many(bin_type):
            base = len(self.classes)
            if self._open(bin_type, alone, states):
                return
            del self.classes[base:]
        self._class(bin_type, alone, states)

    def add_parts(self) -> None:
        """The classes of GPUs in parts, those of all nodes taken apart together.

        What differs may still be filled in the same ways, each at the same change of F: such GPUs
        are one class.
        """
        alike: defaultdict[
            tuple[str, int, tuple[object, ...]], list[tuple[Kind, list[NodeState]]]
        ] = defaultdict(list)
        for (part, alone, pool), members in self._parts.items():
            slots, *slots_of = self.classifier.slots(part)
            patterns = self._list(part, slots, slots_of[0], slots_of[1])
            ways: tuple[object, ...] = (part,)
            if patterns is not None:
                of = tuple(tuple(table.items()) for table in slots_of)
                family = self.classifier.family_key(part)
                ways = (family, slots, of, self._effects(patterns))
            alike[(alone, pool, ways)].append((Kind(part, patterns or (), len(members)), members))
        for key, group in alike.items():
            kinds = tuple(kind for kind, _ in group)
            states = [state for _, members in group for state in members]
            several = kinds if len(kinds) > 1 else ()
            self._class(kinds[0].type, key[0], states, pool=key[1], kinds=several)

    def _effects(self, patterns: Sequence[Pattern]) -> tuple[tuple[object, ...], ...]:
        """What patterns do, F as the change from the empty one."""
        scale = int if self.profile.weight_milli is None else self.profile.weighted
        empty = scale(patterns[0].fragmentation)
        return tuple(
            (p.counts, p.used, p.reserve, p.costs, scale(p.fragmentation) - empty) for p in patterns
        )

    def _many(self, bin_type: BinType) -> bool:
        """Whether the GPUs in parts alone make more patterns than a class should have."""
        number = 1
        for part, count in parts_of(self.profile.cutter, bin_type):
            number *= self._size(part) ** count
            if number > min(self.limit, MOST_TOGETHER):
                return True
        return False

    def _size(self, part: BinType) -> int:
        if part not in self._sizes:
            slots, slot_of, located_slot_of = self.classifier.slots(part)
            patterns = self._list(part, slots, slot_of, located_slot_of)
            self._sizes[part] = self.limit + 1 if patterns is None else len(patterns)
        return self._sizes[part]

    def _open(self, bin_type: BinType, alone: str, states: Sequence[NodeState]) -> bool:
        """Adds the class of the whole GPUs and those of the parts; whether that could be done."""
        base, knife = len(self.classes), self.profile.cutter
        whole = whole_of(bin_type)
        hands = hands_of(knife, bin_type, self.classifier.cut)
        self._class(whole, alone, states, hands=hands, whole=True)
        if self.classes[base].patterns is None:
            return False
        pool = self.classes[base].family
        for cut, members in by_cut(states).items():
            self._parts[(part_type(bin_type, cut), alone, pool)].extend(members)
        for hand, cut, members in by_hand(knife, bin_type, self.classes[base].slots, states):
            self._class(part_type(bin_type, cut), alone, members, pool=pool, feed=(base, hand))
        return True

    def _list(
        self,
        bin_type: BinType,
        slots: Sequence[Slot],
        slot_of: Mapping[int, int],
        located_slot_of: Mapping[int, int],
        *,
        whole: bool = False,
    ) -> tuple[Pattern, ...] | None:
        """The patterns; None: too many."""
        key = (bin_type, whole)
        if key in self._patterns:
            return self._patterns[key]
        every = sum(self.wanted[0].values())
        most = [every if is_hand(slot) else 0 for slot in slots]
        for asked, slot_by_need in zip(self.wanted, (slot_of, located_slot_of), strict=True):
            for need, slot_ in slot_by_need.items():
                most[slot_] += asked[need]
        # What is put into opened GPUs takes CPU and memory that the patterns don't count, too.
        fillers = whole or bool(self.classifier.fillers or self.classifier.located_fillers)
        found: tuple[Pattern, ...] | None
        try:
            if is_single(bin_type, slots):
                found = tuple(self._single(slots, most).patterns(bin_type, self.limit))
            else:
                # Each list that was given up makes the next one be given up sooner: clusters where
                # many kinds of node have too many patterns would take their whole time here.
                states = max(FEW_STATES, STATES >> self._given_up)
                found = tuple(
                    enumerate_patterns(
                        bin_type, slots, most, self.profile, self.limit, fillers, states
                    )
                )
        except TooManyPatternsError:
            self._given_up += 1
            found = None
        self._patterns[key] = found
        return found

    def _single(self, slots: Sequence[Slot], most: Sequence[int]) -> Single:
        key = (tuple(slots), tuple(most))
        if key not in self._singles:
            self._singles[key] = Single(key[0], key[1], self.profile)
        return self._singles[key]

    def _class(
        self,
        bin_type: BinType,
        alone: str,
        states: Sequence[NodeState],
        *,
        hands: Sequence[Slot] = (),
        whole: bool = False,
        pool: int | None = None,
        feed: tuple[int, int] | None = None,
        kinds: tuple[Kind, ...] = (),
    ) -> None:
        slots, slot_of, located_slot_of = self.classifier.slots(bin_type, whole=whole)
        slots = (*slots, *hands)
        cells: defaultdict[Domain, list[NodeState]] = defaultdict(list)
        if located_slot_of or (self.classifier.located_fillers and self.grain and pool is None):
            for state in states:
                cells[self.fabric.path[state.name][: self.grain]].append(state)
        kind = (*self.classifier.family_key(bin_type), alone, pool, feed is not None)
        family = self._families.setdefault(kind, len(self._families))
        for need, slot in slot_of.items():
            self.flows[(family, need)].append((len(self.classes), slot))
        self.classes.append(
            BinClass(
                type=bin_type,
                nodes=tuple(states),
                slots=slots,
                slot_of=slot_of,
                located_slot_of=located_slot_of,
                patterns=self._list(bin_type, slots, slot_of, located_slot_of, whole=whole),
                cells={domain: tuple(members) for domain, members in cells.items()},
                family=family,
                pool=family if pool is None else pool,
                feed=feed,
                opened=whole or pool is not None,
                kinds=kinds,
            )
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
