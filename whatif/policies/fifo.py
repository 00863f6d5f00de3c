"""First in, first out: whoever doesn't fit blocks all behind him."""

from __future__ import annotations

from trencadis.whatif.decisions import Decision, View
from trencadis.whatif.policies.ranking import BestFit


class Fifo:
    """One queue in order of submission. A job that a limit holds back blocks nobody."""

    name = "fifo"

    def decide(self, view: View) -> Decision:
        """Starts jobs up to the first that doesn't fit."""
        draft, ranking = view.draft(), BestFit()
        for run in view.pending:
            if not draft.limited(run) and not draft.try_start(run, ranking):
                break
        return draft.decision()
