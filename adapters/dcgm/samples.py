"""Samples of dcgm-exporter: per job and GPU (or MIG instance), how busy and how full at most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from trencadis.models import Fault, InvalidInputError

ACTIVITY = ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL")
"""How busy, the most telling first: parts of 1, parts of 1, per cent."""
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
"""MiB of the GPU, or of the instance."""
NEEDED = (*ACTIVITY, USED, FREE)
PERCENT = "DCGM_FI_DEV_GPU_UTIL"

JOB_LABELS = (("exported_namespace", "exported_pod"), ("namespace", "pod"))
"""Of Kubernetes; Prometheus renames labels that its target has too."""
SLURM_LABEL = "hpc_job"

Seen = dict[str, list[tuple[int, float]]]
"""Metric -> (number of the document, value)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """One GPU, or one MIG instance, as one job used it; peaks over all samples."""

    job: str
    """Empty: nobody's."""
    host: str
    uuid: str
    """Of the GPU."""
    model: str
    profile: str
    """Empty for a whole GPU."""
    instance: str
    scrapes: tuple[int, ...]
    """In which documents it was seen, from 0, ascending."""
    activity: float
    """The most that was seen, as a part of the GPU or instance."""
    used_mib: int
    """The most that was seen."""
    memory_mib: int
    """Of the GPU or instance; 0 where unknown."""
    metric: str
    """Which of `ACTIVITY` told."""


def read_samples(documents: Iterable[tuple[str, str]]) -> list[Usage]:
    """Reads (name, text) of any number of scrapes in Prometheus' text format.

    Lines of other metrics, and what is no metric, are passed over. Raises InvalidInputError for
    lines of the needed metrics that can't be read, and where there are none.
    """
    values: defaultdict[tuple[str, ...], Seen] = defaultdict(dict)
    faults: list[Fault] = []
    for scrape, (name, text) in enumerate(documents):
        found = 0
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.startswith(NEEDED):
                continue
            try:
                found += _take(line, scrape, values)
            except ValueError as error:
                faults.append(Fault(f"{name}:{number}", str(error)))
        if not found:
            faults.append(Fault(name, f"no sample of {USED}: is this what dcgm-exporter serves?"))
    if faults:
        raise InvalidInputError(faults)
    return [_usage(key, metrics) for key, metrics in sorted(values.items()) if USED in metrics]


def _take(line: str, scrape: int, values: dict[tuple[str, ...], Seen]) -> int:
    """Keeps what a line says; 1 if it is a sample of used memory."""
    try:
        samples = [s for family in text_string_to_metric_families(line) for s in family.samples]
    except (ValueError, KeyError, IndexError):
        raise ValueError("can't be read as a sample of a metric") from None
    used = 0
    for sample in samples:
        if sample.name not in NEEDED:
            continue
        labels = sample.labels
        if "UUID" not in labels:
            raise ValueError("a GPU's sample without the label UUID")
        value = sample.value
        most = 100 if sample.name == PERCENT else 1 if sample.name in ACTIVITY else 10**9
        if not 0 <= value <= most:  # also what is not a number
            raise ValueError(f"{sample.name} is {value}, beyond 0 to {most:,}")
        key = (
            labels.get("Hostname", ""),
            labels["UUID"],
            labels.get("GPU_I_ID", ""),
            labels.get("GPU_I_PROFILE", ""),
            labels.get("modelName", ""),
            _job(labels),
        )
        values[key].setdefault(sample.name, []).append((scrape, value))
        used += sample.name == USED
    return used


def _job(labels: Mapping[str, str]) -> str:
    if labels.get(SLURM_LABEL):
        return labels[SLURM_LABEL]
    for space, pod in JOB_LABELS:
        if labels.get(pod):
            return f"{labels[space]}/{labels[pod]}" if labels.get(space) else labels[pod]
    return ""


def _usage(key: tuple[str, ...], metrics: Mapping[str, Sequence[tuple[int, float]]]) -> Usage:
    host, uuid, instance, profile, model, job = key
    metric = next((name for name in ACTIVITY if name in metrics), "")
    scale = 100 if metric == PERCENT else 1
    busy = [value / scale for _, value in metrics[metric]] if metric else [1.0]
    used, free = metrics[USED], metrics.get(FREE, ())
    whole = max((u + f for (_, u), (_, f) in zip(used, free, strict=False)), default=0)
    return Usage(
        job=job,
        host=host,
        uuid=uuid,
        model=model,
        profile=profile,
        instance=instance,
        scrapes=tuple(sorted({scrape for scrape, _ in used})),
        activity=max(busy),
        used_mib=round(max(value for _, value in used)),
        memory_mib=round(whole),
        metric=metric,
    )
