"""A smaller part of a GPU: the largest MIG profile, or share, below what a job asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trencadis.models import Job, Request
from trencadis.models.explanation import Remedy
from trencadis.models.mig import MigProfile, MigTable
from trencadis.solver.capacity import NodeState, capacity
from trencadis.solver.explain.case import Case

TENTHS = 10
"""Smaller shares are tried in tenths of what was asked for."""


def slimmer(case: Case) -> tuple[Remedy, ...]:
    """The least that a job on slices or a share could give up to start now, proven by a round."""
    if not case.single:
        return ()
    states = capacity(case.base).states
    for text, ask in _smaller(case):
        remedy = Remedy(kind="shape", sentence=text, ask=ask, cheapest=False)
        if _somewhere(states, ask) and case.works(remedy):
            return (remedy,)
    return ()


def _smaller(case: Case) -> Iterator[tuple[str, Job]]:
    request = case.job.request
    if len(request.mig) == 1:
        yield from _profiles(case, request.mig[0])
    elif request.share is not None:
        share = request.share
        for tenths in range(TENTHS - 1, 0, -1):
            milli, memory = (n * tenths // TENTHS for n in (share.gpu_milli, share.memory_mib))
            if milli < 1:
                return
            less = share.model_copy(update={"gpu_milli": milli, "memory_mib": memory})
            beside = f" and {memory:,} MiB" if memory else ""
            text = f"ask for a share of {milli} milli-GPU{beside} instead of {share.gpu_milli}"
            yield text, _asking(case.job, share=less)


def _profiles(case: Case, name: str) -> Iterator[tuple[str, Job]]:
    job, tables = case.job, case.place.supply.cutter.tables
    found: dict[str, MigProfile] = {}
    for model in sorted(tables):
        own = tables[model].profile(name)
        if own is not None and (not job.gpu_models or model in job.gpu_models):
            for profile in _below(tables[model], own):
                found.setdefault(profile.name, profile)
    for profile in sorted(
        found.values(), key=lambda p: (-p.compute_slices, -p.memory_slices, p.name)
    ):
        yield f"ask for {profile.name} instead of {name}", _asking(job, mig=(profile.name,))


def _below(table: MigTable, own: MigProfile) -> Iterator[MigProfile]:
    """Plain profiles that have no more of anything than this one."""
    for profile in table.profiles:
        if (
            profile.plain
            and profile.name != own.name
            and profile.compute_slices <= own.compute_slices
            and profile.memory_slices <= own.memory_slices
        ):
            yield profile


def _somewhere(states: Sequence[NodeState], ask: Job) -> bool:
    """Whether some node has room for it at all: cheaper to see than a round is to solve.

    What is left of shared GPUs is known only as finely as present jobs ask.
    """
    if ask.request.share is not None:
        return True
    for state in states:
        for model in {cut.model for cut in state.cuts} | state.blanks.keys():
            pieces = state.cutter.pieces(ask.request, model)
            whole, blank = len(state.idle.get(model, ())), state.blanks.get(model)
            if pieces and state.cutter.holds(state.cuts, blank, whole, model, pieces):
                return True
    return False


def _asking(job: Job, **update: Any) -> Job:
    request: Request = job.request.model_copy(update=update)
    return job.model_copy(update={"request": request})
