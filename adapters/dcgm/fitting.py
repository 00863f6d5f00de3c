"""Which jobs would fit a MIG profile or a share by what they used at most, and what that frees.

A job that keeps a GPU busy for the part `a` of the time does at most the work of the part `a` of
the GPU, so a slice or share of that part keeps its throughput; single requests may take longer.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trencadis.adapters.dcgm.samples import Usage
from trencadis.models.mig import MigTable, find_table
from trencadis.solver.segments import fewest_gpus

USABLE = 0.95
"""Part of a profile's nominal memory that a job can use; an A100's 1g.5gb shows 4,864 of 5,120."""
STEP_MILLI = 50
"""Shares are rounded up to such steps."""
IDLE = 0.01
"""Below, a job counts as idle."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What one job could do with."""

    job: str
    model: str
    now: str
    """`whole`, or its MIG profile; `3 GPUs` where it had several at once."""
    present: bool
    """It was there at the last scrape of its GPU."""
    activity: float
    """Most seen, as a part of a whole GPU."""
    used_mib: int
    samples: int
    idle: bool
    """It hardly used the GPU at any sample."""
    profile: str | None
    """The smallest MIG profile that is smaller than what it has."""
    share_milli: int | None
    """A share of a GPU, where it has a whole one."""
    share_mib: int | None
    why_not: str
    """Empty where there is something smaller."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What whole GPUs of one model would be free if jobs took what they could do with."""

    model: str
    jobs: int
    """With a whole GPU each, that fit a smaller part."""
    by_mig: int | None
    """GPUs free once they share GPUs in MIG slices; none where the model has no MIG."""
    mig_proven: bool
    """No packing of these slices frees more."""
    by_share: int
    """The same in shares of GPUs: at least so many."""
    idle: int
    """Whole GPUs of jobs that are idle, and of nobody."""


def advise(usages: Sequence[Usage], headroom: float = 0.1) -> tuple[list[Advice], list[Freed]]:
    """For each job, in order of name; then for each model of GPU, of the jobs present.

    `headroom`: needed above the most that was seen, as a part of it.
    """
    last: dict[str, int] = {}
    for usage in usages:
        last[usage.uuid] = max(last.get(usage.uuid, 0), usage.scrapes[-1])
    jobs: defaultdict[str, list[Usage]] = defaultdict(list)
    for usage in sorted(usages, key=lambda usage: usage.scrapes[-1]):
        if usage.job:
            jobs[usage.job].append(usage)
    found = [_job(name, parts, last, headroom) for name, parts in sorted(jobs.items())]
    now = [usage for usage in usages if usage.scrapes[-1] == last[usage.uuid]]
    models = sorted({usage.model for usage in now if not usage.profile})
    return found, [_freed(model, now, found) for model in models]


def _table(usage: Usage) -> MigTable | None:
    if usage.profile:
        return find_table(usage.model, 0, [usage.profile])
    return find_table(usage.model, usage.memory_mib)


def _job(name: str, parts: Sequence[Usage], last: Mapping[str, int], headroom: float) -> Advice:
    """`parts`: what it had, the latest last."""
    latest = parts[-1]
    table = _table(latest)
    busy = max(usage.activity * _part_of_gpu(usage, _table(usage)) for usage in parts)
    used = max(usage.used_mib for usage in parts)
    need, memory = min(1.0, busy * (1 + headroom)), math.ceil(used * (1 + headroom))
    at_once = max(Counter(scrape for usage in parts for scrape in usage.scrapes).values())
    profile, share_milli, why = None, None, ""
    now = latest.profile or "whole"
    if at_once > 1:
        now = f"{at_once} {'slices' if latest.profile else 'GPUs'}"
        why = "has several: slices of GPUs can't talk to each other"
    elif not all(usage.metric for usage in parts):
        why = "nothing tells how busy it is"
    else:
        profile = _profile(latest, table, need, memory)
        share_milli = None if latest.profile else _share(latest, need, memory)
        if profile is None and share_milli is None:
            why = "needs what it has"
    return Advice(
        job=name,
        model=latest.model,
        now=now,
        present=latest.scrapes[-1] == last[latest.uuid],
        activity=busy,
        used_mib=used,
        samples=len({scrape for usage in parts for scrape in usage.scrapes}),
        idle=all(usage.metric and usage.activity < IDLE for usage in parts),
        profile=profile,
        share_milli=share_milli,
        share_mib=memory if share_milli is not None else None,
        why_not=why,
    )


def _part_of_gpu(usage: Usage, table: MigTable | None) -> float:
    """Activity of an instance is told as a part of the instance."""
    known = table.profile(usage.profile) if table is not None and usage.profile else None
    if table is None or known is None:
        return 1.0
    return known.compute_slices / table.compute_slices


def _profile(usage: Usage, table: MigTable | None, need: float, memory: int) -> str | None:
    if table is None:
        return None
    fits = table.smallest(math.ceil(memory / USABLE), math.ceil(need * 1_000))
    if fits is None:
        return None
    present = table.profile(usage.profile)
    slices = table.memory_slices if present is None else present.memory_slices
    compute = table.compute_slices if present is None else present.compute_slices
    less = fits.memory_slices < slices or fits.compute_slices < compute
    return fits.name if less else None


def _share(usage: Usage, need: float, memory: int) -> int | None:
    milli = max(1, math.ceil(need * 1_000 / STEP_MILLI)) * STEP_MILLI
    enough = not usage.memory_mib or memory <= usage.memory_mib // 2
    return milli if milli <= 500 and enough else None


def _freed(model: str, usages: Sequence[Usage], advices: Iterable[Advice]) -> Freed:
    here = [usage for usage in usages if usage.model == model and not usage.profile]
    whole = [e for e in advices if e.model == model and e.now == "whole" and e.present]
    small = [entry for entry in whole if entry.profile or entry.share_milli]
    table = next((found for usage in here if (found := _table(usage)) is not None), None)
    by_mig, proven = None, False
    profiles = Counter(entry.profile for entry in whole if entry.profile)
    if table is not None:
        wanted = {name: count for name, count in profiles.items() if name is not None}
        packing = fewest_gpus(table, wanted) if wanted else None
        by_mig = 0 if packing is None else sum(wanted.values()) - len(packing.layouts)
        proven = packing is None or packing.bound == len(packing.layouts)
    shares = [(e.share_milli, e.share_mib or 0) for e in whole if e.share_milli is not None]
    memory = min((usage.memory_mib for usage in here), default=0)
    nobody = {usage.uuid for usage in here} - {usage.uuid for usage in here if usage.job}
    return Freed(
        model=model,
        jobs=len(small),
        by_mig=by_mig,
        mig_proven=proven,
        by_share=len(shares) - _first_fit(shares, memory),
        idle=sum(1 for entry in whole if entry.idle) + len(nobody),
    )


def _first_fit(shares: Iterable[tuple[int, int]], memory_mib: int) -> int:
    """GPUs that the shares fill, the largest first, each on the first that has room."""
    open_: list[tuple[int, int]] = []
    for milli, mib in sorted(shares, reverse=True):
        for number, (left, room) in enumerate(open_):
            if milli <= left and (not memory_mib or mib <= room):
                open_[number] = (left - milli, room - mib)
                break
        else:
            open_.append((1_000 - milli, memory_mib - mib))
    return len(open_)
