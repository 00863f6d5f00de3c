"""The loop of rounds: read, settle, decide, record, carry out."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from trencadis.adapters.live.carry import carry_out, send_due
from trencadis.adapters.live.cluster import Reading, RefusedError, UnavailableError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.logs import decision
from trencadis.adapters.live.metrics import write_metrics
from trencadis.adapters.live.overlay import overlay
from trencadis.adapters.live.reconcile import reconcile
from trencadis.adapters.live.relayout import settle_layouts
from trencadis.adapters.live.repro import write_repro
from trencadis.adapters.live.shadow import Shadow
from trencadis.adapters.live.store import FencedError, instant
from trencadis.models import InvalidInputError, Plan, Snapshot
from trencadis.models.plan import Status

Solve = Callable[[Snapshot], Plan]


@dataclass(slots=True)
class Loop:
    """One process's rounds. A round that fails leaves everything to the next one."""

    context: Context
    solve: Solve
    options: dict[str, object] = field(default_factory=dict)
    """Of `solve`, for the file that reproduces a failing round."""
    metrics_file: Path | None = None
    repro_dir: Path | None = None
    on_plan: Callable[[Plan], None] | None = None
    shadow: Shadow | None = None
    acting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered for each round: where others may act in between, it keeps them out meanwhile."""
    _warned: set[str] = field(default_factory=set)

    def round(self) -> bool:
        """One round; whether it ended well. False too where the native scheduler is away."""
        context, began = self.context, time.monotonic()
        context.round = None
        store, mode = context.store, context.config.mode
        try:
            epoch = store.epoch()
            if mode == "enforce" and store.control() != "active":
                given, leaving = hand_back(context, store.control())
                decision(context.log, store.control(), given=len(given), leaving=leaving)
                self._beat()
                return True
            reading = context.cluster.read(store.terms())
            self._warn(reading)
            if mode != "shadow":
                # In `recommend` all that is under way is what a person sent with `apply`.
                settle_layouts(context)
                reconcile(context, reading)
                reading = context.cluster.read(store.terms())
            return self._decide(reading, epoch, began)
        except UnavailableError as error:
            decision(context.log, "away", level=logging.WARNING, reason=str(error))
        except RefusedError as error:
            # Of an action it is settled where it is sent; here it was a look, and rights may come.
            decision(context.log, "refused", level=logging.WARNING, reason=str(error))
        except sqlite3.Error as error:
            # As if it had been killed there: nothing is sent that isn't written first.
            decision(context.log, "no-store", level=logging.ERROR, reason=str(error))
        except FencedError:
            decision(context.log, "fenced", level=logging.WARNING, reason="jobs were given back")
        except InvalidInputError as error:
            for line in error.lines():
                decision(context.log, "unreadable", level=logging.ERROR, reason=line)
        return False

    def _decide(self, reading: Reading, epoch: int, began: float) -> bool:
        context, mode = self.context, self.context.config.mode
        store = context.store
        if mode == "shadow":
            self.shadow = self.shadow or Shadow(store)
            snapshot = self.shadow.snapshot(reading)
        else:
            snapshot = overlay(reading, store, context.clock())
        try:
            plan = self.solve(snapshot)
        except Exception as error:
            if self.repro_dir is None:
                raise
            try:
                path = str(write_repro(self.repro_dir, snapshot, self.options, error))
            except OSError as failed:
                path = f"not written: {failed.strerror}"
            decision(
                context.log,
                "round-failed",
                level=logging.ERROR,
                reason=f"{type(error).__name__}: {error}",
                repro=path,
            )
            return False
        policy = hashlib.sha256(snapshot.policy.model_dump_json().encode()).hexdigest()
        text = plan.model_dump_json(exclude_defaults=True)
        context.round = store.add_round(
            context.clock(), mode, plan.snapshot, policy, plan.proof.status, text
        )
        self._tell(plan, snapshot, reading)
        if self.on_plan is not None:
            self.on_plan(plan)
        if plan.proof.status == Status.INTERRUPTED and mode == "enforce":
            return False
        if mode == "enforce":
            # Solving took its time: what is sent is judged by how things are now.
            fresh = context.cluster.read(store.terms())
            send_due(context, fresh, epoch)
            carry_out(context, plan, snapshot, fresh, epoch)
        elif mode == "recommend" and store.intents():
            send_due(context, context.cluster.read(store.terms()), epoch)
        elif mode == "shadow" and self.shadow is not None:
            self.shadow.follow(plan, reading)
            decision(context.log, "shadow", **self.shadow.report().as_dict())
        self._beat()
        seconds = time.monotonic() - began
        decision(
            context.log,
            "round",
            round=context.round,
            seconds=round(seconds, 3),
            status=str(plan.proof.status),
            gap=plan.proof.gap,
            starts=len(plan.starts),
            preempts=len(plan.preempts),
            pending=len(plan.pending),
            snapshot=plan.snapshot[:12],
            versions={"trencadis": plan.made.trencadis, "ortools": plan.made.ortools},
            seed=plan.made.seed,
        )
        if self.metrics_file is not None:
            try:
                write_metrics(self.metrics_file, context, plan, snapshot, seconds)
            except OSError as error:
                reason = f"{self.metrics_file}: {error.strerror}"
                decision(context.log, "no-metrics", level=logging.WARNING, reason=reason)
        return True

    def run(self, stop: threading.Event, rounds: int | None = None) -> int:
        """Rounds at the interval until told to stop; returns how many ended well."""
        context = self.context
        self._begin()
        well = done = 0
        while not stop.is_set() and not self._uninstalled():
            began = time.monotonic()
            with self.acting():
                well += self.round()
            done += 1
            if rounds is not None and done >= rounds:
                break
            stop.wait(max(0.0, context.config.interval_seconds - (time.monotonic() - began)))
        return well

    def _uninstalled(self) -> bool:
        try:
            return self.context.store.control() == "uninstalled"
        except sqlite3.Error:
            return False  # the round says so

    def _begin(self) -> None:
        """Tells the watchdog that rounds are on their way: to load is no missed round.

        A loop that dies in each first round is as bad as none: its next beginning counts only once
        the watchdog has had its turn.
        """
        context = self.context
        store, now = context.store, context.clock()
        turn = timedelta(seconds=context.config.interval_seconds * context.config.missed_rounds)
        beat, begun = (instant(store.get(key)) for key in ("beat", "begun"))
        if begun is None or now - begun >= turn or (beat is not None and beat > begun):
            store.put(begun=now.isoformat())
        store.put(mode=context.config.mode, interval=str(context.config.interval_seconds))

    def _beat(self) -> None:
        self.context.store.put(beat=self.context.clock().isoformat())

    def _warn(self, reading: Reading) -> None:
        """Each kind of warning once in a run, not once a round."""
        for warning in reading.warnings:
            if warning.message not in self._warned:
                self._warned.add(warning.message)
                decision(self.context.log, "warning", level=logging.WARNING, reason=str(warning))

    def _tell(self, plan: Plan, snapshot: Snapshot, reading: Reading) -> None:
        titles = {name: view.title for name, view in reading.jobs.items()}
        for preempt in plan.preempts:
            decision(
                self.context.log,
                "plan-preempt",
                preempt.job,
                name=titles.get(preempt.job, ""),
                reason=f"makes room for {', '.join(preempt.makes_room_for)}",
            )
        queues = {job.name: job.queue for job in snapshot.jobs}
        for start in plan.starts:
            decision(
                self.context.log,
                "plan-start",
                start.job,
                name=titles.get(start.job, ""),
                queue=queues.get(start.job, ""),
                nodes=sorted({task.node for task in start.allocation}),
                reason=f"saves {start.waiting_saved} GPU-s of waiting",
            )
        for entry in plan.pending:
            decision(
                self.context.log,
                "plan-wait",
                entry.job,
                level=logging.DEBUG,
                name=titles.get(entry.job, ""),
                code=entry.code,
                reason=entry.sentence,
            )
