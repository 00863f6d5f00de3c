"""The tree of queues, and quota units summed along it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models import Queue, Snapshot


@dataclass(frozen=True, slots=True)
class Tree:
    """Queues by name, with their ancestors and children."""

    queues: Mapping[str, Queue]
    chains: Mapping[str, tuple[str, ...]]
    """Queue -> itself, its parent, and so on up to the root."""
    children: Mapping[str | None, tuple[str, ...]]
    """Queue -> its children; None -> the roots."""
    bottom_up: tuple[str, ...]
    """All queues, children before their parents."""

    def is_leaf(self, queue: str) -> bool:
        """Whether the queue has no children."""
        return not self.children.get(queue)

    def sums(self, leaves: Mapping[str, int]) -> dict[str, int]:
        """A value of each subtree from the values of single queues."""
        total = dict.fromkeys(self.queues, 0)
        for name, value in leaves.items():
            for queue in self.chains[name]:
                total[queue] += value
        return total


def tree_of(snapshot: Snapshot) -> Tree:
    """The snapshot's queues."""
    queues = {queue.name: queue for queue in snapshot.queues}
    chains: dict[str, tuple[str, ...]] = {}
    children: dict[str | None, list[str]] = {}
    for queue in snapshot.queues:
        chain, parent = [queue.name], queue.parent
        while parent is not None and parent not in chain:
            chain.append(parent)
            parent = queues[parent].parent
        chains[queue.name] = tuple(chain)
        children.setdefault(queue.parent, []).append(queue.name)
    return Tree(
        queues=queues,
        chains=chains,
        children={name: tuple(names) for name, names in children.items()},
        bottom_up=tuple(sorted(queues, key=lambda name: -len(chains[name]))),
    )
