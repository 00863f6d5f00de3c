"""F: how much of a bin's idle GPU the tasks that the cluster sees can't use.

The measure of FGD (Weng et al., USENIX ATC'23, section 3): expected over task kinds m with
popularity p_m, the idle GPU of the bin that m can't use. Exact form: docs/problem.md, section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trencadis.models import Request, Share, Snapshot
from trencadis.models.units import uses_gpu
from trencadis.solver.pieces import Blank, Cut, Piece, ShareCut
from trencadis.solver.slices import Cutter

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
    slice: Request | None = None
    """The MIG instance or the share that it asks for, in place of whole GPUs."""

    @property
    def on_gpus(self) -> bool:
        """Whether it needs GPUs, whole or in pieces."""
        return bool(self.gpus) or self.slice is not None


class Table:
    """The entries as arrays over kinds of task."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.gpus = np.array([entry.gpus for entry in entries], dtype=np.int64)
        self.needs = np.array([entry.need for entry in entries], dtype=np.int64)
        self.counts = np.array([entry.count for entry in entries], dtype=np.int64)
        self.linked = np.array([entry.linked and entry.gpus > 1 for entry in entries], dtype=bool)
        self.sliced = [i for i, entry in enumerate(entries) if entry.slice is not None]
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
    cutter: Cutter
    _cuts: dict[Cut, int] = field(default_factory=dict)
    _pieces: dict[str, tuple[tuple[int, Piece, int], ...]] = field(default_factory=dict)
    _blanks: dict[tuple[Blank, Piece], int] = field(default_factory=dict)

    def cost(
        self,
        idle: Mapping[str, int],
        free: Sequence[int | None],
        can_link: Callable[[str, int], bool],
        blanks: Mapping[str, Blank],
    ) -> int:
        """F of the whole GPUs of one bin, GPU-seconds, rounded down.

        `idle`: idle GPUs by model; `free`: CPU, memory, named resources (None: more than any task
        needs); `can_link(model, n)`: whether n idle GPUs of the model are joined by NVLink;
        `blanks`: what an idle GPU of the model may be made into.
        """
        all_idle = sum(idle.values())
        if not all_idle or not self.total:
            return 0
        table = self.table
        bounds = np.array([_PLENTY if have is None else have for have in free], dtype=np.int64)
        fits: npt.NDArray[np.bool_] = np.all(table.needs <= bounds, axis=1)
        suits = fits & (table.gpus > 0)
        unit = self.cutter.sizes.unit
        lost = 0
        for model, count in idle.items():
            usable = suits & (table.gpus <= count) & table.allows(model)
            for position in np.flatnonzero(usable & table.linked):
                usable[position] = can_link(model, int(table.gpus[position]))
            lost += unit * count * (self.total - int(table.counts[usable].sum()))
            blank = blanks.get(model)
            if blank is not None:
                for entry, piece, tasks in self.pieces(model):
                    if fits[entry]:
                        lost -= count * tasks * self._blank_units(blank, piece)
        return lost * self.horizon // (self.total * unit)

    def cut_cost(self, cut: Cut) -> int:
        """F of one GPU of the second stage, GPU-seconds, rounded down: CPU and memory aside."""
        if cut not in self._cuts:
            knife = self.cutter
            lost = knife.idle_units(cut) * self.total
            for _, piece, tasks in self.pieces(cut.model):
                lost -= tasks * knife.usable_units(cut, piece)
            scale = self.total * knife.sizes.unit
            self._cuts[cut] = lost * self.horizon // scale if self.total else 0
        return self._cuts[cut]

    def cuts_cost(self, cuts: Iterable[Cut]) -> int:
        """F of GPUs of the second stage, with what it costs to reconfigure them."""
        return sum(self.cut_cost(cut) + reconfiguration(cut) for cut in cuts)

    def pieces(self, model: str) -> tuple[tuple[int, Piece, int], ...]:
        """(entry, piece, tasks) of the kinds that ask for a piece of a GPU of the model."""
        if model not in self._pieces:
            found: list[tuple[int, Piece, int]] = []
            for position in self.table.sliced:
                entry = self.entries[position]
                assert entry.slice is not None
                if not entry.models or model in entry.models:
                    pieces = self.cutter.pieces(entry.slice, model)
                    found.extend((position, piece, entry.count) for piece in pieces or ())
            self._pieces[model] = tuple(found)
        return self._pieces[model]

    def _blank_units(self, blank: Blank, piece: Piece) -> int:
        key = (blank, piece)
        if key not in self._blanks:
            empty = self.cutter.opened(blank, piece)
            units = 0 if empty is None else self.cutter.usable_units(empty, piece)
            self._blanks[key] = units
        return self._blanks[key]

    def weighted(self, cost: int) -> int:
        """F's part in another stage's sum."""
        return 0 if self.weight_milli is None else cost * self.weight_milli // 1_000


def reconfiguration(cut: Cut) -> int:
    """What it costs to give a GPU its new MIG layout, or to turn MIG off, GPU-seconds."""
    return 0 if isinstance(cut, ShareCut) else cut.cost


def profile(snapshot: Snapshot, resources: tuple[str, ...], knife: Cutter) -> Profile:
    """The demand that F is about: the policy's, or that of the snapshot's own tasks."""
    policy = snapshot.policy
    counts: Counter[tuple[int, tuple[int, ...], frozenset[str], bool, _Slice]] = Counter()

    def add(request: Request, models: tuple[str, ...], linked: bool, count: int) -> None:
        named = tuple(request.resources.get(name, 0) for name in resources)
        need = (request.cpu_milli, request.memory_mib, *named)
        for part in _slices(request):
            counts[(request.gpus, need, frozenset(models), linked, part)] += count

    if policy.demand_profile:
        for wanted in policy.demand_profile:
            add(wanted.request, wanted.gpu_models, wanted.nvlink_required, wanted.weight)
    else:
        for job in snapshot.jobs:
            if job.state != "held":
                add(job.request, job.gpu_models, job.nvlink_required, job.tasks)
    entries = tuple(
        Entry(gpus, need, models, linked, count, _request(part))
        for (gpus, need, models, linked, part), count in sorted(
            counts.items(),
            key=lambda item: (item[0][0], item[0][1], sorted(item[0][2]), *item[0][3:]),
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
        cutter=knife,
    )


_Slice = tuple[str, int, int, int, int]
"""Profile; memory and compute that any instance must have; milli-GPU and memory of a share."""
_WHOLE: _Slice = ("", 0, 0, 0, 0)


def _slices(request: Request) -> list[_Slice]:
    """A task that asks for several instances counts as one entry for each."""
    if not uses_gpu(request) or request.gpus:
        return [_WHOLE]
    if request.share is not None:
        return [("", 0, 0, request.share.gpu_milli, request.share.memory_mib)]
    if request.mig:
        return [(name, 0, 0, 0, 0) for name in request.mig]
    return [("", request.mig_memory_mib, request.mig_compute_milli, 0, 0)]


def _request(part: _Slice) -> Request | None:
    name, memory, compute, milli, share_memory = part
    if milli:
        return Request(share=Share(gpu_milli=milli, memory_mib=share_memory))
    if part == _WHOLE:
        return None
    return Request(
        mig=(name,) if name else (), mig_memory_mib=memory, mig_compute_milli=compute
    )
