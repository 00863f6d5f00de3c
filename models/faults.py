"""A fault in the input: where it is, and what is wrong, in one line each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from pydantic import ValidationError

from trencadis.models.base import Record

MAX_LISTED = 20
MAX_SHOWN = 60
"""Characters of a foreign value or key that a message repeats."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the input."""

    path: str
    """JSON path, `$.jobs[3].tasks`."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidInputError(ValueError):
    """The input breaks the schema or contradicts itself. Nothing was done."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """A line per fault, at most twenty, then a count of the rest."""
        return fault_lines(self.faults)


class NoPlanError(Exception):
    """No plan keeps the hard rules, not even the one that does nothing."""


def fault_lines(faults: Sequence[Fault], noun: str = "fault") -> list[str]:
    """A line per fault, at most twenty, then a count of the rest."""
    lines = [str(fault) for fault in faults[:MAX_LISTED]]
    rest = len(faults) - MAX_LISTED
    if rest > 0:
        lines.append(f"... and {rest} more {noun}{'s' if rest > 1 else ''}")
    return lines


def json_path(parts: Iterable[str | int]) -> str:
    """`('jobs', 3, 'tasks')` as `$.jobs[3].tasks`."""
    text = "$"
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").isalnum() and len(part) <= MAX_SHOWN:
            text += f".{part}"
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: object) -> str:
    """The value as Python would write it, without control characters, cut where it is long."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def from_pydantic(error: ValidationError) -> list[Fault]:
    """Pydantic's findings as faults, a line each."""
    faults: list[Fault] = []
    for entry in error.errors(include_url=False, include_context=False):
        kind = entry["type"]
        message = entry["msg"].removeprefix("Value error, ")
        value = entry.get("input")
        location = entry["loc"]
        if location and location[-1] == "[key]":
            location = location[:-1]
            message = f"as a key: {message}"
        if kind == "extra_forbidden":
            message = f"unknown field{_maybe(error.title, location)}"
        elif kind == "missing":
            message = "required field is missing"
        elif kind == "string_pattern_mismatch":
            message = f"a name has no white space or control characters (got {shown(value)})"
        elif isinstance(value, str | int | float) and not kind.startswith("json"):
            message += f" (got {_number_or_text(value)})"
        # A record of this project that finds several things wrong says so in as many lines.
        lines = message.split("\n") if kind == "value_error" else [message]
        faults.extend(Fault(json_path(location), " ".join(line.split())) for line in lines)
    return faults


def _number_or_text(value: str | int | float) -> str:
    """`shown`, but Python refuses to print integers of more than 4,300 digits."""
    try:
        return shown(value)
    except ValueError:
        return "a number of thousands of digits"


def _maybe(title: str, location: tuple[str | int, ...]) -> str:
    """A field of the same record with nearly this name, as a hint."""
    record = next((kind for kind in _records(Record) if kind.__name__ == title), None)
    for part in location[:-1]:
        if record is not None and part in record.model_fields:
            record = _record_in(record.model_fields[str(part)].annotation)
    if record is None:
        return ""
    near = difflib.get_close_matches(str(location[-1])[:MAX_SHOWN], record.model_fields, n=1)
    return f". Maybe {near[0]}?" if near else ""


def _records(kind: type[Record]) -> Iterator[type[Record]]:
    for record in kind.__subclasses__():
        yield record
        yield from _records(record)


def _record_in(annotation: object) -> type[Record] | None:
    """The record of a field: `tuple[Node, ...]`, `Topology | None`."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation if issubclass(annotation, Record) else None
    found = (_record_in(inner) for inner in get_args(annotation))
    return next((record for record in found if record is not None), None)
