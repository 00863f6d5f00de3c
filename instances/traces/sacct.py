"""Slurm's accounting as a trace: `sacct --parsable2` and `sacct --json`.

    sacct --allusers --allocations --parsable2 --format=JobID,User,Account,Partition,QOS,Submit,\\
        Start,End,ElapsedRaw,TimelimitRaw,NNodes,ReqTRES,AllocTRES,State

What `--parsable2` prints as time is the cluster's local time, without an offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import gcd
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trencadis.instances.traces.rows import MAX_SECONDS, Cells, gather, json_of, table
from trencadis.models.base import MAX_COUNT
from trencadis.models.faults import Fault, InvalidInputError, shown
from trencadis.models.jobs import Job, Request
from trencadis.models.trace import Trace, TraceJob

COLUMNS = ("JobID", "Submit", "Start", "End", "ElapsedRaw", "AllocTRES")
GPU_MODEL = re.compile(r"^gres/gpu:([^=]+)$")
UNITS = {"": 1 / 1_048_576, "K": 1 / 1_024, "M": 1, "G": 1_024, "T": 1_048_576, "P": 1 << 30}
UNSET = 4_294_967_294
"""Slurm's NO_VAL; larger still is INFINITE."""


def read_sacct(text: str | bytes, timezone: str = "UTC", name: str = "sacct") -> Trace:
    """Jobs that ran, from `--parsable2`. `timezone` is the cluster's, as `Europe/Berlin`.

    Of an hour that the clocks showed twice, the one counts that agrees with ElapsedRaw. Raises
    InvalidInputError.
    """
    zone = zone_of(timezone)

    def row(cells: Cells, number: int) -> TraceJob | None:  # noqa: ARG001
        ident = cells.text("JobID")
        length = cells.whole("ElapsedRaw", most=MAX_SECONDS, default="0")
        if "." in ident or not length or cells.text("Start") in ("", "None", "Unknown"):
            return None
        tres = dict(_pairs(cells.text("AllocTRES") or cells.text("ReqTRES")))
        limit = cells.text("TimelimitRaw")
        return _job(
            ident,
            submit=_submit(cells, zone, length),
            length=length,
            limit=int(limit) * 60 if limit.isdigit() else None,
            nodes=cells.whole("NNodes", most=100_000, default="1"),
            tres=tres,
            queue=cells.text("Account") or cells.text("Partition"),
            user=cells.text("User"),
        )

    return table(text, COLUMNS, row, name, delimiter="|")


def read_sacct_json(text: str | bytes, name: str = "sacct") -> Trace:
    """Jobs that ran, from `--json`; its times are seconds since 1970. Raises InvalidInputError."""
    content = json_of(text)
    jobs = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(jobs, list):
        raise InvalidInputError([Fault("$.jobs", "this is not what sacct --json prints")])

    def row(_: Cells, number: int) -> TraceJob | None:
        try:
            return _from_json(jobs[number])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a job of sacct --json: {type(error).__name__} {error}") from None

    places: Iterator[tuple[str, dict[str, str]]] = (
        (f"$.jobs[{number}]", {}) for number in range(len(jobs))
    )
    return gather(name, places, row)


def zone_of(name: str) -> ZoneInfo:
    """The time zone. Raises InvalidInputError for an unknown name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        fault = Fault("timezone", f"no time zone {shown(name)}; one is Europe/Berlin")
        raise InvalidInputError([fault]) from None


def _from_json(job: Mapping[str, Any]) -> TraceJob | None:
    time = job["time"]
    length = _number(time["elapsed"])
    start = _number(time["start"])
    if not length or not start:
        return None
    limit = _number(time.get("limit"))
    array = job.get("array") or {}
    ident, task = str(job["job_id"]), _number(array.get("task_id"))
    if _number(array.get("job_id")) and task is not None:
        ident = f"{_number(array['job_id'])}_{task}"
    tres = {}
    for entry in (job.get("tres") or {}).get("allocated") or ():
        kind = f"{entry['type']}/{entry['name']}" if entry.get("name") else entry["type"]
        tres[kind] = f"{entry['count']}M" if kind == "mem" else str(entry["count"])
    return _job(
        ident,
        submit=datetime.fromtimestamp(_number(time["submission"]) or 0, UTC),
        length=length,
        limit=limit * 60 if limit else None,
        nodes=_number(job.get("allocation_nodes")) or 1,
        tres=tres,
        queue=job.get("account") or job.get("partition") or "",
        user=job.get("association", {}).get("user") or job.get("user") or "",
    )


def _number(value: Any) -> int | None:
    """A number, or Slurm's {set, infinite, number}."""
    if isinstance(value, dict):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, int) and 0 <= value < UNSET:
        return value
    return None


def _job(
    ident: str,
    *,
    submit: datetime,
    length: int,
    limit: int | None,
    nodes: int,
    tres: Mapping[str, str],
    queue: str,
    user: str,
) -> TraceJob:
    models = [
        (match.group(1), count) for kind, count in tres.items() if (match := GPU_MODEL.match(kind))
    ]
    gpus = int(tres.get("gres/gpu", "0"))
    gpus = gpus or sum(int(count) for _, count in models)
    nodes = max(1, nodes)
    # Tasks are all alike here; where GPUs don't divide by nodes, fewer per task do.
    tasks = nodes if gpus % nodes == 0 else gpus // gcd(gpus, -(-gpus // nodes))
    job = Job(
        name=ident,
        queue="-".join(queue.split()) or "default",
        user="-".join(user.split()) or "unknown",
        submit=submit,
        tasks=tasks,
        request=Request(
            gpus=gpus // tasks,
            cpu_milli=min(MAX_COUNT, int(tres.get("cpu", "0")) * 1_000 // tasks),
            memory_mib=_mebibytes(tres.get("mem", "0")) // tasks,
        ),
        gpu_models=(models[0][0],) if len(models) == 1 else (),
        runtime_seconds=max(1, limit) if limit else None,
    )
    return TraceJob(job, length)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, text.split(",")):
        kind, equals, count = part.partition("=")
        if not equals:
            raise ValueError(f"{shown(part)} is no TRES")
        yield kind, count


def _mebibytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if match is None:
        raise ValueError(f"{shown(text)} is no amount of memory")
    return min(MAX_COUNT, round(float(match.group(1)) * UNITS[match.group(2)]))


def _submit(cells: Cells, zone: ZoneInfo, length: int) -> datetime:
    """The submission as an instant, before a start that agrees with the end."""
    starts = _instants(cells, "Start", zone)
    ends = _instants(cells, "End", zone, optional=True)
    # Suspended time makes End - Start the longer one, never the shorter.
    agreeing = [s for s in starts if any((e - s).total_seconds() >= length for e in ends)]
    start = (agreeing or starts)[-1]
    submits = _instants(cells, "Submit", zone)
    return max((when for when in submits if when <= start), default=submits[0])


def _instants(
    cells: Cells, column: str, zone: ZoneInfo, *, optional: bool = False
) -> list[datetime]:
    """What a local time can mean, ascending: one instant, two where clocks went back."""
    text = cells.text(column)
    if optional and text in ("", "None", "Unknown"):
        return []
    try:
        local = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{column}: {shown(text)} is no time") from None
    if local.tzinfo is not None:
        return [local.astimezone(UTC)]
    both = {local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    # Of an hour that was left out, neither reading is what the clocks showed.
    shown_by_clocks = {t for t in both if t.astimezone(zone).replace(tzinfo=None) == local}
    return sorted(shown_by_clocks or {min(both)})
