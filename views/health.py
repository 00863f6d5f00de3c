"""The state of a cluster as a person on call reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trencadis.models.health import Health, Slots
from trencadis.views import words
from trencadis.views.io import clean

if TYPE_CHECKING:
    from rich.console import RenderableType


def health_view(health: Health) -> Iterator[RenderableType]:
    """The parts of the picture, from the top."""
    from rich.text import Text  # noqa: PLC0415

    yield Text(f"{health.verdict.upper()}: {clean(health.sentence)}.", style="bold")
    active = "unknown" if health.active is None else words.number(health.active)
    yield (
        f"{words.count(health.gpus, 'GPU')}: {words.number(health.allocated)} allocated, active "
        f"{active}, {words.number(health.idle)} idle, {words.number(health.broken_gpus)} broken; "
        f"{words.count(len(health.nodes_out), 'node')} out of service."
    )
    reasons = ", ".join(f"{code} {n:,}" for code, n in health.waiting_by_reason.items())
    yield (
        f"{words.count(health.waiting, 'job')} waiting: {words.number(health.fit_now)} would fit "
        f"alone{f'; {reasons}' if reasons else ''}."
    )
    if health.slots:
        yield _slots(health.slots)
    yield from _stranded(health)
    yield from _queues(health)
    yield from _never(health)
    yield from _unsaved(health)


def _slots(tables: tuple[Slots, ...]) -> RenderableType:
    sizes = sorted({size for entry in tables for size in entry.slots})
    columns = ("model", "level", "idle", "in pieces", *(f"×{size}" for size in sizes))
    table = words.table("Room for requests of so many GPUs", *columns, right=columns[2:])
    for entry in tables[: words.MAX_ROWS]:
        table.add_row(
            clean(entry.model),
            clean(entry.level),
            words.number(entry.idle),
            words.per_mille(entry.fragmentation_milli),
            *(words.number(entry.slots.get(size, 0)) for size in sizes),
        )
    return table


def _stranded(health: Health) -> Iterator[RenderableType]:
    if not health.stranded:
        return
    table = words.table("Idle GPUs that no one can use", "node", "model", "GPUs", "why",
                        right=("GPUs",))
    for entry in health.stranded[: words.MAX_ROWS]:
        table.add_row(clean(entry.node), clean(entry.model), words.number(entry.gpus), entry.why)
    yield table
    if left := words.fold(len(health.stranded)):
        yield left


def _queues(health: Health) -> Iterator[RenderableType]:
    if not health.queues:
        return
    columns = ("queue", "is", "guarantee", "used", "asks for", "for")
    table = words.table("Queues off their guarantee", *columns, right=columns[2:])
    for entry in health.queues[: words.MAX_ROWS]:
        table.add_row(
            clean(entry.queue),
            entry.state,
            words.gpus(entry.guarantee_milli),
            words.gpus(entry.used_milli),
            words.gpus(entry.asked_milli),
            f"{entry.seconds / 3_600:.1f} h",
        )
    yield table
    if left := words.fold(len(health.queues)):
        yield left


def _never(health: Health) -> Iterator[RenderableType]:
    if not health.never:
        return
    table = words.table("Can never run", "job", "queue", "why")
    for entry in health.never[: words.MAX_ROWS]:
        table.add_row(clean(entry.job), clean(entry.queue), clean(entry.sentence))
    yield table
    if left := words.fold(len(health.never)):
        yield left


def _unsaved(health: Health) -> Iterator[RenderableType]:
    if not health.unsaved:
        return
    columns = ("job", "queue", "GPUs", "GPU-h at risk")
    table = words.table("Preemptible without checkpoint", *columns, right=columns[2:])
    for entry in health.unsaved[: words.MAX_ROWS]:
        table.add_row(
            clean(entry.job),
            clean(entry.queue),
            words.number(entry.gpus),
            f"{entry.lost_gpu_seconds / 3_600:,.1f}",
        )
    yield table
    if left := words.fold(len(health.unsaved)):
        yield left
