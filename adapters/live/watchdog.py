"""When the loop counts as gone: after so many rounds missed while the native scheduler answered."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trencadis.adapters.live.cluster import RefusedError, UnavailableError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.store import instant


@dataclass(slots=True)
class Watchdog:
    """A process of its own: it shares nothing with the loop but the store."""

    context: Context
    since_start: bool = True
    """Whether rounds that were missed before it began to look don't count."""
    _since: datetime | None = None
    """From when on missed rounds count: the native scheduler has answered since."""

    def check(self) -> list[str]:
        """Looks once; returns the jobs that it gave back."""
        context = self.context
        store, now = context.store, context.clock()
        if not context.cluster.alive():
            self._since, self.since_start = None, True
            return []
        if self._since is None:
            self._since = now if self.since_start else datetime.min.replace(tzinfo=UTC)
        if store.get("mode") != "enforce":
            return []
        interval = float(store.get("interval") or context.config.interval_seconds)
        signs = (instant(store.get(key)) for key in ("beat", "begun"))
        last = max([self._since, *(sign for sign in signs if sign is not None)])
        missed = (now - last) / timedelta(seconds=interval)
        if missed < context.config.missed_rounds:
            return []
        try:
            given, _ = hand_back(context, f"{int(missed)} rounds were missed")
        except (RefusedError, UnavailableError) as error:
            context.log.warning("native scheduler away", extra={"detail": {"reason": str(error)}})
            return []
        if given:
            context.note("handed-over", level=logging.WARNING, missed=int(missed), jobs=len(given))
        return given

    def run(self, stop: threading.Event, period: float) -> None:
        """Looks every `period` seconds until told to stop."""
        while not stop.is_set():
            self.check()
            stop.wait(period)
