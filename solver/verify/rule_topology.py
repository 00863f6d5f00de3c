"""Whether the tasks of each start are near enough to each other, as a whole and by segment."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Plan
from trencadis.solver.verify.fabric import domain
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.verdict import Violation


def topology(facts: Facts, _: Plan) -> Iterable[Violation]:
    """The required level, and boundaries."""
    situation = facts.situation
    levels = situation.levels
    for entry in facts.starts:
        needed = levels.required(entry.job, situation.waited[entry.job.name])
        if entry.depth < needed:
            yield Violation(
                "topology",
                f"job {entry.job.name} must stay in one {levels.name(needed)}, "
                f"its tasks only share the {levels.name(entry.depth)}",
            )


def segments(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Tasks split into whole segments, each within a domain of its level.

    Tasks are interchangeable, and a segment lies in one domain: such a split exists exactly if
    the number of tasks in each domain is a multiple of the segment's.
    """
    situation = facts.situation
    for entry in facts.starts:
        segments = entry.job.segments
        if segments is None:
            continue
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


RULES = (topology, segments)
