"""Nodes for tasks without GPUs, in what the other tasks leave of CPU and memory."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from trencadis.models import Job
from trencadis.solver.fabric import Domain
from trencadis.solver.ledger import Ledger
from trencadis.solver.room import UNBOUNDED
from trencadis.solver.shapes import Need, Way


class FillerPlacer:
    """Finds nodes while these only fill up."""

    def __init__(self, ledger: Ledger, reserve: Mapping[str, tuple[int, ...]]) -> None:
        self.ledger = ledger
        self.path = ledger.facts.fabric.path
        self.reserve = reserve
        """By node: CPU, memory and resources that should stay free, for fragmentation's sake."""
        self._filler_queues: dict[tuple[Need, bool], deque[str]] = {}

    def nodes(self, way: Way, job: Job) -> list[str] | None:
        """Nodes for tasks without GPUs: first where fragmentation does not suffer."""
        cap = (job.max_tasks_per_node or way.count * way.need.sets) // way.need.sets
        for keep in (True, False):
            if way.segment or 1 <= way.depth <= self.ledger.facts.fabric.depth:
                found = self._fill_domain(way, cap, keep)
            else:
                found = self._fill_anywhere(way, cap, keep)
            if found is not None:
                return found
        return None

    def _fill_anywhere(self, way: Way, cap: int, keep: bool) -> list[str] | None:
        """Nodes only fill up here, so a full one leaves the queue for good."""
        key = (way.need, keep)
        if key not in self._filler_queues:
            names = sorted(self.ledger.nodes, key=self._idle_first)
            self._filler_queues[key] = deque(n for n in names if self._room(way.need, n, keep))
        queue = self._filler_queues[key]
        found: list[str] = []
        for name in list(queue):
            number = self._room(way.need, name, keep)
            if number == 0:
                queue.remove(name)
            found.extend([name] * min(number, cap, way.count - len(found)))
            if len(found) == way.count:
                return found
        return None

    def _fill_domain(self, way: Way, cap: int, keep: bool) -> list[str] | None:
        fine = way.segment_depth if way.segment else way.depth
        piece = way.segment or way.count
        parts: defaultdict[Domain, list[str]] = defaultdict(list)
        for name in self.ledger.nodes:
            number = min(cap, self._room(way.need, name, keep))
            parts[self.path[name][:fine]].extend([name] * number)
        wide: defaultdict[Domain, list[str]] = defaultdict(list)
        for domain in sorted(parts):
            whole = len(parts[domain]) // piece * piece
            whole = min(whole, way.most) if way.most else whole
            wide[domain[: way.depth]].extend(parts[domain][:whole])
        for domain in sorted(wide):
            if len(wide[domain]) >= way.count:
                return wide[domain][: way.count]
        return None

    def _idle_first(self, name: str) -> tuple[int, str]:
        return (sum(self.ledger.nodes[name].idle.values()), name)

    def _room(self, need: Need, name: str, keep: bool) -> int:
        number = self.ledger.fits(need, self.ledger.nodes[name])
        return min(number, self._spare(need, name)) if keep and number else number

    def _spare(self, need: Need, name: str) -> int:
        """How many fit if what the pattern keeps for fragmentation stays free."""
        reserve = self.reserve.get(name, (0,) * len(need.need))
        free = self.ledger.nodes[name].free
        return min(
            (
                max(0, have - keep) // want
                for want, have, keep in zip(need.need, free, reserve, strict=True)
                if want
            ),
            default=UNBOUNDED,
        )
