"""One replay, and what is kept of it in a file, so that a stopped run goes on."""

from __future__ import annotations

import csv
import hashlib
import json
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from replay_lab.cases import Case, cluster, jobs
from trencadis.models.base import seconds
from trencadis.models.trace import Trace
from trencadis.whatif.engine import Sample
from trencadis.whatif.replay import Replayed, Setting, replay
from trencadis.whatif.sweep import sweep

Row = dict[str, Any]


def run_all(
    wanted: list[Case], data: Path, cache: Path, processes: int
) -> tuple[dict[Case, Row], dict[Case, str]]:
    """The rows of all cases, and what went wrong where there is none.

    Those that are in the cache aren't replayed again.
    """
    cache.mkdir(parents=True, exist_ok=True)
    code = code_key()
    found: dict[Case, Row] = {}
    missing = []
    for case in wanted:
        row = _kept(cache / f"{case.name}.json", code)
        if row is None:
            missing.append(case)
        else:
            found[case] = row
    failed: dict[Case, str] = {}
    for done in sweep([partial(run, case, data) for case in missing], processes):
        case = missing[done.index]
        if done.result is None:
            failed[case] = f"{type(done.error).__name__}: {done.error}"
            continue
        found[case] = done.result
        text = json.dumps({"code": code, "row": done.result}, indent=1)
        (cache / f"{case.name}.json").write_text(text + "\n")
        print(f"{len(found)} of {len(wanted)}: {case.name}", flush=True)
    return {case: found[case] for case in wanted if case in found}, failed


def code_key() -> str:
    """Of all that decides a replay's result: the package's code and this folder's."""
    import trencadis  # noqa: PLC0415

    digest = hashlib.sha256()
    root = Path(trencadis.__file__).parent
    rooms = ("models", "solver", "instances", "whatif")
    files = [file for room in rooms for file in (root / room).rglob("*.py")]
    # Pages that show a replay, and this lab's pages, change nothing in it.
    skip = {"report", "capacity"}
    for file in sorted(f for f in files if not skip & set(f.relative_to(root).parts)):
        digest.update(file.read_bytes())
    for name in ("cases.py", "runs.py"):
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()


def _kept(path: Path, code: str) -> Row | None:
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text())
    except ValueError:  # cut off while it was written
        return None
    return record["row"] if record["code"] == code else None


def run(case: Case, data: Path) -> Row:
    """The figures of one replay."""
    place = cluster(case.trace, case.rules)
    trace = jobs(case, place, data)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        done = replay(trace, place, case.policy, Setting(directory=directory))
        with (directory / f"{case.policy}.jobs.csv").open(newline="") as stream:
            ended = list(csv.DictReader(stream))
    m = done.measures
    violated = sum(max(0.0, q["beyond_grace"] - q["unavoidable"]) for q in _short(m))
    stopped = [job for job in ended if int(job["preemptions"])]
    stops = sum(float(job["gpus"]) * int(job["preemptions"]) for job in stopped)
    return {
        "jobs": len(trace.jobs),
        "unfinished": m.jobs["unfinished"] + m.jobs["lost"] + m.jobs["rejected"],
        "p95_h": m.wait.p95 / 3_600,
        "weighted_h": m.wait.weighted_mean / 3_600,
        "mean_h": m.wait.mean / 3_600,
        "small_h": m.wait_by["size"].get("small", m.wait).mean / 3_600,
        "large_h": m.wait_by["size"].get("large", m.wait).mean / 3_600,
        "useful": m.utilization,
        "idle_while_arriving": while_arriving(done.samples, trace)[0],
        "effective": effective(done, trace),
        "fragmentation": while_arriving(done.samples, trace)[1],
        "makespan_h": m.makespan_seconds / 3_600,
        "violated_gpu_h": violated,
        "short_gpu_h": sum(q["total"] for q in _short(m)),
        "preempted": m.preemption_ratio,
        "preemptions": m.preemptions,
        "lost_to_stops": m.lost_to_preemption_gpu_hours / m.gpu_hours.capacity,
        "lost_a_stop_s": 3_600 * m.lost_to_preemption_gpu_hours / stops if stops else 0.0,
        "gang_wait": m.gpu_hours.gang_wait / m.gpu_hours.capacity,
    }


def while_arriving(samples: Sequence[Sample], trace: Trace) -> tuple[float, float]:
    """Idle part of the GPU time, and F's part of that, from the first to the last submission.

    What comes after is how the longest job ends, on a cluster that empties: no policy's doing.
    """
    last = seconds(trace.jobs[-1].job.submit)
    idle = lost = capacity = 0
    for sample, after in pairwise(samples):
        span = max(0, min(after.at, last) - sample.at)
        capacity += sample.capacity_milli * span
        idle += sample.idle_milli * span
        lost += sample.fragments_milli * span
    return (idle / capacity if capacity else 0.0), (lost / idle if idle else 0.0)


def effective(done: Replayed, trace: Trace) -> float:
    """Useful part of the GPU time while jobs arrive.

    What is not idle then, less the part of it that was lost or held; the losses are those of the
    whole replay, as they are known by job, not by time.
    """
    hours = done.measures.gpu_hours
    busy = 1 - while_arriving(done.samples, trace)[0]
    return busy * hours.useful / (hours.allocated + hours.held)


def _short(measures: Any) -> list[dict[str, float]]:
    return list(measures.shortfall_gpu_hours.values())
