"""Decides what a single value of a Slurm document means, in whichever release's shape it comes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trencadis.models.base import MAX_COUNT
from trencadis.models.faults import Fault, InvalidInputError

Record = Mapping[str, Any]

# What older releases print for "not set" and "no limit", 32 and 64 bits wide.
_NO_VALUE = {0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE, -2}
_INFINITE = {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, -1}

# One-letter marks behind a state, as sinfo prints them.
_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}

_LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, the end of datetime."""


def document(text: str | bytes | Record, name: str) -> Record:
    """The JSON object in the text. Raises InvalidInputError where there is none."""
    if isinstance(text, Mapping):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}: " if isinstance(error, json.JSONDecodeError) else ""
        reason = getattr(error, "msg", None) or str(error)
        raise InvalidInputError([Fault(f"{name}:$", f"not JSON: {where}{reason}")]) from None
    if not isinstance(value, dict):
        raise InvalidInputError([Fault(f"{name}:$", f"not an object but {_kind(value)}")])
    return value


def entries(doc: Record, key: str, name: str) -> list[Record]:
    """The list of objects under `key`. Raises InvalidInputError where it is missing."""
    value = doc.get(key)
    if value is None:
        errors = "; ".join(str(e.get("error") or e) for e in listed(doc.get("errors")) if e)
        hint = f". Slurm says: {' '.join(errors.split())[:200]}" if errors else ""
        raise InvalidInputError([Fault(f"{name}:$.{key}", f"required list is missing{hint}")])
    if not isinstance(value, list):
        raise InvalidInputError([Fault(f"{name}:$.{key}", f"not a list but {_kind(value)}")])
    faults = [
        Fault(f"{name}:$.{key}[{index}]", f"not an object but {_kind(entry)}")
        for index, entry in enumerate(value)
        if not isinstance(entry, dict)
    ]
    if faults:
        raise InvalidInputError(faults)
    return value


def listed(value: Any) -> list[Record]:
    """The objects in a list, and none where it is something else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def number(value: Any) -> int | None:
    """A whole number, plain or as {set, infinite, number}; None where unset or infinite."""
    if isinstance(value, Mapping):
        if not value.get("set", True) or value.get("infinite", False):
            return None
        return number(value.get("number"))
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # NaN and infinities fail both comparisons.
    if not -(2**64) <= value <= 2**64:
        return None
    whole = int(value)
    return None if whole in _NO_VALUE | _INFINITE else whole


def count(value: Any) -> int:
    """A number from 0 to what the schema allows; 0 where unset."""
    return min(max(0, number(value) or 0), MAX_COUNT)


def infinite(value: Any) -> bool:
    """Whether the value says that there is no limit."""
    if isinstance(value, Mapping):
        return bool(value.get("infinite", False))
    return isinstance(value, int) and value in _INFINITE


def instant(value: Any) -> datetime | None:
    """Seconds since 1970 as an instant; None for 0, unset and what no calendar has."""
    value = number(value)
    if value is None or not 0 < value <= _LAST_SECOND:
        return None
    return datetime.fromtimestamp(value, tz=UTC)


def words(value: Any) -> list[str]:
    """A list of strings, or a string with commas; without "", "(null)" and "N/A"."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple):
        return []
    found = (str(word).strip() for word in value if isinstance(word, str | int))
    return [word for word in found if word not in ("", "(null)", "N/A", "None")]


def text(value: Any) -> str:
    """A string; "" for null, "(null)" and anything that is not text."""
    if not isinstance(value, str) or value.strip() in ("(null)", "N/A"):
        return ""
    return value.strip()


def states(*values: Any) -> frozenset[str]:
    """State words in capitals: a list, or `IDLE+DRAIN` with marks such as `down*`."""
    found: set[str] = set()
    for value in values:
        for word in words(value):
            for part in word.upper().split("+"):
                bare = part.rstrip("".join(_MARKS))
                found.update(_MARKS[mark] for mark in part[len(bare) :])
                if bare:
                    found.add(bare)
    return frozenset(found)


def truth(value: Any) -> bool:
    """A yes or no, also as a number or the word `true`."""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "yes", "1")
    return bool(value) if isinstance(value, bool | int) else False


def name(value: Any, fallback: str) -> str:
    """A name that the schema takes: white space as `_`, cut to 253 characters."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    clean = re.sub(r"[\s\x00-\x1f\x7f]+", "_", text(value))[:253]
    return clean or fallback


def _kind(value: Any) -> str:
    kinds = {list: "a list", dict: "an object", str: "a string", bool: "a truth value"}
    return kinds.get(type(value), "null" if value is None else "a number")
