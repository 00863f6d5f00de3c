"""The article's claims: each tried, with its figures and whether they bear it out."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

from replay_lab.cases import (
    ELASTIC,
    FILES,
    GANGS,
    LOADS,
    MADE_LOAD,
    MIXED,
    PLAIN,
    SHARED,
    Case,
)
from replay_lab.figures import OURS, mean_of, values
from replay_lab.runs import Row
from replay_lab.slices import ASKED, VARIANTS, Left

CHECKPOINT_S = 1_800
NEITHER = "+no-elastic+no-mig"


def claims(rows: dict[Case, Row], rounds: list[Left]) -> str:
    """The part of the page, Markdown."""
    lines = [
        "### The article's claims\n",
        *_preemption(rows),
        _fragments(rows),
        _slices(rounds),
        _gangs(rows),
        _stops(rows),
    ]
    return "\n".join(lines) + "\n"


def _preemption(rows: dict[Case, Row]) -> list[str]:
    lines = []
    for trace in FILES:
        use = {
            p: 100 * mean_of(rows, trace, LOADS[1], p, "effective")
            for p in ("fifo", "size-queues", "priority", "volcano", OURS)
        }
        told = ", ".join(f"{policy} {value:.1f} %" for policy, value in use.items())
        borne = use["fifo"] < 55 and max(use.values()) > 80
        lines.append(
            f"- *Priority and preemption lift utilization from 50 % to over 80 %*, {trace} at "
            f"{LOADS[1]:.0%}: {told}. "
            + ("Reproduced." if borne else "Refuted here: it is a few points, from another level.")
        )
    return lines


def _fragments(rows: dict[Case, Row]) -> str:
    parts = []
    worst: list[float] = []
    best: list[float] = []
    for trace in ("mixed", "mixed-muri"):
        load = MADE_LOAD[trace]
        of: Callable[[str], float] = lambda policy, trace=trace, load=load: (  # noqa: E731
            100 * mean_of(rows, trace, load, policy, "fragmentation")
        )
        plain = ", ".join(f"{of(policy + NEITHER):.1f} % under {policy}" for policy in PLAIN)
        both, no_elastic, no_mig, neither = (of(policy) for policy in MIXED)
        worst += [neither, *(of(policy + NEITHER) for policy in PLAIN)]
        best.append(both)
        parts.append(
            f"{'Philly' if trace == 'mixed' else 'Muri'} at {load:.0%}: with neither {plain}, "
            f"{neither:.1f} % under {OURS}; there {no_elastic:.1f} % without elasticity, "
            f"{no_mig:.1f} % without shares, {both:.1f} % with both"
        )
    short = [
        mean_of(rows, "mixed-muri", MADE_LOAD["mixed-muri"], policy, "violated_gpu_h")
        for policy in (OURS, OURS + NEITHER)
    ]
    borne = min(worst) > 30 and max(best) < 15
    return (
        "- *Mixed sizes fragment over 30 %, MIG and elasticity under 15 %*, in replays: "
        f"{SHARED:.0%} of the jobs of one GPU made shares and {ELASTIC:.0%} of the larger made "
        f"elastic (drawn by us, shares stand in for MIG). {'; '.join(parts)}. "
        + (
            "Reproduced."
            if borne
            else f"Refuted here: with neither it is {min(worst):.1f} to {max(worst):.1f} %."
        )
        + " F counts what is idle; without shares the same jobs ask for more GPUs, so that loads "
        f"differ as well. Guarantees were violated in Muri's windows by {short[0]:.1f} GPU-h with "
        f"both and {short[1]:.1f} with neither: where jobs share GPUs, {OURS} makes room by "
        "preemption only on nodes that are not shared, and in these replays all are."
    )


def _slices(rounds: list[Left]) -> str:
    told = []
    for trace in FILES:
        figures = []
        for variant in VARIANTS:
            found = [left for left in rounds if (left.trace, left.variant) == (trace, variant)]
            wasted = mean((left.stranded + left.unneeded) / left.gpus for left in found)
            started = mean(left.started / left.jobs for left in found)
            figures.append(f"{variant} {wasted:.1%}, {started:.0%} of the jobs start")
        told.append(f"{trace}: {'; '.join(figures)}")
    return (
        "- The same with real MIG layouts, which replays don't place: one round on an empty "
        f"cluster for a window's first jobs, which ask for {ASKED:.0%} of it; {SHARED:.0%} of "
        "those of one GPU would do with 1, 2 or 3 sevenths of it. GPUs that nobody can use (F), "
        "and what small jobs have of whole GPUs without need, of all GPUs: "
        + ". ".join(told)
        + ". The direction is the article's; how much it is follows from how many jobs are small, "
        "and that was drawn by us."
    )


def _gangs(rows: dict[Case, Row]) -> str:
    load = MADE_LOAD["gangs"]
    told, gains = [], []
    for policy in GANGS:
        loose = f"{policy}+no-gang"
        stuck = values(rows, "gangs", load, loose, "unfinished")
        whole, apart, waits = (
            mean(value for value, left in zip(each, stuck, strict=True) if not left)
            for each in (
                values(rows, "gangs", load, policy, "effective"),
                values(rows, "gangs", load, loose, "effective"),
                values(rows, "gangs", load, loose, "gang_wait"),
            )
        )
        gains.append(whole / apart - 1)
        halted = sum(left > 0 for left in stuck)
        told.append(
            f"{policy} {whole:.1%} with gangs, {apart:.1%} without ({gains[-1]:+.0%}; "
            f"{waits:.1%} of all GPU time went into waits for the others"
            + (
                f"; without the {halted} of {len(stuck)} windows that came to a standstill without "
                f"gangs, {sum(stuck)} jobs never done, as gangs held and gave back GPUs in turn)"
                if halted
                else ")"
            )
        )
    borne = sum(gain >= 0.2 for gain in gains)
    verdict = "Refuted here" if not borne else f"Reproduced under {borne} of {len(gains)} policies"
    if borne == len(gains):
        verdict = "Reproduced"
    philly = "; ".join(
        f"{policy} {mean_of(rows, 'philly', LOADS[0], policy, 'effective'):.1%} and "
        f"{mean_of(rows, 'philly', LOADS[0], f'{policy}+no-gang', 'effective'):.1%}"
        for policy in (OURS, "best-fit")
    )
    return (
        "- *Gangs give 20 to 30 % more effective time*: Muri's jobs as gangs of tasks of one GPU, "
        f"at {load:.0%}; without gangs each task is placed by itself, holds its GPU up to an hour "
        f"and waits for the others: {'; '.join(told)}. {verdict}. Philly's jobs at "
        f"{LOADS[0]:.0%}, of which few are larger than a node, as tasks of a node: {philly}."
    )


def _stops(rows: dict[Case, Row]) -> str:
    stop, dearest = [], 0.0
    for trace in FILES:
        for policy in ("volcano", OURS):
            each = values(rows, trace, LOADS[1], policy, "lost_a_stop_s")
            some = [value for value in each if value]
            if some:
                dearest = max(dearest, mean(some))
                stop.append(f"{trace}, {policy} {mean(some):,.0f} s ({len(some)} windows)")
    usual = [case for case in rows if "kill" not in case.policy and "gang" not in case.policy]
    most = max(usual, key=lambda case: rows[case]["preempted"])
    ratio, lost = rows[most]["preempted"], rows[most]["lost_a_stop_s"]
    return (
        "- *A preemption ratio of 20 % costs at most a checkpoint interval* "
        f"({CHECKPOINT_S:,} s) a stop; "
        "lost work, grace and restart per stop, weighted by GPUs, mean of the windows with stops: "
        + "; ".join(stop)
        + (". Reproduced for the cost" if dearest <= CHECKPOINT_S else ". Not in all cases")
        + f". The highest ratio of a single replay here is {ratio:.1%} ({most.trace} at "
        f"{most.load:.0%}, window {most.window + 1}, {most.policy}), with {lost:,.0f} s a stop"
        + ("." if ratio >= 0.18 else ": 20 % was not met.")
    )
