"""Philly's jobs by virtual cluster in Gavel's form (Narayanan et al., OSDI 2020): tabs, no header.

A row holds job type, command, two columns about its arguments, steps, arrival in seconds, GPUs.
The duration is steps by the throughput of that type on so many GPUs, from a table beside it.
"""

from __future__ import annotations

from trencadis.instances.traces.rows import MAX_SECONDS, Cells, gather, instant, json_of
from trencadis.models.faults import Fault, InvalidInputError, shown
from trencadis.models.jobs import Job, Request
from trencadis.models.load import decode
from trencadis.models.trace import Trace, TraceJob

FIELDS = ("type", "command", "argument", "data", "steps", "arrival", "gpus")


def read_philly(
    text: str | bytes,
    throughputs: str | bytes,
    name: str = "philly",
    *,
    gpu: str = "v100",
) -> Trace:
    """Jobs on GPUs of one model. Rows without a known throughput are left out, and counted."""
    rates = _rates(throughputs, gpu)

    def row(cells: Cells, number: int) -> TraceJob | None:
        gpus = cells.whole("gpus", least=1, most=1_024)
        rate = rates.get((cells.text("type"), gpus))
        if not rate:
            return None
        length = max(1, round(cells.number("steps", most=1e15) / rate))
        if length > MAX_SECONDS:
            raise ValueError(f"steps: at {rate:g} a second they take over a century")
        job = Job(
            name=f"job-{number}",
            queue="default",
            submit=instant(cells.number("arrival", most=MAX_SECONDS)),
            request=Request(gpus=gpus),
            runtime_seconds=length,
        )
        return TraceJob(job, length)

    lines = decode(text).splitlines()
    return gather(
        name,
        (
            (f"line {number}", dict(zip(FIELDS, line.split("\t"), strict=False)))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ),
        row,
    )


def _rates(text: str | bytes, gpu: str) -> dict[tuple[str, int], float]:
    """Steps a second by type and number of GPUs, alone on them."""
    content = json_of(text)
    if not isinstance(content, dict) or not isinstance(content.get(gpu), dict):
        raise InvalidInputError([Fault("$", f"no throughputs of GPU model {shown(gpu)}")])
    rates: dict[tuple[str, int], float] = {}
    for key, values in content[gpu].items():
        kind, _, count = key.strip("()").rpartition(",")
        alone = values.get("null") if isinstance(values, dict) else None
        if count.strip().isdigit() and isinstance(alone, int | float):
            rates[kind.strip("'\""), int(count)] = float(alone)
    return rates
