"""GPUs in parts as a person reads them: slices by their starts, shares by tenths, alike folded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trencadis.views import words
from trencadis.views.io import clean
from trencadis.views.parts import MigFacts, PartFacts, ShareFacts

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_LINES = 40
"""Rows of GPUs; with more, one row per layout."""
MAX_JOBS = 3
TENTHS = 10


class Signs(NamedTuple):
    """What a slice is drawn as."""

    used: str
    idle: str
    free: str
    lost: str


SIGNS = Signs("■", "□", "·", "×")
PLAIN_SIGNS = Signs("#", "o", ".", "x")


class _Look(NamedTuple):
    """What GPUs that are drawn alike have in common."""

    model: str
    drawing: str
    holds: str
    room: str


def parts_view(parts: Sequence[PartFacts], *, plain: bool) -> Iterator[RenderableType]:
    """A table of GPUs in MIG mode and of shared ones; nothing where there are none."""
    if not parts:
        return
    signs = PLAIN_SIGNS if plain else SIGNS
    by_node: defaultdict[tuple[str, _Look], list[PartFacts]] = defaultdict(list)
    by_look: defaultdict[_Look, list[PartFacts]] = defaultdict(list)
    for part in parts:
        look = _look(part, signs)
        by_node[part.node, look].append(part)
        by_look[look].append(part)
    if len(by_node) <= MAX_LINES:
        table = words.table("GPUs in parts", "node", "GPU", "layout", "holds", "jobs", "room for")
        shown = ""
        for (node, look), group in by_node.items():
            table.add_row(
                "" if node == shown else clean(node),
                words.indices(part.gpu for part in group),
                look.drawing,
                look.holds,
                _jobs(group),
                look.room,
            )
            shown = node
    else:
        table = words.table(
            "GPUs in parts, by layout", "GPUs", "model", "layout", "holds", "room for", "the first",
            right=("GPUs",),
        )
        often = sorted(by_look.items(), key=lambda item: -len(item[1]))
        for look, group in often[: words.MAX_ROWS]:
            first = f"{clean(group[0].node)}:{group[0].gpu}"
            table.add_row(
                words.number(len(group)), clean(look.model), look.drawing, look.holds, look.room,
                first,
            )
    yield table
    if len(by_node) > MAX_LINES and (left := words.fold(len(by_look))):
        yield left
    yield (
        f"Slices by start, instances in brackets: {signs.used} a job's  {signs.idle} idle  "
        f"{signs.free} free  {signs.lost} free, but out of reach; shares by tenths"
    )


def _look(part: PartFacts, signs: Signs) -> _Look:
    if isinstance(part, ShareFacts):
        return _Look(part.model, _tenths(part, signs), _held(part), _left(part))
    return _Look(part.model, _slices(part, signs), _layout(part), _room(part))


def _slices(part: MigFacts, signs: Signs) -> str:
    if part.table is None:
        return "?"
    length = {profile.name: profile.memory_slices for profile in part.table.profiles}
    cells = dict.fromkeys(part.free, signs.free) | dict.fromkeys(part.lost, signs.lost)
    for (name, start), owner in part.instances:
        sign = signs.idle if owner is None else signs.used
        cells[start] = f"[{sign * length.get(name, 1)}]"
    return "".join(cells[slot] for slot in sorted(cells))


def _layout(part: MigFacts) -> str:
    return clean(
        ", ".join(
            f"{name}@{start}{' idle' if owner is None else ''}"
            for (name, start), owner in part.instances
        )
    )


def _room(part: MigFacts) -> str:
    """The two largest plain profiles of which one more could be cut."""
    if part.table is None:
        return "? (no MIG table for this model)"
    order = sorted(part.room, key=lambda name: _size(part, name), reverse=True)
    texts = [f"{clean(name)} at {words.indices(part.room[name])}" for name in order[:2]]
    return ", ".join(texts) or "-"


def _size(part: MigFacts, name: str) -> tuple[int, int]:
    profile = part.table.profile(name) if part.table is not None else None
    return (0, 0) if profile is None else (profile.compute_slices, profile.memory_slices)


def _tenths(part: ShareFacts, signs: Signs) -> str:
    used = min(TENTHS, -(-part.milli * TENTHS // 1_000))
    return f"({signs.used * used}{signs.free * (TENTHS - used)})"


def _held(part: ShareFacts) -> str:
    sizes = Counter(milli for _, milli, _ in part.shares)
    return ", ".join(
        f"{words.gpus(milli)}{f' x {n}' if n > 1 else ''}"
        for milli, n in sorted(sizes.items(), reverse=True)
    )


def _left(part: ShareFacts) -> str:
    texts = [f"{words.gpus(max(0, 1_000 - part.milli))} GPU"]
    if part.memory_mib:
        texts.append(f"{max(0, part.memory_mib - part.memory) // 1_024} GiB")
    texts.append(words.count(max(0, part.most - len(part.shares)), "share"))
    return ", ".join(texts)


def _jobs(group: Sequence[PartFacts]) -> str:
    names: dict[str, None] = {}
    for part in group:
        if isinstance(part, ShareFacts):
            names.update(dict.fromkeys(job for job, _, _ in part.shares))
        else:
            names.update(dict.fromkeys(job for _, job in part.instances if job is not None))
    shown = [clean(name) for name in list(names)[:MAX_JOBS]]
    if len(names) > MAX_JOBS:
        shown.append(f"and {words.number(len(names) - MAX_JOBS)} more")
    return ", ".join(shown)
