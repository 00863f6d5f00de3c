"""`trencadis import`: which reader makes a snapshot of which files."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from typing import Annotated, Literal

import typer

from trencadis.commands import dcgm, import_cluster
from trencadis.views import options as opt

app = typer.Typer(
    help="Make a snapshot of what others wrote.", no_args_is_help=True, rich_markup_mode=None
)
import_cluster.register(app)
app.command("dcgm")(dcgm.import_dcgm)


@app.command("openb")
def import_openb(
    nodes_csv: opt.NodesCsv,
    pods_csv: opt.PodsCsv,
    running: opt.Running = 0,
    pending: opt.NextPods = None,
    seed: opt.Shuffle = None,
    output: opt.SnapshotOut = "-",
    json: opt.AlwaysJson = False,
) -> None:
    """Alibaba's GPU trace: CSVs of nodes and pods."""
    from trencadis.views import io
    from trencadis.views.session import deliver

    io.writable(output)
    from trencadis.instances.openb import read_openb

    snapshot = read_openb(nodes_csv, pods_csv, running=running, pending=pending, seed=seed)
    deliver(snapshot, [], output, json)


@app.command("slurm")
def import_slurm(
    context: typer.Context,
    jobs: opt.JobsFile,
    nodes: opt.NodesFile,
    topology: opt.TopologyFile = None,
    partitions: opt.PartitionsFile = None,
    reservations: opt.ReservationsFile = None,
    licenses: opt.LicensesFile = None,
    queue_by: Annotated[
        Literal["account", "partition"], typer.Option(help="What a queue stands for.")
    ] = "account",
    output: opt.SnapshotOut = "-",
    json: opt.AlwaysJson = False,
) -> None:
    """What Slurm prints with --json."""
    from trencadis.views import io
    from trencadis.views.session import Session, deliver

    io.writable(output)
    read = Session(context).text
    from trencadis.adapters.slurm import read_slurm

    snapshot, warnings = read_slurm(
        read(jobs),
        read(nodes),
        None if topology is None else read(topology),
        partitions_json=None if partitions is None else read(partitions),
        reservations_json=None if reservations is None else read(reservations),
        licenses_json=None if licenses is None else read(licenses),
        queue_by=queue_by,
    )
    deliver(snapshot, warnings, output, json)
