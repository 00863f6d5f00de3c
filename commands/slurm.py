"""`trencadis slurm`: how its commands talk; what they do is in `rounds`."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trencadis.commands import live
from trencadis.commands import rounds as shared
from trencadis.views import options as opt

if TYPE_CHECKING:
    from trencadis.adapters.live.cluster import Cluster

app = typer.Typer(help="Live with a running Slurm.", no_args_is_help=True, rich_markup_mode=None)

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        envvar="TRENCADIS_SLURM",
        metavar="FILE",
        help="TOML: [live], [slurm], [policy], [[queues]]. trencadis-slurm.toml if there.",
    ),
]


def _load(text: str) -> Any:
    from trencadis.adapters.slurm.live import load_config

    return load_config(text)


def _cluster(config: Any) -> Cluster:
    from trencadis.adapters.slurm.live import SlurmCluster

    return SlurmCluster(config)


NATIVE = live.Native("Slurm", "trencadis-slurm.toml", _load, _cluster)


@app.command()
def snapshot(
    config: ConfigFile = None,
    output: opt.SnapshotOut = "-",
    json: opt.AlwaysJson = False,
) -> None:
    """The cluster now, as a snapshot."""
    shared.snapshot(NATIVE, config, output, json)


@app.command()
def apply(
    context: typer.Context,
    plan: opt.PlanArg,
    config: ConfigFile = None,
    state: live.State = live.STATE,
    yes: live.Yes = False,
    log_level: live.LogLevel = "info",
    json: opt.Json = False,
) -> None:
    """Send a plan's actions whose preconditions hold (a dry run without --yes)."""
    decided = shared.plan_of(context, plan)
    with NATIVE.opened(config, state, log_level) as opened:
        shared.apply(opened, state, decided, yes=yes, json=json)


@app.command()
def run(
    config: ConfigFile = None,
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
        NATIVE,
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
    config: ConfigFile = None,
    state: live.State = live.STATE,
    missed: live.Missed = None,
    period: live.Period = None,
    once: live.Once = False,
    log_level: live.LogLevel = "info",
) -> None:
    """Give all jobs back to Slurm when rounds are missed. A process of its own."""
    shared.watch(
        NATIVE, config, state, missed=missed, period=period, once=once, log_level=log_level
    )


@app.command()
def pause(
    config: ConfigFile = None, state: live.State = live.STATE, json: opt.Json = False
) -> None:
    """Give all jobs back to Slurm now, and start none until `resume`."""
    shared.hand_back(NATIVE, config, state, "paused", json)


@app.command()
def resume(config: ConfigFile = None, state: live.State = live.STATE) -> None:
    """Start jobs again after `pause` or `uninstall`."""
    shared.resume(NATIVE, config, state)


@app.command()
def uninstall(
    config: ConfigFile = None, state: live.State = live.STATE, json: opt.Json = False
) -> None:
    """Give all jobs back, remove our reservations, end the loop. The log stays."""
    shared.hand_back(NATIVE, config, state, "uninstalled", json)


@app.command()
def ack(jobs: live.Acknowledged, config: ConfigFile = None, state: live.State = live.STATE) -> None:
    """Say that jobs in their grace are ready to be stopped."""
    shared.acknowledge(NATIVE, config, state, jobs)
