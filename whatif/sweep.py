"""Many replays at once, in processes of their own; one that fails loses no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """One task of a sweep."""

    index: int
    result: T | None
    error: BaseException | None = None


def sweep(tasks: Sequence[Callable[[], T]], processes: int | None = None) -> Iterator[Outcome[T]]:
    """Runs the tasks and yields outcomes as they are done.

    `processes`: as many as there are CPUs where None; with one, tasks run here, in order. Tasks
    and results must be picklable. An exception of a task is its outcome; KeyboardInterrupt ends
    the sweep.
    """
    count = min(len(tasks), processes or available_cpus())
    if count <= 1:
        for index, task in enumerate(tasks):
            yield _run(index, task)
        return
    from joblib import Parallel, delayed  # noqa: PLC0415 - takes a while to load

    parallel = Parallel(n_jobs=count, return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(_run)(index, task) for index, task in enumerate(tasks))


def available_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run(index: int, task: Callable[[], T]) -> Outcome[T]:
    try:
        return Outcome(index, task())
    except Exception as error:  # whatever it is, the others go on
        return Outcome(index, None, error)
