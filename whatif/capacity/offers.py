"""What can be had: kinds of node to rent, or the cluster's own nodes to keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trencadis.models import Fault, InvalidInputError, Node, Plan, Snapshot
from trencadis.whatif.clusters import node_price_milli
from trencadis.whatif.kinds import NODES_PER_LEAF, more_nodes
from trencadis.whatif.prices import PriceList
from trencadis.whatif.scenario import waiting_again

Mix = tuple[int, ...]
"""How many nodes of each offer there are."""
NODE = 1_000
"""Price of any node where none has a price: the mix with the fewest nodes is the cheapest."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes that are alike; any number of them, up to `most`, can be there."""

    kind: str
    price_milli: int
    """Of a node, an hour on demand."""
    most: int
    first: Callable[[int], tuple[Node, ...]]
    """The first n: those that are there if n are."""


def rented(
    snapshot: Snapshot,
    kinds: Sequence[str],
    prices: PriceList,
    fabric: str | None,
    most: int,
) -> tuple[list[Offer], bool]:
    """Offers of the kinds, and whether they have prices. Raises InvalidInputError.

    Kinds without a price cost one each, if none of them has one.
    """
    network = prices.fabric(fabric) if fabric else None
    per_leaf = NODES_PER_LEAF if network is None else network.nodes_per_leaf
    faults, known = [], []
    for kind in dict.fromkeys(kinds):
        try:
            (node,) = more_nodes(snapshot, kind, 1, prices)
        except InvalidInputError as error:
            faults.append(Fault("sku", error.faults[0].message))
            continue
        known.append((kind, node_price_milli(node, prices, network)))
    priced = [kind for kind, price in known if price is not None]
    if priced and len(priced) < len(known):
        faults += [
            Fault("sku", f"{kind} has no price, {priced[0]} has one; give both in --prices")
            for kind, price in known
            if price is None
        ]
    if faults:
        raise InvalidInputError(faults)

    def maker(kind: str) -> Callable[[int], tuple[Node, ...]]:
        return lambda count: more_nodes(snapshot, kind, count, prices, nodes_per_leaf=per_leaf)

    offers = [
        Offer(kind, NODE if price is None else price, most, maker(kind)) for kind, price in known
    ]
    return offers, bool(priced)


def served(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot without the jobs that wait after its plan: the load that it serves."""
    waiting = {entry.job for entry in plan.pending} | {entry.job for entry in plan.preempts}
    jobs = tuple(job for job in snapshot.jobs if job.name not in waiting)
    holds = tuple(hold for hold in snapshot.holds if hold.job not in waiting)
    return snapshot.model_copy(update={"jobs": jobs, "holds": holds})


def kept(
    snapshot: Snapshot, prices: PriceList, fabric: str | None
) -> tuple[Snapshot, list[Offer], bool]:
    """The load without the nodes that could go, these as offers, and whether they have prices.

    All that runs and may be requeued waits again: it is placed anew. Nodes on which something
    stays, and nodes that are down or cordoned, are no offers.
    """
    jobs = tuple(
        waiting_again(job) if job.state == "running" and job.requeueable else job
        for job in snapshot.jobs
    )
    pinned = {task.node for job in jobs if job.on_nodes for task in job.allocation}
    pinned |= {task.node for hold in snapshot.holds for task in hold.allocation}
    named = {name for job in jobs for name in (*job.required_nodes, *job.excluded_nodes)}
    groups: defaultdict[str, list[Node]] = defaultdict(list)
    stay = []
    for node in snapshot.nodes:
        if node.down or node.cordoned or node.name in pinned:
            stay.append(node)
        else:
            own = node.name if node.name in named else ""
            groups[own + node.model_copy(update={"name": "-"}).model_dump_json()].append(node)
    network = prices.fabric(fabric) if fabric else None
    costs = [node_price_milli(nodes[0], prices, network) for nodes in groups.values()]
    priced = all(cost is not None for cost in costs)

    def maker(nodes: Sequence[Node]) -> Callable[[int], tuple[Node, ...]]:
        return lambda count: tuple(nodes[:count])

    offers = [
        Offer(_name(nodes[0]), cost if priced and cost is not None else NODE, len(nodes),
              maker(sorted(nodes, key=lambda node: node.name)))
        for nodes, cost in zip(groups.values(), costs, strict=True)
    ]
    base = snapshot.model_copy(update={"jobs": jobs, "nodes": tuple(stay)})
    return base, offers, priced


def with_mix(base: Snapshot, offers: Sequence[Offer], mix: Mix) -> Snapshot:
    """The snapshot with the nodes of a mix."""
    extra = [
        node for offer, count in zip(offers, mix, strict=True) for node in offer.first(count)
    ]
    return base.model_copy(update={"nodes": (*base.nodes, *extra)})


def price_of(offers: Sequence[Offer], mix: Mix) -> int:
    """What a mix costs an hour, thousandths."""
    return sum(offer.price_milli * count for offer, count in zip(offers, mix, strict=True))


def _name(node: Node) -> str:
    """What the nodes of a group are called."""
    if "sku" in node.labels:
        return node.labels["sku"]
    groups = [f"{group.model}-{group.count}" for group in node.gpus]
    return "+".join(groups) or "cpu"
