"""Whether the tasks of each start are near enough to each other, as a whole and by segment, and
far enough apart."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Plan
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.nearness import crowded, split, too_far
from trencadis.solver.verify.verdict import Violation


def topology(facts: Facts, _: Plan) -> Iterable[Violation]:
    """The required level, and boundaries."""
    for entry in facts.starts:
        yield from too_far(facts.situation, entry)


def segments(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Tasks split into whole segments, each within a domain of its level."""
    for entry in facts.starts:
        yield from split(facts.situation, entry)


def apart(facts: Facts, _: Plan) -> Iterable[Violation]:
    """No domain has more tasks of a job than it may."""
    for entry in facts.starts:
        yield from crowded(facts.situation, entry)


RULES = (topology, segments, apart)
