"""`--report FILE.html` of the commands that have one: checked before the work, written after it."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trencadis.whatif.report.page import Report

ReportOut = Annotated[
    str | None,
    typer.Option("--report", metavar="FILE.html", help="Write a page to look at there."),
]


def check_report(target: str | None) -> None:
    """Ends the command with 2 where a report could not be made: better now than after the work."""
    if target is None:
        return
    from importlib.util import find_spec

    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError

    if target == io.STANDARD:
        raise typer.BadParameter("--report needs a file: stdout has the result")
    for name in ("jinja2", "vl_convert"):
        if find_spec(name) is None:
            message = f"{name} is missing. Maybe pip install 'trencadis[report]'"
            raise CommandError(Code.USAGE, message)
    io.writable(target)


def write_report(target: str, report: Report) -> None:
    """The page, whole or not at all."""
    from trencadis.views import io

    io.write(target, report.html())
    io.tell(f"The report is in {io.clean(target)}.")
