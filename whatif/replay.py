"""replay(): one trace, one cluster, one policy, from the first arrival to the last end."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from trencadis.models import Fault, InvalidInputError, Snapshot
from trencadis.models.base import Record
from trencadis.models.html import heading, table
from trencadis.models.trace import Trace
from trencadis.whatif.advice import advice
from trencadis.whatif.engine import Engine, ReplayOptions, Sample
from trencadis.whatif.log import Logged, decision_of, line_of, read_log
from trencadis.whatif.measures import Measures, measure
from trencadis.whatif.policies.registry import contender
from trencadis.whatif.runs import JobRun
from trencadis.whatif.support import check_replay, with_queues

JOB_COLUMNS = (
    "job",
    "queue",
    "tier",
    "gpus",
    "submit",
    "first_start",
    "end",
    "state",
    "starts",
    "preemptions",
    "failures",
    "useful_gpu_s",
    "lost_gpu_s",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """How to replay; what to replay is trace, cluster and policy."""

    options: ReplayOptions = field(default_factory=ReplayOptions)
    effort: float = 0.5
    """Work of the solver per round, as of `Options.time_limit_s` in deterministic mode."""
    price_per_gpu_hour: float | None = None
    directory: Path | None = None
    """Where rounds, decisions and jobs are written as they come."""
    resume: bool = False
    """Go on where an earlier replay into that directory stopped."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it."""

    measures: Measures
    advice: tuple[str, ...]
    samples: tuple[Sample, ...]
    waits: tuple[int, ...] = ()
    """Seconds from submission to first start of each job that started, ascending."""

    def _repr_html_(self) -> str:
        """For notebooks."""
        m = self.measures
        rows = [
            ("jobs done", f"{m.jobs['done']:,} of {m.jobs['all']:,}"),
            ("allocated", f"{m.allocation:.1%}"),
            ("useful", f"{m.utilization:.1%}"),
            ("fragmentation", f"{m.fragmentation:.1%}"),
            ("mean wait, hours", f"{m.wait.mean / 3_600:,.1f}"),
            ("p95 wait, hours", f"{m.wait.p95 / 3_600:,.1f}"),
            ("jobs preempted", f"{m.preemption_ratio:.1%}"),
            *(("advice", sentence) for sentence in self.advice),
        ]
        return heading(f"Replay under {m.policy}") + table("Measures", ("", ""), rows)


def replay(
    trace: Trace,
    snapshot: Snapshot,
    spec: str,
    setting: Setting | None = None,
    on_sample: Callable[[Sample], None] | None = None,
) -> Replayed:
    """Replays the trace under the policy `spec`, such as `backfill` or `volcano+kill`.

    Of the snapshot, jobs and holds are left out; queues that the trace names are added. Raises
    InvalidInputError where trace or cluster have what a replay can't do.
    """
    setting = setting or Setting()
    ready = contender(spec, trace, snapshot, setting.effort, setting.options.seed)
    cluster = with_queues(ready.trace, snapshot)
    check_replay(ready.trace, cluster)
    options = replace(setting.options, gangs=ready.gangs)
    with ExitStack() as stack:
        files = None
        policy = ready.policy
        if setting.directory is not None:
            key = _key(ready.trace, cluster, spec, options, setting.effort)
            files = _Files(setting.directory, spec, key, setting.resume, stack)
            policy = Logged(policy, files.earlier, files.decisions)
        engine = Engine(ready.trace, cluster, policy, options)

        def sampled(sample: Sample) -> None:
            if files is not None:
                files.sample(sample)
            if on_sample is not None:
                on_sample(sample)

        engine.run(sampled)
        measures = measure(engine, spec, setting.price_per_gpu_hour)
        if files is not None:
            files.finish(engine.runs, measures)
    waits = sorted(r.first_start - r.submit for r in engine.runs if r.first_start is not None)
    return Replayed(measures, tuple(advice(engine, measures)), tuple(engine.samples), tuple(waits))


def _key(trace: Trace, cluster: Snapshot, spec: str, options: ReplayOptions, effort: float) -> str:
    """Tells whether a log belongs to this replay."""
    digest = hashlib.sha256(cluster.fingerprint().encode())
    fields = asdict(options)
    if options.burst is None:
        del fields["burst"]
    text = json.dumps([spec, effort, fields], sort_keys=True, default=_plain)
    digest.update(text.encode())
    for entry in trace.jobs:
        job = entry.job.model_dump_json(exclude_defaults=True)
        digest.update(f"{job} {entry.seconds}".encode())
    return digest.hexdigest()


def _plain(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json")


class _Files:
    """What a replay writes: rounds as CSV, decisions as lines of JSON, at the end jobs as CSV."""

    def __init__(
        self, directory: Path, spec: str, key: str, resume: bool, stack: ExitStack
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._stem = directory / spec
        mark = self._path("key.json")
        log = self._path("decisions.jsonl")
        self.earlier: list[dict[str, Any]] = []
        if resume and log.exists():
            if not mark.exists() or json.loads(mark.read_text())["key"] != key:
                message = f"{log.name} is of another trace, cluster, policy or option"
                raise InvalidInputError([Fault("resume", message)])
            self.earlier = read_log(log)
        mark.write_text(json.dumps({"key": key}) + "\n")
        # Written anew up to where it was whole: a last line may have been cut off.
        self.decisions: IO[str] = stack.enter_context(log.open("w", encoding="utf-8"))
        self.decisions.writelines(line_of(e["t"], decision_of(e)) for e in self.earlier)
        rounds = stack.enter_context(self._path("rounds.csv").open("w", newline=""))
        self._rounds = csv.writer(rounds)
        self._rounds.writerow(Sample.__dataclass_fields__)

    def _path(self, suffix: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{suffix}")

    def sample(self, sample: Sample) -> None:
        """A round."""
        self._rounds.writerow(getattr(sample, name) for name in sample.__dataclass_fields__)

    def finish(self, runs: list[JobRun], measures: Measures) -> None:
        """Jobs and measures."""
        with self._path("jobs.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(JOB_COLUMNS)
            writer.writerows(_row(run) for run in runs)
        text = json.dumps(measures.record(), indent=2)
        self._path("measures.json").write_text(text + "\n")


def _row(run: JobRun) -> list[object]:
    return [
        run.name,
        run.job.queue,
        run.tier,
        run.entry.gpu_milli / 1_000,
        run.submit,
        run.first_start,
        run.end,
        run.state.value,
        run.starts,
        run.preemptions,
        run.failures,
        (run.spent.useful + run.away.useful) / 1e6,
        (run.spent.lost + run.away.lost) / 1e6,
    ]
