"""The section of docs/results.md about replays, written from the figures of the runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

from replay_lab.cases import ELASTIC, FILES, LOADS, SHARED, TITLES, WINDOWS, Case
from replay_lab.paired import Difference, difference
from replay_lab.ranges import EVERY, LOAD, MOST, Said
from replay_lab.runs import Row
from trencadis.whatif.policies.registry import POLICIES

BEGIN, END = "<!-- replays: written by make results -->", "<!-- end of replays -->"
OURS = "trencadis"
ROUND_S = 300


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of the tables."""

    key: str
    title: str
    scale: float
    digits: int
    more_is_better: bool
    why: str
    """Why a baseline may be ahead: from what each optimises, not from an experiment."""


MEASURES = (
    Measure("p95_h", "p95 wait, h", 1, 1, False,
            "age and GPUs decide who starts, not how long a job runs; `backfill` lets short jobs "
            "in by their estimates, `volcano` stops jobs by submitted priority without a budget"),
    Measure("weighted_h", "weighted mean wait, h", 1, 1, False,
            "nothing in a round's objective prefers jobs that end soon, which lowers every mean; "
            "waiting a day lifts a job by a tier here, so that later it has nobody left to stop"),
    Measure("effective", "effective utilization, %", 100, 1, True,
            "no term of the objective is about later rounds: a start now may leave a "
            "later job less room"),
    Measure("fragmentation", "fragmentation, %", 100, 1, False,
            "F comes last, after all that starts; and F is measured on what is idle, which "
            "a policy that leaves more idle has less of in pieces"),
    Measure("violated_gpu_h", "guarantees violated, GPU-h", 1, 1, False,
            "budgets and the least runtime keep victims, or those of one round are not enough"),
    Measure("preempted", "jobs preempted, %", 100, 1, False,
            "it preempts where tiers and guarantees ask for it; a policy that never does has 0"),
)  # fmt: skip


def inserted(document: str, section: str, begin: str = BEGIN, end: str = END) -> str:
    """The document with the section between its marks, at its end if they are not there."""
    marked = f"{begin}\n{section}{end}\n"
    if begin not in document:
        return f"{document.rstrip()}\n\n{marked}"
    before, _, rest = document.partition(begin)
    return before + marked + rest.partition(end)[2].removeprefix("\n")


def page(rows: dict[Case, Row], said: dict[str, list[Said]]) -> str:
    """The whole section, Markdown."""
    parts = ["## Replays: every policy, window by window\n", _method(rows)]
    for trace in FILES:
        for load in LOADS:
            parts += [f"### {TITLES[trace]}, {load:.0%} load\n", _levels(rows, trace, load)]
            parts.append(_differences(rows, trace, load))
    parts += [_losses(rows), _claims(rows), _ranges(said)]
    return "\n".join(parts)


def _values(rows: dict[Case, Row], trace: str, load: float, policy: str, key: str) -> list[float]:
    return [rows[Case(trace, load, window, policy)][key] for window in range(WINDOWS)]


def _mean(rows: dict[Case, Row], trace: str, load: float, policy: str, key: str) -> float:
    return mean(_values(rows, trace, load, policy, key))


def _method(rows: dict[Case, Row]) -> str:
    left = sum(row["unfinished"] for row in rows.values())
    count = len(LOADS) * len(FILES) * len(MEASURES) * (len(POLICIES) - 1)
    return (
        f"`make results`: {len(rows)} replays, {left} jobs of them unfinished. Each trace is cut "
        f"into {WINDOWS} windows of equally many consecutive jobs, each replayed on an empty "
        "cluster with arrivals spaced for the load; four queues, each guaranteed an eighth of the "
        "GPUs; the policy's defaults. Differences are of the same window under both policies; "
        "± is half a 95 % interval (Student's t, 4 degrees of freedom). They are "
        f"{count} comparisons, not corrected for their number: about one in twenty would leave 0 "
        "out by chance. Five windows of one trace are few, and not independent of each other. The "
        "load is what the jobs of a window ask for within its span of arrivals; long jobs reach "
        "past that, so the cluster is busy for much less of the span than the load says. And "
        "windows begin empty: the queues of weeks that build up in the whole Muri trace don't "
        "occur in them. There `trencadis` has a far longer mean wait than `backfill` and "
        "`volcano` ([replay.md](replay.md)); these tables flatter it.\n\n"
        "Two measures took their present form after first runs had been looked at. Utilization "
        "and fragmentation count from the first to the last submission: over the whole replay one "
        "very long job at the end decided them (`useful` on Philly was 15 to 21 %). Violated "
        "guarantees leave out what no start of a whole job could have covered; before, they "
        "counted GPUs, whatever their places, and `trencadis` had violations in the first Muri "
        "window at 90 % as well (1,034 GPU-hours; `volcano` 779, `backfill` 3,679). "
        "Both favour `trencadis` against most baselines, so the last two columns have the measures "
        "without them: *all shortfall*, and what was useful from the first submission to the last "
        "end.\n"
    )


def _levels(rows: dict[Case, Row], trace: str, load: float) -> str:
    head = [m.title for m in MEASURES] + ["all shortfall, GPU-h", "useful to the last end, %"]
    lines = ["| mean of the windows | " + " | ".join(head) + " |", "| --- " * (len(head) + 1) + "|"]
    for policy in POLICIES:
        cells = [
            f"{_mean(rows, trace, load, policy, m.key) * m.scale:,.{m.digits}f}" for m in MEASURES
        ]
        cells.append(f"{_mean(rows, trace, load, policy, 'short_gpu_h'):,.1f}")
        cells.append(f"{100 * _mean(rows, trace, load, policy, 'useful'):,.1f}")
        lines.append(f"| `{policy}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _paired(rows: dict[Case, Row], trace: str, load: float, other: str, m: Measure) -> Difference:
    ours = _values(rows, trace, load, OURS, m.key)
    theirs = _values(rows, trace, load, other, m.key)
    return difference([v * m.scale for v in ours], [v * m.scale for v in theirs])


def _differences(rows: dict[Case, Row], trace: str, load: float) -> str:
    head = " | ".join(m.title for m in MEASURES)
    lines = [f"| `trencadis` minus | {head} |", "| --- " * (len(MEASURES) + 1) + "|"]
    for other in POLICIES:
        if other == OURS:
            continue
        cells = []
        for m in MEASURES:
            d = _paired(rows, trace, load, other, m)
            text = f"{d.mean:+,.{m.digits}f} ± {d.half:,.{m.digits}f}"
            cells.append(f"**{text}**" if d.sure else text)
        lines.append(f"| `{other}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\nBold: the interval leaves 0 out.\n"


def _lost(rows: dict[Case, Row], m: Measure) -> Iterator[tuple[str, bool]]:
    for trace in FILES:
        for load in LOADS:
            for other in POLICIES:
                d = _paired(rows, trace, load, other, m)
                if other != OURS and d.mean and (d.mean < 0) == m.more_is_better:
                    text = f"`{other}` ({trace} {load:.0%}, {d.mean:+,.2f})"
                    yield (f"**{text}**" if d.sure else text), d.sure


def _losses(rows: dict[Case, Row]) -> str:
    lines = [
        "### Where a baseline is ahead\n",
        "All pairs in which the mean favours the baseline; bold where the interval leaves 0 out. "
        "The reasons follow from what each policy optimises; no experiment here isolates them.\n",
    ]
    for m in MEASURES:
        found = list(_lost(rows, m))
        sure = sum(is_sure for _, is_sure in found)
        listed = ", ".join(text for text, _ in found) or "none"
        why = f": {m.why}" if found else ""
        lines.append(f"- **{m.title}** ({len(found)}, {sure} sure){why}. {listed}.")
    return "\n".join(lines) + "\n"


def _claims(rows: dict[Case, Row]) -> str:
    lines = ["### The article's claims\n"]
    for trace in FILES:
        use = {p: 100 * _mean(rows, trace, LOADS[1], p, "effective") for p in POLICIES}
        lines.append(
            f"- *Priority and preemption lift utilization from 50 % to over 80 %*, {trace} at "
            f"{LOADS[1]:.0%}: fifo {use['fifo']:.1f} %, size-queues {use['size-queues']:.1f} %, "
            f"priority {use['priority']:.1f} %, volcano {use['volcano']:.1f} %, trencadis "
            f"{use[OURS]:.1f} %. "
            + ("Reproduced." if use["fifo"] < 55 and max(use.values()) > 80 else "Not reproduced.")
        )
    load = LOADS[0]
    both = "trencadis+no-elastic+no-mig"
    f = {
        p: 100 * _mean(rows, "mixed", load, p, "fragmentation")
        for p in (OURS, "trencadis+no-elastic", "trencadis+no-mig", both)
    }
    verdict = "Reproduced" if f[both] > 30 and f[OURS] < 15 else "Not reproduced"
    lines.append(
        "- *Mixed sizes fragment over 30 %, MIG and elasticity under 15 %*: Philly's jobs, "
        f"{SHARED:.0%} of those of one GPU made shares and {ELASTIC:.0%} of the larger made "
        f"elastic (drawn by us, shares stand in for MIG): {f[OURS]:.1f} % with both, "
        f"{f['trencadis+no-elastic']:.1f} % without elasticity, {f['trencadis+no-mig']:.1f} % "
        f"without shares, {f[both]:.1f} % with neither. {verdict}: it is below 15 % in all four. "
        "Without shares the same jobs ask for more GPUs, so the four differ in load as well."
        if max(f.values()) < 15
        else f"- *Fragmentation of mixed sizes*: {f}. {verdict}."
    )
    gang = [
        f"{p}: {100 * _mean(rows, 'philly', load, p, 'effective'):.1f} % with gangs, "
        f"{100 * _mean(rows, 'philly', load, f'{p}+no-gang', 'effective'):.1f} % without"
        for p in (OURS, "best-fit")
    ]
    lines.append(
        "- *Gangs give 20 to 30 % more effective time*: "
        + "; ".join(gang)
        + ". Not tested: few jobs of this trace are larger than a node, and where the figures are "
        "equal none of them waited in parts."
    )
    stop = []
    for trace in FILES:
        for policy in ("volcano", OURS):
            each = _values(rows, trace, LOADS[1], policy, "lost_a_stop_s")
            some = [value for value in each if value]
            if some:
                stop.append(f"{trace}, {policy} {mean(some):,.0f} s ({len(some)} windows)")
    ratio = 100 * _mean(rows, "muri", LOADS[1], "volcano", "preempted")
    lines.append(
        "- *A preemption ratio of 20 % costs at most a checkpoint interval* (1,800 s) a stop; "
        "lost work, grace and restart per stop, weighted by GPUs, mean of the windows with stops: "
        + "; ".join(stop)
        + f". The highest ratio here is {ratio:.1f} % (muri, volcano): at 20 % it was not tested."
    )
    return "\n".join(lines) + "\n"


def _ranges(said: dict[str, list[Said]]) -> str:
    lines = [
        "### Predicted starts\n",
        f"`explain` was asked in replays at {LOAD:.0%} load, at every {EVERY}th round with jobs "
        f"that had never started, about up to {MOST} that the plan left waiting; a round "
        f"({ROUND_S} s) of tolerance at both ends. One job may be asked about several times, so "
        "answers are not independent.\n",
        "| trace | answers | about jobs | inside range | before best | jobs before | after worst |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for trace, entries in said.items():
        late = count = 0
        early: list[str] = []
        for s in entries:
            if s.best is None or s.worst is None or s.started is None:
                continue
            count += 1
            if s.started < s.best - ROUND_S:
                early.append(s.job)
            late += s.started > s.worst + ROUND_S
        inside = count - len(early) - late
        shares = (inside, len(early), late)
        part = [f"{100 * n / count:.0f} %" if count else "" for n in shares]
        part.insert(2, str(len(set(early))))
        jobs = len({s.job for s in entries})
        lines.append(f"| {trace} | {count} of {len(entries)} | {jobs} | {' | '.join(part)} |")
    lines.append(
        "\nThe best end supposes estimates, which are exact here, and no preemption; the worst, "
        "that nobody passes who is yet to come. Of the starts before the best, those of Philly's "
        "second window were looked at: jobs that got the places of preempted ones, each asked "
        "about many times. Those after the worst were not looked into."
    )
    return "\n".join(lines) + "\n"


__all__ = ["BEGIN", "END", "inserted", "page"]
