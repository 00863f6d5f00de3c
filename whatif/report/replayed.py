"""What a report says of replays side by side: money first, then curves, waits, guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.whatif.measures import Measures
from trencadis.whatif.replay import Replayed
from trencadis.whatif.report.charts import curves, stacks
from trencadis.whatif.report.page import Block, Drawing, Group, Report, Section, Table, Tile
from trencadis.whatif.report.series import (
    POINTS,
    Ratio,
    fragmented,
    means,
    shares,
    utilized,
    waiting,
)
from trencadis.whatif.report.words import count, hours

LOSSES = ("spread", "restart", "rework", "grace", "gang_wait")
PARTS = ("useful", *LOSSES, "held", "idle")
"""Where GPU time goes; the order of `GpuHours`, losses after what was useful."""

FEW_POINTS = 80
"""Of fragmentation, which jumps where little is idle."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What was replayed, on what."""

    trace: str
    jobs: int
    nodes: int
    gpus: int
    offered_load: float | None
    currency: str
    prices_as_of: str


def replay_report(
    scene: Scene, done: Mapping[str, Replayed], more: tuple[Section, ...] = ()
) -> Report:
    """The report on replays by policy. `more`: sections for those who pay, before the curves."""
    measures = [replayed.measures for replayed in done.values()]
    load = (
        "" if scene.offered_load is None else f" Jobs ask for {_part(scene.offered_load)} of them."
    )
    return Report(
        title=f"Replay of {scene.trace}",
        lead=f"{count(scene.jobs, 'job')} on {count(scene.gpus, 'GPU')} "
        f"({count(scene.nodes, 'node')}), {count(len(done), 'policy', 'policies')}.{load}",
        tiles=_tiles(scene, measures),
        sections=[
            Section("For those who pay", _money(scene, measures), "money"),
            *more,
            Section("Advice", _advice(done), "advice"),
            Section("Through time", _through_time(done), "time"),
            Section("Waits", _waits(done), "waits"),
            Section("Guarantees", _guarantees(measures), "guarantees"),
        ],
    )


def _tiles(scene: Scene, measures: list[Measures]) -> list[Tile]:
    most = max(measures, key=lambda m: m.utilization)
    quickest = min(measures, key=lambda m: m.wait.weighted_mean)
    tiles = [
        Tile("most effective use", _part(most.utilization), most.policy),
        Tile("least wait, by GPUs", hours(quickest.wait.weighted_mean), quickest.policy),
    ]
    if (cheapest := _cheapest(measures)) is not None:
        cost = f"{cheapest.cost_per_useful_gpu_hour:,.2f} {scene.currency}"
        tiles.append(Tile("least per effective GPU-hour", cost, cheapest.policy))
    return tiles


def _cheapest(measures: list[Measures]) -> Measures | None:
    priced = [m for m in measures if m.cost_per_useful_gpu_hour is not None]
    return min(priced, key=lambda m: m.cost_per_useful_gpu_hour or 0.0, default=None)


def _money(scene: Scene, measures: list[Measures]) -> list[Block]:
    blocks: list[Block] = []
    cheapest = _cheapest(measures)
    if cheapest is None:
        blocks.append("No price is known for these nodes: GPU-hours stand for money.")
    else:
        blocks.append(
            f"An effective GPU-hour, one in which a job made progress, costs least under "
            f"{cheapest.policy}: {cheapest.cost_per_useful_gpu_hour:,.2f} {scene.currency}. The "
            f"cluster is paid for from the first arrival to the last end, at prices of "
            f"{scene.prices_as_of}."
        )
    columns = [
        "policy", "jobs done", "paid for (GPU-h)", "effective (GPU-h)", "lost (GPU-h)",
        "idle (GPU-h)",
    ]  # fmt: skip
    if cheapest is not None:
        columns += ["cost", "per effective GPU-h", "cost of losses", "cost of idle"]
    tokens = any(m.cost_per_million_tokens is not None for m in measures)
    if tokens:
        columns.append("per million tokens")
    rows = []
    for m in measures:
        time = m.gpu_hours
        idle = time.idle + time.held
        row = [m.policy, f"{m.jobs['done']:,}"]
        row += [f"{value:,.0f}" for value in (time.capacity, time.useful, time.lost, idle)]
        if cheapest is not None:
            own = None if m.cost is None else m.cost - (m.burst.cost if m.burst else 0.0)
            each = None if own is None or not time.capacity else own / time.capacity
            row += [
                _money_of(m.cost, 0),
                _money_of(m.cost_per_useful_gpu_hour, 2),
                _money_of(None if each is None else each * time.lost, 0),
                _money_of(None if each is None else each * idle, 0),
            ]
        if tokens:
            row.append(_money_of(m.cost_per_million_tokens, 2))
        rows.append(row)
    caption = f"Money in {scene.currency}" if cheapest is not None else ""
    blocks.append(Table(tuple(columns), rows, caption=caption))
    if any(m.burst is not None for m in measures):
        blocks.append(_burst(scene, measures))
    bars = [
        {"name": m.policy, **{part.replace('_', ' '): _share(m, part) for part in PARTS}}
        for m in measures
    ]  # fmt: skip
    says = "; ".join(f"{m.policy}: {_part(m.utilization)} effective" for m in measures)
    blocks.append(
        Drawing(
            "Where GPU time went",
            stacks(bars, [part.replace("_", " ") for part in PARTS], "part of GPU time"),
            says,
        )
    )
    return blocks


def _burst(scene: Scene, measures: list[Measures]) -> Table:
    uses = [(m.policy, m.burst) for m in measures if m.burst is not None]
    rows = [
        (
            policy,
            *(f"{figure:,}" for figure in (use.jobs, use.most_nodes, use.node_hours)),
            f"{use.useful_gpu_hours:,.1f}",
            f"{use.cost:,.0f}",
        )
        for policy, use in uses
    ]
    columns = ("policy", "jobs sent", "nodes at once", "node-hours", "effective (GPU-h)", "cost")
    caption = f"Burst nodes, {uses[0][1].kind}, beside the cluster; money in {scene.currency}"
    return Table(columns, rows, caption=caption)


def _share(measures: Measures, part: str) -> float:
    whole = measures.gpu_hours.capacity
    return float(getattr(measures.gpu_hours, part)) / whole if whole else 0.0


def _advice(done: Mapping[str, Replayed]) -> list[Block]:
    said = [f"{name}: {text}" for name, replayed in done.items() for text in replayed.advice]
    return [*said] or ["Nothing stands out."]


def _through_time(done: Mapping[str, Replayed]) -> list[Block]:
    samples = {name: replayed.samples for name, replayed in done.items() if replayed.samples}
    if not samples:
        return ["No round took place."]
    began = min(entries[0].at for entries in samples.values())

    def lines(ratio: Ratio, points: int = POINTS) -> dict[str, list[tuple[float, float]]]:
        return {name: means(entries, ratio, began, points) for name, entries in samples.items()}

    names = ", ".join(samples)
    return [
        Drawing(
            "GPUs allocated",
            curves(lines(utilized), "days", "of all GPUs", percent=True),
            f"Part of the GPUs that jobs occupy or hold, under {names}.",
        ),
        Drawing(
            "Fragmentation",
            curves(lines(fragmented, FEW_POINTS), "days", "of idle GPUs", percent=True),
            f"Part of the idle GPUs that the expected task can't use, under {names}.",
        ),
        Drawing(
            "Jobs waiting",
            curves(lines(waiting), "days", "jobs"),
            f"Jobs that wait after each round, under {names}.",
        ),
    ]


def _waits(done: Mapping[str, Replayed]) -> list[Block]:
    lines = {name: shares(r.waits) for name, r in done.items() if r.waits}
    blocks: list[Block] = []
    if lines:
        drawn = curves(lines, "hours waited", "of started jobs", percent=True, log_x=True)
        says = "Part of the started jobs that waited at most so long."
        blocks.append(Drawing("Distribution of waits", drawn, says))
    columns = ("policy", "mean", "by GPUs", "median", "p95", "longest", "completion", "preempted")
    rows = [
        (
            m.policy,
            *(
                hours(value)
                for value in (
                    m.wait.mean, m.wait.weighted_mean, m.wait.median, m.wait.p95, m.wait.largest,
                    m.completion.mean,
                )
            ),
            _part(m.preemption_ratio),
        )
        for m in (replayed.measures for replayed in done.values())
    ]  # fmt: skip
    blocks.append(Table(columns, rows, caption="From submission to first start"))
    for key in ("queue", "tier", "size"):
        detail = [
            (m.policy, group, f"{s.count:,}", hours(s.mean), hours(s.median), hours(s.p95))
            for m in (replayed.measures for replayed in done.values())
            for group, s in m.wait_by[key].items()
        ]
        table = Table(("policy", key, "jobs", "mean", "median", "p95"), detail, 2)
        blocks.append(Group(f"By {key}", table))
    return blocks


def _guarantees(measures: list[Measures]) -> list[Block]:
    rows = [
        (m.policy, queue, *(f"{entry[k]:,.1f}" for k in ("total", "beyond_grace", "unavoidable")))
        for m in measures
        for queue, entry in m.shortfall_gpu_hours.items()
    ]
    if not rows:
        return ["No queue has a guarantee."]
    columns = ("policy", "queue", "in all", "beyond grace", "of that unavoidable")
    return [Table(columns, rows, 2, "GPU-hours below what the guarantee owed")]


def _part(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _money_of(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
