"""A fault in the input: where it is, and what is wrong, in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

MAX_LISTED = 20


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
        lines = [str(fault) for fault in self.faults[:MAX_LISTED]]
        rest = len(self.faults) - MAX_LISTED
        if rest > 0:
            lines.append(f"... and {rest} more faults")
        return lines


def json_path(parts: Iterable[str | int]) -> str:
    """`('jobs', 3, 'tasks')` as `$.jobs[3].tasks`."""
    text = "$"
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").isalnum():
            text += f".{part}"
        else:
            text += f"[{part!r}]"
    return text


def from_pydantic(error: ValidationError) -> list[Fault]:
    """Pydantic's findings as faults, a line each."""
    faults = []
    for entry in error.errors(include_url=False, include_context=False):
        message = entry["msg"].removeprefix("Value error, ")
        value = entry.get("input")
        if entry["type"] == "extra_forbidden":
            message = "unknown field"
        elif entry["type"] == "missing":
            message = "required field is missing"
        elif isinstance(value, str | int | float) and not entry["type"].startswith("json"):
            shown = repr(value)
            message += f" (got {shown if len(shown) <= 60 else shown[:57] + '...'})"
        faults.append(Fault(json_path(entry["loc"]), " ".join(message.split())))
    return faults
