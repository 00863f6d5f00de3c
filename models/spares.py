"""Nodes that a policy keeps for repairs: how a round marks them."""

from __future__ import annotations

from trencadis.models.cluster import Node, Taint
from trencadis.models.jobs import Toleration

KEY = "spare"
EFFECT = "Spare"
"""No effect of the schema: nothing that a snapshot says tolerates it."""
TAINT = Taint.model_construct(key=KEY, value="", effect=EFFECT)
TOLERATION = Toleration.model_construct(key=KEY, value=None, effect=EFFECT)


def is_spare(node: Node) -> bool:
    """Whether a round has marked the node."""
    return any(taint.effect == EFFECT for taint in node.taints)


def with_mark(node: Node) -> Node:
    """The node, marked."""
    return node.model_copy(update={"taints": (*node.taints, TAINT)})
