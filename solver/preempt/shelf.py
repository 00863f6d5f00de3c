"""Offers of room by node, and the cheapest of them, kept in order while nodes change."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from trencadis.solver.preempt.world import Cost, Offer


class Shelf:
    """The offers of all nodes for one kind of need."""

    def __init__(self) -> None:
        self.offers: dict[str, list[Offer]] = {}
        """By node, each with what it costs more than the one before."""
        self._heads: list[tuple[Cost, str, int]] = []
        """(cost, node, edition) of first offers; those of former editions are passed over."""
        self._edition: dict[str, int] = {}

    def put(self, node: str, offers: list[Offer]) -> None:
        """The offers of a node from now on."""
        self._edition[node] = self._edition.get(node, 0) + 1
        self.offers.pop(node, None)
        if offers:
            self.offers[node] = offers
            heappush(self._heads, (offers[0].cost, node, self._edition[node]))

    def cheapest(self, count: int) -> list[Offer] | None:
        """The cheapest `count` offers of all nodes; those of one node are taken in their order."""
        heads: list[tuple[Cost, str, int]] = []
        lists: list[list[Offer]] = []
        # More nodes than offers are never needed, nor nodes whose first offer is dearer.
        while self._heads and len(lists) < count:
            head = heappop(self._heads)
            if self._edition[head[1]] == head[2]:
                heads.append(head)
                lists.append(self.offers[head[1]])
        for head in heads:
            heappush(self._heads, head)
        return None if sum(map(len, lists)) < count else pick(lists, count)


def pick(lists: list[list[Offer]], count: int) -> list[Offer]:
    """The cheapest `count` offers; those of one node are taken in their order."""
    heads = [(offers[0].cost, offers[0].node, 0, offers) for offers in lists]
    heapify(heads)
    picked: list[Offer] = []
    while len(picked) < count:
        _, node, position, offers = heads[0]
        picked.append(offers[position])
        if position + 1 < len(offers):
            heapreplace(heads, (offers[position + 1].cost, node, position + 1, offers))
        else:
            heappop(heads)
    return picked
