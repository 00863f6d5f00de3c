"""read_trace(): which reader a file is for."""

from __future__ import annotations

from pathlib import Path

from trencadis.instances.traces import muri, philly, sacct, table
from trencadis.instances.traces.openb import read_openb_trace
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.load import decode
from trencadis.models.trace import Trace

FORMATS = ("csv", "muri", "philly", "openb", "sacct", "sacct-json")
THROUGHPUTS = "simulation_throughputs.json"
"""Beside Philly's traces in Gavel's form."""


def read_trace(
    path: Path, form: str | None = None, *, timezone: str = "UTC", throughputs: Path | None = None
) -> Trace:
    """The trace in the file; its form is told from its first line where none is given.

    Raises InvalidInputError.
    """
    text = _bytes(path)
    kind = form or guess(text)
    name = path.stem
    if kind == "muri":
        return muri.read_muri(text, name)
    if kind == "philly":
        beside = throughputs or path.with_name(THROUGHPUTS)
        return philly.read_philly(text, _bytes(beside), name)
    if kind == "openb":
        return read_openb_trace(path, name)
    if kind == "sacct":
        return sacct.read_sacct(text, timezone, name)
    if kind == "sacct-json":
        return sacct.read_sacct_json(text, name)
    if kind == "csv":
        return table.read_table(text, name)
    raise InvalidInputError([Fault("format", f"no form {kind!r}; there are {', '.join(FORMATS)}")])


def guess(text: bytes) -> str:
    """The form of a trace. Raises InvalidInputError where none fits."""
    first = decode(text).lstrip().partition("\n")[0]
    if first.startswith("{"):
        return "sacct-json"
    if "|" in first and "JobID" in first:
        return "sacct"
    if first.count("\t") >= len(philly.FIELDS) - 1:
        return "philly"
    columns = {column.strip() for column in first.split(",")}
    for kind, required in (
        ("muri", muri.COLUMNS),
        ("openb", ("name", "num_gpu", "gpu_milli")),
        ("csv", table.COLUMNS),
    ):
        if columns.issuperset(required):
            return kind
    message = f"the first line is of no form that is known; choose one: {', '.join(FORMATS)}"
    raise InvalidInputError([Fault("line 1", message)])


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"can't read {path}: {error.strerror}"
        raise InvalidInputError([Fault("$", message)]) from None
