"""A reason as it is found: code, sentence and figures; how figures read in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trencadis.models.explanation import Reason
from trencadis.models.plan import Evidence


@dataclass(frozen=True, slots=True)
class Said:
    """Why a job waits."""

    code: Reason
    sentence: str
    evidence: Evidence = field(default_factory=dict)


def some(amount: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def names(found: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 2 more`."""
    rest = len(found) - most
    text = ", ".join(found[:most])
    return f"{text} and {rest} more" if rest > 0 else text


def gpus(milli: int) -> str:
    """Milli-GPU in a sentence: `8 GPUs`, `0.5 GPUs`."""
    if milli % 1_000 == 0:
        return some(milli // 1_000, "GPU")
    return f"{milli / 1_000:.3f}".rstrip("0") + " GPUs"


def when(instant: datetime) -> str:
    """`2026-01-15 10:30 UTC`."""
    return f"{instant:%Y-%m-%d %H:%M} UTC"


def span(seconds: int) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        return f"{seconds // 60} min"
    return f"{seconds / 3_600:.1f}".removesuffix(".0") + " h"
