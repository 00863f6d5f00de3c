"""Tables of a trace, row by row, with a fault for each wrong cell (`line 7: ...`)."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from trencadis.models.base import MAX_COUNT
from trencadis.models.faults import Fault, InvalidInputError, shown
from trencadis.models.load import decode
from trencadis.models.trace import EPOCH, Trace, TraceJob, in_order

MAX_SECONDS = 100 * 366 * 86_400


class WrongCellError(ValueError):
    """A cell says what it may not."""


class Cells:
    """One row of a table, by column."""

    def __init__(self, cells: dict[str, str]) -> None:
        self._cells = cells

    def text(self, column: str) -> str:
        """The cell without white space around it; empty where there is none."""
        return (self._cells.get(column) or "").strip()

    def number(self, column: str, *, most: float = MAX_COUNT, default: str = "") -> float:
        """A finite number from 0 to `most`."""
        text = self.text(column) or default
        try:
            value = float(text)
        except ValueError:
            raise WrongCellError(f"{column}: {shown(text)} is not a number") from None
        if not (math.isfinite(value) and 0 <= value <= most):
            raise WrongCellError(f"{column}: {shown(text)} is not between 0 and {most:.0f}")
        return value

    def whole(
        self, column: str, *, least: int = 0, most: int = MAX_COUNT, default: str = ""
    ) -> int:
        """A whole number."""
        value = self.number(column, most=most, default=default)
        if value != int(value) or value < least:
            text = shown(self.text(column))
            raise WrongCellError(f"{column}: {text} is no whole number, {least} or more")
        return int(value)


def table(
    text: str | bytes,
    required: Iterable[str],
    row: Callable[[Cells, int], TraceJob | None],
    name: str,
    *,
    delimiter: str = ",",
) -> Trace:
    """A trace from a table with a header; `row` gets the cells and the row's number from 0.

    Raises InvalidInputError with a fault per wrong row, or where columns are missing.
    """
    reader = csv.reader(io.StringIO(decode(text)), delimiter=delimiter)
    header = [column.strip() for column in next(reader, [])]
    missing = [column for column in required if column not in header]
    if missing:
        raise InvalidInputError([Fault("line 1", f"no column {', '.join(missing)}")])
    return gather(
        name,
        (
            (f"line {reader.line_num}", dict(zip(header, cells, strict=False)))
            for cells in reader
            if cells
        ),
        row,
    )


def gather(
    name: str,
    rows: Iterable[tuple[str, dict[str, str]]],
    row: Callable[[Cells, int], TraceJob | None],
) -> Trace:
    """A trace from rows, each with its place in the file. Rows that give None are counted."""
    faults: list[Fault] = []
    jobs: list[TraceJob] = []
    names: set[str] = set()
    skipped = 0
    for number, (place, cells) in enumerate(rows):
        try:
            entry = row(Cells(cells), number)
        except ValueError as error:
            faults.append(Fault(place, " ".join(str(error).split())))
            continue
        if entry is None:
            skipped += 1
        elif entry.job.name in names:
            faults.append(Fault(place, f"a second job {shown(entry.job.name)}"))
        else:
            names.add(entry.job.name)
            jobs.append(entry)
    if faults:
        raise InvalidInputError(faults)
    if not jobs:
        raise InvalidInputError([Fault("$", "the trace has no jobs that ran")])
    return finished(name, jobs, skipped)


def finished(name: str, jobs: Iterable[TraceJob], skipped: int) -> Trace:
    """A trace of these jobs, with a warning if rows were skipped."""
    warnings = (f"{skipped} rows left out: they never ran or used nothing",) if skipped else ()
    return Trace(name, in_order(jobs), warnings)


def json_of(text: str | bytes) -> Any:
    """What the JSON text says. Raises InvalidInputError."""
    try:
        return json.loads(decode(text))
    except ValueError as error:
        raise InvalidInputError([Fault("$", f"Invalid JSON: {error}")]) from None


def instant(seconds_after: float) -> datetime:
    """So many seconds after the first instant of a trace without dates."""
    return EPOCH + timedelta(seconds=round(seconds_after))
