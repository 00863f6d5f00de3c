"""Targets of a capacity search: `pending==0`, `fragmentation<0.15`, `p95_wait<1h`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trencadis.models import Fault, InvalidInputError

FORM = re.compile(r"^\s*([a-z0-9_]+)\s*(==|<=|<)\s*(\d+(?:\.\d+)?)\s*(%|s|m|h|d|w)?\s*$")
UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}

OF_SNAPSHOT = {
    "pending": "jobs that wait after the round, of those that take part in it",
    "pending_gpus": "GPUs that these jobs ask for",
    "fragmentation": "part of the idle GPUs that the expected task can't use",
    "shortfall": "GPUs that queues lack of what they are guaranteed and ask for",
}
OF_TRACE = {
    "mean_wait": "seconds from submission to first start",
    "median_wait": "likewise",
    "p95_wait": "likewise",
    "p95_completion": "seconds from submission to end",
    "fragmentation": "of all idle GPU time, the part that the expected task can't use",
    "preemption_ratio": "part of the started jobs that were preempted",
    "unfinished": "jobs that never finish",
}
TIMES = frozenset({"mean_wait", "median_wait", "p95_wait", "p95_completion"})
PARTS = frozenset({"fragmentation", "preemption_ratio"})


@dataclass(frozen=True, slots=True)
class Target:
    """An upper limit of one measure."""

    measure: str
    relation: Literal["==", "<=", "<"]
    limit: float
    text: str
    """As it was written."""

    def met(self, value: float) -> bool:
        """Whether the value keeps it."""
        return value < self.limit if self.relation == "<" else value <= self.limit

    @property
    def most(self) -> int:
        """The largest whole number that keeps it; -1 where none does."""
        whole = int(self.limit)
        return whole - 1 if self.relation == "<" and whole == self.limit else whole


def targets(texts: Iterable[str], *, trace: bool) -> tuple[Target, ...]:
    """Reads targets, all of which are to be met. Raises InvalidInputError."""
    known = OF_TRACE if trace else OF_SNAPSHOT
    found, faults = [], []
    for text in texts:
        match = FORM.match(text)
        if match is None:
            message = f"{text!r} is no target, as pending==0, fragmentation<0.15 or p95_wait<1h"
            faults.append(Fault("target", message))
            continue
        measure, relation, number, unit = match.groups()
        fault = _fault(measure, relation, float(number), unit, known)
        if fault:
            faults.append(Fault("target", f"{text!r}: {fault}"))
            continue
        limit = float(number) * (0.01 if unit == "%" else UNITS.get(unit or "", 1.0))
        found.append(Target(measure, _relation(relation), limit, text.strip()))
    if faults:
        raise InvalidInputError(faults)
    return tuple(found)


def _relation(text: str) -> Literal["==", "<=", "<"]:
    if text == "==":
        return "=="
    return "<=" if text == "<=" else "<"


def _fault(
    measure: str, relation: str, number: float, unit: str | None, known: dict[str, str]
) -> str:
    if measure not in known:
        return f"there is no measure {measure}; there are {', '.join(known)}"
    if relation == "==" and number:
        return "== asks for 0; give <= or <"
    if unit == "%" and measure not in PARTS:
        return f"{measure} is no part of something"
    if unit in UNITS and measure not in TIMES:
        return f"{measure} is no time"
    if relation == "<" and not number:
        return "nothing is below 0"
    return ""
