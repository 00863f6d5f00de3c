"""How figures and places read: thousands, percent, GPU indices, lists of nodes, folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trencadis.models.cluster import MigInstance
from trencadis.models.jobs import TaskAllocation
from trencadis.models.queues import Quota
from trencadis.views.io import clean

if TYPE_CHECKING:
    from rich.table import Table

MAX_ROWS = 30
"""Rows of a table; the rest is folded into one line."""
MAX_NODES = 3
"""Nodes that a place names before it folds."""


def number(value: int) -> str:
    """`28,800`."""
    return f"{value:,}"


def percent(fraction: float) -> str:
    """`0.02 %`; never 0 for what isn't."""
    if fraction == 0:
        return "0 %"
    if abs(fraction) < 0.0001:
        return "< 0.01 %"
    return f"{100 * fraction:.2f} %"


def per_mille(milli: int) -> str:
    """Thousandths as percent: `12.3 %`."""
    return f"{milli / 10:.1f} %"


def gpus(milli: int) -> str:
    """Milli-GPU as GPUs: `8`, `0.5`."""
    return number(milli // 1_000) if milli % 1_000 == 0 else f"{milli / 1_000:,.3f}".rstrip("0")


def count(amount: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number(amount)} {noun}{'' if amount == 1 else 's'}"


def indices(values: Iterable[int]) -> str:
    """`0-3,6`."""
    parts: list[list[int]] = []
    for value in sorted(values):
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def places(allocation: Sequence[TaskAllocation]) -> str:
    """`n1:0-3 n2:0-7`, of slices `n1:0/3g.20gb@4`; at most three nodes, then a count."""
    by_node: dict[str, list[int]] = {}
    slices: dict[str, list[str]] = {}
    for task in allocation:
        gpus = by_node.setdefault(task.node, [])
        if not task.mig:
            gpus.extend(task.gpus or ())
        for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
            named = f"{gpu}/{clean(instance.profile)}@{instance.start}"
            slices.setdefault(task.node, []).append(named)
    words = []
    for node, found in list(by_node.items())[:MAX_NODES]:
        parts = [*([indices(found)] if found else []), *slices.get(node, ())]
        words.append(f"{clean(node)}:{','.join(parts)}" if parts else clean(node))
    rest = len(by_node) - MAX_NODES
    if rest > 0:
        words.append(f"and {rest} more")
    return " ".join(words)


def layout(instances: Sequence[MigInstance]) -> str:
    """`1g.5gb@0 2g.10gb@4`; a dash where there are none."""
    return " ".join(f"{clean(i.profile)}@{i.start}" for i in instances) or "-"


def quota(value: Quota | None) -> str:
    """`8 (A100 4)`; a dash where there is none."""
    if value is None:
        return "-"
    total = value.total_milli()
    models = ", ".join(f"{clean(model)} {amount}" for model, amount in value.by_model.items())
    if total is None:
        return models or "-"
    return f"{gpus(total)} ({models})" if models else gpus(total)


def table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    """A plain table; columns named in `right` are figures."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    figures = set(right)
    for column in columns:
        made.add_column(column, justify="right" if column in figures else "left", overflow="fold")
    return made


def fold(rows: int, shown: int = MAX_ROWS) -> str:
    """The line that stands for the rows left out; empty if there are none."""
    return f"... and {number(rows - shown)} more (use --json)" if rows > shown else ""
