"""From counts of patterns to places on named nodes."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from trencadis.solver.capacity import NodeState
from trencadis.solver.fabric import Domain
from trencadis.solver.model.build import Model
from trencadis.solver.model.columns import located_part
from trencadis.solver.model.problem import Problem
from trencadis.solver.opened import is_hand
from trencadis.solver.patterns.recipes import Recipe, moved, recipe, turned_off
from trencadis.solver.patterns.whole import Slot


@dataclass(slots=True)
class Places:
    """Free places by what they are for."""

    free: defaultdict[tuple[int, Slot], deque[str]]
    """(family, slot) -> node names."""
    located: defaultdict[int, defaultdict[Domain, deque[str]]]
    """Located need -> domain -> node names."""
    reserve: dict[str, tuple[int, ...]]
    """By node: CPU, memory and resources that its pattern keeps free for fragmentation's sake."""
    recipes: dict[str, Recipe]
    """By node: where its pattern puts slices and shares."""


def fill_bins(problem: Problem, model: Model, solution: Sequence[int]) -> Places:
    """Gives each bin its pattern, in order of name."""
    return _Filler(problem, model, solution).run()


class _Filler:
    def __init__(self, problem: Problem, model: Model, solution: Sequence[int]) -> None:
        self.problem, self.columns, self.x = problem, model.columns, solution
        self.path = problem.facts.fabric.path
        self._pool_taken: dict[str, Counter[str]] = {}
        self._recipes: dict[tuple[int, int, int], Recipe] = {}
        self._kind_of: dict[int, dict[int, int]] = {}
        """By class: the kind of each bin, by the id of its state."""
        self._handed: defaultdict[tuple[int, int], list[NodeState]] = defaultdict(list)
        """Nodes of the whole GPUs that patterns hand over, by class and slot."""
        self._fresh: Counter[str] = Counter()

    def run(self) -> Places:
        """Gives each bin its pattern."""
        places = Places(
            free=defaultdict(deque),
            located=defaultdict(lambda: defaultdict(deque)),
            reserve={},
            recipes={},
        )
        supply = self.problem.supply
        patterns: defaultdict[int, list[int]] = defaultdict(list)
        for (c, p), column in self.columns.fills.items():
            patterns[c].extend([p] * self.x[column])
        parts: defaultdict[tuple[int, object], deque[Domain]] = defaultdict(deque)
        for (c, domain, part), column in self.columns.parts.items():
            parts[(c, part)].extend([domain] * self.x[column])
        # Nodes first: their patterns say which of their whole GPUs are opened.
        for c in sorted(patterns, key=lambda c: (supply.classes[c].feed is not None, c)):
            for p, state in self._assigned(c, patterns[c], parts):
                self._open(places, c, p, state)
        for (c, s, domain), column in self.columns.pooled.items():
            self._open_pool(places, c, s, domain, self.x[column])
        return places

    def _assigned(
        self,
        c: int,
        chosen: Sequence[int],
        parts: defaultdict[tuple[int, object], deque[Domain]],
    ) -> list[tuple[int, NodeState]]:
        """A bin for each pattern of a class."""
        cls = self.problem.supply.classes[c]
        assert cls.patterns is not None
        if cls.feed is not None:
            return list(zip(chosen, self._handed[cls.feed], strict=False))
        by_domain = {domain: deque(states) for domain, states in cls.cells.items()}
        found: list[tuple[int, NodeState]] = []
        pending: list[int] = []
        used: set[int] = set()
        for p in chosen:
            part = located_part(cls, cls.patterns[p])
            if not part:
                pending.append(p)
            elif parts[(c, part)]:
                state = by_domain[parts[(c, part)].popleft()].popleft()
                used.add(id(state))
                found.append((p, state))
        rest = [state for state in cls.nodes if id(state) not in used]
        return found + list(zip(pending, rest, strict=False))

    def _open(self, places: Places, c: int, p: int, state: NodeState) -> None:
        cls, name = self.problem.supply.classes[c], state.name
        assert cls.patterns is not None
        pattern = cls.patterns[p]
        if not cls.part:
            places.reserve[name] = pattern.reserve
        if turned_off(cls.type, pattern) or any(cls.slots[s].pieces for s, _ in pattern.counts):
            steps = self._recipe(c, p, state)
            if cls.part:
                position = state.cut_gpus[0] if cls.feed is None else self._opened(state)
                steps = moved(steps, position)
            places.recipes[name] = (*places.recipes.get(name, ()), *steps)
        for s, number in pattern.counts:
            slot = cls.slots[s]
            if is_hand(slot):
                self._handed[(c, s)].extend([state] * number)
            elif slot.located < 0:
                places.free[(cls.family, slot)].extend([name] * number)
            else:
                domain = self.path[name][: self.problem.supply.grain]
                places.located[slot.located][domain].extend([name] * number)

    def _recipe(self, c: int, p: int, state: NodeState) -> Recipe:
        cls = self.problem.supply.classes[c]
        kinds = cls.own_kinds()
        if c not in self._kind_of:
            each = [k for k, kind in enumerate(kinds) for _ in range(kind.number)]
            self._kind_of[c] = {
                id(node): k for node, k in zip(cls.nodes, each, strict=True)
            }
        # A GPU that a node has handed over is of the class's one kind.
        k = self._kind_of[c].get(id(state), 0)
        if (c, k, p) not in self._recipes:
            knife = self.problem.facts.capacity.cutter
            kind = kinds[k]
            self._recipes[(c, k, p)] = recipe(kind.type, cls.slots, kind.patterns[p], knife)
        return self._recipes[(c, k, p)]

    def _opened(self, state: NodeState) -> int:
        """The position of the next GPU that is opened on a node."""
        self._fresh[state.name] += 1
        return len(state.cuts) + self._fresh[state.name] - 1

    def _open_pool(self, places: Places, c: int, s: int, domain: Domain, count: int) -> None:
        """A pooled class promises slots without saying on which node: first fit decides."""
        cls = self.problem.supply.classes[c]
        slot = cls.slots[s]
        states = cls.nodes if slot.located < 0 else cls.cells[domain]
        left = count
        for state in states:
            if left <= 0 or not slot.gpus:
                break
            taken = self._pool_taken.setdefault(state.name, Counter())
            number = min(left, (cls.type.takes(slot.model) - taken[slot.model or ""]) // slot.gpus)
            taken[slot.model or ""] += number * slot.gpus
            left -= number
            if slot.located < 0:
                places.free[(cls.family, slot)].extend([state.name] * number)
            else:
                places.located[slot.located][domain].extend([state.name] * number)
