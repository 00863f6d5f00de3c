"""What a caller hears while a round is solved: how far it is, the incumbent and the bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Step = Literal["read", "searching", "searched", "placed", "done"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, so far."""

    incumbent: int
    """Cost of the best counts found so far (`searching`, `searched`) or of the plan (`done`), in
    the stage's unit."""
    bound: int
    """No plan as good in the earlier stages costs less."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A message.

    `searching` comes with each better solution and each better bound, and tells of what is searched
    at the moment only: one stage, or all where they are searched as one. `searched` and `placed`
    come once per part of a large round, `done` once.
    """

    step: Step
    seconds: float
    """Wall time since the round began."""
    started: int = 0
    """Jobs that have a place."""
    stages: Mapping[str, Stage] = field(default_factory=dict)
    """By stage; empty where the step proves nothing."""
