"""How to rent nodes for months of known demand: by the hour, or under contracts, at least cost.

Leases that cover months in a row make a matrix of consecutive ones, so the program's relaxation has
whole-numbered corners and is solved to the end. (Layer by layer, as is usual, costs more where one
lease could serve two layers in turn; see docs/decisions/041.)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trencadis.models.base import GPU_MILLI
from trencadis.solver.bound import safe_bound
from trencadis.solver.cpsat import Effort, Window, search
from trencadis.solver.lp import LinearProgram
from trencadis.solver.program import INFINITE, Objective, Program
from trencadis.whatif.capacity.offers import Mix, Offer
from trencadis.whatif.engine import Sample
from trencadis.whatif.prices import Contract

HOURS = 730
"""Of a month."""
EFFORT = Effort(seconds=30.0, workers=1, seed=0, deterministic=True)

Levels = tuple[tuple[int, int], ...]
"""(hours, nodes): so many nodes are wanted for so many hours of a month; most hours first."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Nodes under one contract."""

    contract: str
    start: int
    """Month, from 0."""
    months: int
    """For which it is kept; fewer than its term where it is ended early or the plan ends."""
    nodes: int
    cost_milli: int
    """Of all its nodes."""


@dataclass(frozen=True, slots=True)
class Rental:
    """A kind of node over all months."""

    kind: str
    leases: tuple[Lease, ...]
    hours: tuple[int, ...]
    """Node-hours on demand, by month."""
    wanted: tuple[int, ...]
    """Node-hours in all that are wanted, by month."""
    cost_milli: int
    bound_milli: int
    """No way to rent costs less."""
    on_demand_milli: int
    """What all of it would cost by the hour."""


def wanted_by_month(hours: Sequence[int], months: int, growth_milli: int) -> tuple[Levels, ...]:
    """Demand by month. `hours`: of a month, by node, descending; it grows so much each month.

    In month t there are ⌈n·(1 + growth)^t⌉ nodes, and the i-th of m has the hours of the
    ⌈i·n/m⌉-th of n.
    """
    count = len(hours)
    found = []
    for month in range(months):
        grown = -(-count * (1_000 + growth_milli) ** month // 1_000**month)
        levels: dict[int, int] = {}
        for number in range(1, grown + 1):
            each = hours[-(-number * count // grown) - 1]
            levels[each] = levels.get(each, 0) + 1
        found.append(tuple(sorted(levels.items(), reverse=True)))
    return tuple(found)


def hours_busy(samples: Sequence[Sample], sizes_milli: Sequence[int]) -> list[int]:
    """Hours of a month in which each node of a cluster is wanted, by the rounds of a replay.

    `sizes_milli`: milli-GPUs by node, those first that are to carry the steady load. A node is
    wanted while more is in use or waits than those before it hold.
    """
    spans = [
        (after.at - at.at, at.capacity_milli - at.idle_milli + at.pending_milli)
        for at, after in pairwise(samples)
    ]
    whole = sum(span for span, _ in spans)
    found, below = [], 0
    for size in sizes_milli:
        busy = sum(span for span, demand in spans if demand > below)
        found.append(-(-HOURS * busy // whole) if whole else HOURS)
        below += size
    return found


def rented_mix(
    offers: Sequence[Offer],
    mix: Mix,
    contracts: Sequence[Contract],
    months: int,
    growth_milli: int,
    samples: Sequence[Sample] | None = None,
) -> list[Rental]:
    """How to rent each kind of a mix. `samples`: of a replay on it; without, nodes always work.

    The steady load goes to the nodes whose GPUs are cheapest.
    """
    nodes = [
        (offer.price_milli / max(1, node.gpu_count), position, node.gpu_count * GPU_MILLI)
        for position, (offer, count) in enumerate(zip(offers, mix, strict=True))
        for node in offer.first(count)
    ]
    nodes.sort()
    sizes = [milli for _, _, milli in nodes]
    hours = [HOURS] * len(nodes) if samples is None else hours_busy(samples, sizes)
    found = []
    for position, offer in enumerate(offers):
        own = [each for each, (_, kind, _) in zip(hours, nodes, strict=True) if kind == position]
        if own:
            demand = wanted_by_month(own, months, growth_milli)
            found.append(rent(offer.kind, demand, offer.price_milli, contracts))
    return found


def rent(
    kind: str, demand: Sequence[Levels], price_milli: int, contracts: Sequence[Contract]
) -> Rental:
    """The cheapest way to have the nodes of a kind when they are wanted.

    `price_milli`: of a node-hour on demand.
    """
    months = len(demand)
    program, cost = Program(), Objective("cost")
    cover: list[list[tuple[int, int]]] = [[] for _ in range(months)]
    leases: list[tuple[int, Lease]] = []
    most = max((sum(nodes for _, nodes in levels) for levels in demand), default=0)
    for contract in contracts:
        if contract.skus and kind not in contract.skus:
            continue
        for lease in _leases(contract, months, price_milli):
            column = program.column(0, most)
            cost.add(column, lease.cost_milli)
            leases.append((column, lease))
            for month in range(lease.start, lease.start + lease.months):
                cover[month].append((column, 1))
    hourly: list[list[tuple[int, int]]] = []
    for month, levels in enumerate(demand):
        mine = []
        for hours, nodes in levels:
            column = program.column(0, nodes)
            cost.add(column, hours * price_milli)
            mine.append((column, hours))
        hourly.append(mine)
        terms = [*cover[month], *((column, 1) for column, _ in mine)]
        program.row(terms, sum(nodes for _, nodes in levels), INFINITE)
    by_the_hour = [0] * len(program.low)
    for mine in hourly:
        for column, _ in mine:
            by_the_hour[column] = program.high[column]
    counts, bound = _solved(program, cost, by_the_hour)
    return Rental(
        kind=kind,
        leases=tuple(
            Lease(l_.contract, l_.start, l_.months, counts[column], l_.cost_milli * counts[column])
            for column, l_ in leases
            if counts[column]
        ),
        hours=tuple(sum(hours * counts[column] for column, hours in mine) for mine in hourly),
        wanted=tuple(sum(hours * nodes for hours, nodes in levels) for levels in demand),
        cost_milli=cost.value(counts),
        bound_milli=bound,
        on_demand_milli=cost.value(by_the_hour),
    )


def _solved(program: Program, cost: Objective, start: list[int]) -> tuple[list[int], int]:
    linear = LinearProgram(program)
    relaxed = linear.solve(cost, EFFORT.seconds)
    bound = 0
    if relaxed is not None:
        bound = safe_bound(program, cost, linear.flat(), relaxed.duals).value
    window = Window(program.low, program.high)
    outcome = search(program, cost, window, start, bound, EFFORT, threading.Event())
    counts = start if outcome.solution is None else outcome.solution
    return counts, min(cost.value(counts), max(bound, outcome.bound or 0))


def _leases(contract: Contract, months: int, price_milli: int) -> list[Lease]:
    """All ways to use a contract for one node within the months, each at its least cost."""
    month = -(-HOURS * price_milli * (1_000 - contract.discount_milli) // 1_000)
    term = contract.months
    costs: dict[tuple[int, int], int] = {}
    for start in range(months):
        left = months - start
        if term <= left:
            costs[start, term] = term * month
        else:
            costs[start, left] = (left if contract.prorated else term) * month
        if contract.penalty_milli is not None:
            for kept in range(1, min(term, left + 1)):
                ended = kept * month - (-contract.penalty_milli * (term - kept) * month // 1_000)
                costs[start, kept] = min(ended, costs.get((start, kept), ended))
    return [Lease(contract.name, start, kept, 1, cost) for (start, kept), cost in costs.items()]
