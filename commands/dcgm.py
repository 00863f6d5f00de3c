"""`trencadis import dcgm`: which jobs would fit a part of a GPU, by what was measured."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from typing import Annotated

import typer

from trencadis.views import options as opt

Samples = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Scrapes, the more the better; - for stdin."),
]
Headroom = Annotated[
    float,
    typer.Option(min=0.0, max=10.0, help="Needed above the most that was seen, as a part of it."),
]


def import_dcgm(
    context: typer.Context,
    documents: Samples,
    headroom: Headroom = 0.1,
    json: opt.Json = False,
) -> None:
    """What dcgm-exporter serves: jobs that would fit a MIG profile or a share, what that frees."""
    from dataclasses import asdict

    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import Session, dumps

    session = Session(context)
    read = [(io.name_of(source), session.text(source)) for source in documents]
    try:
        from trencadis.adapters.dcgm import advise, read_samples
    except ModuleNotFoundError as error:
        message = f"{error.name} is missing. Maybe pip install 'trencadis[dcgm]'"
        raise CommandError(Code.USAGE, message) from None

    found, freed = advise(read_samples(read), headroom)
    if json:
        record = {"jobs": [asdict(entry) for entry in found],
                  "freed": [asdict(entry) for entry in freed]}  # fmt: skip
        io.write(io.STANDARD, dumps(record))
    else:
        from trencadis.views.dcgm import advice_view

        io.show(*advice_view([asdict(e) for e in found], [asdict(e) for e in freed]))
    few = min((entry.samples for entry in found), default=0)
    if found and few < 10:
        io.tell(
            f"Peaks of {few} sample{'' if few == 1 else 's'} only: give scrapes of a day or more."
        )
