"""Alibaba's GPU trace of 2023 as a trace in time: pods, when made, when deleted."""

from __future__ import annotations

from pathlib import Path

from trencadis.instances.openb import TIER_OF_QOS, request_of
from trencadis.instances.openb_csv import read_pods
from trencadis.instances.traces.rows import finished, instant
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.jobs import Job
from trencadis.models.trace import Trace, TraceJob


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
            request=request_of(pod),
            gpu_models=pod.models if pod.gpus else (),
            runtime_seconds=max(1, pod.runtime),
        )
        jobs.append(TraceJob(job, max(1, pod.runtime)))
    if not jobs:
        raise InvalidInputError([Fault("$", "no pod of the table has all its times")])
    return finished(name, jobs, len(pods) - len(jobs))
