"""Which GPU indices each task on a node gets, for the least loss and the most use of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trencadis.solver.bin_types import bin_graph
from trencadis.solver.capacity import NodeState
from trencadis.solver.gpus import LinkGraph, bits, split, subsets
from trencadis.solver.shapes import Need

Rank = Callable[[dict[str, int]], int]
"""Ranks what is left idle, by model and mask: less is better."""


@dataclass(frozen=True, slots=True)
class Seats:
    """GPU indices by need and task."""

    sets: tuple[tuple[tuple[int, ...] | None, ...], ...]
    """Per need, per task of it; None where the node's owner picks the GPUs."""
    left: dict[str, tuple[int, ...]]
    """What stays idle, by model."""


@dataclass(frozen=True, slots=True)
class _Choice:
    cost: int
    masks: tuple[int, ...]
    left: int


def seats(state: NodeState, needs: Sequence[Need], rank: Rank | None = None) -> Seats:
    """Seats the needs on the idle GPUs of a node, which must suffice.

    Exact over all subsets where the node has explicit NVLink: first as few unlinked sets as
    possible by cost, then the best rank of what is left, the most links left, low indices.
    """
    graph = None if state.counted else bin_graph(state.node)
    if graph is None or not any(need.gpus for need in needs):
        return _plain(state, needs)
    left: dict[str, int] = {
        model: sum(1 << i for i in indices) for model, indices in state.idle.items()
    }
    chosen: dict[int, int] = {}
    for model in sorted({need.model or "" for need in needs if need.gpus}):
        mine = [i for i, need in enumerate(needs) if need.gpus and need.model == model]
        best = _search(graph, left, model, [needs[i] for i in mine], rank)
        chosen.update(zip(mine, best.masks, strict=True))
        left[model] = best.left
    sets: list[tuple[tuple[int, ...] | None, ...]] = []
    for i, need in enumerate(needs):
        if not need.gpus:
            sets.append(((),) * need.sets)
            continue
        _, parts = split(graph, chosen[i], need.gpus // need.sets)
        sets.append(tuple(tuple(bits(part)) for part in parts))
    return Seats(
        tuple(sets), {model: tuple(bits(mask)) for model, mask in left.items() if mask}
    )


def with_gpus(state: NodeState, gpus: Mapping[str, tuple[int, ...]]) -> NodeState:
    """The node with these GPUs idle as well; they are taken first."""
    if not gpus:
        return state
    models = sorted({*state.idle, *gpus})
    idle = {model: (*gpus.get(model, ()), *state.idle.get(model, ())) for model in models}
    return replace(state, idle=idle)


def _plain(state: NodeState, needs: Sequence[Need]) -> Seats:
    pools = {model: list(indices) for model, indices in state.idle.items()}
    sets: list[tuple[tuple[int, ...] | None, ...]] = []
    for need in needs:
        each = need.gpus // need.sets
        tasks: list[tuple[int, ...] | None] = []
        for _ in range(need.sets):
            if not each:
                tasks.append(())
                continue
            pool = pools[need.model or ""]
            tasks.append(None if state.counted else tuple(sorted(pool[:each])))
            del pool[:each]
        sets.append(tuple(tasks))
    return Seats(tuple(sets), {model: tuple(pool) for model, pool in pools.items() if pool})


def _search(
    graph: LinkGraph,
    idle: dict[str, int],
    model: str,
    needs: Sequence[Need],
    rank: Rank | None,
) -> _Choice:
    # Large needs first; equal states are merged, so that each is extended once.
    order = sorted(range(len(needs)), key=lambda i: (-needs[i].gpus, i))
    frontier = {idle[model]: _Choice(0, (), idle[model])}
    for i in order:
        need = needs[i]
        grown: dict[int, _Choice] = {}
        for choice in frontier.values():
            tried: set[tuple[int, int]] = set()
            for mask in subsets(choice.left, need.gpus):
                cost = _loss(graph, need, mask)
                left = choice.left ^ mask
                key = graph.canonical(left)
                if cost is None or (key, cost) in tried:
                    continue
                tried.add((key, cost))
                new = _Choice(choice.cost + cost, (*choice.masks, mask), left)
                if key not in grown or new.cost < grown[key].cost:
                    grown[key] = new
        frontier = grown
    best = min(
        frontier.values(),
        key=lambda c: (
            c.cost,
            rank({**idle, model: c.left}) if rank else 0,
            -graph.best_left(c.left),
            c.masks,
        ),
    )
    back = [0] * len(needs)
    for position, i in enumerate(order):
        back[i] = best.masks[position]
    return _Choice(best.cost, tuple(back), best.left)


def _loss(graph: LinkGraph, need: Need, mask: int) -> int | None:
    """Cost of the need on these GPUs; None if they break its NVLink requirement."""
    each = need.gpus // need.sets
    broken = 0
    if need.linked or not need.union:
        broken, _ = split(graph, mask, each)
        if need.linked and broken:
            return None
    if need.union:
        return 0 if graph.linked(mask) else need.unlinked_cost
    return broken * need.unlinked_cost
