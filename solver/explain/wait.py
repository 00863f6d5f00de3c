"""Until when a job has to wait if nothing else starts: the first end after which it fits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from trencadis.models import Snapshot
from trencadis.models.explanation import Remedy
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import at_time, end_of, hold_ends
from trencadis.solver.explain.said import names, some, when

LOOKS = 48
"""Instants looked at one by one where room may also shrink with time."""


def events(snapshot: Snapshot, case: Case | None = None) -> list[datetime]:
    """Instants after now at which something is estimated to end, or the job may start."""
    found = {end_of(job) for job in snapshot.jobs if job.on_nodes}
    found |= set(hold_ends(snapshot).values())
    if case is not None:
        found |= {job.not_before for job in snapshot.jobs if job.name in case.unit}
    return sorted(instant for instant in found if instant is not None and instant > snapshot.now)


def first_fit(case: Case, rules: bool) -> datetime | None:
    """The first instant at which the job could start; `rules`: limits may bind until then."""
    instants = events(case.snapshot, case)
    if not instants:
        return None

    if not case.single:
        return _first(instants, lambda instant: case.starts(at_time(case.snapshot, instant)))
    turns = case.later.turns()
    instants = sorted({*instants, *turns})
    found = _first_of(instants, turns, case.fits_at)
    if found is not None and rules:
        # Room is quicker to see than limits, and without it they need not be looked at.
        found = _first_of(_since(instants, found), turns, case.could_at)
    if found is None or case.starts(at_time(case.snapshot, found)):
        return found
    # A quick look was enough so far; where the round says no, ask it all the way.
    return _first(
        _since(instants, found), lambda instant: case.starts(at_time(case.snapshot, instant))
    )


def _since(instants: list[datetime], first: datetime) -> list[datetime]:
    return [instant for instant in instants if instant >= first]


def _first_of(
    instants: list[datetime], turns: list[datetime], open_: Callable[[datetime], bool]
) -> datetime | None:
    """The first instant that is open, where room also shrinks at the turns."""
    ends = [*turns, None]
    for begin, end in zip([None, *turns], ends, strict=True):
        part = [
            instant
            for instant in instants
            if (begin is None or instant >= begin) and (end is None or instant < end)
        ]
        if part and (end is None or open_(part[-1])):
            found = _first(part, open_)
            if found is not None:
                return found
    return None


def _first(instants: list[datetime], open_: Callable[[datetime], bool]) -> datetime | None:
    """The first instant that is open: by doubling steps, then halving; room grows with time.

    Where it also shrinks (nodes that are taken away), the last may be closed: then by looks.
    """
    low, high, step = 0, 0, 1
    while not open_(instants[high]):
        if high == len(instants) - 1:
            every = max(1, len(instants) // LOOKS)
            return next((instant for instant in instants[::every] if open_(instant)), None)
        low, high, step = high + 1, min(high + step, len(instants) - 1), step * 2
    while low < high:
        middle = (low + high) // 2
        if open_(instants[middle]):
            high = middle
        else:
            low = middle + 1
    return instants[low]


def wait(case: Case, rules: bool) -> Remedy | str:
    """The remedy, or why there is none."""
    instant = first_fit(case, rules)
    if instant is None:
        unknown = sum(1 for job in case.snapshot.jobs if job.on_nodes and end_of(job) is None)
        if unknown:
            do = "doesn't" if unknown == 1 else "don't"
            said = some(unknown, "running job")
            return f"not even when all has ended that says when; {said} {do}"
        return "not even when all that runs has ended"
    ending = sorted(
        job.name for job in case.snapshot.jobs if job.on_nodes and end_of(job) == instant
    )
    before = sum(
        1
        for job in case.snapshot.jobs
        if job.on_nodes
        for end in (end_of(job),)
        if end is not None and case.snapshot.now < end < instant
    )
    text = f"wait until {when(instant)}"
    first = sorted({hold.job for hold in case.behind if hold.at < instant})
    if first and not ending:
        text += f", when {names(first)}, for which nodes are reserved, will have run"
    if ending:
        text += f", when {names(ending)} {'ends' if len(ending) == 1 else 'end'}"
    if before:
        text += f" ({before} more by then)"
    seconds = int((instant - case.snapshot.now).total_seconds())
    return Remedy(
        kind="wait", sentence=text, at=instant, ends=tuple(ending), cost={"seconds": seconds}
    )
