"""Nodes that a cluster could have as well: kinds of a price list, or more like one of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trencadis.models import Fault, InvalidInputError, Node, Snapshot
from trencadis.solver.explain.changes import new_node
from trencadis.whatif.clusters import node_of, sku_of
from trencadis.whatif.prices import PriceList, Sku

NODES_PER_LEAF = 16
"""Nodes of a kind under a new leaf switch, where no fabric of the price list says otherwise."""


def more_nodes(
    snapshot: Snapshot,
    kind: str,
    count: int,
    prices: PriceList,
    *,
    fabric: Sequence[str] | None = None,
    nodes_per_leaf: int = NODES_PER_LEAF,
) -> tuple[Node, ...]:
    """`count` nodes more, empty and healthy, with names that the snapshot doesn't have.

    A kind that is the name of a node means nodes like it, beside it in the fabric. Any other is a
    kind of the price list (or MODEL-GPUS); its GPUs take the snapshot's spelling of their model,
    and its nodes come under leaf switches of their own, `nodes_per_leaf` each, below what most
    nodes of the snapshot are below. `fabric` puts them elsewhere. The first n of more nodes are
    always the same n nodes. Raises InvalidInputError where there is no such kind.
    """
    like = next((node for node in snapshot.nodes if node.name == kind), None)
    sku = None if like is not None else sku_of(kind, prices)
    if like is None and sku is None:
        known = ", ".join(sku.name for sku in prices.skus)
        message = f"no node and no kind of node {kind!r}; there are {known}, or MODEL-GPUS"
        raise InvalidInputError([Fault("$.add", message)])
    taken = {node.name for node in snapshot.nodes}
    made: list[Node] = []
    number = 0
    while len(made) < count:
        number += 1
        name = f"{kind}+{number}"
        if name in taken:
            continue
        if like is not None:
            node = new_node(like, number)
            place = like.fabric
        else:
            assert sku is not None
            node = node_of(spelled(sku, snapshot), name)
            place = _place(snapshot, kind, len(made) // nodes_per_leaf + 1)
        made.append(node.model_copy(update={"fabric": place if fabric is None else tuple(fabric)}))
    return tuple(made)


def spelled(sku: Sku, snapshot: Snapshot) -> Sku:
    """The kind with the snapshot's spelling of its GPU model: `H100` for `h100`."""
    models = sorted({group.model for node in snapshot.nodes for group in node.gpus})
    if sku.gpu_model in models:
        return sku
    same = [model for model in models if model.casefold() == sku.gpu_model.casefold()]
    return sku.model_copy(update={"gpu_model": same[0]}) if same else sku


def _place(snapshot: Snapshot, kind: str, leaf: int) -> tuple[str, ...]:
    """A new leaf below what most nodes are below; nowhere in a cluster without a fabric."""
    depth = len(snapshot.fabric.levels)
    above = Counter(node.fabric[:-1] for node in snapshot.nodes if len(node.fabric) == depth)
    if not depth or not above:
        return ()
    most = min(above, key=lambda path: (-above[path], path))
    return (*most, f"{kind}+leaf-{leaf}")
