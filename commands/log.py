"""`trencadis log`: what was decided about a job, and why, from the record of the live loop."""

# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated

import typer

from trencadis.commands.live import STATE, State
from trencadis.views import options as opt


def log(
    job: Annotated[str, typer.Argument(metavar="JOB")],
    state: State = STATE,
    json: opt.Json = False,
) -> None:
    """Tell what the live loop decided about a job, and what became of it."""
    import contextlib
    import sqlite3

    from trencadis.adapters.live.audit import history, sentence
    from trencadis.adapters.live.store import Store
    from trencadis.models import Fault, InvalidInputError
    from trencadis.views import io
    from trencadis.views.session import dumps

    if not state.is_file():
        raise InvalidInputError([Fault("$", f"there is no log {state}")])
    try:
        with contextlib.closing(Store(state)) as store:
            entries = history(store, job)
    except sqlite3.Error as error:
        raise InvalidInputError([Fault("$", f"can't read the log {state}: {error}")]) from None
    if json:
        io.write(io.STANDARD, dumps({"job": job, "entries": entries}))
    elif entries:
        lines = [io.clean(sentence(entry)) for entry in entries]
        io.write(io.STANDARD, "\n".join(lines) + "\n")
    else:
        io.tell(f"The log says nothing of job {job}.")
