"""What a mix must cost at least: the round's own counting model, with nodes that may be absent.

A node that isn't there is one that a job of ours keeps to itself: exclusive, as large as the node,
confined to nodes of its offer. So every family of rows holds for absent nodes as well, and the
price of a mix is linear in how many of these jobs start. The model admits all that a plan may do
(see `solver/model`), so a mix that it excludes is refuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from trencadis.models import Job, Node, Queue, Request, Snapshot, Toleration
from trencadis.models.trace import task_milli
from trencadis.solver.bound import safe_bound
from trencadis.solver.clock import Limits
from trencadis.solver.cpsat import Window, search
from trencadis.solver.lp import LinearProgram
from trencadis.solver.model.build import build
from trencadis.solver.model.lending import kept_models, most_use
from trencadis.solver.model.problem import Facts, Thresholds, classify, facts
from trencadis.solver.preempt.exchange import without_victims
from trencadis.solver.preempt.victims import victims
from trencadis.solver.program import INFINITE, Objective, Program, Row
from trencadis.whatif.capacity.offers import Mix, Offer

MARK = "trencadis.io/absent"
"""Label of nodes that may be absent, queue and name of the jobs that keep them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The cheapest mix that the model doesn't exclude."""

    mix: Mix | None
    """None: none was found."""
    bound_milli: int
    """All mixes below this price are refuted, but for those that were set aside."""
    exhausted: bool
    """There is no mix: all that may be had at once is not enough."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How much may still wait; None: any amount."""

    jobs: int | None = None
    gpu_milli: int | None = None

    @property
    def nobody(self) -> bool:
        """Whether no job may."""
        return self.jobs == 0


class Relaxation:
    """Which mixes could meet a target, cheapest first."""

    def __init__(self, offers: Sequence[Offer], have: Sequence[int]) -> None:
        """Any mix of up to `have` nodes of each offer; `serving` adds what has to start."""
        self.offers, self.have = tuple(offers), tuple(have)
        self.program = Program()
        self.enough = True
        """Whether all of `have` could start what has to."""
        self._absent: list[list[int]] = [[] for _ in offers]
        self._scale = gcd(*(offer.price_milli for offer in offers)) or 1
        self._linear = 0
        """A bound of the relaxation in reals, once it was worked out: it only rises."""

    @classmethod
    def free(cls, offers: Sequence[Offer], have: Sequence[int]) -> Relaxation:
        """Nothing is known of what has to start."""
        made = cls(offers, have)
        made._absent = [[made.program.column(0, most)] for most in have]
        return made

    @classmethod
    def serving(
        cls,
        base: Snapshot,
        offers: Sequence[Offer],
        have: Sequence[int],
        waits: Waits,
        thresholds: Thresholds | None = None,
    ) -> Relaxation:
        """All that waits has to start, but for what `waits` allows; victims of the round count."""
        made = cls(offers, have)
        read = facts(_with_absence(_lendable(base), offers, have))
        model = build(classify(_relieved(read, waits), thresholds or Thresholds(), NONE, NONE))
        made.program = model.program
        numbers = {name: number for number, name in enumerate(_names(offers))}
        jobs_of = {job.name: job for job in read.values.eligible.values() if job.queue != MARK}
        count: list[tuple[int, int]] = []
        milli: list[tuple[int, int]] = []
        for index, cls_ in enumerate(model.problem.demand.classes):
            columns = model.columns.started(index)
            offer = numbers.get(cls_.units[0][0].rpartition("#")[0])
            if offer is not None:
                made._absent[offer] += [column for column, _ in columns]
                continue
            size = sum(asks_milli(jobs_of[name]) for name in cls_.units[0])
            count += [(column, len(cls_.members)) for column, _ in columns]
            milli += [(column, size) for column, _ in columns]
        if waits.jobs is not None:
            made._start(count, len(jobs_of) - waits.jobs)
        if waits.gpu_milli is not None:
            made._start(milli, sum(map(asks_milli, jobs_of.values())) - waits.gpu_milli)
        return made

    def _start(self, terms: list[tuple[int, int]], least: int) -> None:
        """So much has to start."""
        program = self.program
        self.enough &= sum(each * program.high[column] for column, each in terms) >= least
        program.row(terms, max(0, least), INFINITE)

    def refuse(self, mix: Mix) -> None:
        """Sets a mix aside: it was tried. The model goes on with all others."""
        program, ways = self.program, []
        for columns, most, count in zip(self._absent, self.have, mix, strict=True):
            more = program.column(0, int(count < most))
            fewer = program.column(0, int(count > 0))
            absent = [(column, 1) for column in columns]
            program.row([*absent, (more, count + 1)], -INFINITE, most)
            kept = [(column, -1) for column in columns]
            program.row([*kept, (fewer, most - count + 1)], -INFINITE, 0)
            ways += [(more, 1), (fewer, 1)]
        program.row(ways, 1, INFINITE)

    def cheapest(self, floor_milli: int, limits: Limits) -> Candidate:
        """The cheapest mix left that costs at least the floor."""
        if not self.enough:
            return Candidate(None, floor_milli, exhausted=True)
        price = self._price()
        floor = Row(
            list(price.terms),
            list(price.terms.values()),
            -(-floor_milli // self._scale) - price.constant,
            INFINITE,
        )
        if not self._linear:
            self._linear = self._linear_bound(price, limits)
        bound = max(-(-floor_milli // self._scale), self._linear)
        outcome = search(
            self.program,
            price,
            Window(self.program.low, self.program.high),
            self.program.rest,
            bound,
            replace(limits.effort(), presolve=len(self.program.low) <= PRESOLVED),
            limits.stop,
            (floor,) if price.terms else (),
        )
        if outcome.infeasible:
            return Candidate(None, floor_milli, exhausted=True)
        if outcome.bound is not None:
            bound = max(bound, outcome.bound)
        if outcome.solution is None:
            return Candidate(None, bound * self._scale, exhausted=False)
        mix = tuple(
            most - sum(outcome.solution[column] for column in columns)
            for columns, most in zip(self._absent, self.have, strict=True)
        )
        bound = min(bound, price.value(outcome.solution))
        return Candidate(mix, bound * self._scale, exhausted=False)

    def _price(self) -> Objective:
        """Of the nodes that are there, in units of `_scale`."""
        price = Objective("price")
        for offer, columns, most in zip(self.offers, self._absent, self.have, strict=True):
            each = offer.price_milli // self._scale
            price.constant += each * most
            for column in columns:
                price.add(column, -each)
        return price

    def _linear_bound(self, price: Objective, limits: Limits) -> int:
        linear = LinearProgram(self.program)
        relaxed = linear.solve(price, limits.clock.left())
        if relaxed is None:
            return 0
        return safe_bound(self.program, price, linear.flat(), relaxed.duals).value


PRESOLVED = 3_000
"""Columns above which presolve takes longer than the search: it can't be interrupted."""
NONE: frozenset[str] = frozenset()


def _names(offers: Sequence[Offer]) -> list[str]:
    return [f"{MARK}/{number}" for number in range(len(offers))]


def asks_milli(job: Job) -> int:
    """Milli-GPUs that a job needs to start."""
    return job.minimum * task_milli(job)


def _relieved(read: Facts, waits: Waits) -> Facts:
    """What no plan that leaves so few waiting can beat: whoever might go for it has gone.

    Where nobody may wait, nobody is stopped; elastic jobs may give tasks up.
    """
    gone = {
        name: victim
        for name, victim in victims(read).items()
        if not waits.nobody or victim.task is not None
    }
    return without_victims(read, gone) if gone else read


def _lendable(base: Snapshot) -> Snapshot:
    """The base; without lending limits where they keep back more than the cluster has.

    Such a cluster may go on as it is, but not where nodes are told absent by jobs that use them:
    the rows would refute mixes on which jobs of the owners start. Without them more may start.
    """
    if all(queue.lending_limit is None for queue in base.queues):
        return base
    read = facts(base)
    unit, gpus = read.values.rates.unit, read.capacity.gpus_by_model
    has = {model: gpus.get(model, 0) if model else read.capacity.gpus
           for model in kept_models(read)}  # fmt: skip
    if all(most_use(read, model) <= number * unit for model, number in has.items()):
        return base
    queues = tuple(queue.model_copy(update={"lending_limit": None}) for queue in base.queues)
    return base.model_copy(update={"queues": queues})


def _with_absence(base: Snapshot, offers: Sequence[Offer], have: Sequence[int]) -> Snapshot:
    nodes: list[Node] = list(base.nodes)
    jobs = list(base.jobs)
    for name, offer, count in zip(_names(offers), offers, have, strict=True):
        for number, node in enumerate(offer.first(count)):
            labels = {**node.labels, MARK: name}
            nodes.append(node.model_copy(update={"labels": labels}))
            jobs.append(_keeper(base, node, f"{name}#{number}", name))
    queues = (*base.queues, Queue(name=MARK))
    return base.model_copy(update={"nodes": tuple(nodes), "jobs": tuple(jobs), "queues": queues})


def _keeper(base: Snapshot, node: Node, name: str, offer: str) -> Job:
    """A job that takes the whole node: for every row it is as if the node weren't there."""
    models = list(node.healthy_gpus().values())
    model = max(sorted(set(models)), key=models.count, default=None)
    return Job(
        name=name,
        queue=MARK,
        submit=base.now,
        runtime_seconds=1,
        request=Request(
            gpus=0 if model is None or node.mig else models.count(model),
            cpu_milli=node.cpu_milli,
            memory_mib=node.memory_mib,
            resources={name: count for name, count in node.resources.items() if count},
        ),
        gpu_models=() if model is None else (model,),
        node_selector={MARK: offer},
        tolerations=(Toleration(),),
        exclusive=True,
        communicates=False,
    )
