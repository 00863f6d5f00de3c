"""What the parts of the loop share: the scheduler, the store, the rules, the clock, the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trencadis.adapters.live.cluster import PREFIX, Cluster, RefusedError
from trencadis.adapters.live.config import LiveConfig
from trencadis.adapters.live.logs import decision
from trencadis.adapters.live.store import Intent, Store

Clock = Callable[[], datetime]


@dataclass(slots=True)
class Context:
    """One loop's, or one command's."""

    cluster: Cluster
    store: Store
    config: LiveConfig
    clock: Clock
    log: logging.Logger
    round: int | None = None
    """The round that what happens belongs to."""
    skipped: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why an action, by kind and job, was not sent when last asked: told again once it changes."""

    def note(self, kind: str, job: str = "", level: int = logging.INFO, **detail: Any) -> None:
        """Records an event, with its line in the log."""
        self.store.add_event(self.clock(), self.round, job, kind, **detail)
        decision(self.log, kind, job, level=level, **detail)

    def unreserve(self, job: str) -> bool:
        """Ends what the native scheduler keeps for a job; whether it could be."""
        try:
            self.cluster.unreserve(PREFIX + job)
        except RefusedError as error:
            self.note("unreserve-refused", job, logging.WARNING, reason=str(error))
            return False
        return True

    def finish(self, intent: Intent, kind: str, level: int = logging.INFO, **detail: Any) -> None:
        """Ends what is under way, with its event and its line, and what was kept for it."""
        if intent.reserved:
            self.unreserve(intent.job)
        self.store.end(intent.job, kind, self.clock(), intent.round, **detail)
        decision(self.log, kind, intent.job, level=level, **detail)
