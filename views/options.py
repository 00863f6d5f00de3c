"""The options of the commands: names, environment variables, bounds. Imports nothing but Typer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def _seconds(value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"{value} is not a number of seconds above 0")
    return value


def _fraction(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise typer.BadParameter(f"{value} is not a fraction, 0 to 1")
    return value


def _part(value: float) -> float:
    _fraction(value)
    return value


SnapshotArg = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="JSON file, or - for stdin.")]
MaybeSnapshot = Annotated[
    str | None, typer.Argument(metavar="SNAPSHOT", help="JSON file, or - for stdin.")
]
Repro = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Instead: the round that a failure saved, and its options."),
]
PlanArg = Annotated[str, typer.Argument(metavar="PLAN", help="JSON file, or - for stdin.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs.")]
AlwaysJson = Annotated[bool, typer.Option("--json", help="The output is JSON in any case.")]
SnapshotOut = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Where the snapshot goes.")
]

PlanOut = Annotated[
    str | None, typer.Option("--output", "-o", metavar="PLAN", help="Write the plan there too.")
]
PolicyFile = Annotated[
    str | None,
    typer.Option(
        envvar="TRENCADIS_POLICY",
        metavar="FILE",
        help="Policy, TOML or JSON; replaces the snapshot's.",
    ),
]
MigTables = Annotated[
    str | None,
    typer.Option(
        envvar="TRENCADIS_MIG_TABLES",
        metavar="FILE",
        help="MIG geometry by GPU model, JSON or TOML; outranks the policy's and the built-in.",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        envvar="TRENCADIS_TIME_LIMIT",
        metavar="S",
        help="Seconds; the policy's where absent.",
        callback=_seconds,
    ),
]
Gap = Annotated[
    float | None,
    typer.Option(
        envvar="TRENCADIS_GAP",
        metavar="G",
        help="A stage is good enough at this gap, as 0.001; the policy's where absent.",
        callback=_fraction,
    ),
]
Workers = Annotated[
    int, typer.Option(envvar="TRENCADIS_WORKERS", metavar="N", min=1, max=1_024, help="Threads.")
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic/--no-deterministic",
        envvar="TRENCADIS_DETERMINISTIC",
        help="Same input, same plan, byte for byte.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(envvar="TRENCADIS_SEED", metavar="N", min=0, max=2**31 - 1, help="Of the search."),
]

Teams = Annotated[int, typer.Option(min=1, max=1_000, help="Teams that share the cluster.")]
Directory = Annotated[Path, typer.Option("--dir", help="Where the files go.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files.")]

Nodes = Annotated[int, typer.Option(min=0, max=1_000_000)]
Waiting = Annotated[int, typer.Option(min=0, max=10_000_000, help="Jobs that wait.")]
Load = Annotated[float, typer.Option(help="Part of the GPUs in use, 0 to 1.", callback=_part)]
Queues = Annotated[int, typer.Option(min=1, max=10_000)]
GangFraction = Annotated[
    float, typer.Option(help="Part of the waiting jobs that span nodes.", callback=_part)
]

MigFraction = Annotated[
    float, typer.Option("--mig", help="Part of the nodes in MIG mode.", callback=_part)
]
ShareFraction = Annotated[
    float, typer.Option("--share", help="Part of the nodes with shared GPUs.", callback=_part)
]

Running = Annotated[int, typer.Option(min=0, help="The first so many pods run.")]
NextPods = Annotated[
    int | None, typer.Option(min=0, help="The next so many wait; all others where absent.")
]
Shuffle = Annotated[
    int | None, typer.Option("--seed", help="Shuffle the pods; the trace's order where absent.")
]
NodesCsv = Annotated[Path, typer.Argument(metavar="NODES_CSV")]
PodsCsv = Annotated[Path, typer.Argument(metavar="PODS_CSV")]

JobsFile = Annotated[str, typer.Option(metavar="FILE", help="squeue --json")]
NodesFile = Annotated[
    str, typer.Option(metavar="FILE", help="sinfo --json, or scontrol show nodes --json")
]
TopologyFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="topology.conf, or scontrol show topology")
]
PartitionsFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="scontrol show partitions --json")
]
ReservationsFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="scontrol show reservations --json")
]
LicensesFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="scontrol show licenses --json")
]
Prices = Annotated[
    str | None,
    typer.Option("--prices", metavar="FILE", help="Price list, JSON; an example where absent."),
]
Network = Annotated[
    str | None, typer.Option("--fabric", help="Network that each node pays for, by the prices.")
]
