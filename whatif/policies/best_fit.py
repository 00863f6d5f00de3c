"""Greedy by priority and age: whatever fits starts, where the given ranking says."""

from __future__ import annotations

from trencadis.whatif.decisions import Decision, View
from trencadis.whatif.placing import Ranking
from trencadis.whatif.policies.order import by_priority
from trencadis.whatif.policies.ranking import BestFit


class Greedy:
    """Every waiting job that fits starts, high tiers first, then the oldest."""

    def __init__(self, name: str = "best-fit", ranking: Ranking | None = None) -> None:
        self.name = name
        self._ranking = ranking or BestFit()

    def decide(self, view: View) -> Decision:
        """Starts all that fits."""
        draft = view.draft()
        for run in by_priority(view.pending):
            draft.try_start(run, self._ranking)
        return draft.decision()
