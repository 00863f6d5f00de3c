"""When the loop counts as gone: after so many rounds missed while the native scheduler answered."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trencadis.adapters.live.cluster import RefusedError, UnavailableError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.handback import hand_back, hand_back_unwritten
from trencadis.adapters.live.store import instant

_NEVER = datetime.fromtimestamp(0, UTC)
Signs = tuple[str | None, str | None, str | None, str | None]


@dataclass(slots=True)
class Watchdog:
    """A process of its own: it shares nothing with the loop but the store.

    Time is measured by this machine's monotonic clock, between two looks at least: the wall clock
    may be set while a loop works, or while none does.
    """

    context: Context
    since_start: bool = True
    """Whether rounds that were missed before it began to look don't count."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds."""
    _since: float | None = None
    """When the last sign of life came; the native scheduler has answered since."""
    _looked: float = 0.0
    _signs: Signs = field(default=(None, None, None, None))
    """What the store had then: mode, interval, beat, begun."""

    def check(self) -> list[str]:
        """Looks once; returns the jobs that it gave back."""
        context, now = self.context, self.monotonic()
        if not context.cluster.alive():
            self._since, self.since_start = None, True
            return []
        signs = self._look()
        if self._since is None:
            self._since = now if self.since_start else now - self._age(signs)
        elif signs[2:] != self._signs[2:]:
            self._since = now - min(self._age(signs), now - self._looked)
        self._signs, self._looked = signs, now
        mode, told, *_ = signs
        if mode != "enforce":
            return []
        interval = float(told or context.config.interval_seconds)
        missed = int((now - self._since) / interval)
        return [] if missed < context.config.missed_rounds else self._hand_over(missed)

    def _look(self) -> Signs:
        try:
            mode, interval, beat, begun = map(
                self.context.store.get, ("mode", "interval", "beat", "begun")
            )
        except sqlite3.Error as error:
            self._no_store(error)
            mode, interval, beat, begun = self._signs
            return mode or self.context.config.mode, interval, beat, begun
        return mode, interval, beat, begun

    def _age(self, signs: Signs) -> float:
        """Seconds since the last sign of life, by the wall clock: who looks once has no other."""
        found = [instant(sign) or _NEVER for sign in signs[2:]]
        return max(0.0, (self.context.clock() - max(found)).total_seconds())

    def _hand_over(self, missed: int) -> list[str]:
        context = self.context
        try:
            try:
                given, _ = hand_back(context, f"{missed} rounds were missed")
                if given:
                    context.note(
                        "handed-over", level=logging.WARNING, missed=missed, jobs=len(given)
                    )
            except sqlite3.Error as error:
                # A loop can't send anything either that it can't write first.
                self._no_store(error)
                given = hand_back_unwritten(context, f"{missed} rounds were missed")
        except (RefusedError, UnavailableError) as error:
            context.log.warning("native scheduler away", extra={"detail": {"reason": str(error)}})
            return []
        return given

    def _no_store(self, error: sqlite3.Error) -> None:
        self.context.log.error("no-store", extra={"detail": {"reason": str(error)}})

    def run(self, stop: threading.Event, period: float) -> None:
        """Looks every `period` seconds until told to stop."""
        while not stop.is_set():
            self.check()
            stop.wait(period)
