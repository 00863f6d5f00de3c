"""GPUs inside a node, against plain enumeration: splits, seats, canonical masks, patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, product

import networkx as nx
import pytest
from build import node as build_node
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from trencadis.models.units import Sizes
from trencadis.solver.capacity import NodeState
from trencadis.solver.fragmentation import Entry, Profile, Table
from trencadis.solver.gpus import LinkGraph, bits, split, subsets
from trencadis.solver.patterns.whole import (
    BinType,
    Slot,
    TooManyPatternsError,
    enumerate_patterns,
)
from trencadis.solver.seats import Seats, seats
from trencadis.solver.shapes import Need
from trencadis.solver.slices import Cutter

SETTINGS = settings(max_examples=80, deadline=None)
Sets = tuple[frozenset[int], ...]

# plain enumeration


def linked(links: Sequence[tuple[int, int]], gpus: frozenset[int]) -> bool:
    """Whether the listed links among the GPUs join all of them."""
    graph = nx.Graph()
    graph.add_nodes_from(gpus)
    graph.add_edges_from((a, b) for a, b in links if a in gpus and b in gpus)
    return bool(nx.is_connected(graph))


def unlinked(links: Sequence[tuple[int, int]], sets: Sequence[frozenset[int]]) -> int:
    """How many of the sets are of several GPUs that no links join."""
    return sum(1 for gpus in sets if len(gpus) > 1 and not linked(links, gpus))


def partitions(gpus: frozenset[int], size: int) -> Iterator[Sets]:
    """All ways to part the GPUs into sets of a size."""
    if not gpus:
        yield ()
        return
    first = min(gpus)
    for others in combinations(sorted(gpus - {first}), size - 1):
        mine = frozenset((first, *others))
        for rest in partitions(gpus - mine, size):
            yield (mine, *rest)


# graphs


@st.composite
def graphs(draw: DrawFn, most: int = 8) -> LinkGraph:
    """Any links between up to `most` GPUs."""
    size = draw(st.integers(2, most))
    pairs = list(combinations(range(size), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    return LinkGraph(size=size, links=tuple(sorted(chosen)))


def cliques(*sizes: int) -> LinkGraph:
    """Groups of GPUs, all linked inside, none across; members far apart from one another."""
    total = sum(sizes)
    order = [i for start in (0, 1) for i in range(start, total, 2)]
    links: list[tuple[int, int]] = []
    for size in sizes:
        part, order = sorted(order[:size]), order[size:]
        links.extend(combinations(part, 2))
    return LinkGraph(size=total, links=tuple(sorted(links)))


REGULAR = {
    "pairs of 16": cliques(*[2] * 8),
    "quads of 16": cliques(*[4] * 4),
    "pairs and quads of 16": cliques(4, 4, 2, 2, 2, 2),
    "pairs of 8": cliques(*[2] * 4),
    "quads of 8": cliques(4, 4),
    "odd ones": cliques(3, 3, 1, 1),
}


def mask_of(gpus: Sequence[int] | frozenset[int]) -> int:
    return sum(1 << i for i in gpus)


def gpus_of(mask: int) -> frozenset[int]:
    return frozenset(i for i in range(16) if mask >> i & 1)


# masks


@SETTINGS
@given(graphs(), st.data())
def test_masks_are_sets_and_linked_means_connected(graph: LinkGraph, data: st.DataObject) -> None:
    mask = data.draw(st.integers(1, (1 << graph.size) - 1))
    gpus = gpus_of(mask)
    assert bits(mask) == sorted(gpus)
    assert graph.linked(mask) == linked(graph.links, gpus)
    assert graph.best_left(mask) == sum(1 for a, b in graph.links if {a, b} <= gpus)
    for size in range(1, len(gpus) + 1):
        found = [gpus_of(part) for part in subsets(mask, size)]
        assert len(found) == len(set(found))
        assert set(found) == {frozenset(part) for part in combinations(gpus, size)}


@st.composite
def masks(draw: DrawFn) -> tuple[LinkGraph, int]:
    graph = draw(st.one_of(graphs(), st.sampled_from(list(REGULAR.values()))))
    return graph, draw(st.integers(0, (1 << graph.size) - 1))


@SETTINGS
@given(masks())
def test_a_canonical_mask_admits_the_same(case: tuple[LinkGraph, int]) -> None:
    graph, mask = case
    canonical = graph.canonical(mask)
    assert canonical.bit_count() == mask.bit_count()
    assert graph.canonical(canonical) == canonical
    whole = nx.Graph()
    whole.add_nodes_from(range(graph.size))
    whole.add_edges_from(graph.links)
    mine, its = whole.subgraph(gpus_of(mask)), whole.subgraph(gpus_of(canonical))
    assert nx.is_isomorphic(mine, its)


@SETTINGS
@given(st.sampled_from(sorted(REGULAR)), st.data())
def test_masks_that_fill_cliques_alike_are_one(name: str, data: st.DataObject) -> None:
    graph = REGULAR[name]
    mask = data.draw(st.integers(0, (1 << graph.size) - 1))
    by_size: dict[int, list[list[int]]] = {}
    for part in graph.components():
        by_size.setdefault(part.bit_count(), []).append(bits(part))
    other = 0
    for parts in by_size.values():
        counts = [sum(1 for i in part if mask >> i & 1) for part in parts]
        for members, count in zip(parts, data.draw(st.permutations(counts)), strict=True):
            other |= mask_of(data.draw(st.permutations(members))[:count])
    assert graph.canonical(mask) == graph.canonical(other)


def test_gpus_of_several_models_are_never_alike() -> None:
    graph = LinkGraph(size=4, links=((0, 1), (2, 3)), one_model=False)
    assert [graph.canonical(mask) for mask in range(16)] == list(range(16))


# splits


@SETTINGS
@given(graphs(), st.integers(1, 4), st.data())
def test_a_split_leaves_as_few_sets_unlinked_as_possible(
    graph: LinkGraph, size: int, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, graph.size // size))
    order = data.draw(st.permutations(range(graph.size)))
    gpus = frozenset(order[: number * size])
    broken, parts = split(graph, mask_of(gpus), size)
    found = [gpus_of(part) for part in parts]
    assert sorted(i for part in found for i in part) == sorted(gpus)
    assert all(len(part) == size for part in found)
    assert broken == unlinked(graph.links, found)
    assert broken == min(unlinked(graph.links, sets) for sets in partitions(gpus, size))


@pytest.mark.parametrize("name", REGULAR)
@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_split_of_cliques_takes_all_that_they_hold(name: str, size: int) -> None:
    # Each clique holds so many linked sets; what it has over can't be linked with others'.
    graph = REGULAR[name]
    for drop in (0, size, 2 * size):
        gpus = frozenset(range(graph.size)[drop:])
        if len(gpus) % size:
            continue
        held = [len(gpus & gpus_of(part)) // size for part in graph.components()]
        broken, parts = split(graph, mask_of(gpus), size)
        assert broken == len(gpus) // size - sum(held)
        assert unlinked(graph.links, [gpus_of(part) for part in parts]) == broken


# seats


def need(
    gpus: int, sets: int = 1, *, linked: bool = False, union: bool = False, cost: int = 0
) -> Need:
    """`sets` tasks on a node, with that many GPUs in all."""
    return Need(
        gpus=gpus,
        sets=sets,
        need=(0, 0),
        model="H100",
        columns=1,
        linked=linked,
        union=union,
        unlinked_cost=cost,
        tier=0,
        exclusive=False,
        cap=0,
        owner="",
    )


@st.composite
def needs_on(draw: DrawFn, room: int) -> tuple[Need, ...]:
    """Needs for at most so many GPUs."""
    found: list[Need] = []
    for _ in range(draw(st.integers(1, 3))):
        each, sets = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (4, 1)]))
        if each * sets <= room:
            room -= each * sets
            found.append(
                need(
                    each * sets,
                    sets,
                    linked=draw(st.booleans()) and each > 1,
                    union=draw(st.booleans()) and sets > 1,
                    cost=draw(st.sampled_from((0, 1, 3, 7))),
                )
            )
    return tuple(found)


def assignments(idle: frozenset[int], wanted: Sequence[Need]) -> Iterator[tuple[Sets, ...]]:
    """All ways to give the tasks of the needs distinct GPUs."""
    if not wanted:
        yield ()
        return
    first, each = wanted[0], wanted[0].gpus // wanted[0].sets
    for mine in combinations(sorted(idle), first.gpus):
        for sets in partitions(frozenset(mine), each):
            for rest in assignments(idle - set(mine), wanted[1:]):
                yield (sets, *rest)


def cost_of(
    links: Sequence[tuple[int, int]], wanted: Sequence[Need], given_: Sequence[Sets]
) -> int | None:
    """What an assignment costs; None where it breaks an NVLink requirement."""
    total = 0
    for entry, sets in zip(wanted, given_, strict=True):
        if entry.linked and unlinked(links, sets):
            return None
        together = (frozenset[int]().union(*sets),) if entry.union else sets
        total += entry.unlinked_cost * unlinked(links, together)
    return total


NO_CUTS = Cutter({}, Sizes(1_000, {}, by_memory=False), 0, 0)


def state_of(graph: LinkGraph, idle: frozenset[int]) -> NodeState:
    return NodeState(
        name="n1",
        node=build_node("n1", graph.size, links=graph.links),
        idle={"H100": tuple(sorted(idle))} if idle else {},
        counted=False,
        free=(0, 0),
        vacant=True,
        cutter=NO_CUTS,
    )


def sets_of(found: Seats) -> tuple[Sets, ...]:
    return tuple(tuple(frozenset(gpus or ()) for gpus in tasks) for tasks in found.sets)


def largest_joined(links: Sequence[tuple[int, int]], gpus: frozenset[int]) -> int:
    """The largest linked set among the GPUs."""
    graph = nx.Graph()
    graph.add_nodes_from(gpus)
    graph.add_edges_from((a, b) for a, b in links if a in gpus and b in gpus)
    return max(map(len, nx.connected_components(graph)), default=0)


@SETTINGS
@given(graphs(6), st.data())
def test_seats_cost_as_little_as_any_and_leave_the_best_rest(
    graph: LinkGraph, data: st.DataObject
) -> None:
    assume(graph.links)  # nodes without links are of another kind
    order = data.draw(st.permutations(range(graph.size)))
    idle = frozenset(order[: data.draw(st.integers(1, graph.size))])
    wanted = data.draw(needs_on(len(idle)))

    def rank_of(left: frozenset[int]) -> int:
        return -largest_joined(graph.links, left)

    best: tuple[int, int] | None = None
    for sets in assignments(idle, wanted):
        cost = cost_of(graph.links, wanted, sets)
        if cost is not None:
            left = idle.difference(*(part for parts in sets for part in parts))
            best = min(best or (cost, rank_of(left)), (cost, rank_of(left)))
    assume(best is not None)  # nobody asks for seats that there aren't
    found = seats(
        state_of(graph, idle), wanted, lambda masks: rank_of(gpus_of(masks.get("H100", 0)))
    )
    given_ = sets_of(found)
    used = [i for sets in given_ for part in sets for i in part]
    left = frozenset(found.left.get("H100", ()))
    assert len(used) == len(set(used)) == sum(entry.gpus for entry in wanted)
    assert set(used) | left == idle
    assert not set(used) & left
    assert [len(sets) for sets in given_] == [entry.sets for entry in wanted]
    assert (cost_of(graph.links, wanted, given_), rank_of(left)) == best


@pytest.mark.parametrize(
    ("name", "sizes", "broken"),
    [
        ("pairs of 16", (2, 2, 2, 2, 2, 2, 2, 2), 0),
        ("pairs of 16", (4, 2, 2, 2, 2, 2, 2), 1),
        ("quads of 16", (4, 4, 4, 4), 0),
        ("quads of 16", (2, 3, 3, 4, 4), 1),
        ("quads of 16", (3, 1, 3, 1, 4, 2, 2), 0),
        ("pairs and quads of 16", (4, 4, 2, 2, 2, 2), 0),
        ("pairs and quads of 16", (4, 4, 4, 2), 1),
    ],
)
def test_seats_on_16_gpus(name: str, sizes: tuple[int, ...], broken: int) -> None:
    graph = REGULAR[name]
    wanted = [need(size, cost=5) for size in sizes]
    given_ = sets_of(seats(state_of(graph, frozenset(range(16))), wanted))
    assert cost_of(graph.links, wanted, given_) == 5 * broken
    assert len({i for sets in given_ for part in sets for i in part}) == sum(sizes)


# patterns

OFF = Profile((), Table(()), 0, 3_600, None, off=True, cutter=NO_CUTS)
MANY = (99,) * 9
"""More of each slot than fit."""
MODELS = ("A100", "H100")


def slot(model: str | None, gpus: int, **fields: object) -> Slot:
    defaults: dict[str, object] = {
        "sets": 1,
        "need": (0, 0),
        "linked": False,
        "union": False,
        "cost": 0,
        "tier": 0,
        "exclusive": False,
        "cap": 0,
        "owner": "",
        "located": -1,
    }
    return Slot(model=model, gpus=gpus, **{**defaults, **fields})  # type: ignore[arg-type]


def bin_type(
    idle: dict[str, int],
    free: tuple[int | None, ...] = (None, None),
    graph: LinkGraph | None = None,
    *,
    vacant: bool = False,
) -> BinType:
    return BinType(
        column=0,
        idle=tuple(sorted(idle.items())),
        graph=graph,
        nvswitch=False,
        free=free,
        vacant=vacant,
    )


@st.composite
def slots_for(draw: DrawFn, models: Sequence[str], *, bounded: bool) -> tuple[Slot, ...]:
    found = [
        slot(
            draw(st.sampled_from(models)),
            draw(st.integers(1, 4)),
            need=(draw(st.integers(0, 3)), draw(st.integers(0, 3))) if bounded else (0, 0),
            cost=draw(st.sampled_from((0, 0, 5))),
            tier=draw(st.integers(0, 1)),
            exclusive=draw(st.integers(1, 4)) == 1,
            cap=draw(st.sampled_from((0, 0, 1, 2))),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return tuple(dict.fromkeys(found))


def multisets(wanted: Sequence[Slot], most: int, *, vacant: bool) -> Iterator[tuple[int, ...]]:
    """How often each slot: exclusive ones alone and on vacant nodes only, none above its cap."""
    for counts in product(range(most + 1), repeat=len(wanted)):
        chosen = [entry for entry, n in zip(wanted, counts, strict=True) if n]
        if any(entry.exclusive for entry in chosen) and (len(chosen) > 1 or not vacant):
            continue
        if all(not e.cap or n <= e.cap for e, n in zip(wanted, counts, strict=True)):
            yield counts


def as_pattern(counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((i, n) for i, n in enumerate(counts) if n)


def paid(costs: dict[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((tier, cost) for tier, cost in costs.items() if cost))


@SETTINGS
@given(st.data(), st.booleans())
def test_patterns_are_the_multisets_that_fit(data: st.DataObject, vacant: bool) -> None:
    models = MODELS[: data.draw(st.integers(1, 2))]
    idle = {model: data.draw(st.integers(1, 5)) for model in models}
    free = tuple(data.draw(st.sampled_from((None, 3, 5, 8))) for _ in range(2))
    wanted = data.draw(slots_for(models, bounded=True))
    wanted = tuple(
        slot(
            entry.model,
            entry.gpus,
            need=tuple(
                0 if have is None else want for want, have in zip(entry.need, free, strict=True)
            ),
            cost=entry.cost,
            tier=entry.tier,
            exclusive=entry.exclusive,
            cap=entry.cap,
        )
        for entry in wanted
    )
    fitting = {}
    for counts in multisets(wanted, 5, vacant=vacant):
        pairs = list(zip(wanted, counts, strict=True))
        if all(
            sum(e.gpus * n for e, n in pairs if e.model == model) <= have
            for model, have in idle.items()
        ) and all(
            have is None or sum(e.need[d] * n for e, n in pairs) <= have
            for d, have in enumerate(free)
        ):
            costs = {0: 0, 1: 0}
            for entry, number in pairs:
                costs[entry.tier] += entry.cost * number
            used = tuple(sum(e.need[d] * n for e, n in pairs) for d in range(2))
            fitting[as_pattern(counts)] = (paid(costs), used)
    found = enumerate_patterns(
        bin_type(idle, free, vacant=vacant), wanted, MANY, OFF, 3_000, fillers=False
    )
    assert len(found) == len(fitting)
    assert {p.counts: (p.costs, p.used) for p in found} == fitting
    assert found[0].counts == ()


def profile_of(*sizes: tuple[int, bool]) -> Profile:
    """A kind of task per entry: so many GPUs, linked or not."""
    entries = tuple(Entry(gpus, (0, 0), frozenset(), linked, 1) for gpus, linked in sizes)
    return Profile(entries, Table(entries), len(entries), 60, None, off=False, cutter=NO_CUTS)


def fragmentation(
    links: Sequence[tuple[int, int]], left: frozenset[int], sizes: Sequence[tuple[int, bool]]
) -> int:
    """F of what is left on a node, with a horizon of a minute."""
    lost = 0
    for gpus, must_link in sizes:
        fits = [frozenset(part) for part in combinations(sorted(left), gpus)]
        if not any(not must_link or gpus < 2 or linked(links, part) for part in fits):
            lost += len(left)
    return lost * 60 // len(sizes)


@SETTINGS
@given(graphs(6), st.data())
def test_patterns_under_links_are_all_ways_to_pay(graph: LinkGraph, data: st.DataObject) -> None:
    sizes = ((2, True), (3, False))
    idle = frozenset(range(graph.size)) - {data.draw(st.integers(0, graph.size))}
    kinds = [(1, 1), (2, 1), (3, 1), (4, 2), (2, 2)]
    wanted = tuple(
        slot(
            "H100",
            gpus,
            sets=sets,
            linked=data.draw(st.booleans()) and gpus > sets,
            union=data.draw(st.booleans()) and sets > 1,
            cost=data.draw(st.sampled_from((0, 5))),
        )
        for gpus, sets in data.draw(
            st.lists(st.sampled_from(kinds), unique=True, min_size=1, max_size=2)
        )
    )
    best: dict[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], int] = {}
    for counts in multisets(wanted, 6, vacant=False):
        number = sum(e.gpus * n for e, n in zip(wanted, counts, strict=True))
        if number > len(idle):
            continue
        for cost, left in ways(graph, tuple(sorted(idle)), wanted, counts):
            key = (as_pattern(counts), paid({0: cost}))
            value = fragmentation(graph.links, left, sizes)
            best[key] = min(best.get(key, value), value)
    found = enumerate_patterns(
        bin_type({"H100": mask_of(idle)}, graph=graph),
        wanted,
        MANY,
        profile_of(*sizes),
        3_000,
        fillers=False,
    )
    assert {(p.counts, p.costs): p.fragmentation for p in found} == best
    assert len(found) == len(best)


def ways(
    graph: LinkGraph, idle: tuple[int, ...], wanted: Sequence[Slot], counts: Sequence[int]
) -> set[tuple[int, frozenset[int]]]:
    """What the slots can cost, with the GPUs left; each takes its GPUs as well as these allow."""
    reached = {(0, frozenset(idle))}
    for entry, number in zip(wanted, counts, strict=True):
        for _ in range(number):
            reached = {
                (cost + more, left - mine)
                for cost, left in reached
                for mine in map(frozenset, combinations(sorted(left), entry.gpus))
                if (more := price(graph.links, entry, mine)) is not None
            }
    return reached


@cache
def price(links: tuple[tuple[int, int], ...], entry: Slot, mine: frozenset[int]) -> int | None:
    each = entry.gpus // entry.sets
    least = min(unlinked(links, sets) for sets in partitions(mine, each))
    if entry.linked and least:
        return None
    return entry.cost * (unlinked(links, (mine,)) if entry.union else least)


def test_too_many_patterns_are_refused() -> None:
    wanted = tuple(slot("H100", 1, owner=str(i)) for i in range(4))
    kind = bin_type({"H100": 8})
    number = len(enumerate_patterns(kind, wanted, MANY, OFF, 3_000, fillers=False))
    assert number == 495  # ways to give up to 8 GPUs to 4: 12 over 4
    assert len(enumerate_patterns(kind, wanted, MANY, OFF, number, fillers=False)) == number
    with pytest.raises(TooManyPatternsError):
        enumerate_patterns(kind, wanted, MANY, OFF, number - 1, fillers=False)
