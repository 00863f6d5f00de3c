"""Reservations of Slurm that are ours: made, moved, entered by the job they are for, and ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trencadis.adapters.live.cluster import PREFIX, RefusedError
from trencadis.adapters.slurm.hostlist import expand
from trencadis.adapters.slurm.live import show


@dataclass(frozen=True, slots=True)
class Reservations:
    """Those whose names begin as ours do."""

    run: Callable[..., str]
    clock: Callable[[], datetime]

    def listed(self) -> dict[str, dict[str, Any]]:
        """What Slurm tells of each, by name."""
        document = show.reservations(self.run("scontrol", "-o", "show", "reservations"))
        entries = document["reservations"]
        return {str(e["name"]): e for e in entries if str(e["name"]).startswith(PREFIX)}

    def keep(
        self, name: str, user: str, nodes: Sequence[str], start: datetime, end: datetime
    ) -> None:
        """Makes it, or changes the one that is there. Whole nodes; what runs there goes on."""
        now = self.clock()
        # A span, not a time of day: that would be read in a time zone, and twice a year wrongly.
        at = "now" if start <= now else f"now+{math.ceil((start - now).total_seconds())}"
        minutes = max(1, math.ceil((end - max(start, now)) / timedelta(minutes=1)))
        rest = (f"Nodes={','.join(nodes)}", f"StartTime={at}", f"Duration={minutes}")
        if name in self.listed():
            try:
                self.run("scontrol", "update", f"ReservationName={name}", *rest)
            except RefusedError:
                self.end(name)  # one that has begun can't be moved
            else:
                return
        words = ("scontrol", "create", "reservation", f"ReservationName={name}", f"Users={user}")
        self.run(*words, *rest, "Flags=IGNORE_JOBS")

    def open(self, name: str, nodes: Sequence[str]) -> bool:
        """Has it begin now, on just these nodes; whether the job can start inside.

        From outside it could not: whatever waits in a partition of a higher `PriorityTier` would
        take the nodes as soon as they are nobody's.
        """
        entry = self.listed().get(name)
        if entry is None:
            return False
        wanted = []
        if datetime.fromtimestamp(entry["start_time"], UTC) > self.clock():
            wanted.append("StartTime=now")
        if set(expand(str(entry["node_list"] or ""))) != set(nodes):
            wanted.append(f"Nodes={','.join(sorted(set(nodes)))}")
        try:
            if wanted:
                self.run("scontrol", "update", f"ReservationName={name}", *wanted)
        except RefusedError:
            self.end(name)
            return False
        return True

    def end(self, name: str) -> None:
        """Lets its job go on without it, and deletes it; one that isn't there is no fault."""
        if name not in self.listed():
            return
        try:
            self.run("scontrol", "delete", f"ReservationName={name}")
        except RefusedError:
            # In use. A job that runs inside leaves it without noticing.
            job = name.removeprefix(PREFIX)
            self.run("scontrol", "update", f"JobId={job}", "ReservationName=")
            self.run("scontrol", "delete", f"ReservationName={name}")
