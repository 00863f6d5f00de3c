"""The nodes with some residents taken off: what a job finds there, and what that would cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trencadis.models import Job, TaskAllocation
from trencadis.solver.capacity import NodeState, node_state, occupants
from trencadis.solver.ledger import Bundles, Ledger, NodeLedger, state_now
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.victims import Victim
from trencadis.solver.room import fits
from trencadis.solver.shapes import Need

Cost = tuple[int, ...]
"""Loss by tier from the top, then waiting by tier: lexicographic."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One more need on a node, and who goes for it beyond those before."""

    node: str
    cost: Cost
    out: frozenset[str]
    """Everyone who goes for this need and the ones before it on the node."""


def as_counted(state: NodeState) -> NodeState:
    """The node with only the number of its idle GPUs known, as before someone left it: it takes
    neither slices nor shares."""
    idle = {model: tuple(range(len(gpus))) for model, gpus in state.idle.items()}
    return replace(state, counted=True, idle=idle, cuts=(), cut_gpus=(), blanks={})


class World:
    """What runs, and what the round has started so far."""

    def __init__(self, facts: Facts, ledger: Ledger, victims: Mapping[str, Victim]) -> None:
        self.facts, self.victims = facts, victims
        self.started = dict(ledger.started)
        """Job -> (model, bundles)."""
        self.out: set[str] = set()
        """Victims, and starts that were taken back."""
        # Slices and shares make no room for each other yet, nor on nodes that have them.
        self.states = {
            state.name: state
            for state in facts.capacity.states
            if not state.node.mig and not state.node.shareable
        }
        self.columns = facts.admission.column
        self.occupants = _occupants(facts, victims)
        """By node: job, task, and the names under which the task may go."""
        self.arrived: defaultdict[str, list[tuple[str, Need]]] = defaultdict(list)
        for name, (_, bundles) in self.started.items():
            self._arrive(name, bundles)
        self.tiers = len(facts.snapshot.policy.tiers)
        self._zero = (0,) * (2 * self.tiers)
        self._known: defaultdict[str, dict[tuple[Need, frozenset[str]], int]] = defaultdict(dict)
        """Answers of `room` by node, until someone comes or goes there."""

    def _arrive(self, job: str, bundles: Bundles) -> None:
        for node, need in bundles:
            self.arrived[node].append((job, need))

    def cost(self, position: int, amount: int) -> Cost:
        """The cost that is so much at one position of the vector."""
        return (*self._zero[:position], amount, *self._zero[position + 1 :])

    def take_off(self, names: Iterable[str]) -> None:
        """These victims and starts go for good."""
        for name in names:
            for node in self.nodes_of(name):
                self._known.pop(node, None)
            self.out.add(name)
            if name in self.started:
                _, bundles = self.started.pop(name)
                for node, need in bundles:
                    self.arrived[node].remove((name, need))

    def start(self, job: str, model: str | None, bundles: Bundles) -> None:
        """Enters a start."""
        self.started[job] = (model, bundles)
        self._arrive(job, bundles)
        for node, _ in bundles:
            self._known.pop(node, None)

    def state(self, node: str, out: frozenset[str]) -> NodeState:
        """A node without these and all that are out already."""
        gone = self.out | out
        state = self.states[node]
        residents = self.occupants.get(node, [])
        if any(name in gone for _, _, names in residents for name in names):
            kept = [(job, task) for job, task, names in residents if gone.isdisjoint(names)]
            freed = node_state(state.node, kept, self.facts.capacity)
            state = as_counted(freed) if state.counted else freed
        taken = [(job, need) for job, need in self.arrived.get(node, ()) if job not in gone]
        if not taken:
            return state
        idle = {model: len(indices) for model, indices in state.idle.items()}
        free = list(state.free)
        for _, need in taken:
            if need.gpus:
                idle[need.model or ""] = idle.get(need.model or "", 0) - need.gpus
            for d, amount in enumerate(need.need):
                free[d] -= amount
        entry = NodeLedger(state, self.columns[node], idle, free, taken)
        if any(need.exclusive for _, need in taken):
            return replace(state, idle={}, free=tuple(0 for _ in free), vacant=False)
        return state_now(entry, indices=True)

    def room(self, need: Need, node: str, out: frozenset[str] = frozenset()) -> int:
        """How many of a need fit on a node without these."""
        known = self._known[node]
        if (need, out) not in known:
            known[need, out] = fits(need, self.state(node, out), self.columns[node])
        return known[need, out]

    def nodes_of(self, name: str) -> set[str]:
        """The nodes of a victim or of a start."""
        if name in self.started:
            return {node for node, _ in self.started[name][1]}
        victim = self.victims.get(name)
        return set() if victim is None else {task.node for task in victim.tasks}

    def removable(self, node: str, may: Mapping[str, Cost]) -> list[str]:
        """Who on the node may go, the cheapest first."""
        names = {
            name
            for _, _, may_go in self.occupants.get(node, ())
            if self.out.isdisjoint(may_go)
            for name in may_go
        }
        names |= {job for job, _ in self.arrived.get(node, ())}
        return sorted((name for name in names if name in may), key=lambda n: (may[n], n))

    def _may_hold(self, need: Need, node: str, may: Mapping[str, Cost]) -> bool:
        """A quick look at the GPUs that could be idle at most."""
        if not need.gpus:
            return True
        gpus = self.states[node].idle_count
        for job, _, names in self.occupants.get(node, ()):
            gone = any(name in may or name in self.out for name in names)
            gpus += job.request.gpus if gone else 0
        return gpus >= need.gpus

    def offers(self, need: Need, node: str, may: Mapping[str, Cost], most: int) -> list[Offer]:
        """Up to `most` needs on a node, each with what it costs more than the one before."""
        zero = self._zero
        found: list[Offer] = []
        if not self._may_hold(need, node, may):
            return found
        out: frozenset[str] = frozenset()
        have = self.room(need, node)
        found.extend(Offer(node, zero, out) for _ in range(min(have, most)))
        queue = self.removable(node, may)
        paid = zero
        while queue and len(found) < most:
            chosen: list[str] = []
            for name in queue:
                chosen.append(name)
                if self.room(need, node, out | frozenset(chosen)) > len(found):
                    break
            else:
                break
            # Those that turn out not to be needed stay, the dearest first.
            for name in sorted(chosen, key=lambda n: (may[n], n), reverse=True):
                less = [other for other in chosen if other != name]
                if self.room(need, node, out | frozenset(less)) > len(found):
                    chosen = less
            out |= frozenset(chosen)
            queue = [name for name in queue if name not in out]
            total = tuple(map(sum, zip(zero, *(may[name] for name in out), strict=True)))
            step = tuple(a - b for a, b in zip(total, paid, strict=True))
            paid = total
            number = min(self.room(need, node, out), most) - len(found)
            found.append(Offer(node, step, out))
            found.extend(Offer(node, zero, out) for _ in range(number - 1))
        return found


def _occupants(
    facts: Facts, victims: Mapping[str, Victim]
) -> dict[str, list[tuple[Job, TaskAllocation, tuple[str, ...]]]]:
    names: defaultdict[tuple[str, TaskAllocation], list[str]] = defaultdict(list)
    for name, victim in victims.items():
        if victim.task is not None:
            names[victim.job.name, victim.task].append(name)
    found: dict[str, list[tuple[Job, TaskAllocation, tuple[str, ...]]]] = {}
    for node, entries in occupants(facts.snapshot).items():
        found[node] = []
        for job, task in entries:
            alone = names.get((job.name, task))
            mine = (job.name, alone.pop()) if alone else (job.name,)
            found[node].append((job, task, mine))
    return found
