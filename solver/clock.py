"""How long a round may search: wall time, or a measure of work where plans must be repeatable."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trencadis.solver.cpsat import Effort
from trencadis.solver.progress import Stage

STEP = 0.05
"""In deterministic mode, the part of the limit that one step may take, in CP-SAT's own time."""


class Clock:
    """The time that is left; in deterministic mode time stands still and only work counts."""

    def __init__(self, seconds: float, deterministic: bool) -> None:
        self.end = math.inf if deterministic else time.monotonic() + seconds
        self.seconds = seconds
        self.deterministic = deterministic

    def left(self) -> float:
        """Seconds left."""
        return self.seconds if self.deterministic else max(0.0, self.end - time.monotonic())

    def expired(self) -> bool:
        """Whether the time is up."""
        return self.left() <= 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how well to search."""

    clock: Clock
    workers: int
    seed: int
    gap: float
    stop: threading.Event
    hear: Callable[[Mapping[str, Stage]], None] | None = None
    """Told of stages while they are searched."""
    proves: bool = True
    """Whether bounds are worth time; where something else bounds the round, good counts will do."""

    def effort(self, most: float = math.inf) -> Effort:
        """The effort for one step, of at most so many seconds."""
        seconds = min(most, self.clock.left())
        if self.clock.deterministic:
            # No clock adds the steps up here, so each gets a part that the whole can afford.
            seconds = min(most, self.clock.seconds * STEP)
        return Effort(
            seconds=seconds,
            workers=self.workers,
            seed=self.seed,
            deterministic=self.clock.deterministic,
        )

    def part(self, share: float) -> Limits:
        """These limits with only a part of the time that is left."""
        clock = self.clock
        return replace(self, clock=Clock(share * clock.left(), clock.deterministic))

    def over(self) -> bool:
        """Whether to end now."""
        return self.stop.is_set() or self.clock.expired()
