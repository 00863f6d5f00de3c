"""What still fits on GPUs in MIG mode and on shared ones, and what they are after starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trencadis.models import Snapshot, TaskAllocation
from trencadis.models.mig import MigTable
from trencadis.solver.verify.second import Instance, Mig, Second, Shared, legal
from trencadis.solver.verify.units import Ask, smallest


class Knife:
    """Answers about GPUs of one snapshot's second stage, each worked out once."""

    def __init__(self, snapshot: Snapshot, tables: Mapping[str, MigTable]) -> None:
        self.tables = tables
        self.policy = snapshot.policy.mig
        self._most: dict[tuple[str, frozenset[Instance], str], int] = {}
        self._tasks: dict[tuple[object, ...], int] = {}
        self._keys: dict[tuple[object, ...], int] = {}
        self._second: dict[int, tuple[Second, int]] = {}
        self._numbers: dict[tuple[object, ...], set[tuple[int, ...]]] = {}

    def wanted(self, ask: Ask, model: str) -> tuple[str, ...] | None:
        """Profiles that a task needs on a model; None if it can't run there."""
        table = self.tables.get(model)
        if table is None:
            return None
        names = {profile.name for profile in table.profiles}
        if ask.mig:
            return tuple(sorted(ask.mig)) if set(ask.mig) <= names else None
        best = smallest(table, *ask.at_least)
        return None if best is None else (best.name,)

    def most(self, gpu: Mig | Shared, ask: Ask, profile: str) -> int:
        """How many more of a profile (of a share, where it is empty) the GPU takes."""
        if isinstance(gpu, Shared):
            if profile:
                return 0
            milli, memory = ask.share
            room = min(gpu.slots, gpu.milli // milli)
            if gpu.memory is not None and memory:
                room = min(room, gpu.memory // memory)
            return room
        if not profile:
            return 0
        if gpu.fixed:
            return sum(name == profile for name, _ in gpu.idle)
        key = (gpu.model, gpu.used, profile)
        if key not in self._most:
            self._most[key] = self._longest(self.tables[gpu.model], gpu.used, profile, -1)
        return self._most[key]

    def _longest(
        self, table: MigTable, used: frozenset[Instance], profile: str, after: int
    ) -> int:
        """The most further instances of a profile with starts beyond `after`."""
        entry = next((p for p in table.profiles if p.name == profile), None)
        best = 0
        for start in sorted(entry.starts if entry is not None else ()):
            more = used | {(profile, start)}
            if start > after and len(more) > len(used) and legal(table, more):
                best = max(best, 1 + self._longest(table, more, profile, start))
        return best

    def tasks(self, second: Second, idle: int, ask: Ask, model: str) -> int:
        """How many tasks the second stage takes, with so many idle GPUs of the model besides."""
        key = (self._number_of(second), idle, ask, model)
        if key not in self._tasks:
            self._tasks[key] = self._count(second, idle, ask, model)
        return self._tasks[key]

    def _number_of(self, second: Second) -> int:
        """A number that stands for the key: keys are long, and hashed anew each time."""
        known = self._second.get(id(second))
        if known is None:
            number = self._keys.setdefault(second.key(), len(self._keys))
            # Kept, so that its id stays its own.
            known = self._second[id(second)] = (second, number)
        return known[1]

    def _count(self, second: Second, idle: int, ask: Ask, model: str) -> int:
        mine = [gpu for gpu in second.gpus.values() if gpu.model == model]
        if ask.share != (0, 0):
            fresh = Shared(model, 1_000, dict(second.memory).get(model), second.slots)
            return sum(self.most(g, ask, "") for g in mine) + idle * self.most(fresh, ask, "")
        profiles = self.wanted(ask, model)
        if profiles is None:
            return 0
        migs = [gpu for gpu in mine if isinstance(gpu, Mig)]
        if model in second.turn_on:
            migs += [Mig(model, frozenset(), frozenset(), fixed=False)] * idle
        if len(set(profiles)) == 1:
            return sum(self.most(g, ask, profiles[0]) for g in migs) // len(profiles)
        return self._sets(migs, Counter(profiles))

    def _sets(self, gpus: Sequence[Mig], each: Counter[str]) -> int:
        """The most sets of these instances on the GPUs: what the GPUs can hold, added up."""
        kinds = tuple(each)
        sums: set[tuple[int, ...]] = {(0,) * len(kinds)}
        for gpu in gpus:
            ways = self._ways(gpu, kinds)
            sums = _largest(
                {tuple(map(sum, zip(total, way, strict=True))) for total in sums for way in ways}
            )
        return max(
            min(n // each[kind] for n, kind in zip(total, kinds, strict=True)) for total in sums
        )

    def _ways(self, gpu: Mig, kinds: tuple[str, ...]) -> set[tuple[int, ...]]:
        """Numbers of further instances of these profiles that the GPU can have at once."""
        key = (gpu.model, gpu.used, gpu.idle if gpu.fixed else None, kinds)
        if key not in self._numbers:
            table = self.tables[gpu.model]
            starts = {profile.name: profile.starts for profile in table.profiles}
            free = [(kind, start) for kind in kinds for start in starts.get(kind, ())]
            if gpu.fixed:
                free = [instance for instance in free if instance in gpu.idle]
            layouts = [gpu.used]
            for instance in free:
                layouts += [
                    more
                    for layout in layouts
                    if instance not in layout and legal(table, more := layout | {instance})
                ]
            here = Counter(kind for kind, _ in gpu.used)
            self._numbers[key] = _largest(
                {
                    tuple(count[kind] - here[kind] for kind in kinds)
                    for count in (Counter(kind for kind, _ in layout) for layout in layouts)
                }
            )
        return self._numbers[key]

    def idle_units(self, gpu: Mig | Shared, unit: int) -> int:
        """Units that nobody uses, by compute."""
        if isinstance(gpu, Shared):
            return gpu.milli * unit // 1_000
        table = self.tables[gpu.model]
        used = sum(self.units(table, name, unit) for name, _ in gpu.used)
        return max(0, unit - used)

    @staticmethod
    def units(table: MigTable, profile: str, unit: int) -> int:
        """Units of an instance, by compute."""
        entry = next(p for p in table.profiles if p.name == profile)
        return unit * entry.compute_slices // table.compute_slices

    def taken(self, second: Second, tasks: Iterable[TaskAllocation], models: Mapping[int, str]) -> (
        Second
    ):
        """The second stage after these tasks, whose GPUs may have been whole before."""
        gpus = dict(second.gpus)
        new: dict[int, set[Instance]] = {}
        for task in tasks:
            for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
                new.setdefault(gpu, set()).add((instance.profile, instance.start))
            for gpu in task.gpus or () if task.share is not None else ():
                here = gpus.get(gpu)
                if here is None and gpu in models:
                    model = models[gpu]
                    here = Shared(model, 1_000, dict(second.memory).get(model), second.slots)
                if isinstance(here, Shared) and task.share is not None:
                    memory = here.memory
                    gpus[gpu] = Shared(
                        here.model,
                        max(0, here.milli - task.share.gpu_milli),
                        None if memory is None else max(0, memory - task.share.memory_mib),
                        max(0, here.slots - 1),
                    )
        for gpu, instances in new.items():
            here = gpus.get(gpu)
            if isinstance(here, Mig):
                cost = 0 if instances <= here.idle else self.policy.reconfigure_seconds
                gpus[gpu] = replace(
                    here,
                    used=here.used | instances,
                    idle=here.idle - instances,
                    cost=cost,
                    off=None,
                )
            elif here is None and gpu in models:
                cost = self.policy.reconfigure_seconds + self.policy.mode_seconds
                gpus[gpu] = Mig(models[gpu], frozenset(instances), frozenset(), False, cost)
        return replace(second, gpus=gpus)


def _largest(numbers: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Those of which no other has as much of everything."""
    return {
        mine
        for mine in numbers
        if not any(
            mine != other and all(a <= b for a, b in zip(mine, other, strict=True))
            for other in numbers
        )
    }
