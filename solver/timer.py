"""Wall time of a round by step, and who hears how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from trencadis.solver.progress import Progress, Stage, Step


class Timer:
    """Wall time by step, and who hears of it."""

    def __init__(self, progress: Callable[[Progress], None] | None = None) -> None:
        self._began = self._last = time.monotonic()
        self._laps: dict[str, float] = {}
        self._progress = progress

    def tell(
        self, step: Step, started: int = 0, stages: Mapping[str, Stage] | None = None
    ) -> None:
        """Tells the listener, if there is one."""
        if self._progress is not None:
            seconds = time.monotonic() - self._began
            self._progress(Progress(step, seconds, started, stages or {}))

    def hear(self) -> Callable[[Mapping[str, Stage]], None] | None:
        """Who hears of stages while they are searched; None if there is no listener."""
        if self._progress is None:
            return None
        return lambda stages: self.tell("searching", stages=stages)

    def lap(self, name: str) -> None:
        """Books the time since the last lap."""
        now = time.monotonic()
        self._laps[name] = self._laps.get(name, 0.0) + now - self._last
        self._last = now

    def laps(self) -> dict[str, float]:
        """Seconds by step, rounded to milliseconds."""
        return {name: round(seconds, 3) for name, seconds in self._laps.items()}
