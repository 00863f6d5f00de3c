"""`trencadis kubernetes`: how its commands talk; what they do is in `rounds`."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trencadis.commands import live
from trencadis.commands import rounds as shared
from trencadis.commands.natives import register
from trencadis.views import options as opt

if TYPE_CHECKING:
    from trencadis.adapters.live.cluster import Cluster
    from trencadis.adapters.live.context import Context
    from trencadis.models import Plan

app = typer.Typer(
    help="Live with a running Kubernetes.", no_args_is_help=True, rich_markup_mode=None
)


def _load(text: str) -> Any:
    from trencadis.adapters.kubernetes.live import load_config

    return load_config(text)


def _cluster(config: Any) -> Cluster:
    from trencadis.adapters.kubernetes.live import KubernetesCluster

    return KubernetesCluster(config)


NATIVE = live.Native(
    "Kubernetes", "trencadis-kubernetes.toml", "TRENCADIS_KUBERNETES", _load, _cluster
)


register(app, NATIVE)


@app.command()
def apply(
    context: typer.Context,
    plan: opt.PlanArg,
    config: live.ConfigFile = None,
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
