"""Decides where MIG instances start on a GPU when only their profiles are known.

Device plugins and `nvidia-smi -q -x` count instances by profile; the start positions are not told.
Any legal arrangement of the same instances stands for the real one: first the longest, each at the
lowest start that is left. Lengths and starts are those that `nvidia-smi mig -lgipp` prints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trencadis.models.cluster import MigInstance

PROFILE = re.compile(r"(\d)g\.(\d{1,3})gb(?:[.+-][a-z.+-]+)?")
_FOUR_SLICES = re.compile(r"\bA30\b|RTX.?PRO.?6000", re.IGNORECASE)


def slices_of(model: str) -> int:
    """Memory slices of a GPU model: four on A30 and RTX PRO 6000, eight on the others."""
    return 4 if _FOUR_SLICES.search(model.replace("_", " ")) else 8


def compute_slices(profile: str) -> int:
    """The compute slices that the profile's name tells; 0 where it is no profile."""
    found = PROFILE.fullmatch(profile)
    return int(found.group(1)) if found else 0


def placements(profile: str, model: str, memory_mib: int) -> tuple[int, tuple[int, ...]] | None:
    """Length in memory slices and legal starts; None where the profile can't be of this GPU."""
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
    total = slices_of(model)
    most_compute = 4 if total == 4 else 7
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
    if used > most_compute:
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


def spread(
    profiles: Sequence[str], gpus: Sequence[int], model: str, memory_mib: int
) -> dict[int, tuple[MigInstance, ...]] | None:
    """Instances over several GPUs, the largest first, each on the first GPU that has room."""
    held: dict[int, list[str]] = {gpu: [] for gpu in gpus}
    order = sorted(profiles, key=lambda profile: (-compute_slices(profile), profile))
    for profile in order:
        for gpu in gpus:
            if arrange([*held[gpu], profile], model, memory_mib) is not None:
                held[gpu].append(profile)
                break
        else:
            return None
    return {gpu: arrange(held[gpu], model, memory_mib) or () for gpu in gpus}
