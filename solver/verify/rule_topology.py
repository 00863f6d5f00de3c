"""Whether the tasks of each start are near enough to each other, as a whole and by segment."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Plan
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.nearness import split, too_far
from trencadis.solver.verify.verdict import Violation


def topology(facts: Facts, _: Plan) -> Iterable[Violation]:
    """The required level, and boundaries."""
    for entry in facts.starts:
        yield from too_far(facts.situation, entry)


def segments(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Tasks split into whole segments, each within a domain of its level."""
    for entry in facts.starts:
        yield from split(facts.situation, entry)


RULES = (topology, segments)
