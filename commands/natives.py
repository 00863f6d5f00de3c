"""The commands that are the same for every native scheduler; what they do is in `rounds`."""

from __future__ import annotations

from pathlib import Path

import typer

from trencadis.commands import live
from trencadis.commands import rounds as shared
from trencadis.views import options as opt


def register(app: typer.Typer, native: live.Native) -> None:
    """Adds them to a group."""

    @app.command()
    def snapshot(
        config: live.ConfigFile = None,
        output: opt.SnapshotOut = "-",
        json: opt.AlwaysJson = False,
    ) -> None:
        """The cluster now, as a snapshot."""
        shared.snapshot(native, config, output, json)

    @app.command()
    def run(
        config: live.ConfigFile = None,
        state: live.State = live.STATE,
        interval: live.Interval = None,
        mode: live.Mode = None,
        rounds: live.Rounds = None,
        plan_file: live.PlanFile = None,
        metrics_file: live.MetricsFile = None,
        repro_dir: live.ReproDir = Path(),
        workers: opt.Workers = 8,
        log_level: live.LogLevel = "info",
    ) -> None:
        """Round after round: snapshot, solve, carry out, log."""
        shared.run(
            native,
            config,
            state,
            interval=interval,
            mode=mode,
            rounds=rounds,
            plan_file=plan_file,
            metrics_file=metrics_file,
            repro_dir=repro_dir,
            workers=workers,
            log_level=log_level,
        )

    @app.command()
    def watchdog(
        config: live.ConfigFile = None,
        state: live.State = live.STATE,
        missed: live.Missed = None,
        period: live.Period = None,
        once: live.Once = False,
        log_level: live.LogLevel = "info",
    ) -> None:
        """Give all jobs back to the scheduler when rounds are missed. A process of its own."""
        shared.watch(
            native, config, state, missed=missed, period=period, once=once, log_level=log_level
        )

    @app.command()
    def pause(
        config: live.ConfigFile = None, state: live.State = live.STATE, json: opt.Json = False
    ) -> None:
        """Give all jobs back to the scheduler now, and start none until `resume`."""
        shared.hand_back(native, config, state, "paused", json)

    @app.command()
    def resume(config: live.ConfigFile = None, state: live.State = live.STATE) -> None:
        """Start jobs again after `pause` or `uninstall`."""
        shared.resume(native, config, state)

    @app.command()
    def uninstall(
        config: live.ConfigFile = None, state: live.State = live.STATE, json: opt.Json = False
    ) -> None:
        """Give all jobs back, remove our reservations, end the loop. The log stays."""
        shared.hand_back(native, config, state, "uninstalled", json)

    @app.command()
    def ack(
        jobs: live.Acknowledged, config: live.ConfigFile = None, state: live.State = live.STATE
    ) -> None:
        """Say that jobs in their grace are ready to be stopped."""
        shared.acknowledge(native, config, state, jobs)
