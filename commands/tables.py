"""Replays side by side, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trencadis.commands.scene import gpu_count
from trencadis.models import Snapshot
from trencadis.models.trace import Trace
from trencadis.views.io import clean
from trencadis.views.words import count
from trencadis.whatif.prices import PriceList
from trencadis.whatif.replay import Replayed
from trencadis.whatif.report.replayed import Scene

HOUR = 3_600


def hours(seconds: float) -> str:
    """`0.2 h`, `1,326 h`."""
    value = seconds / HOUR
    return f"{value:,.0f} h" if value >= 100 else f"{value:.1f} h"


def part(fraction: float) -> str:
    """`82.3 %`."""
    return f"{100 * fraction:.1f} %"


def scene_of(trace: Trace, place: Snapshot, prices: PriceList) -> Scene:
    """What was replayed, for a report."""
    gpus = gpu_count(place)
    return Scene(
        trace=trace.name,
        jobs=len(trace.jobs),
        nodes=len(place.nodes),
        gpus=gpus,
        offered_load=trace.offered_load(gpus) if trace.span_seconds else None,
        currency=prices.currency,
        prices_as_of=prices.as_of,
    )


def replay_record(
    trace: Trace,
    place: Snapshot,
    prices: PriceList,
    done: Mapping[str, Replayed],
    failed: Mapping[str, BaseException],
) -> dict[str, Any]:
    """For `--json`."""
    gpus = gpu_count(place)
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "gpus": gpus,
        "offered_load": trace.offered_load(gpus) if trace.span_seconds else None,
        "prices": {"as_of": prices.as_of, "currency": prices.currency},
        "policies": [
            {**replayed.measures.record(), "advice": list(replayed.advice)}
            for replayed in done.values()
        ],
        "failed": {name: f"{type(e).__name__}: {e}" for name, e in failed.items()},
    }


def replay_view(
    trace: Trace, place: Snapshot, prices: PriceList, done: Mapping[str, Replayed]
) -> list[RenderableType]:
    """A headline, the tables, the advice."""
    gpus = gpu_count(place)
    load = f", offered load {part(trace.offered_load(gpus))}" if trace.span_seconds else ""
    parts: list[RenderableType] = [
        f"{clean(trace.name)}: {count(len(trace.jobs), 'job')} on {count(gpus, 'GPU')}"
        f" ({count(len(place.nodes), 'node')}){load}",
        _use(done),
        _waits(done),
    ]
    if any(entry.measures.shortfall_gpu_hours for entry in done.values()):
        parts.append(_guarantees(done))
    if any(entry.measures.cost is not None for entry in done.values()):
        parts.append(_money(done, prices))
    if any(entry.measures.burst is not None for entry in done.values()):
        parts.append(_burst(done, prices))
    for name, replayed in done.items():
        parts += [Text(f"{name}: {sentence}") for sentence in replayed.advice]
    return parts


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("policy")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _use(done: Mapping[str, Replayed]) -> Table:
    table = _table(
        "GPU time",
        "done",
        "makespan",
        "allocated",
        "useful",
        "spread",
        "preempted",
        "gang wait",
        "fragmentation",
    )
    for name, replayed in done.items():
        m = replayed.measures
        whole = m.gpu_hours.capacity or 1.0
        stopped = m.gpu_hours.rework + m.gpu_hours.restart + m.gpu_hours.grace
        table.add_row(
            name,
            f"{m.jobs['done']:,}",
            f"{m.makespan_seconds / 86_400:,.1f} d",
            part(m.allocation),
            part(m.utilization),
            part(m.gpu_hours.spread / whole),
            part(stopped / whole),
            part(m.gpu_hours.gang_wait / whole),
            part(m.fragmentation),
        )
    return table


def _waits(done: Mapping[str, Replayed]) -> Table:
    table = _table(
        "Waits, and jobs preempted",
        "mean",
        "by GPUs",
        "median",
        "p95",
        "completion",
        "p95",
        "preempted",
        "Jain",
    )
    for name, replayed in done.items():
        m = replayed.measures
        table.add_row(
            name,
            hours(m.wait.mean),
            hours(m.wait.weighted_mean),
            hours(m.wait.median),
            hours(m.wait.p95),
            hours(m.completion.mean),
            hours(m.completion.p95),
            part(m.preemption_ratio),
            f"{m.jain:.2f}",
        )
    return table


def _guarantees(done: Mapping[str, Replayed]) -> Table:
    table = _table("Below guarantees, GPU-hours", "in all", "beyond grace", "unavoidable")
    for name, replayed in done.items():
        short = replayed.measures.shortfall_gpu_hours.values()
        table.add_row(
            name,
            *(
                f"{sum(entry[key] for entry in short):,.1f}"
                for key in ("total", "beyond_grace", "unavoidable")
            ),
        )
    return table


def _money(done: Mapping[str, Replayed], prices: PriceList) -> Table:
    title = f"Cost, {prices.currency}, prices of {prices.as_of}"
    table = _table(title, "in all", "per useful GPU-hour", "per million tokens")
    for name, replayed in done.items():
        m = replayed.measures
        useful, tokens = m.cost_per_useful_gpu_hour, m.cost_per_million_tokens
        table.add_row(
            name,
            "-" if m.cost is None else f"{m.cost:,.0f}",
            "-" if useful is None else f"{useful:,.2f}",
            "-" if tokens is None else f"{tokens:,.2f}",
        )
    return table


def _burst(done: Mapping[str, Replayed], prices: PriceList) -> Table:
    uses = {name: entry.measures.burst for name, entry in done.items()}
    kind = next(use.kind for use in uses.values() if use is not None)
    table = _table(
        clean(f"Burst nodes, {kind}"), "jobs", "at once", "node-hours", "useful GPU-hours",
        prices.currency,
    )  # fmt: skip
    for name, use in uses.items():
        if use is not None:
            table.add_row(
                name,
                f"{use.jobs:,}",
                f"{use.most_nodes:,}",
                f"{use.node_hours:,}",
                f"{use.useful_gpu_hours:,.1f}",
                f"{use.cost:,.0f}",
            )
    return table
