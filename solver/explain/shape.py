"""In which other shape a job would start: split, wider, on another model, with fewer demands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trencadis.models import Job, Request
from trencadis.models.explanation import Remedy
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.demands import demands
from trencadis.solver.explain.said import some, span

MOST = 3
"""Shapes that are offered."""
EIGHTHS = 8
"""Less CPU and memory is offered in eighths of what was asked for."""

GIVE_UP = frozenset({"spread", "nvlink", "nodes", "label", "topology", "segments", "taint"})
"""Demands that a job can give up and stay as large as it is."""

Variant = tuple[str, Job, dict[str, int]]


def shapes(case: Case) -> list[Remedy]:
    """Other ways to ask with which the job would start now, the least change first."""
    found: list[Remedy] = []
    for text, ask, cost in _variants(case):
        if len(found) == MOST:
            break
        if case.accepts(ask):
            found.append(Remedy(kind="shape", sentence=text, ask=ask, cost=cost, cheapest=False))
    return found


def _variants(case: Case) -> Iterator[Variant]:
    job = case.job
    yield from _shorter(case)
    yield from _split(job)
    yield from _wider(case)
    yield from _models(case)
    for demand in demands(case.base, job):
        snapshot, ask = demand.drop(case.base, job)
        if demand.kind in GIVE_UP and snapshot is case.base:
            yield f"give up: {demand.text}", ask, {}
    if job.exclusive:
        yield "share its nodes with others", _changed(job, exclusive=False), {}
    yield from _leaner(case)
    yield from _smaller(case)


def _changed(job: Job, **update: Any) -> Job:
    return job.model_copy(update=update)


def _shorter(case: Case) -> Iterator[Variant]:
    """As long as nodes are not due for others: the longest that would still be in nobody's way."""
    job, now = case.job, case.snapshot.now
    for due in sorted({hold.at for hold in case.behind}, reverse=True):
        left = int((due - now).total_seconds())
        if left >= 1 and (job.runtime_seconds is None or left < job.runtime_seconds):
            text = f"say that it runs for {span(left)} at most: it would be gone when nodes are due"
            yield text, _changed(job, runtime_seconds=left), {"seconds": left}


def _split(job: Job) -> Iterator[Variant]:
    """As many GPUs in smaller tasks: 2 x 4 instead of 1 x 8."""
    gpus = job.request.gpus
    for parts in range(2, gpus + 1):
        if gpus % parts:
            continue
        each = gpus // parts
        update: dict[str, Any] = {
            "request": _divided(job.request, parts),
            "tasks": job.tasks * parts,
            "min_tasks": None if job.min_tasks is None else job.min_tasks * parts,
        }
        if job.max_tasks_per_node is not None:
            update["max_tasks_per_node"] = job.max_tasks_per_node * parts
        if job.segments is not None:
            tasks = job.segments.tasks * parts
            update["segments"] = job.segments.model_copy(update={"tasks": tasks})
        text = f"ask for {job.minimum * parts} × {each} GPUs instead of {job.minimum} × {gpus}"
        yield text, _changed(job, **update), {"gpus": job.minimum * gpus}


def _divided(request: Request, parts: int) -> Request:
    return request.model_copy(
        update={
            "gpus": request.gpus // parts,
            "cpu_milli": -(-request.cpu_milli // parts),
            "memory_mib": -(-request.memory_mib // parts),
            "resources": {name: -(-n // parts) for name, n in request.resources.items()},
        }
    )


def _wider(case: Case) -> Iterator[Variant]:
    job = case.job
    if job.topology is None or job.topology.mode != "required" or job.minimum < 2:
        return
    names = case.place.fabric.names
    for depth in range(names.index(job.topology.level) - 1, 0, -1):
        wider = job.topology.model_copy(update={"level": names[depth]})
        text = f"require one {names[depth]} instead of one {job.topology.level}"
        yield text, _changed(job, topology=wider), {}


def _models(case: Case) -> Iterator[Variant]:
    job = case.job
    if not job.gpu_models or not job.request.gpus:
        return
    for model in sorted(case.place.supply.gpus_by_model):
        if model not in job.gpu_models:
            text = f"ask for {model} instead of {' or '.join(job.gpu_models)}"
            yield text, _changed(job, gpu_models=(model,)), {}


def _leaner(case: Case) -> Iterator[Variant]:
    """The most CPU and memory with which it fits, in eighths of what it asks for."""
    job = case.job
    request = job.request
    if not (request.cpu_milli or request.memory_mib):
        return

    def lean(eighths: int) -> Job:
        part = {
            "cpu_milli": request.cpu_milli * eighths // EIGHTHS,
            "memory_mib": request.memory_mib * eighths // EIGHTHS,
        }
        return _changed(job, request=request.model_copy(update=part))

    eighths = _most(EIGHTHS - 1, lambda n: case.accepts(lean(n)))
    if eighths:
        ask = lean(eighths)
        text = (
            f"ask for {ask.request.cpu_milli / 1_000:g} CPUs and "
            f"{ask.request.memory_mib:,} MiB a task instead of {request.cpu_milli / 1_000:g} and "
            f"{request.memory_mib:,}"
        )
        yield text, ask, {}


def _smaller(case: Case) -> Iterator[Variant]:
    """The most tasks, else the most GPUs, that fit."""
    job = case.job
    gpus = job.request.gpus
    if job.minimum > 1:
        step = job.segments.tasks if job.segments is not None else 1

        def fewer(number: int) -> Job:
            return _changed(job, tasks=number * step, min_tasks=None)

        number = _most((job.minimum - 1) // step, lambda n: case.accepts(fewer(n)))
        if number:
            text = f"ask for {some(number * step, 'task')} instead of {job.minimum}"
            yield text, fewer(number), {"gpus": number * step * gpus}
    elif gpus > 1:

        def narrower(each: int) -> Job:
            return _changed(job, request=job.request.model_copy(update={"gpus": each}))

        each = _most(gpus - 1, lambda n: case.accepts(narrower(n)))
        if each:
            text = f"ask for {some(each, 'GPU')} instead of {gpus}"
            yield text, narrower(each), {"gpus": each}


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `high` that fits, 0 if none does: what fits, fits with less."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
