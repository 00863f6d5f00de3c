"""`trencadis whatif`: a snapshot as it is beside the same with changes, each solved."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top; see cli.py.

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trencadis.views import options as opt

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trencadis.models import Snapshot
    from trencadis.views.session import Session
    from trencadis.whatif.compare import Figures, Side
    from trencadis.whatif.prices import PriceList
    from trencadis.whatif.scenario import Scenario

ADDED = re.compile(r"^(\d+)x(\S+)$")
GIVEN = "changed"
"""The scenario of the options; those of files have names of their own."""
SHOWN = 8
"""Jobs named in a line; --json has all."""

Add = Annotated[
    list[str] | None,
    typer.Option("--add", metavar="NxKIND", help="Nodes more, as 4xh100-8 or 2xNODE; repeat."),
]
Remove = Annotated[
    list[str] | None, typer.Option("--remove", metavar="NODE", help="A node that goes; repeat.")
]
Drain = Annotated[
    list[str] | None,
    typer.Option("--drain", metavar="NODE", help="A node that takes no new work; repeat."),
]
Guarantee = Annotated[
    list[str] | None,
    typer.Option("--set-guarantee", metavar="QUEUE=GPUS", help="A queue's guarantee; repeat."),
]
AddJob = Annotated[
    list[str] | None,
    typer.Option("--add-job", metavar="FILE", help="A job that waits as well, JSON; repeat."),
]
Files = Annotated[
    list[str] | None,
    typer.Option("--scenario", metavar="FILE", help="A scenario, TOML or JSON; repeat."),
]
Keep = Annotated[
    Path | None, typer.Option("--keep", metavar="DIR", help="Write each snapshot and plan there.")
]


def whatif(
    context: typer.Context,
    snapshot: opt.SnapshotArg,
    add: Add = None,
    remove: Remove = None,
    drain: Drain = None,
    set_guarantee: Guarantee = None,
    add_job: AddJob = None,
    scenario: Files = None,
    keep: Keep = None,
    prices: opt.Prices = None,
    fabric: opt.Network = None,
    policy: opt.PolicyFile = None,
    time_limit: opt.TimeLimit = None,
    gap: opt.Gap = None,
    workers: opt.Workers = 8,
    deterministic: opt.Deterministic = False,
    json: opt.Json = False,
) -> None:
    """Show what would start and wait if nodes, guarantees or jobs were others."""
    from trencadis.commands.scene import list_of_prices
    from trencadis.solver.round import Options
    from trencadis.views import io
    from trencadis.views.interrupt import interruptible
    from trencadis.views.session import Session
    from trencadis.whatif.compare import report, sides

    session = Session(context)
    snap = session.snapshot(snapshot, policy)
    listed = list_of_prices(context, prices)
    if fabric is not None and listed.fabric(fabric) is None:
        raise typer.BadParameter(f"the prices have no fabric {fabric!r}")
    wanted = [_from_file(session, file, snap) for file in scenario or ()]
    given = {
        "add": [_addition(text) for text in add or ()],
        "remove": remove or [],
        "drain": drain or [],
        "guarantee": dict(_guaranteed(text) for text in set_guarantee or ()),
        "jobs": [_job(session, file) for file in add_job or ()],
    }
    if any(given.values()):
        wanted.append(_from_options(given, snap))
    if not wanted:
        raise typer.BadParameter("nothing changes: give --add, --scenario or another change")
    options = Options(
        time_limit_s=time_limit, gap=gap, workers=workers, deterministic=deterministic
    )
    done, _ = interruptible(
        lambda stop: sides(snap, wanted, listed, options, stop),
        f"Solving {len(wanted) + 1} rounds",
    )
    if keep is not None:
        _keep(keep, done)
    if json:
        import json as json_module

        text = json_module.dumps(report(done, listed, fabric), indent=2)
        io.write(io.STANDARD, text + "\n")
    else:
        io.show(*_view(done, listed, fabric))


def _addition(text: str) -> dict[str, object]:
    match = ADDED.match(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no number of nodes and kind, as 4xh100-8")
    return {"count": int(match.group(1)), "kind": match.group(2)}


def _guaranteed(text: str) -> tuple[str, int]:
    queue, equals, number = text.rpartition("=")
    if not equals or not queue or not number.isascii() or not number.isdigit():
        raise typer.BadParameter(f"{text!r} is no guarantee, as team-a=16")
    return queue, int(number)


def _job(session: Session, file: str) -> object:
    import json

    from trencadis.models import Fault, InvalidInputError
    from trencadis.models.load import decode
    from trencadis.views import io

    with io.source_named(file):
        try:
            return json.loads(decode(session.text(file)))
        except (ValueError, RecursionError) as error:
            raise InvalidInputError([Fault("$", f"Invalid JSON: {error}")]) from None


def _from_options(given: dict[str, object], snap: Snapshot) -> Scenario:
    import json

    from trencadis.whatif.scenario import load_scenario

    return load_scenario(json.dumps(given), snap, toml=False, name=GIVEN)


def _from_file(session: Session, file: str, snap: Snapshot) -> Scenario:
    from trencadis.views import io
    from trencadis.whatif.scenario import load_scenario

    with io.source_named(file):
        path = Path(file)
        return load_scenario(
            session.text(file), snap, toml=path.suffix == ".toml", name=path.stem
        )


def _keep(folder: Path, done: Sequence[Side]) -> None:
    from trencadis.views import io
    from trencadis.views.snapshots import plan_text, snapshot_text

    folder.mkdir(parents=True, exist_ok=True)
    for number, side in enumerate(done):
        name = re.sub(r"[^\w.+-]", "_", side.name)
        io.write(str(folder / f"{number}-{name}.snapshot.json"), snapshot_text(side.snapshot))
        io.write(str(folder / f"{number}-{name}.plan.json"), plan_text(side.plan))


def _view(
    done: Sequence[Side], prices: PriceList, fabric: str | None
) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    from trencadis.views.io import clean
    from trencadis.whatif.compare import difference, figures

    found = [figures(side, prices, fabric) for side in done]
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for entry in found:
        table.add_column(clean(entry.name), justify="right")
    for title, cells in _rows(found, prices.currency):
        table.add_row(clean(title), *cells)
    parts: list[RenderableType] = [table]
    for side in done[1:]:
        changes = difference(done[0], side)
        for verb, names in (
            ("has a place for", changes.starts),
            ("has none for", changes.waits),
            ("loses", changes.lost),
        ):
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                parts.append(Text(clean(f"{side.name} {verb} {', '.join(names[:SHOWN])}{more}")))
    return parts


def _rows(found: Sequence[Figures], currency: str) -> list[tuple[str, list[str]]]:
    rows = [
        ("nodes", [f"{entry.nodes:,}" for entry in found]),
        ("GPUs", [f"{entry.gpus:,}" for entry in found]),
        ("jobs that start", [f"{entry.starts:,}" for entry in found]),
        ("preempted", [f"{entry.preempts:,}" for entry in found]),
        ("lost GPU-s", [f"{entry.lost_gpu_seconds:,}" for entry in found]),
        ("jobs that wait", [f"{entry.waits:,}" for entry in found]),
    ]
    codes = sorted({code for entry in found for code in entry.waits_by_reason})
    rows += [
        (f"  {code}", [f"{entry.waits_by_reason.get(code, 0):,}" for entry in found])
        for code in codes
    ]
    rows += [
        ("GPUs in use", [f"{100 * entry.utilization:.1f} %" for entry in found]),
        ("fragmentation of the idle", [f"{100 * entry.fragmentation:.1f} %" for entry in found]),
        ("short of guarantees, GPUs", [f"{entry.shortfall_milli / 1_000:g}" for entry in found]),
    ]
    for queue in dict.fromkeys(line.queue for entry in found for line in entry.queues):
        cells = []
        for entry in found:
            line = next((line for line in entry.queues if line.queue == queue), None)
            cells.append(
                "-"
                if line is None
                else f"{line.has_milli / 1_000:g} of {line.guarantee_milli / 1_000:g}"
            )
        rows.append((f"  {queue}", cells))
    rows += [
        (
            f"{currency} an hour",
            ["-" if e.cost_per_hour is None else f"{e.cost_per_hour:,.2f}" for e in found],
        ),
        ("gap", [f"{100 * entry.gap:.3f} % ({entry.status.lower()})" for entry in found]),
    ]
    return rows
