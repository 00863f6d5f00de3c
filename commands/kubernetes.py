"""`trencadis kubernetes`: how its commands talk; what they do is in `rounds`."""

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
    from trencadis.adapters.live.context import Context
    from trencadis.models import Plan

app = typer.Typer(
    help="Live with a running Kubernetes.", no_args_is_help=True, rich_markup_mode=None
)

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        envvar="TRENCADIS_KUBERNETES",
        metavar="FILE",
        help="TOML: [live], [kubernetes], [policy], [[queues]]; trencadis-kubernetes.toml.",
    ),
]


def _load(text: str) -> Any:
    from trencadis.adapters.kubernetes.live import load_config

    return load_config(text)


def _cluster(config: Any) -> Cluster:
    from trencadis.adapters.kubernetes.live import KubernetesCluster

    return KubernetesCluster(config)


NATIVE = live.Native("Kubernetes", "trencadis-kubernetes.toml", _load, _cluster)


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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the actions as kubectl commands.")
    ] = False,
    log_level: live.LogLevel = "info",
    json: opt.Json = False,
) -> None:
    """Send a plan's actions whose preconditions hold (only tell without --yes)."""
    from trencadis.views.outcome import Code, CommandError

    if yes and dry_run:
        raise CommandError(Code.USAGE, "--yes and --dry-run exclude each other")
    decided = shared.plan_of(context, plan)
    with NATIVE.opened(config, state, log_level) as opened:
        if dry_run:
            _written(opened, decided, json)
        else:
            shared.apply(opened, state, decided, yes=yes, json=json)


def _written(opened: Context, plan: Plan, json: bool) -> None:
    """The actions for kubectl."""
    from trencadis.adapters.kubernetes.live import written
    from trencadis.views import io
    from trencadis.views.session import dumps

    with live.answering():
        steps, requests = written(opened, plan)
    if json:
        io.write(io.STANDARD, dumps({"requests": [request.as_dict() for request in requests]}))
    else:
        io.write(io.STANDARD, "".join(f"{request.kubectl()}\n" for request in requests))
    for step in steps:
        if step.blocked:
            io.tell(f"skip  {step.kind}  {step.job}  ({step.blocked})")
    shared.settle(steps)


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
    """Give all jobs back to Kubernetes when rounds are missed. A process of its own."""
    shared.watch(
        NATIVE, config, state, missed=missed, period=period, once=once, log_level=log_level
    )


@app.command()
def pause(
    config: ConfigFile = None, state: live.State = live.STATE, json: opt.Json = False
) -> None:
    """Give all jobs back to Kubernetes now, and start none until `resume`."""
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
