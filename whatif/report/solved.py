"""What a report says of one round: the cluster before and after, queues, starts, stops, waits."""

from __future__ import annotations

from collections import Counter

from trencadis.models import Plan, Snapshot, apply
from trencadis.whatif.report.changes import changes, pending
from trencadis.whatif.report.charts import bands
from trencadis.whatif.report.cluster_map import Legend, draw, legend_of
from trencadis.whatif.report.page import (
    Block,
    Drawing,
    Key,
    Map,
    Report,
    Section,
    Table,
    Tile,
)
from trencadis.whatif.report.palette import STYLES, style
from trencadis.whatif.report.standing import Standing, standings
from trencadis.whatif.report.words import count, gpus, percent

MOST_BANDS = 40
"""Queues that a chart holds; the table has all."""
MOST_KEYS = 60
"""Jobs that the legend names."""


def solve_report(snapshot: Snapshot, plan: Plan, more: tuple[Section, ...] = ()) -> Report:
    """The report on a plan for this snapshot. `more`: sections to add.

    Raises PlanMismatchError if the plan is for another snapshot.
    """
    after = apply(snapshot, plan)
    sections = [
        Section("Cluster", [_map(snapshot, after, plan)], "cluster"),
        Section("Queues and guarantees", _queues(standings(snapshot, after)), "queues"),
        Section("What changes", changes(snapshot, plan), "changes"),
        Section("What waits, and why", pending(snapshot, plan), "waits"),
        Section("Proof", [_proof(plan)], "proof"),
        *more,
    ]
    metrics = plan.metrics
    return Report(
        title=f"Plan for {plan.now:%Y-%m-%d %H:%M:%S} UTC",
        lead=f"{_size(snapshot, metrics.gpus)} {_verdict(plan)}",
        tiles=_tiles(plan),
        sections=[section for section in sections if section.blocks],
    )


def cluster_report(snapshot: Snapshot) -> Report:
    """The report on a cluster as it is, without a plan."""
    legend = legend_of(snapshot)
    queues, jobs = _keys(legend, snapshot, snapshot)
    healthy = sum(len(node.healthy_gpus()) for node in snapshot.nodes if not node.down)
    states = Counter(job.state for job in snapshot.jobs)
    return Report(
        title=f"Cluster at {snapshot.now:%Y-%m-%d %H:%M:%S} UTC",
        lead=_size(snapshot, healthy),
        tiles=[Tile("jobs on nodes", f"{states['running'] + states['draining']:,}"),
               Tile("jobs waiting", f"{states['pending']:,}")],
        sections=[
            Section("Cluster", [Map(draw(snapshot, legend), (), queues, jobs)], "cluster"),
            Section("Queues and guarantees", _queues(standings(snapshot, snapshot)), "queues"),
        ],
    )  # fmt: skip


def _size(snapshot: Snapshot, number: int) -> str:
    nodes, jobs = len(snapshot.nodes), len(snapshot.jobs)
    return f"{count(nodes, 'node')}, {count(number, 'GPU')}, {count(jobs, 'job')}."


def _verdict(plan: Plan) -> str:
    proof = plan.proof
    if proof.status == "OPTIMAL":
        said = "Proven optimal: no plan under these rules is better."
    else:
        said = f"{proof.status}, at most {percent(proof.gap)} of the possible gain is missing."
    if proof.bound_scope == "restricted":
        said += f" The bound is of a restricted problem: {proof.restricted_to}."
    return said


def _tiles(plan: Plan) -> list[Tile]:
    metrics = plan.metrics
    waiting = metrics.pending_before - metrics.started
    return [
        Tile("jobs to start", f"{len(plan.starts):,}"),
        Tile("jobs waiting", f"{waiting:,}", f"of {metrics.pending_before:,}"),
        Tile("jobs to stop", f"{len(plan.preempts):,}"),
        Tile(
            "GPUs in use",
            f"{metrics.used_after:,}",
            f"of {metrics.gpus:,}; before {metrics.used_before:,}",
        ),
        Tile(
            "fragmentation",
            f"{metrics.fragmentation_after_milli / 10:.1f} %",
            f"of idle GPUs; before {metrics.fragmentation_before_milli / 10:.1f} %",
        ),
        Tile("gap", percent(plan.proof.gap), plan.proof.status),
    ]


def _map(before: Snapshot, after: Snapshot, plan: Plan) -> Map:
    legend = legend_of(before, after)
    queues, jobs = _keys(legend, before, after)
    fresh = {start.job for start in plan.starts} | {repair.job for repair in plan.repairs}
    return Map(draw(before, legend), draw(after, legend, fresh), queues, jobs)


def _keys(legend: Legend, before: Snapshot, after: Snapshot) -> tuple[list[Key], list[Key]]:
    use = {row.name: row for row in standings(before, after)}
    leaves = {job.queue for job in legend.by_name.values()}
    queues = [
        Key(
            f"q{style(number)}",
            name,
            f"{gpus(use[name].before)} → {gpus(use[name].after)} GPUs" if name in use else "",
        )
        for name, number in legend.queues.items()
        if name in leaves
    ]
    jobs = [Key(f"j{style(n)}", name) for name, n in list(legend.jobs.items())[:MOST_KEYS]]
    if len(legend.jobs) > min(MOST_KEYS, STYLES):
        jobs.append(Key("none", f"{len(legend.jobs):,} jobs: styles repeat, see the hints"))
    return queues, jobs


def _queues(rows: list[Standing]) -> list[Block]:
    if not rows:
        return []
    busy = [row for row in rows if row.before or row.after or row.guarantee or row.limit]
    chart = [
        {"name": "  " * row.depth + row.name, "before": row.before, "after": row.after,
         "guarantee": row.guarantee, "limit": row.limit}
        for row in busy[:MOST_BANDS]
    ]  # fmt: skip
    says = "GPUs in use after the plan as bars, with use before it, guarantees and limits as marks."
    if len(busy) > MOST_BANDS:
        says += f" The first {MOST_BANDS} of {len(busy)} queues."
    blocks: list[Block] = [Drawing("Use against guarantees", bands(chart, "GPUs"), says)]
    table = Table(
        ("queue", "before", "after", "guarantee", "short of it", "limit", "still asked for"),
        [
            (
                "\u2003" * row.depth + row.name,
                gpus(row.before),
                gpus(row.after),
                gpus(row.guarantee),
                gpus(row.short) if row.guarantee is not None else "-",
                gpus(row.limit),
                gpus(row.asked),
            )
            for row in rows
        ],
        caption="GPUs; MIG slices and shares by their part",
    )
    return [*blocks, table]


def _proof(plan: Plan) -> Table:
    return Table(
        ("stage", "unit", "status", "cost", "bound", "do nothing", "gap"),
        [
            (
                stage.name,
                stage.unit,
                str(stage.status),
                f"{stage.objective:,}",
                f"{stage.bound:,}",
                f"{stage.do_nothing:,}",
                percent(stage.gap),
            )
            for stage in plan.proof.stages
        ],
        figures=3,
        caption="Stages in order of importance; no plan as good in the stages above costs less "
        "than the bound",
    )
