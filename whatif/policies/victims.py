"""Whom to stop so that a waiting job fits: cheapest first, nobody in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trencadis.models import TaskAllocation
from trencadis.whatif.decisions import Draft, View, model_of
from trencadis.whatif.legality import may_stop
from trencadis.whatif.placing import Ranking
from trencadis.whatif.runs import JobRun


def cheapest_first(view: View, victims: Iterable[JobRun]) -> list[JobRun]:
    """Lowest tier first, then who loses least, then who began last."""
    return sorted(victims, key=lambda run: (-run.tier, loss(run, view.now), -run.began, run.index))


def loss(run: JobRun, now: int) -> int:
    """Milli-GPU-seconds of work since the last checkpoint."""
    ran = max(0, now - run.began - run.restart)
    return 0 if run.on_signal else ran % run.interval * run.milli


def preemptible(view: View, draft: Draft) -> list[JobRun]:
    """Running jobs that may be stopped: past their least runtime, not yet touched by the draft."""
    least = view.snapshot.policy.preemption.min_runtime_seconds
    return [
        run
        for run in view.running
        if run.index not in draft.gone and not may_stop(run) and view.now - run.began >= least
    ]


def make_room(
    draft: Draft,
    run: JobRun,
    candidates: Sequence[JobRun],
    ranking: Ranking,
    allowed: Callable[[list[JobRun]], bool] = lambda _: True,
) -> tuple[tuple[TaskAllocation, ...], list[JobRun]] | None:
    """Places for the job and who must go for it, or None. Changes nothing.

    Victims are added in the order given until the job fits; then each, the dearest first, is kept
    if the job fits without its places. `allowed` judges a set of victims as a whole; a candidate
    that would make the set forbidden is passed over.
    """
    view = draft.view
    idle = draft.state.idle_milli()
    if idle + sum(victim.milli for victim in candidates) < run.asks_milli:
        return None
    state, chosen = draft.state.copy(), list[JobRun]()
    freed, found = idle, None
    for victim in candidates:
        if not allowed([*chosen, victim]):
            continue
        state.release(victim.job, victim.allocation)
        chosen.append(victim)
        freed += victim.milli
        if freed >= run.asks_milli:
            found = view.placer.place(state, run.job, view.now, ranking)
            if found is not None:
                break
    if found is None:
        return None
    for victim in chosen[-2::-1]:
        state.take(victim.job, victim.allocation)
        again = view.placer.place(state, run.job, view.now, ranking)
        if again is None:
            state.release(victim.job, victim.allocation)
        else:
            found = again
            chosen.remove(victim)
    books = draft.books.copy()
    for victim in chosen:
        model = model_of(state, victim.allocation)
        books.clear(victim.job, len(victim.allocation), model)
    if not books.allows(run.job, len(found), model_of(state, found)):
        return None
    return found, chosen
