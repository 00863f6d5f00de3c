"""Muri's traces (Zhao et al., SIGCOMM 2022): submit time and duration in ms, GPUs, a priority."""

from __future__ import annotations

from trencadis.instances.traces.rows import MAX_SECONDS, Cells, instant, table
from trencadis.models.jobs import Job, Request
from trencadis.models.trace import Trace, TraceJob

COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")


def read_muri(text: str | bytes, name: str = "muri") -> Trace:
    """Jobs whose duration doubles as their estimate; priority 1 is tier `high`, 0 `normal`."""

    def row(cells: Cells, number: int) -> TraceJob | None:  # noqa: ARG001
        gpus = cells.whole("num_gpu", most=1_024)
        length = round(cells.number("duration", most=MAX_SECONDS * 1_000) / 1_000)
        if not gpus:
            return None
        length = max(1, length)
        job = Job(
            name=f"job-{cells.text('job_id')}",
            queue="default",
            priority="high" if cells.text("priority") == "1" else "normal",
            submit=instant(cells.number("submit_time", most=MAX_SECONDS * 1_000) / 1_000),
            request=Request(gpus=gpus),
            runtime_seconds=length,
        )
        return TraceJob(job, length)

    return table(text, COLUMNS, row, name)
