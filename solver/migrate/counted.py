"""Nodes on which the native scheduler chooses the GPUs: planned by index, told by number."""

from __future__ import annotations

from trencadis.models import Move, Node, Plan, Snapshot


def _chooses(node: Node) -> bool:
    """Whether which GPUs a job gets there is not ours to say, and makes no difference."""
    return node.precision == "node" and node.nvlink.kind == "none"


def by_index(snapshot: Snapshot) -> Snapshot:
    """The snapshot as if the plan chose them. Where not all that runs there tells its indices, a
    node stays counted all the same."""
    nodes = tuple(
        node.model_copy(update={"precision": "gpu"}) if _chooses(node) else node
        for node in snapshot.nodes
    )
    return snapshot.model_copy(update={"nodes": nodes})


def by_number(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan for the snapshot as it is: moves to such nodes name no indices."""
    counted = {node.name for node in snapshot.nodes if _chooses(node)}
    moves = tuple(_unnamed(move, counted) for move in plan.moves)
    return plan.model_copy(update={"snapshot": snapshot.fingerprint(), "moves": moves})


def _unnamed(move: Move, counted: set[str]) -> Move:
    to = tuple(
        task.model_copy(update={"gpus": None}) if task.node in counted else task for task in move.to
    )
    return move.model_copy(update={"to": to})
