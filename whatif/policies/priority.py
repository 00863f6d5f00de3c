"""Three queues by priority, FIFO in each; a head may stop jobs of lower tiers."""

from __future__ import annotations

from itertools import groupby

from trencadis.whatif.decisions import Decision, Draft, View
from trencadis.whatif.policies.order import by_priority
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.policies.victims import cheapest_first, make_room, preemptible
from trencadis.whatif.runs import JobRun


class Priority:
    """A queue per tier. A head that fits nowhere, victims included, blocks its own queue only."""

    name = "priority"

    def decide(self, view: View) -> Decision:
        """Serves the queues from the top."""
        draft, ranking = view.draft(), BestFit()
        for _, queue in groupby(by_priority(view.pending), key=lambda run: run.tier):
            for run in queue:
                if draft.limited(run) or draft.try_start(run, ranking):
                    continue
                if not self._preempt(view, draft, run, ranking):
                    break
        return draft.decision()

    def _preempt(self, view: View, draft: Draft, run: JobRun, ranking: BestFit) -> bool:
        lower = [victim for victim in preemptible(view, draft) if victim.tier > run.tier]
        room = make_room(draft, run, cheapest_first(view, lower), ranking) if lower else None
        if room is None:
            return False
        draft.replace(run, *room)
        return True
