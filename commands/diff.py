"""`trencadis diff`: what one plan does otherwise than another."""

# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated

import typer

from trencadis.views import options as opt

ExitCode = Annotated[
    bool, typer.Option("--exit-code", help="Exit with 1 if the plans do not do the same.")
]


def diff(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="PLAN", help="JSON file, or - for stdin.")],
    second: Annotated[str, typer.Argument(metavar="PLAN", help="Another one.")],
    exit_code: ExitCode = False,
    json: opt.Json = False,
) -> None:
    """Tell what one plan does otherwise than another, and what that costs."""
    from trencadis.models import load_plan
    from trencadis.views import io
    from trencadis.views.difference import costs, difference_view, differences
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import Session, dumps

    session = Session(context)
    texts = [session.data(source) for source in (first, second)]
    plans = []
    for source, text in zip((first, second), texts, strict=True):
        with io.source_named(source):
            plans.append(load_plan(text))
    found = differences(*plans)
    if json:
        io.write(io.STANDARD, dumps({"differences": found, "stages": costs(*plans)}))
    else:
        io.show(*difference_view(*plans))
    if found and exit_code:
        raise CommandError(Code.DIFFERENT)
