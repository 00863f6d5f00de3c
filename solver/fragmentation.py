"""F: how much of a bin's idle GPU the tasks that the cluster sees can't use.

The measure of FGD (Weng et al., USENIX ATC'23, section 3): expected over task kinds m with
popularity p_m, the idle GPU of the bin that m can't use. Exact form: docs/problem.md, section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trencadis.models import Request, Snapshot
from trencadis.models.units import asks_for_mig

_PLENTY = 1 << 62


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of task that the cluster should stay fit for."""

    gpus: int
    need: tuple[int, ...]
    """CPU, memory, named resources."""
    models: frozenset[str]
    """Allowed GPU models; any where empty."""
    linked: bool
    """Its GPUs must be joined by NVLink."""
    count: int


class Table:
    """The entries as arrays over kinds of task."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.gpus = np.array([entry.gpus for entry in entries], dtype=np.int64)
        self.needs = np.array([entry.need for entry in entries], dtype=np.int64)
        self.counts = np.array([entry.count for entry in entries], dtype=np.int64)
        self.linked = np.array([entry.linked and entry.gpus > 1 for entry in entries], dtype=bool)
        self._models = [entry.models for entry in entries]
        self._allows: dict[str, npt.NDArray[np.bool_]] = {}

    def allows(self, model: str) -> npt.NDArray[np.bool_]:
        """Which kinds may use the GPU model."""
        if model not in self._allows:
            self._allows[model] = np.array(
                [not models or model in models for models in self._models], dtype=bool
            )
        return self._allows[model]


@dataclass(frozen=True, slots=True)
class Profile:
    """The kinds of task, and the scale from counts to weighted GPU-seconds."""

    entries: tuple[Entry, ...]
    table: Table
    total: int
    horizon: int
    weight_milli: int | None
    """Weight inside another stage; None where F is a stage of its own or is off."""
    off: bool

    def cost(
        self,
        idle: Mapping[str, int],
        free: Sequence[int | None],
        can_link: Callable[[str, int], bool],
    ) -> int:
        """F of one bin, GPU-seconds, rounded down.

        `idle`: idle GPUs by model; `free`: CPU, memory, named resources (None: more than any task
        needs); `can_link(model, n)`: whether n idle GPUs of the model are joined by NVLink.
        """
        all_idle = sum(idle.values())
        if not all_idle or not self.total:
            return 0
        table = self.table
        bounds = np.array([_PLENTY if have is None else have for have in free], dtype=np.int64)
        suits = (table.needs <= bounds).all(axis=1) & (table.gpus > 0)
        lost = 0
        for model, count in idle.items():
            usable = suits & (table.gpus <= count) & table.allows(model)
            for position in np.flatnonzero(usable & table.linked):
                usable[position] = can_link(model, int(table.gpus[position]))
            lost += count * (self.total - int(table.counts[usable].sum()))
        return lost * self.horizon // self.total

    def weighted(self, cost: int) -> int:
        """F's part in another stage's sum."""
        return 0 if self.weight_milli is None else cost * self.weight_milli // 1_000


def profile(snapshot: Snapshot, resources: tuple[str, ...]) -> Profile:
    """The demand that F is about: the policy's, or that of the snapshot's own tasks."""
    policy = snapshot.policy
    counts: Counter[tuple[int, tuple[int, ...], frozenset[str], bool]] = Counter()

    def add(request: Request, models: tuple[str, ...], linked: bool, count: int) -> None:
        named = tuple(request.resources.get(name, 0) for name in resources)
        need = (request.cpu_milli, request.memory_mib, *named)
        counts[(request.gpus, need, frozenset(models), linked)] += count

    if policy.demand_profile:
        for wanted in policy.demand_profile:
            add(wanted.request, wanted.gpu_models, wanted.nvlink_required, wanted.weight)
    else:
        for job in snapshot.jobs:
            if job.state == "held" or asks_for_mig(job.request) or job.request.share is not None:
                continue
            add(job.request, job.gpu_models, job.nvlink_required, job.tasks)
    entries = tuple(
        Entry(gpus, need, models, linked, count)
        for (gpus, need, models, linked), count in sorted(
            counts.items(),
            key=lambda item: (item[0][0], item[0][1], sorted(item[0][2]), item[0][3]),
        )
    )
    return Profile(
        entries=entries,
        table=Table(entries),
        total=sum(entry.count for entry in entries),
        horizon=policy.horizon_seconds,
        weight_milli=(
            policy.fragmentation_weight_milli if policy.fragmentation == "weighted" else None
        ),
        off=policy.fragmentation == "off",
    )
