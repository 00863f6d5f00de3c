"""Which nodes are alike for the present needs, and which slots a node of a type offers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from trencadis.models import Node
from trencadis.solver.capacity import Capacity, NodeState
from trencadis.solver.fragmentation import Profile
from trencadis.solver.gpus import LinkGraph, can_link, link_graph
from trencadis.solver.patterns.whole import BinType, Slot
from trencadis.solver.pieces import Piece
from trencadis.solver.shapes import Need
from trencadis.solver.slices import Cutter

MAX_SUMS = 4_096
"""Above so many distinct sums of CPU or memory, nodes keep their own figure."""


def bin_graph(node: Node) -> LinkGraph | None:
    """The explicit NVLink of a node, if it has one."""
    if node.nvlink.kind != "links":
        return None
    return link_graph(node.nvlink, node.gpu_count, len({group.model for group in node.gpus}) == 1)


def bin_fragmentation(
    profile: Profile,
    state: NodeState,
    idle: Mapping[str, tuple[int, ...]],
    free: tuple[int, ...],
) -> int:
    """F of the whole GPUs of a node with these idle and so much free, GPU-seconds."""
    graph = None if state.counted else bin_graph(state.node)
    nvswitch = state.node.nvlink.kind == "nvswitch"
    masks = {model: sum(1 << i for i in indices) for model, indices in idle.items()}

    def links(model: str, n: int) -> bool:
        return can_link(graph, nvswitch, masks[model], n)

    counts = {model: len(gpus) for model, gpus in idle.items()}
    return profile.cost(counts, free, links, state.blanks)


class Classifier:
    """Decides which nodes are alike for the present needs."""

    def __init__(
        self,
        capacity: Capacity,
        needs: tuple[Need, ...],
        located: tuple[Need, ...],
        profile: Profile,
    ) -> None:
        self.needs, self.located, self.profile = needs, located, profile
        self.fillers = frozenset(
            i for i, need in enumerate(needs) if not need.on_gpus and not need.exclusive
        )
        self.located_fillers = frozenset(
            i for i, need in enumerate(located) if not need.on_gpus and not need.exclusive
        )
        everything = (*needs, *located)
        self.exclusive = any(need.exclusive for need in everything)
        self.dims = 2 + len(capacity.resources)
        self.packed = [need for need in everything if need.gpus]
        self.cut = [need for need in everything if need.pieces]
        # A whole node for a job without GPUs: its patterns count CPUs, so those stay exact.
        self.raw = any(need.exclusive and not need.on_gpus for need in everything)
        self._sums: dict[int, list[list[int] | None]] = {}
        self._slots: dict[
            tuple[BinType, bool], tuple[tuple[Slot, ...], dict[int, int], dict[int, int]]
        ] = {}

    def bin_type(self, state: NodeState, column: int) -> BinType:
        """The node's type."""
        graph = None if state.counted else bin_graph(state.node)
        idle: tuple[tuple[str, int], ...]
        if graph is None:
            idle = tuple((model, len(indices)) for model, indices in sorted(state.idle.items()))
        else:
            idle = tuple(
                (model, graph.canonical(sum(1 << i for i in indices)))
                for model, indices in sorted(state.idle.items())
            )
        return BinType(
            column=column,
            idle=idle,
            graph=graph if idle else None,
            nvswitch=state.node.nvlink.kind == "nvswitch" and state.takes_count > 0,
            free=self._useful(state),
            vacant=self.exclusive and state.vacant,
            cuts=state.cuts,
            blanks=tuple(blank for model, blank in state.blanks.items() if state.idle.get(model)),
        )

    def _useful(self, state: NodeState) -> tuple[int | None, ...]:
        """Free CPU, memory and resources, rounded down to what some pattern can tell apart."""
        if self.raw:
            return state.free
        if self.cut and (state.cuts or state.blanks):
            return self._useful_beside_pieces(state)
        sums = self._sums_for(state.takes_count)
        useful: list[int | None] = []
        for have, known in zip(state.free, sums, strict=True):
            if known is None:
                useful.append(have)
            elif have >= known[-1]:
                useful.append(None)
            else:
                useful.append(known[bisect_right(known, have) - 1])
        return tuple(useful)

    def _useful_beside_pieces(self, state: NodeState) -> tuple[int | None, ...]:
        """Likewise on nodes that take slices or shares, whose sums are too many to list."""
        pieces = sum(state.cutter.most_pieces(cut) for cut in state.cuts)
        for model, indices in state.idle.items():
            blank = state.blanks.get(model)
            if blank is not None:
                pieces += len(indices) * state.cutter.most_opened(blank)
        useful: list[int | None] = []
        for d, have in enumerate(state.free):
            whole = state.takes_count * max((need.need[d] for need in self.packed), default=0)
            beside = pieces * max((need.need[d] for need in self.cut), default=0)
            more = max((entry.need[d] for entry in self.profile.entries), default=0)
            useful.append(None if have >= whole + beside + more else have)
        return tuple(useful)

    def _sums_for(self, gpus: int) -> list[list[int] | None]:
        if gpus not in self._sums:
            self._sums[gpus] = [self._sums_of(gpus, d) for d in range(self.dims)]
        return self._sums[gpus]

    def _sums_of(self, gpus: int, dim: int) -> list[int] | None:
        """Sums of one dimension that needs and one further task can reach on that many GPUs."""
        pairs = {(need.gpus, need.need[dim]) for need in self.packed if need.gpus <= gpus}
        exact: list[set[int]] = [{0}]
        for used in range(1, gpus + 1):
            exact.append(
                {
                    total + amount
                    for size, amount in pairs
                    if size <= used
                    for total in exact[used - size]
                }
            )
            if len(exact[-1]) > MAX_SUMS:
                return None
        sums = set().union(*exact)
        asked = {
            (entry.gpus, entry.need[dim]) for entry in self.profile.entries if entry.on_gpus
        }
        for used, totals in enumerate(exact):
            for size, amount in asked:
                if size <= gpus - used:
                    sums |= {total + amount for total in totals}
            if len(sums) > MAX_SUMS:
                return None
        return sorted(sums)

    def family_key(self, bin_type: BinType) -> tuple[object, ...]:
        """Types with equal keys map needs to slots alike."""
        return (
            bin_type.column,
            bin_type.graph is not None,
            bin_type.nvswitch,
            tuple(have is None for have in bin_type.free),
        )

    def slots(
        self, bin_type: BinType, *, whole: bool = False
    ) -> tuple[tuple[Slot, ...], dict[int, int], dict[int, int]]:
        """The slots of a type, and the slot of each need and located need that fits it.

        `whole`: of whole GPUs only; slices and shares go elsewhere.
        """
        key = (bin_type, whole)
        if key not in self._slots:
            self._slots[key] = self._find_slots(bin_type, whole=whole)
        return self._slots[key]

    def _find_slots(
        self, bin_type: BinType, *, whole: bool
    ) -> tuple[tuple[Slot, ...], dict[int, int], dict[int, int]]:
        found: dict[Slot, int] = {}
        slot_of: dict[int, int] = {}
        located_slot_of: dict[int, int] = {}
        counts, knife = bin_type.counts(), self.profile.cutter
        holds: dict[tuple[str | None, tuple[Piece, ...]], bool] = {}
        for index, need in enumerate(self.needs):
            if whole and need.pieces:
                continue
            if index not in self.fillers and _fits(knife, bin_type, counts, need, holds):
                slot_of[index] = found.setdefault(_slot(bin_type, need, -1), len(found))
        for index, need in enumerate(self.located):
            if whole and need.pieces:
                continue
            if index not in self.located_fillers and _fits(knife, bin_type, counts, need, holds):
                slot = _slot(bin_type, need, index)
                located_slot_of[index] = found.setdefault(slot, len(found))
        return tuple(found), slot_of, located_slot_of


def _holds_pieces(
    cutter: Cutter, bin_type: BinType, counts: Mapping[str, int], need: Need
) -> bool:
    model = need.model or ""
    blank = bin_type.blank(model)
    return cutter.holds(bin_type.cuts, blank, counts.get(model, 0), model, need.pieces)


def _fits(
    cutter: Cutter,
    bin_type: BinType,
    counts: Mapping[str, int],
    need: Need,
    holds: dict[tuple[str | None, tuple[Piece, ...]], bool],
) -> bool:
    """`holds`: what is known of pieces by model."""
    if not need.columns >> bin_type.column & 1:
        return False
    if need.gpus and bin_type.takes(need.model) < need.gpus:
        return False
    if need.exclusive and not bin_type.vacant:
        return False
    if need.linked and bin_type.graph is None and not bin_type.nvswitch:
        return False
    if not all(
        have is None or want <= have
        for want, have in zip(need.need, bin_type.free, strict=True)
    ):
        return False
    if not need.pieces:
        return True
    key = (need.model, need.pieces)
    if key not in holds:
        holds[key] = _holds_pieces(cutter, bin_type, counts, need)
    return holds[key]


def _slot(bin_type: BinType, need: Need, located: int) -> Slot:
    graph = bin_type.graph is not None
    cost = 0 if bin_type.nvswitch else need.unlinked_cost
    if not graph and not need.union:
        cost *= need.sets
    return Slot(
        model=need.model,
        gpus=need.gpus,
        sets=need.sets if graph else 1,
        need=tuple(
            0 if have is None else want
            for want, have in zip(need.need, bin_type.free, strict=True)
        ),
        linked=graph and need.linked,
        union=graph and need.union,
        cost=cost,
        tier=need.tier if cost else -1,
        exclusive=need.exclusive,
        cap=need.cap,
        owner=need.owner,
        located=located,
        pieces=need.pieces,
    )
