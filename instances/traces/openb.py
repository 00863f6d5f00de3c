"""Alibaba's GPU trace of 2023 as a trace in time: pods, when made, when deleted."""

from __future__ import annotations

from pathlib import Path

from trencadis.instances.openb import TIER_OF_QOS
from trencadis.instances.openb_csv import read_pods
from trencadis.instances.traces.rows import instant
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.jobs import Job, Request, Share
from trencadis.models.trace import Trace, TraceJob, in_order


def read_openb_trace(path: Path, name: str = "openb") -> Trace:
    """Pods that were scheduled and deleted; the others never ran, and are counted."""
    faults: list[Fault] = []
    pods = read_pods(path, faults)
    if faults:
        raise InvalidInputError(faults)
    jobs = []
    for pod in pods:
        if pod.created is None or pod.runtime is None:
            continue
        job = Job(
            name=pod.name,
            queue="default",
            priority=TIER_OF_QOS.get(pod.qos),
            submit=instant(pod.created),
            request=Request(
                gpus=0 if pod.share else pod.gpus,
                share=Share(gpu_milli=pod.share) if pod.share else None,
                cpu_milli=pod.cpu_milli,
                memory_mib=pod.memory_mib,
            ),
            gpu_models=pod.models if pod.gpus else (),
            runtime_seconds=max(1, pod.runtime),
        )
        jobs.append(TraceJob(job, max(1, pod.runtime)))
    if not jobs:
        raise InvalidInputError([Fault("$", "no pod of the table has all its times")])
    left = len(pods) - len(jobs)
    warnings = (f"{left} rows left out: they never ran or used nothing",) if left else ()
    return Trace(name, in_order(jobs), warnings)
