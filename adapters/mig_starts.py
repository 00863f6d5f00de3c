"""Decides where MIG instances start on a GPU when only their profiles are known.

Device plugins and `nvidia-smi -q -x` count instances by profile; the start positions are not told.
Any legal arrangement of the same instances stands for the real one: first the longest, each at the
lowest start that is left. Lengths and starts are those of the model's table; for a GPU that has
none they follow from the profile's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from trencadis.models.cluster import MigInstance
from trencadis.models.mig import MigTable, find_table

PROFILE = re.compile(r"(\d)g\.(\d{1,3})gb(?:[.+-][a-z.+-]+)?")
_FOUR_SLICES = re.compile(r"\bA30\b|RTX.?PRO.?6000", re.IGNORECASE)


def slices_of(model: str) -> int:
    """Memory slices of a GPU model: four on A30 and RTX PRO 6000, eight on the others."""
    return 4 if _FOUR_SLICES.search(model.replace("_", " ")) else 8


def compute_slices(profile: str) -> int:
    """The compute slices that the profile's name tells; 0 where it is no profile."""
    found = PROFILE.fullmatch(profile)
    return int(found.group(1)) if found else 0


@lru_cache(maxsize=256)
def _table(model: str, memory_mib: int) -> MigTable | None:
    return find_table(model, memory_mib)


def placements(profile: str, model: str, memory_mib: int) -> tuple[int, tuple[int, ...]] | None:
    """Length in memory slices and legal starts; None where the profile can't be of this GPU."""
    table = _table(model, memory_mib)
    if table is not None:
        known = table.profile(profile)
        return None if known is None else (known.memory_slices, known.starts)
    found = PROFILE.fullmatch(profile)
    if found is None:
        return None
    total = slices_of(model)
    compute, gib = int(found.group(1)), int(found.group(2))
    if compute == (4 if total == 4 else 7):
        return total, (0,)
    if memory_mib:
        share = gib * 1_024 * total / memory_mib
        length = min((1, 2, 4, 8), key=lambda size: abs(size - share) / size)
    else:
        length = {1: 1, 2: 2, 3: 4, 4: 4}.get(compute, 0)
    if not compute or compute > length:
        return None
    if total == 4:
        return (length, tuple(range(0, 4 - length + 1, length))) if length <= 2 else None
    if compute == 4:
        return length, (0,)
    # The eighth memory slice has no compute slice of its own: 1g of one slice never starts there,
    # nor does 2g.
    last = {1: 6, 2: 6 if compute == 1 else 4, 4: 4}.get(length)
    return None if last is None else (length, tuple(range(0, last + 1, length)))


def arrange(
    profiles: Sequence[str],
    model: str,
    memory_mib: int,
    taken: Sequence[MigInstance] = (),
) -> tuple[MigInstance, ...] | None:
    """Instances of the profiles at legal starts beside those taken; None if impossible."""
    table = _table(model, memory_mib)
    used = 0
    occupied: set[int] = set()
    for instance in taken:
        where = placements(instance.profile, model, memory_mib)
        used += compute_slices(instance.profile)
        occupied |= set(range(instance.start, instance.start + (where[0] if where else 1)))
    wanted: list[tuple[int, str, tuple[int, ...]]] = []
    for profile in profiles:
        where = placements(profile, model, memory_mib)
        if where is None:
            return None
        used += compute_slices(profile)
        wanted.append((where[0], profile, where[1]))
    if table is not None:
        if not _within(table, Counter([*profiles, *(instance.profile for instance in taken)])):
            return None
    elif used > (4 if slices_of(model) == 4 else 7):
        return None
    # Few starts first, so that the profile that is bound to a place gets it.
    wanted.sort(key=lambda entry: (-entry[0], len(entry[2]), entry[1]))
    found = _search(wanted, occupied)
    return None if found is None else tuple(sorted(found, key=lambda entry: entry.start))


def _search(
    wanted: list[tuple[int, str, tuple[int, ...]]], occupied: set[int]
) -> list[MigInstance] | None:
    if not wanted:
        return []
    length, profile, starts = wanted[0]
    for start in starts:
        cells = set(range(start, start + length))
        if cells & occupied:
            continue
        rest = _search(wanted[1:], occupied | cells)
        if rest is not None:
            return [MigInstance(profile=profile, start=start), *rest]
    return None


def _within(table: MigTable, counts: Counter[str]) -> bool:
    """Whether no profile occurs too often, and the GPU has engines for all."""
    engines: Counter[str] = Counter()
    for name, count in counts.items():
        profile = table.profile(name)
        if profile is None:
            continue  # somebody else's, of which nothing is known
        if count > profile.most:
            return False
        for engine, amount in profile.engines.items():
            engines[engine] += amount * count
    return all(amount <= table.engines.get(engine, amount) for engine, amount in engines.items())


def spread(
    profiles: Sequence[str], gpus: Sequence[int], model: str, memory_mib: int
) -> dict[int, tuple[MigInstance, ...]] | None:
    """Instances over several GPUs: on all alike where that is possible, else on the first GPUs.

    None where none of `MAX_STEPS` attempts fits all.
    """
    counts = Counter(profiles)
    if gpus and all(count % len(gpus) == 0 for count in counts.values()):
        same = [name for name in sorted(counts) for _ in range(counts[name] // len(gpus))]
        layout = arrange(same, model, memory_mib)
        if layout is not None:
            return dict.fromkeys(gpus, layout)
    order = sorted(counts, key=lambda profile: (-compute_slices(profile), profile))
    search = _Spread(model, memory_mib, order)
    held = search.over(len(gpus), tuple(counts[name] for name in order))
    if held is None:
        return None
    return {
        gpu: arrange(part, model, memory_mib) or () for gpu, part in zip(gpus, held, strict=True)
    }


MAX_STEPS = 20_000


class _Spread:
    """Which profiles share a GPU: the most of the largest first, back where the rest won't fit."""

    def __init__(self, model: str, memory_mib: int, order: Sequence[str]) -> None:
        self._gpu = model, memory_mib
        self._order = order
        self._steps = 0
        self._failed: set[tuple[int, tuple[int, ...]]] = set()
        self._fits: dict[tuple[int, ...], bool] = {}

    def over(self, gpus: int, left: tuple[int, ...]) -> list[list[str]] | None:
        """Profiles for each of so many GPUs; None if it can't be, or takes too long to find out."""
        if not any(left):
            return [[] for _ in range(gpus)]
        if gpus == 0 or (gpus, left) in self._failed or self._steps > MAX_STEPS:
            return None
        for part in self._parts(left, ()):
            self._steps += 1
            rest = self.over(gpus - 1, tuple(a - b for a, b in zip(left, part, strict=True)))
            if rest is not None:
                mine = [n for n, count in zip(self._order, part, strict=True) for _ in range(count)]
                return [mine, *rest]
        self._failed.add((gpus, left))
        return None

    def _parts(self, left: tuple[int, ...], part: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(part) == len(left):
            if any(part):
                yield part
            return
        for count in range(left[len(part)], -1, -1):
            longer = (*part, count)
            if self._may(longer):
                yield from self._parts(left, longer)

    def _may(self, part: tuple[int, ...]) -> bool:
        if part not in self._fits:
            names = [n for n, count in zip(self._order, part, strict=False) for _ in range(count)]
            self._fits[part] = arrange(names, *self._gpu) is not None
        return self._fits[part]
