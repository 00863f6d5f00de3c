"""The order in which jobs are served."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.whatif.runs import JobRun


def by_priority(runs: Iterable[JobRun]) -> list[JobRun]:
    """By tier from the top, then by submission."""
    return sorted(runs, key=lambda run: (run.tier, run.submit, run.index))
