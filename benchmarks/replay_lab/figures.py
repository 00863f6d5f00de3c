"""Figures of the rows, by window or on the mean of all."""

from __future__ import annotations

from statistics import mean

from replay_lab.cases import WINDOWS, Case
from replay_lab.runs import Row

OURS = "trencadis"
DEFAULTS = "trencadis, defaults"


def values(rows: dict[Case, Row], trace: str, load: float, policy: str, key: str) -> list[float]:
    """By window, without replays that failed; `trencadis, defaults`: under the defaults."""
    name, _, rules = policy.partition(", ")
    more = (rules,) if rules else ()
    wanted = (Case(trace, load, window, name, *more) for window in range(WINDOWS))
    return [rows[case][key] for case in wanted if case in rows]


def mean_of(rows: dict[Case, Row], trace: str, load: float, policy: str, key: str) -> float:
    return mean(values(rows, trace, load, policy, key))
