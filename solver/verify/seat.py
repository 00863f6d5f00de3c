"""A place on one node for the slices or shares of a job: first fit, with second thoughts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trencadis.models import MigInstance, Share, TaskAllocation
from trencadis.solver.verify.knife import Knife
from trencadis.solver.verify.second import Instance, Mig, Second, Shared, legal
from trencadis.solver.verify.units import Ask

STEPS = 300
"""Placements of a piece that are tried before giving up."""

Piece = tuple[int, Instance]
"""GPU, and the instance there; of a share the profile is empty."""


class Seat:
    """Finds places on one node; what GPUs it would open are among the idle ones."""

    def __init__(
        self, knife: Knife, second: Second, models: Mapping[int, str], idle: Sequence[int]
    ) -> None:
        self.knife, self.second, self.models, self.idle = knife, second, models, idle
        self._left = STEPS

    def tasks(
        self, node: str, ask: Ask, model: str, count: int
    ) -> tuple[list[TaskAllocation], Second] | None:
        """Allocations of so many tasks and the second stage after them; None if none was found."""
        profiles: Sequence[str] = ("",)
        if ask.slices:
            wanted = self.knife.wanted(ask, model)
            if wanted is None:
                return None
            table = self.knife.tables[model]
            length = {profile.name: profile.memory_slices for profile in table.profiles}
            profiles = sorted(wanted, key=lambda name: (-length[name], name))
        gpus = {gpu: here for gpu, here in self.second.gpus.items() if here.model == model}
        found = self._place(gpus, list(profiles) * count, ask)
        if found is None:
            return None
        each = len(profiles)
        tasks = [
            _task(node, found[i * each : (i + 1) * each], ask) for i in range(count)
        ]
        return tasks, self.knife.taken(self.second, tasks, self.models)

    def _place(
        self, gpus: dict[int, Mig | Shared], pieces: list[str], ask: Ask
    ) -> list[Piece] | None:
        if not pieces:
            return []
        for gpu, start, after in self._ways(gpus, pieces[0], ask):
            if self._left <= 0:
                return None
            self._left -= 1
            rest = self._place({**gpus, gpu: after}, pieces[1:], ask)
            if rest is not None:
                return [(gpu, (pieces[0], start)), *rest]
        return None

    def _ways(
        self, gpus: Mapping[int, Mig | Shared], profile: str, ask: Ask
    ) -> Iterator[tuple[int, int, Mig | Shared]]:
        """(GPU, start, the GPU after); idle instances and GPUs in parts before others."""
        fresh = next((gpu for gpu in self.idle if gpu not in gpus), None)
        model = None if fresh is None else self.models[fresh]
        if not profile:
            for gpu, here in gpus.items():
                if isinstance(here, Shared) and (after := _with_share(here, ask)) is not None:
                    yield gpu, 0, after
            if fresh is not None and model is not None and self.second.slots:
                memory = dict(self.second.memory).get(model)
                after = _with_share(Shared(model, 1_000, memory, self.second.slots), ask)
                if after is not None:
                    yield fresh, 0, after
            return
        found = [
            (new not in here.idle, gpu, new[1], after)
            for gpu, here in gpus.items()
            if isinstance(here, Mig)
            for new, after in self._with_instance(here, profile)
        ]
        for _, gpu, start, mig in sorted(found, key=lambda entry: entry[:3]):
            yield gpu, start, mig
        if fresh is not None and model is not None and model in self.second.turn_on:
            empty = Mig(model, frozenset(), frozenset(), fixed=False)
            for (_, start), mig in self._with_instance(empty, profile):
                yield fresh, start, mig

    def _with_instance(self, here: Mig, profile: str) -> Iterator[tuple[Instance, Mig]]:
        table = self.knife.tables[here.model]
        for start in next((p.starts for p in table.profiles if p.name == profile), ()):
            new = (profile, start)
            if new in here.used or (here.fixed and new not in here.idle):
                continue
            if legal(table, here.used | {new}):
                used, idle = here.used | {new}, here.idle - {new}
                yield new, Mig(here.model, used, idle, here.fixed, here.cost)


def _with_share(here: Shared, ask: Ask) -> Shared | None:
    milli, memory = ask.share
    if here.slots < 1 or here.milli < milli:
        return None
    if here.memory is None:
        return Shared(here.model, here.milli - milli, None, here.slots - 1)
    if here.memory < memory:
        return None
    return Shared(here.model, here.milli - milli, here.memory - memory, here.slots - 1)


def _task(node: str, pieces: Sequence[Piece], ask: Ask) -> TaskAllocation:
    ordered = sorted(pieces, key=lambda piece: (piece[0], piece[1][1]))
    share = None if ask.slices else Share(gpu_milli=ask.share[0], memory_mib=ask.share[1])
    return TaskAllocation(
        node=node,
        gpus=tuple(gpu for gpu, _ in ordered),
        mig=tuple(
            MigInstance(profile=profile, start=start) for _, (profile, start) in ordered if profile
        ),
        share=share,
    )
