"""Plans, clusters and replays as flat rows, and those as frames of pandas or polars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trencadis.models import Plan, Snapshot
from trencadis.models.units import sizes
from trencadis.whatif.measures import Measures
from trencadis.whatif.replay import Replayed

if TYPE_CHECKING:
    import pandas
    import polars

Framed = Plan | Snapshot | Replayed | Mapping[str, Replayed]


def rows(thing: Framed) -> list[dict[str, Any]]:
    """A row per decision of a plan, job of a snapshot, round of a replay, or policy of several.

    All rows of one list have the same keys. Instants are aware datetimes, in UTC.
    """
    if isinstance(thing, Plan):
        return _decisions(thing)
    if isinstance(thing, Snapshot):
        return _jobs(thing)
    if isinstance(thing, Replayed):
        return [asdict(sample) for sample in thing.samples]
    return [_measures(replayed.measures) for replayed in thing.values()]


def to_pandas(thing: Framed) -> pandas.DataFrame:
    """`rows` as a frame. Raises ModuleNotFoundError without the extra `pandas`."""
    import pandas  # noqa: PLC0415 - an extra

    return pandas.DataFrame.from_records(rows(thing))


def to_polars(thing: Framed) -> polars.DataFrame:
    """`rows` as a frame. Raises ModuleNotFoundError without the extra `polars`."""
    import polars  # noqa: PLC0415 - an extra

    return polars.DataFrame(rows(thing), infer_schema_length=None)


def _decisions(plan: Plan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(job: str, decision: str, **more: Any) -> None:
        empty = {"at": None, "nodes": None, "tasks": None, "lost_gpu_seconds": None,
                 "code": None, "sentence": None}  # fmt: skip
        found.append({"job": job, "decision": decision, **empty, **more})

    for start in plan.starts:
        nodes = " ".join(dict.fromkeys(task.node for task in start.allocation))
        add(start.job, "start", at=start.at, nodes=nodes, tasks=len(start.allocation))
    for repair in plan.repairs:
        nodes = " ".join(dict.fromkeys(task.node for task in repair.add))
        add(repair.job, "repair", at=repair.at, nodes=nodes, tasks=len(repair.add))
    for stop in plan.preempts:
        add(stop.job, "preempt", at=stop.at, lost_gpu_seconds=stop.lost_gpu_seconds)
    for resize in plan.resizes:
        change = len(resize.add) - len(resize.remove)
        add(resize.job, "resize", at=resize.at, tasks=change,
            lost_gpu_seconds=resize.lost_gpu_seconds)  # fmt: skip
    for entry in plan.pending:
        add(entry.job, "wait", code=entry.code, sentence=entry.sentence)
    return found


def _jobs(snapshot: Snapshot) -> list[dict[str, Any]]:
    size = sizes(snapshot)
    return [
        {
            "job": job.name,
            "queue": job.queue,
            "user": job.user,
            "priority": job.priority,
            "state": job.state,
            "submit": job.submit,
            "start": job.start,
            "tasks": len(job.allocation) if job.on_nodes else job.tasks,
            "gpus": size.job(job) / size.unit,
            "nodes": " ".join(dict.fromkeys(task.node for task in job.allocation)),
        }
        for job in snapshot.jobs
    ]


def _measures(measures: Measures) -> dict[str, Any]:
    """The figures that are one number each; nested ones as `wait_p95`."""
    flat: dict[str, Any] = {}
    for name, value in asdict(measures).items():
        if name in ("wait_by", "shortfall_gpu_hours"):
            continue
        if isinstance(value, dict):
            flat |= {f"{name}_{key}": figure for key, figure in value.items()}
        elif name != "burst":  # absent without burst nodes
            flat[name] = value
    return flat
