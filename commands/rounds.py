"""What each command for a live cluster does, for any native scheduler."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trencadis.commands.live import Native, answering, may_enforce

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from trencadis.adapters.live.carry import Step
    from trencadis.adapters.live.context import Context
    from trencadis.models import Plan


LOCK_SECONDS = 60.0
"""How long `apply` and a loop that recommends wait for each other."""


def snapshot(native: Native, config: str | None, output: str, json: bool) -> None:
    """Writes the cluster as it is now."""
    from trencadis.views import io
    from trencadis.views.session import deliver

    io.writable(output)
    with answering():
        reading = native.cluster(native.config(config)).read({})
    deliver(reading.snapshot, list(reading.warnings), output, json)


def plan_of(context: typer.Context, source: str) -> Plan:
    """The plan that a command was given."""
    from trencadis.models import load_plan
    from trencadis.views import io
    from trencadis.views.session import Session

    text = Session(context).text(source)
    with io.source_named(source):
        return load_plan(text)


def apply(live: Context, state: Path, plan: Plan, *, yes: bool, json: bool) -> None:
    """Sends a plan's actions whose preconditions hold, or tells which it would send."""
    from trencadis.adapters.live.carry import carry_out, rehearse, send_due
    from trencadis.adapters.live.lock import locked
    from trencadis.adapters.live.reconcile import reconcile
    from trencadis.adapters.live.relayout import settle_layouts

    with answering():
        if yes:
            may_enforce(live)
        store = live.store
        if not yes:
            reading = live.cluster.read(store.terms())
            steps = rehearse(live, plan, reading.snapshot, reading)
        else:
            # A loop that recommends acts for moments only; one that enforces has the lock for good.
            wait = 0.0 if store.get("mode") == "enforce" else LOCK_SECONDS
            with locked(state, wait_seconds=wait):
                epoch = store.epoch()
                settle_layouts(live)
                reconcile(live, live.cluster.read(store.terms()))
                reading = live.cluster.read(store.terms())
                send_due(live, reading, epoch)
                steps = carry_out(live, plan, reading.snapshot, reading, epoch)
    _tell(steps, yes=yes, json=json)
    settle(steps)


def settle(steps: Sequence[Step]) -> None:
    """Ends the command with 3 where actions were left out."""
    from trencadis.views.outcome import Code, CommandError

    if any(step.blocked for step in steps):
        raise CommandError(Code.UNVERIFIED, "preconditions of some actions don't hold")


def _tell(steps: Sequence[Step], *, yes: bool, json: bool) -> None:
    from trencadis.views import io
    from trencadis.views.session import dumps

    if json:
        rows = [
            {
                "action": s.kind,
                "job": s.job,
                "nodes": list(s.nodes),
                "blocked": s.blocked,
                "needless": s.needless,
            }
            for s in steps
        ]
        io.write(io.STANDARD, dumps({"sent": yes, "steps": rows}))
        return
    word = "sent" if yes else "would send"
    for step in steps:
        said = "skip" if step.blocked else "no need" if step.needless else word
        why = step.blocked or step.needless
        nodes = ",".join(step.nodes)
        io.show(f"{said}  {step.kind}  {step.job}  {nodes}{f'  ({why})' if why else ''}")
    if not yes:
        io.tell("Nothing was sent; --yes sends it.")


def run(
    native: Native,
    config: str | None,
    state: Path,
    *,
    interval: float | None,
    mode: str | None,
    rounds: int | None,
    plan_file: str | None,
    metrics_file: Path | None,
    repro_dir: Path,
    workers: int,
    log_level: str,
) -> None:
    """Round after round, until told to stop."""
    import logging
    from contextlib import ExitStack, nullcontext
    from dataclasses import asdict
    from functools import partial

    from trencadis.adapters.live.lock import locked
    from trencadis.adapters.live.logs import decision
    from trencadis.adapters.live.loop import Loop
    from trencadis.models import Snapshot
    from trencadis.views import io
    from trencadis.views.snapshots import plan_text

    io.writable(plan_file)
    stop = _told_to_stop()
    with (
        native.opened(config, state, log_level, mode=mode, interval=interval) as live,
        locked(state, "run"),
        ExitStack() as kept,
    ):
        acting: Callable[[], AbstractContextManager[None]] = nullcontext
        if live.config.mode == "enforce":
            kept.enter_context(locked(state))
            with answering():
                may_enforce(live)
        elif live.config.mode == "recommend":
            acting = partial(locked, state, wait_seconds=LOCK_SECONDS)
        from trencadis.solver.round import Options
        from trencadis.solver.session import Session

        limit = live.config.time_limit_seconds or live.config.interval_seconds / 2
        options = Options(time_limit_s=limit, workers=workers, seed=live.config.seed)
        session: Session | None = None

        def decide(snap: Snapshot) -> Plan:
            nonlocal session
            session = session or Session(snap, options)
            session.update(snap)
            most = snap.policy.time_limit_seconds
            return session.solve(min(limit, most))

        def keep(plan: Plan) -> None:
            try:
                io.write(str(plan_file), plan_text(plan))
            except io.OutputError as error:
                decision(live.log, "no-plan-file", level=logging.WARNING, reason=str(error))

        loop = Loop(
            live,
            decide,
            options={k: v for k, v in asdict(options).items() if k != "thresholds"},
            metrics_file=metrics_file,
            repro_dir=repro_dir,
            acting=acting,
            on_plan=None if plan_file is None else keep,
        )
        loop.run(stop, rounds)


def watch(
    native: Native,
    config: str | None,
    state: Path,
    *,
    missed: int | None,
    period: float | None,
    once: bool,
    log_level: str,
) -> None:
    """Gives all jobs back when rounds are missed."""
    from trencadis.adapters.live.watchdog import Watchdog

    stop = _told_to_stop()
    with native.opened(config, state, log_level, missed=missed) as live:
        dog = Watchdog(live, since_start=not once)
        if once:
            dog.check()
        else:
            dog.run(stop, period or live.config.interval_seconds)


def hand_back(native: Native, config: str | None, state: Path, control: str, json: bool) -> None:
    """Gives all jobs back now."""
    from trencadis.adapters.live.handback import hand_back as give
    from trencadis.views import io
    from trencadis.views.session import dumps

    with native.opened(config, state, "warning") as live, answering():
        given, leaving = give(live, control, control=control)
        live.note(control, jobs=len(given))
    if json:
        io.write(io.STANDARD, dumps({"given_back": given, "leaving": leaving}))
        return
    io.show(f"{len(given)} jobs given back to {native.name}")
    if leaving:
        io.show(f"still under way: {', '.join(leaving)}; run this again soon")


def resume(native: Native, config: str | None, state: Path) -> None:
    """Starts jobs again."""
    with native.opened(config, state, "info") as live:
        live.store.fence(control="active")
        live.note("resumed")


def acknowledge(native: Native, config: str | None, state: Path, jobs: Sequence[str]) -> None:
    """Notes that jobs in their grace are ready."""
    with native.opened(config, state, "info") as live:
        for job in jobs:
            live.note("acknowledged", job)


def _told_to_stop() -> threading.Event:
    """Set by Ctrl-C and by what ends a service."""
    import signal
    import threading

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
