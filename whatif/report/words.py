"""How figures read on the page."""

from __future__ import annotations


def count(amount: int, noun: str, plural: str = "") -> str:
    """`1 job`, `2 jobs`, `2 policies`."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


def percent(fraction: float) -> str:
    """`1.23 %`; never 0 for what isn't."""
    return "0 %" if fraction == 0 else f"{100 * max(fraction, 0.0001):.2f} %"


def gpus(value: float | None) -> str:
    """`8`, `0.29`; a dash where there is none."""
    if value is None:
        return "-"
    text = f"{value:,.2f}"
    return text.rstrip("0").rstrip(".")


def hours(seconds: float) -> str:
    """`0.2 h`, `1,326 h`."""
    value = seconds / 3_600
    return f"{value:,.0f} h" if value >= 100 else f"{value:.1f} h"
