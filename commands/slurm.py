"""`trencadis slurm`: how its commands talk; what they do is in `rounds`."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from trencadis.commands import live
from trencadis.commands import rounds as shared
from trencadis.commands.natives import register
from trencadis.views import options as opt

if TYPE_CHECKING:
    from trencadis.adapters.live.cluster import Cluster

app = typer.Typer(help="Live with a running Slurm.", no_args_is_help=True, rich_markup_mode=None)


def _load(text: str) -> Any:
    from trencadis.adapters.slurm.live import load_config

    return load_config(text)


def _cluster(config: Any) -> Cluster:
    from trencadis.adapters.slurm.live import SlurmCluster

    return SlurmCluster(config)


NATIVE = live.Native("Slurm", "trencadis-slurm.toml", "TRENCADIS_SLURM", _load, _cluster)
register(app, NATIVE)


@app.command()
def apply(
    context: typer.Context,
    plan: opt.PlanArg,
    config: live.ConfigFile = None,
    state: live.State = live.STATE,
    yes: live.Yes = False,
    log_level: live.LogLevel = "info",
    json: opt.Json = False,
) -> None:
    """Send a plan's actions whose preconditions hold (a dry run without --yes)."""
    decided = shared.plan_of(context, plan)
    with NATIVE.opened(config, state, log_level) as opened:
        shared.apply(opened, state, decided, yes=yes, json=json)
