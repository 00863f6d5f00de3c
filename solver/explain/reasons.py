"""The reason that keeps a job waiting: one for each job, the first that holds.

What forbids a start wherever there may be room comes before what room there is, and what passes by
itself (draining, reservations) before what does not. "Never" and "not now" rest on the job alone
on the emptied cluster and on the present state, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trencadis.models import Job, Pending
from trencadis.models.explanation import Reason
from trencadis.solver.explain.conflicts import Work, never
from trencadis.solver.explain.eligible import not_eligible
from trencadis.solver.explain.limits import heads, limited, order_or_lending
from trencadis.solver.explain.said import Said, names, some
from trencadis.solver.explain.scene import Scene
from trencadis.solver.explain.sliced import in_pieces, never_in_pieces
from trencadis.solver.explain.space import no_room, would_delay
from trencadis.solver.shapes import Alternative

PLAN_WORK = 60_000
"""Nodes that a round may look at in search of conflicts: about a second."""


@dataclass(slots=True)
class Reasons:
    """Finds reasons; jobs that are alike in all that decides share one."""

    scene: Scene
    work: Work = field(default_factory=Work)
    """What may be spent on conflicts."""
    _known: dict[object, Said] = field(default_factory=dict)
    _competes: dict[object, bool] = field(default_factory=dict)
    _never: dict[object, tuple[Said, tuple[str, ...]]] = field(default_factory=dict)

    def of(self, job: Job) -> Said:
        """The reason of a pending job that does not start."""
        facts = self.scene.facts
        if job.name not in facts.values.eligible:
            return not_eligible(self.scene, job)
        strict = facts.values.tree.queues[job.queue].order == "strict_fifo"
        key = self.key(job)
        if key not in self._known or strict:
            self._known[key] = self._found(job)
        return self._known[key]

    def key(self, job: Job) -> object:
        """Eligible jobs with equal keys wait for the same reason, in queues without an order."""
        facts = self.scene.facts
        worth = facts.values.worth[job.name]
        weight = (worth.tier, worth.wait) if self.scene.weighted else ()
        place = facts.maker.place_key(job)
        bars = self.scene.kept.bars(job)
        delays = (bars, job.runtime_seconds) if bars else ()
        return (place, facts.books.charges[job.name], job.queue, job.group, weight, delays)

    def conflict(self, job: Job) -> tuple[str, ...]:
        """The conflicting demands of a job that no empty nodes suit; else none."""
        read = self.scene.facts
        if job.name not in read.values.eligible or read.can_run[job.name] or in_pieces(job):
            return ()
        return self._no_nodes(job)[1]

    def ways(self, job: Job) -> list[Alternative]:
        """The ways of an eligible job that limits, order and lending allow."""
        return [
            alternative
            for alternative in self.scene.shape(job).alternatives
            if self.scene.ledger.may_start([(job, alternative.way.need.model)])
        ]

    def competes(self, job: Job) -> bool:
        """Whether room is all that an eligible job lacks, or a job of its queue that goes first."""
        key = self.key(job)
        if key not in self._competes:
            self._competes[key] = (
                not in_pieces(job)
                and bool(self.scene.facts.can_run[job.name])
                and limited(self.scene, job) is None
                and bool(self.ways(job) or heads(self.scene, job))
            )
        return self._competes[key]

    def _found(self, job: Job) -> Said:
        scene = self.scene
        if not scene.facts.can_run[job.name]:
            return never_in_pieces(scene, job) if in_pieces(job) else self._no_nodes(job)[0]
        limit = limited(scene, job)
        if limit is not None:
            return limit
        ways = self.ways(job)
        if not ways:
            return order_or_lending(scene, job)
        if scene.takes(scene.after, job, ways):
            if scene.kept.bars(job):
                return would_delay(scene, job)
            return self._group(job) if job.group is not None else _not_worth_it(scene, job)
        return no_room(scene, job, ways)

    def _no_nodes(self, job: Job) -> tuple[Said, tuple[str, ...]]:
        """Never: the smallest conflicting set, once for jobs that demand the same."""
        key = job.model_copy(
            update={"name": "_", "queue": "_", "user": "_", "submit": self.scene.snapshot.now}
        ).model_dump_json(exclude_defaults=True)
        if key not in self._never:
            self._never[key] = never(self.scene, job, self.work)
        return self._never[key]

    def _group(self, job: Job) -> Said:
        """It fits by itself: what keeps the other members."""
        scene = self.scene
        members = [
            other for other in scene.facts.values.eligible.values() if other.group == job.group
        ]
        total = sum(other.minimum * other.request.gpus for other in members)
        evidence: dict[str, int | str] = {
            "group": str(job.group), "members": len(members), "gpus": total
        }
        stuck = [other for other in members if not self._fits(other)]
        if stuck:
            first = min(stuck, key=lambda other: other.name)
            why = self.of(first)
            return Said(
                Reason.GROUP,
                f"fits by itself, but starts together with {first.name} of group {job.group}, "
                f"which waits: {why.sentence}",
                evidence | {"waits_for": first.name, "its_reason": why.code.value},
            )
        return Said(
            Reason.GROUP,
            f"fits by itself, but the {some(len(members), 'job')} of group {job.group} "
            f"({some(total, 'GPU')} together) do not fit at once: "
            f"{names(sorted(other.name for other in members))}",
            evidence,
        )

    def _fits(self, job: Job) -> bool:
        ways = self.ways(job)
        return bool(ways) and self.scene.takes(self.scene.after, job, ways)


def _not_worth_it(scene: Scene, job: Job) -> Said:
    return Said(
        Reason.NOT_WORTH_IT,
        "it fits, but starting it would cost more in fragmentation than it saves in waiting",
        {"saves": scene.facts.values.worth[job.name].wait},
    )


def reasons(scene: Scene) -> tuple[Pending, ...]:
    """One entry per pending job that does not start, in order of name."""
    finder = Reasons(scene, Work(PLAN_WORK))
    return tuple(
        Pending(
            job=job.name,
            code=said.code.value,
            sentence=said.sentence,
            evidence=dict(said.evidence),
        )
        for job in waiting(scene)
        for said in (finder.of(job),)
    )


def waiting(scene: Scene) -> Sequence[Job]:
    """Pending jobs that the plan does not start, in order of name."""
    jobs = sorted(scene.snapshot.jobs, key=lambda job: job.name)
    return [j for j in jobs if j.state == "pending" and j.name not in scene.ledger.started]
