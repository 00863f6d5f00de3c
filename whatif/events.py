"""What happens in a replay, in order of time; at one instant in the order of `Kind`."""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """Ends come before failures, both before arrivals, and rounds see all of them."""

    END = 0
    DRAINED = 1
    FAIL = 2
    REPAIR = 3
    ARRIVE = 4
    ELIGIBLE = 5
    ROUND = 6


class Event(NamedTuple):
    """Something at an instant."""

    at: int
    kind: Kind
    subject: int
    """Index of a job, or row of a node."""
    epoch: int = 0
    """Of the job when the event was foreseen; another one now means that it does not happen."""


class Agenda:
    """The events to come."""

    def __init__(self) -> None:
        self._heap: list[Event] = []

    def add(self, event: Event) -> None:
        """Foresees an event."""
        heapq.heappush(self._heap, event)

    def next_at(self) -> int | None:
        """The instant of the next event."""
        return self._heap[0].at if self._heap else None

    def pop(self) -> Event:
        """The next event."""
        return heapq.heappop(self._heap)
