"""What is left while jobs are being placed: GPUs, CPU and memory by node, limits by account."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from trencadis.models import Job
from trencadis.models.base import seconds
from trencadis.solver.bin_types import bin_fragmentation
from trencadis.solver.capacity import NodeState
from trencadis.solver.desk import Desk
from trencadis.solver.fragmentation import reconfiguration
from trencadis.solver.model.lending import in_use, kept_models, most_use, total_use, uses
from trencadis.solver.model.order import in_line, pool_of, same_pool
from trencadis.solver.model.problem import Facts
from trencadis.solver.room import alike, fits, most_beside
from trencadis.solver.seats import seats
from trencadis.solver.shapes import Need

Bundles = list[tuple[str, Need]]
"""What a job puts where: (node, need)."""


@dataclass(slots=True)
class NodeLedger:
    """One node as it fills up."""

    state: NodeState
    column: int
    idle: dict[str, int]
    """Idle GPUs by model."""
    free: list[int]
    taken: Bundles = field(default_factory=list)
    """(job, need) in the order of arrival."""
    closed: bool = False
    """Taken by an exclusive job."""
    desk: Desk = field(default_factory=Desk)
    """GPUs of the second stage."""
    kind: int = -1
    """Nodes of one kind took the same when the round began."""

    def takes(self, model: str | None) -> int:
        """GPUs of a model that whole-GPU needs may still have: those that are idle, and those on
        which MIG may be turned off."""
        return self.idle.get(model or "", 0) + self.desk.closable(model)

    def whole(self) -> list[Need]:
        """What takes whole GPUs: the needs, then the GPUs that were opened for pieces."""
        return [need for _, need in self.taken] + self.desk.opened_needs(len(self.free))


class Ledger:
    """The nodes and the limits, as starts are entered."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        column = facts.admission.column
        kinds: dict[Hashable, int] = {}
        self.nodes = {
            state.name: NodeLedger(
                state,
                column[state.name],
                {model: len(indices) for model, indices in state.idle.items()},
                list(state.free),
                desk=Desk(state.cutter, facts.profile, state.cuts, state.blanks),
                kind=kinds.setdefault(alike(state, column[state.name]), len(kinds)),
            )
            for state in facts.capacity.states
        }
        self._first = list({node.kind: node for node in reversed(self.nodes.values())}.values())
        self.used = [0] * len(facts.books.accounts)
        self.started: dict[str, tuple[str | None, Bundles]] = {}
        """Job -> (model, bundles)."""
        self.touched: list[str] = []
        """Nodes in the order in which they changed."""
        self._heads = _Heads(facts)
        self._keeps = kept_models(facts)

    def fits(self, need: Need, node: NodeLedger) -> int:
        """How many of a need the node can still take."""
        if node.closed or (need.exclusive and (node.taken or not node.state.vacant)):
            return 0
        if not need.columns >> node.column & 1:
            return 0
        if need.gpus and need.gpus > node.takes(need.model):
            return 0
        for want, have in zip(need.need, node.free, strict=True):
            if want > have:
                return 0
        if not node.taken:
            return fits(need, node.state, node.column)
        if need.linked or need.pieces:
            # Which GPUs are idle takes a search to know, and only NVLink asks.
            return fits(need, state_now(node, indices=need.linked), node.column)
        return most_beside(need, node.takes(need.model), node.free)

    def all_fits(self, need: Need, names: Iterable[str]) -> Iterator[int]:
        """The same for many nodes."""
        fresh = {node.kind: fits(need, node.state, node.column) for node in self._first}
        for name in names:
            node = self.nodes[name]
            yield self.fits(need, node) if node.taken else fresh[node.kind]

    def take(self, job: str, need: Need, name: str) -> None:
        """Puts one need of a job on a node."""
        node = self.nodes[name]
        node.taken.append((job, need))
        if need.pieces:
            node.desk.take(job, need, node.idle)
        if need.gpus:
            idle = node.idle.get(need.model or "", 0)
            off = node.desk.close(job, need, idle)
            node.idle[need.model or ""] = idle - need.gpus + off
        for d, amount in enumerate(need.need):
            node.free[d] -= amount
        node.closed = node.closed or need.exclusive
        self.touched.append(name)

    def take_all(self, job: str, bundles: Bundles) -> bool:
        """Puts all of these on their nodes, or none if one of them doesn't fit there."""
        done: Bundles = []
        for name, need in bundles:
            node = self.nodes.get(name)
            if node is None or not self._holds(job, need, node):
                self.give_back(job, done)
                return False
            self.take(job, need, name)
            done.append((name, need))
        return True

    def _holds(self, job: str, need: Need, node: NodeLedger) -> bool:
        if not (need.exclusive and any(other == job for other, _ in node.taken)):
            return self.fits(need, node) > 0
        # Another task of an exclusive job on the node that it has already.
        idle = node.idle.get(need.model or "", 0)
        if need.pieces and not node.desk.holds(need.model or "", need.pieces, idle):
            return False
        return node.takes(need.model) >= need.gpus and all(
            want <= have for want, have in zip(need.need, node.free, strict=True)
        )

    def give_back(self, job: str, bundles: Bundles) -> None:
        """Takes a job off its nodes again."""
        for name, need in bundles:
            node = self.nodes[name]
            node.taken.remove((job, need))
            if need.pieces:
                node.desk.give_back(job, need, node.idle)
            if need.gpus:
                node.idle[need.model or ""] += need.gpus - node.desk.reopen(job, need)
            for d, amount in enumerate(need.need):
                node.free[d] += amount
            node.closed = any(other.exclusive for _, other in node.taken)
            self.touched.append(name)

    def may_start(self, jobs: Iterable[tuple[Job, str | None]]) -> bool:
        """Whether limits, lending and order let these jobs start together on these models."""
        members = list(jobs)
        extra: defaultdict[int, int] = defaultdict(int)
        for job, model in members:
            for account, amount in self._charges(job.name, model):
                extra[account] += amount
        for index, amount in extra.items():
            book = self.facts.books.accounts[index]
            if book.limit is not None and self.used[index] + amount > book.slack:
                return False
        together = {job.name for job, _ in members}
        if not all(self._heads.open(job, self.started, together) for job, _ in members):
            return False
        return all(self._lends(model, extra) for model in self._keeps)

    def start(self, job: Job, model: str | None, bundles: Bundles) -> None:
        """Enters a start whose needs have been taken."""
        self.started[job.name] = (model, bundles)
        for account, amount in self._charges(job.name, model):
            self.used[account] += amount

    def _charges(self, job: str, model: str | None) -> Iterator[tuple[int, int]]:
        """(account, amount) of a job that runs on a model."""
        for charge in self.facts.books.charges[job]:
            if not charge.model or charge.model == model:
                yield charge.account, charge.amount

    def fragmentation(self, name: str) -> int:
        """F of a node as it is now, and what its new MIG layouts cost, GPU-seconds."""
        node = self.nodes[name]
        cuts = node.desk.present()
        if node.closed:
            return sum(reconfiguration(cut) for cut in cuts)
        state = state_now(node, indices=True)
        profile = self.facts.profile
        whole = bin_fragmentation(profile, node.state, state.idle, state.free)
        return whole + profile.cuts_cost(cuts)

    def withdraw_passing(self) -> None:
        """Undoes starts of strict queues that pass someone who waits, and of their groups."""
        eligible = self.facts.values.eligible
        while True:
            started = self.started
            passing = {n for n in started if not self._heads.open(eligible[n], started, ())}
            if not passing:
                return
            groups = {eligible[name].group for name in passing} - {None}
            self.withdraw([n for n in started if n in passing or eligible[n].group in groups])

    def withdraw(self, names: Iterable[str]) -> None:
        """Undoes starts."""
        for name in names:
            model, bundles = self.started.pop(name)
            self.give_back(name, bundles)
            for account, amount in self._charges(name, model):
                self.used[account] -= amount

    def _lends(self, model: str, extra: dict[int, int]) -> bool:
        """Whether what the queues do not lend stays idle."""
        facts = self.facts
        now: dict[str, int] = {}
        for leaf, used in in_use(facts, model).items():
            index = facts.books.index.get(("use", leaf, model))
            more = 0 if index is None else self.used[index] + extra.get(index, 0)
            now[leaf] = used + more
        return total_use(facts, uses(facts, model, now)) <= most_use(facts, model)


class _Heads:
    """Who must have started before a job of a strict_fifo queue may."""

    def __init__(self, facts: Facts) -> None:
        values = facts.values
        self.ahead: defaultdict[str, list[tuple[tuple[int, int], Job]]] = defaultdict(list)
        self.rank: dict[str, tuple[int, int]] = {}
        for job in values.eligible.values():
            if in_line(job, values.tree.queues[job.queue]):
                rank = (values.worth[job.name].tier, seconds(job.submit))
                self.rank[job.name] = rank
                if facts.can_run[job.name]:
                    self.ahead[job.queue].append((rank, job))
        for jobs in self.ahead.values():
            jobs.sort(key=lambda entry: entry[0])

    def open(self, job: Job, started: Container[str], together: Container[str]) -> bool:
        """Whether all jobs ahead of it in its pool have started, or start with it."""
        if job.name not in self.rank:
            return True
        for rank, other in self.ahead[job.queue]:
            if rank >= self.rank[job.name]:
                return True
            if other.name in started or other.name in together:
                continue
            if same_pool(pool_of(other), pool_of(job)):
                return False
        return True


def state_now(node: NodeLedger, *, indices: bool) -> NodeState:
    """The node as it is now; which GPUs are idle only with `indices`, else how many."""
    if not node.taken:
        return node.state
    if indices and node.state.node.nvlink.kind == "links" and not node.state.counted:
        idle = seats(node.state, node.whole()).left
    else:
        idle = {model: tuple(range(count)) for model, count in node.idle.items() if count}
    return NodeState(
        name=node.state.name,
        node=node.state.node,
        idle=idle,
        counted=node.state.counted,
        free=tuple(node.free),
        vacant=False,
        cutter=node.state.cutter,
        cuts=tuple(sorted(node.desk.present())),
        blanks=node.state.blanks,
    )
