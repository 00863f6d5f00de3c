"""Session: a snapshot that changes, and a plan for it whenever one is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from trencadis.models import Plan, Snapshot, apply
from trencadis.models.delta import Delta, change
from trencadis.models.plan import Status
from trencadis.solver.again import Earlier
from trencadis.solver.progress import Progress
from trencadis.solver.round import Options, solve


class Session:
    """Rounds of one cluster.

    It keeps the snapshot, the last plan and what it tells of the next one: a round begins with the
    starts of the last that still wait and fit, searches the least urgent of them anew with all
    that came since, and takes the result if its proof is good enough. Otherwise, and always in
    deterministic mode, it is searched from nothing. A question that was answered to the optimum is
    not asked again. `update`, `accept` and `solve` belong to one thread;
    `cancel` may come from any.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: Options | None = None,
        *,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """`on_progress` is called in the thread of `solve`; what it raises ends the solve."""
        self._snapshot = snapshot
        self._options = options or Options()
        self._on_progress = on_progress
        self._plan: Plan | None = None
        self._earlier: Earlier | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as it is known now."""
        return self._snapshot

    @property
    def plan(self) -> Plan | None:
        """The last plan; it may be of an earlier snapshot."""
        return self._plan

    def update(self, change_to: Delta | Snapshot) -> Snapshot:
        """Takes over changes, or a whole new snapshot; returns the snapshot after them.

        Raises InvalidInputError if the changes name what isn't there.
        """
        if isinstance(change_to, Snapshot):
            self._snapshot = change_to
        else:
            self._snapshot = change(self._snapshot, change_to)
        return self._snapshot

    def accept(self) -> Snapshot:
        """Takes the last plan's actions as done; returns the snapshot after them.

        Raises PlanMismatchError if the snapshot has changed since that plan, ValueError if there
        is none.
        """
        if self._plan is None:
            raise ValueError("there is no plan yet")
        self._snapshot = apply(self._snapshot, self._plan)
        return self._snapshot

    def solve(self, time_limit: float | None = None) -> Plan:
        """A verified plan for the snapshot, with its proof.

        `time_limit`: seconds of wall time; the options' or the policy's where None. After `cancel`
        the plan is the best one found. Raises InvalidInputError if the snapshot contradicts itself.
        """
        last = self._plan
        if (
            last is not None
            and last.proof.status == Status.OPTIMAL
            and last.snapshot == self._snapshot.fingerprint()
        ):
            return last
        options = self._options
        if time_limit is not None:
            options = replace(options, time_limit_s=time_limit)
        with self._lock:
            stop = self._stop = threading.Event()
        self._plan = solve(self._snapshot, options, stop, self._on_progress, self._earlier)
        self._earlier = Earlier.of(self._snapshot, self._plan)
        return self._plan

    def cancel(self) -> None:
        """Ends the solve that is running, if any: it returns the best plan found so far."""
        with self._lock:
            self._stop.set()


__all__ = ["Options", "Progress", "Session"]
