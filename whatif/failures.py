"""When nodes fail and come back: the same for every policy, from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

HOUR = 3_600


@dataclass(frozen=True, slots=True)
class FailureModel:
    """Each node fails by itself, after exponentially distributed times."""

    mtbf_hours: float
    """Mean time between failures of one node."""
    repair_hours: float = 4.0
    """Mean time until it is back."""

    def __post_init__(self) -> None:
        if self.mtbf_hours <= 0 or self.repair_hours <= 0:
            raise ValueError("mtbf_hours and repair_hours must be above 0")


class NodeClock:
    """Alternates between up and down for one node."""

    def __init__(self, model: FailureModel, seed: int, node: str) -> None:
        self._model = model
        # A generator per node: what happens to one doesn't depend on how often others are asked.
        self._rng = random.Random(f"{seed}/{node}")

    def up_for(self) -> int:
        """Seconds until the next failure."""
        return max(1, round(self._rng.expovariate(1 / (self._model.mtbf_hours * HOUR))))

    def down_for(self) -> int:
        """Seconds until it is back."""
        return max(1, round(self._rng.expovariate(1 / (self._model.repair_hours * HOUR))))
