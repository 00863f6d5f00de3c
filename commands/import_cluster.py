"""`trencadis import kubernetes` and `import nvidia-smi`: files that tell themselves apart."""

# ruff: noqa: PLC0415
# As in cli.py, nothing but Typer is imported at the top.

from __future__ import annotations

from typing import Annotated, Literal

import typer

from trencadis.views import options as opt

Documents = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Any number of files; - for stdin.")
]
Gangs = Annotated[
    Literal["group", "owner"],
    typer.Option(help="Pods that start together: those of a group, or of a Job as well."),
]
Gates = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="NAME", help="A scheduling gate that waits for us; repeatable."),
]
Levels = Annotated[
    list[str] | None,
    typer.Option("--level", metavar="LABEL", help="Node labels of the fabric, widest first."),
]
NodeName = Annotated[str, typer.Option("--node", metavar="NAME", help="What the node is called.")]
Cpus = Annotated[int | None, typer.Option(min=0, max=1_000_000, help="CPUs of the node.")]
MemoryMib = Annotated[int | None, typer.Option(min=0, max=10**9, help="Memory of the node, MiB.")]


def register(app: typer.Typer) -> None:
    """Adds the two commands to `trencadis import`."""
    app.command("kubernetes")(import_kubernetes)
    app.command("nvidia-smi")(import_nvidia_smi)


def import_kubernetes(
    context: typer.Context,
    documents: Documents,
    gangs: Gangs = "group",
    gate: Gates = None,
    level: Levels = None,
    policy: opt.PolicyFile = None,
    output: opt.SnapshotOut = "-",
    json: opt.AlwaysJson = False,
) -> None:
    """What kubectl prints with -o json (Volcano, Kueue, DRA too), or KAI's snapshot."""
    from trencadis.views import io
    from trencadis.views.session import Session, deliver

    io.writable(output)
    session = Session(context)
    given = session.policy(policy)
    read = [(io.name_of(source), session.data(source)) for source in documents]
    from trencadis.adapters.kubernetes import read_kubernetes

    found = read_kubernetes(read, gangs=gangs, gates=gate or (), levels=level or (), policy=given)
    deliver(found.snapshot, found.warnings, output, json)


def import_nvidia_smi(
    context: typer.Context,
    documents: Documents,
    node: NodeName = "localhost",
    cpus: Cpus = None,
    memory_mib: MemoryMib = None,
    output: opt.SnapshotOut = "-",
    json: opt.AlwaysJson = False,
) -> None:
    """One node: nvidia-smi -q -x, topo -m, mig -lgi, mig -lgip, mig -lgipp."""
    from trencadis.views import io
    from trencadis.views.session import Session, deliver

    io.writable(output)
    session = Session(context)
    read = [(io.name_of(source), session.data(source)) for source in documents]
    from trencadis.adapters.nvidia_smi import read_nvidia_smi

    snapshot, warnings = read_nvidia_smi(
        read,
        node=node,
        cpu_milli=None if cpus is None else cpus * 1_000,
        memory_mib=memory_mib,
    )
    deliver(snapshot, warnings, output, json)
