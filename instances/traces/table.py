"""The project's own form of a trace: a CSV with a header, a job per row.

| column | meaning |
| --- | --- |
| `submit` | RFC 3339 with an offset, or seconds after the trace's first instant |
| `seconds` | what the job ran |
| `gpus` | GPUs of one task |
| `name`, `queue`, `user`, `priority`, `qos`, `group` | as in a snapshot; `job-N`, `default` |
| `tasks`, `min_tasks`, `max_tasks_per_node` | 1 task where absent; `min_tasks` makes it elastic |
| `gpu_milli` | a share of one GPU, with `gpus` 0 |
| `cpu_milli`, `memory_mib` | of one task |
| `gpu_models` | allowed models, joined by `\\|` |
| `estimate_seconds` | what was asked for; `seconds` where absent, `?` where unknown |
| `checkpoint_seconds`, `on_signal`, `grace_seconds`, `preemptible` | how it can be stopped |
| `level` | required level of the fabric |
| `tokens_per_second` | what it makes |
"""

from __future__ import annotations

from datetime import datetime

from trencadis.instances.traces.rows import MAX_SECONDS, Cells, instant, table
from trencadis.models.faults import shown
from trencadis.models.jobs import Checkpoint, Job, Request, Share, Topology
from trencadis.models.trace import Trace, TraceJob

COLUMNS = ("submit", "seconds", "gpus")
WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def read_table(text: str | bytes, name: str = "table") -> Trace:
    """Raises InvalidInputError with a fault per wrong row."""
    return table(text, COLUMNS, _row, name)


def _row(cells: Cells, number: int) -> TraceJob:
    length = cells.whole("seconds", least=1, most=MAX_SECONDS)
    milli = cells.whole("gpu_milli", most=1_000, default="0")
    gpus = cells.whole("gpus", most=1_024)
    if milli and gpus:
        raise ValueError("gpu_milli is a share of one GPU: give gpus as 0")
    estimate = cells.text("estimate_seconds")
    level = cells.text("level")
    interval = _optional(cells, "checkpoint_seconds")
    on_signal = _truth(cells, "on_signal", default=False)
    job = Job(
        name=cells.text("name") or f"job-{number}",
        queue=cells.text("queue") or "default",
        user=cells.text("user") or "unknown",
        qos=cells.text("qos") or None,
        group=cells.text("group") or None,
        priority=cells.text("priority") or None,
        submit=_submit(cells),
        tasks=cells.whole("tasks", least=1, most=100_000, default="1"),
        min_tasks=_optional(cells, "min_tasks"),
        max_tasks_per_node=_optional(cells, "max_tasks_per_node"),
        request=Request(
            gpus=gpus,
            share=Share(gpu_milli=milli) if milli else None,
            cpu_milli=cells.whole("cpu_milli", default="0"),
            memory_mib=cells.whole("memory_mib", default="0"),
        ),
        gpu_models=tuple(filter(None, cells.text("gpu_models").split("|"))),
        runtime_seconds=None if estimate == "?" else int(estimate or length),
        topology=Topology(level=level, mode="required") if level else None,
        checkpoint=(
            Checkpoint(interval_seconds=interval, on_signal=on_signal)
            if interval or on_signal
            else None
        ),
        grace_seconds=_optional(cells, "grace_seconds", least=0),
        preemptible=_truth(cells, "preemptible", default=True),
    )
    if job.minimum > job.tasks:
        raise ValueError(f"min_tasks: {job.minimum} is more than the {job.tasks} tasks")
    return TraceJob(job, length, _optional(cells, "tokens_per_second"))


def _optional(cells: Cells, column: str, least: int = 1) -> int | None:
    return cells.whole(column, least=least) if cells.text(column) else None


def _truth(cells: Cells, column: str, *, default: bool) -> bool:
    text = cells.text(column).lower()
    if not text:
        return default
    if text not in WORDS:
        raise ValueError(f"{column}: {shown(text)} is not true or false")
    return WORDS[text]


def _submit(cells: Cells) -> datetime:
    text = cells.text("submit")
    try:
        return instant(cells.number("submit", most=MAX_SECONDS))
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            when = datetime.min
    if when.tzinfo is None:
        raise ValueError(
            f"submit: {shown(text)} is no number of seconds, and no RFC 3339 time with an offset"
        )
    return when
