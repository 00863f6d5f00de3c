"""What the numbers of a replay suggest, in words: rules, each with its figure."""

from __future__ import annotations

from collections import defaultdict

from trencadis.whatif.engine import Engine
from trencadis.whatif.measures import Measures, size_name

LOW_UTILIZATION = 0.60
PREEMPTION_WATCH, PREEMPTION_ALARM = 0.20, 0.50
FRAGMENTED = 0.15
HEAD_BLOCKS = 0.10
"""Part of the GPU time that is idle while jobs wait, above which order blocks."""
DOMINATES = 0.5


def advice(engine: Engine, measures: Measures) -> list[str]:
    """Sentences, the most important first; empty where nothing stands out."""
    found: list[str] = []
    blocked = _idle_while_waiting(engine)
    if measures.jobs["rejected"]:
        found.append(
            f"{measures.jobs['rejected']} jobs could not run even on the empty cluster: "
            "larger nodes, or smaller jobs."
        )
    if measures.jobs["unfinished"]:
        found.append(f"{measures.jobs['unfinished']} jobs never finished under this policy.")
    if measures.utilization < LOW_UTILIZATION:
        reason = (
            f"{blocked:.0%} of the GPU time was idle while jobs waited: look at the policy first"
            if blocked > HEAD_BLOCKS
            else "few jobs waited meanwhile: the cluster is larger than this load needs"
        )
        found.append(f"Effective utilization is {measures.utilization:.0%}; {reason}.")
    elif blocked > HEAD_BLOCKS:
        found.append(
            f"{blocked:.0%} of the GPU time was idle while jobs waited: jobs at the head of their "
            "queue block others, or what is idle is in pieces."
        )
    if measures.preemption_ratio > PREEMPTION_ALARM:
        found.append(
            f"{measures.preemption_ratio:.0%} of the jobs were preempted: too many share the top "
            "priority, or the cluster is too small for it."
        )
    elif measures.preemption_ratio > PREEMPTION_WATCH:
        found.append(
            f"{measures.preemption_ratio:.0%} of the jobs were preempted, which cost "
            f"{measures.lost_to_preemption_gpu_hours:,.0f} GPU-hours: set a budget."
        )
    if measures.fragmentation > FRAGMENTED:
        found.append(
            f"The expected task could not use {measures.fragmentation:.0%} of the idle GPU time: "
            "keep small jobs together, use MIG or shares, or let gangs shrink."
        )
    found += _large_losses(engine)
    late = sum(
        entry["beyond_grace"] - entry["unavoidable"]
        for entry in measures.shortfall_gpu_hours.values()
    )
    if late > 0.5:
        found.append(
            f"Queues were below their guarantees for {late:,.0f} GPU-hours that idle GPUs or "
            "reclaim could have covered."
        )
    return found


def _idle_while_waiting(engine: Engine) -> float:
    """Part of the GPU time that was idle between rounds after which enough GPU was asked for."""
    idle = capacity = 0
    for sample, after in zip(engine.samples, engine.samples[1:], strict=False):
        span = after.at - sample.at
        capacity += sample.capacity_milli * span
        idle += min(sample.idle_milli, sample.pending_milli) * span
    return idle / capacity if capacity else 0.0


def _large_losses(engine: Engine) -> list[str]:
    """Whether jobs larger than a node make up most of the lost work."""
    node_milli = engine.state.node_milli
    lost: defaultdict[str, int] = defaultdict(int)
    for run in engine.runs:
        lost[size_name(run, node_milli)] += run.spent.rework + run.spent.grace + run.spent.restart
    whole = sum(lost.values())
    if not whole or lost["large"] <= DOMINATES * whole:
        return []
    return [
        f"Jobs larger than a node make up {lost['large'] / whole:.0%} of the work lost to "
        "preemption and failures: ask for smaller shapes, or for checkpoints on the signal."
    ]
