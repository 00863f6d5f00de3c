"""The last round in Prometheus's text form, for the textfile collector of node_exporter."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from pathlib import Path

from trencadis.adapters.live.context import Context
from trencadis.models import Plan, Snapshot
from trencadis.solver.capacity import capacity

Labels = dict[str, str]


def write_metrics(
    path: Path, context: Context, plan: Plan, snapshot: Snapshot, seconds: float
) -> None:
    """Replaces the file whole, so that no collector reads half of one."""
    text = render(context, plan, snapshot, seconds)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def render(context: Context, plan: Plan, snapshot: Snapshot, seconds: float) -> str:
    """The text."""
    out = _Text()
    out.gauge("round_seconds", "Wall time of the last round.", [({}, round(seconds, 6))])
    out.gauge("round_timestamp_seconds", "When it was decided.", [({}, plan.now.timestamp())])
    out.gauge("gap_ratio", "Largest gap of the deciding stages.", [({}, plan.proof.gap)])
    stages = [({"stage": stage.name}, stage.gap) for stage in plan.proof.stages]
    out.gauge("stage_gap_ratio", "Gap by stage.", stages)
    out.gauge(
        "guarantee_shortfall_gpus",
        "GPUs that queues lack of their guarantees, after the plan.",
        [
            (
                {"level": "parents" if stage.name.endswith("parents") else "queues"},
                stage.objective / 1_000,
            )
            for stage in plan.proof.stages
            if stage.name.startswith("guarantee")
        ],
    )
    metrics = plan.metrics
    out.gauge(
        "fragmentation_ratio",
        "Part of the idle GPUs that tasks can't use, after the plan.",
        [({"level": "node"}, metrics.fragmentation_after_milli / 1_000)],
    )
    out.gauge(
        "idle_domain_ratio",
        "Largest block of idle GPUs in one domain, part of all idle ones, before the plan.",
        [({"level": level}, ratio) for level, ratio in blocks(snapshot).items()],
    )
    out.gauge("gpus", "Healthy GPUs.", [({}, metrics.gpus)])
    out.gauge("gpus_used", "Of those, after the plan.", [({}, metrics.used_after)])
    reasons = Counter(entry.code for entry in plan.pending)
    out.gauge(
        "pending_jobs",
        "Jobs that wait, by reason.",
        [({"reason": code}, number) for code, number in sorted(reasons.items())],
    )
    kinds = ("started", "preempted", "rolled-back", "refused", "given-back")
    marks = ", ".join("?" for _ in kinds)
    totals = dict(
        context.store.rows(
            f"SELECT kind, COUNT(*) FROM events WHERE kind IN ({marks}) GROUP BY kind", *kinds
        )
    )
    out.counter(
        "events_total",
        "What happened to jobs, since the log began.",
        [({"kind": kind}, int(totals.get(kind, 0))) for kind in kinds],
    )
    use, budget = snapshot.budget_use, snapshot.policy.preemption.budget
    out.gauge(
        "budget_used",
        "Use of the preemption budgets in their windows.",
        [
            ({"budget": "gpus_per_hour"}, use.preempted_gpus_last_hour),
            ({"budget": "jobs_per_day"}, use.preempted_jobs_last_day),
            ({"budget": "lost_gpu_seconds_per_day"}, use.lost_gpu_seconds_last_day),
            ({"budget": "moves_per_hour"}, use.moves_last_hour),
        ],
    )
    out.gauge(
        "budget_gpus_per_hour",
        "GPUs that may be preempted in an hour.",
        [({}, metrics.gpus * budget.gpus_per_hour_milli / 1_000)],
    )
    return out.text()


def blocks(snapshot: Snapshot) -> dict[str, float]:
    """By level, widest first and `node` last: the largest domain's idle GPUs, part of all idle."""
    states = capacity(snapshot).states
    total = sum(state.idle_count for state in states)
    found: dict[str, float] = {}
    names = [level.name for level in snapshot.fabric.levels]
    for depth, name in enumerate([*names, "node"], start=1):
        by_domain: Counter[tuple[str, ...]] = Counter()
        for state in states:
            key = (state.name,) if depth > len(names) else tuple(state.node.fabric[:depth])
            by_domain[key] += state.idle_count
        found[name] = max(by_domain.values(), default=0) / total if total else 1.0
    return found


class _Text:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, samples: list[tuple[Labels, float]]) -> None:
        self._family(name, "gauge", text, samples)

    def counter(self, name: str, text: str, samples: list[tuple[Labels, float]]) -> None:
        self._family(name, "counter", text, samples)

    def _family(self, name: str, kind: str, text: str, samples: list[tuple[Labels, float]]) -> None:
        full = f"trencadis_{name}"
        self._lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
        for labels, value in samples:
            inside = ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items())
            braces = f"{{{inside}}}" if inside else ""
            self._lines.append(f"{full}{braces} {value:.10g}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
