"""Whether the tasks of one job are near enough to each other, as a whole and by segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trencadis.solver.verify.fabric import domain
from trencadis.solver.verify.situation import Placed, Situation
from trencadis.solver.verify.verdict import Violation


def too_far(situation: Situation, entry: Placed) -> Iterable[Violation]:
    """Against the required level, and boundaries."""
    levels = situation.levels
    needed = levels.required(entry.job, situation.waited[entry.job.name])
    if entry.depth < needed:
        yield Violation(
            "topology",
            f"job {entry.job.name} must stay in one {levels.name(needed)}, "
            f"its tasks only share the {levels.name(entry.depth)}",
        )


def split(situation: Situation, entry: Placed) -> Iterable[Violation]:
    """Against whole segments, each within a domain of its level.

    Tasks are interchangeable, and a segment lies in one domain: such a split exists exactly if
    the number of tasks in each domain is a multiple of the segment's.
    """
    segments = entry.job.segments
    if segments is None:
        return
    depth = situation.levels.depth(segments.level)
    inside: dict[tuple[str, ...], int] = {}
    for task in entry.tasks:
        key = domain(situation.levels, situation.states[task.node].node, depth)
        inside[key] = inside.get(key, 0) + 1
    for key, count in inside.items():
        if count % segments.tasks:
            yield Violation(
                "segments",
                f"job {entry.job.name}: {count} tasks in {segments.level} {'/'.join(key)} "
                f"are no whole segments of {segments.tasks}",
            )


def crowded(situation: Situation, entry: Placed) -> Iterable[Violation]:
    """Against the most tasks in one domain."""
    cap = entry.job.max_tasks_per_domain
    if cap is None:
        return
    depth = situation.levels.depth(cap.level)
    inside = Counter(
        domain(situation.levels, situation.states[task.node].node, depth) for task in entry.tasks
    )
    for key, count in inside.items():
        if count > cap.tasks:
            yield Violation(
                "topology",
                f"job {entry.job.name} has {count} tasks in {cap.level} {'/'.join(key)}, "
                f"at most {cap.tasks} may be there",
            )


RULES = (too_far, split, crowded)
