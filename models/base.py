"""What every record of the schema shares: frozen, strict, no unknown fields, bounded integers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

SCHEMA_VERSION: Final = 1

GPU_MILLI = 1_000
"""Milli-GPUs in one GPU."""

MAX_COUNT = 1_000_000_000
"""No count, MiB or milli-CPU of a snapshot exceeds this: the solver's sums stay inside int64."""


class Record(BaseModel):
    """An immutable value of the schema; unknown fields are faults, not surprises."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=False,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


def _to_utc_seconds(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise ValueError("in UTC this lies outside the years 1 to 9999") from None


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f]+$")
]
"""A name: 1 to 253 characters, no white space, no control characters."""

Instant = Annotated[AwareDatetime, AfterValidator(_to_utc_seconds)]
"""RFC 3339 with an offset; kept as UTC, whole seconds."""

V = TypeVar("V")


def _by_key(table: dict[str, V]) -> dict[str, V]:
    return dict(sorted(table.items()))


def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names))


ByName = Annotated[dict[Name, V], AfterValidator(_by_key)]
"""Values by name; in which order they are listed is no part of the value."""

Names = Annotated[tuple[Name, ...], AfterValidator(_in_order)]
"""A set of names, kept in alphabetical order."""

Count = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
Milli = Annotated[int, Field(strict=True, ge=0, le=1_000)]
"""Thousandths of one: 0 to 1,000."""


def seconds(instant: datetime) -> int:
    """The instant in whole seconds since 1970-01-01 UTC."""
    return int(instant.timestamp())
