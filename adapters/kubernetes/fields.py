"""Decides what one value of a Kubernetes object means: quantities, instants, durations, names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from trencadis.models.base import MAX_COUNT

Json = Mapping[str, Any]

_QUANTITY = re.compile(
    r"([+-]?\d{1,40}(?:\.\d{0,40})?|[+-]?\.\d{1,40})([a-zA-Z]{0,2}|[eE][+-]?\d{1,2})"
)
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1_000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|µs|ms|h|m|s)")
_UNITS: dict[str, int | Fraction] = {"h": 3600, "m": 60, "s": 1, "ms": Fraction(1, 1_000)}
MIB = 2**20


def mapping(value: Any) -> Json:
    """The object, or an empty one where there is something else."""
    return value if isinstance(value, Mapping) else {}


def at(record: Any, *keys: str) -> Any:
    """The value at a chain of keys; None where a link is missing."""
    for key in keys:
        record = mapping(record).get(key)
    return record


def listed(value: Any) -> list[Json]:
    """The objects of a list; none where it is something else."""
    return (
        [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
    )


def text(value: Any) -> str:
    """A string; "" for anything else."""
    return value.strip() if isinstance(value, str) else ""


def texts(value: Any) -> dict[str, str]:
    """A table of strings: labels, annotations."""
    return {str(k): str(v) for k, v in mapping(value).items() if isinstance(v, str | int | bool)}


def name(value: Any, fallback: str) -> str:
    """A name that the schema takes: white space as `_`, cut to 253 characters."""
    return re.sub(r"[\s\x00-\x1f\x7f]+", "_", text(value))[:253] or fallback


def quantity(value: Any) -> Fraction | None:
    """A resource quantity, exactly: `100m`, `1.5Gi`, `2e3`. None where it isn't one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Fraction(value) if abs(value) < 10**40 else None
    if isinstance(value, float):
        return Fraction(value) if abs(value) < 1e40 else None
    found = _QUANTITY.fullmatch(text(value))
    if found is None:
        return None
    number, suffix = Fraction(found.group(1)), found.group(2)
    if suffix in _SUFFIXES:
        return number * _SUFFIXES[suffix]
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1:].lstrip("+-").isdecimal():
        return number * Fraction(10) ** int(suffix[1:])
    return None


def up(value: Fraction) -> int:
    """Rounded up to a count of the schema: for what is asked for."""
    return min(MAX_COUNT, max(0, -((-value.numerator) // value.denominator)))


def down(value: Fraction) -> int:
    """Rounded down to a count of the schema: for what there is."""
    return min(MAX_COUNT, max(0, value.numerator // value.denominator))


def whole(value: Any) -> int | None:
    """An integer, also as decimal text; None where it isn't one."""
    number = quantity(value)
    return int(number) if number is not None and number.denominator == 1 else None


def instant(value: Any) -> datetime | None:
    """An RFC 3339 time; None where it isn't one."""
    try:
        found = datetime.fromisoformat(text(value))
        return None if found.tzinfo is None else found.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        return None


def duration(value: Any) -> int | None:
    """Whole seconds of a Go duration (`1h30m0s`), rounded up; None where it isn't one."""
    written = text(value)
    parts = _DURATION.findall(written)
    if not written or "".join(number + unit for number, unit in parts) != written:
        return None
    return up(sum((Fraction(n) * _UNITS.get(u, 0) for n, u in parts), Fraction(0)))
