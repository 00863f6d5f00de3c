"""One waiting job after the plan's actions, and what a remedy for it starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from trencadis.models import Hold, Job, Snapshot
from trencadis.models.explanation import Raise, Remedy
from trencadis.models.units import takes_part
from trencadis.solver.capacity import NodeState
from trencadis.solver.cuts import parts_matter
from trencadis.solver.explain.allow import allowed, sharers
from trencadis.solver.explain.alone import Alone, only
from trencadis.solver.explain.changes import with_raises, with_remedy, without_nodes
from trencadis.solver.explain.later import Later
from trencadis.solver.explain.place import Place
from trencadis.solver.worth import eligible_jobs


@dataclass(frozen=True)
class Case:
    """A job that waits when the plan has been carried out."""

    snapshot: Snapshot
    """After the plan's actions."""
    alone: Alone
    """Answers about variants of it."""
    job: Job
    unit: tuple[str, ...]
    """The job, or the waiting jobs of its group."""
    models: frozenset[str | None]
    """GPU models that its limits allow, or would once raised."""
    raises: tuple[Raise, ...] = ()
    """Limits that have to be raised beside whatever else is done."""
    starting: frozenset[str] = frozenset()
    """Jobs that the plan starts: they run in the snapshot, but only from now on."""
    behind: tuple[Hold, ...] = ()
    """Reservations of jobs that go before it: it may not be in their way."""

    @cached_property
    def raised(self) -> Snapshot:
        """The snapshot with those limits raised."""
        return with_raises(self.snapshot, self.raises)

    @cached_property
    def base(self) -> Snapshot:
        """The same, without nodes on which it would still run when they are due for others."""
        return without_nodes(self.raised, self.kept_from(self.job))

    def kept_from(self, job: Job) -> frozenset[str]:
        """Nodes reserved for others that the job, or what it would ask for instead, may not use."""
        now, runtime = self.snapshot.now, job.runtime_seconds
        return frozenset(
            task.node
            for hold in self.behind
            if runtime is None or now + timedelta(seconds=runtime) > hold.at
            for task in hold.allocation
        )

    @property
    def aside(self) -> str:
        """The end of a sentence on what does not help: which nodes were left alone."""
        return " beside nodes reserved for others" if self.kept_from(self.job) else ""

    @cached_property
    def place(self) -> Place:
        """The nodes."""
        return self.alone.place(self.base)

    @cached_property
    def states(self) -> list[NodeState]:
        """The nodes as the plan leaves them."""
        return self.alone.states(self.base, parts=self.reads_parts)

    @property
    def parts(self) -> bool:
        """Whether the job asks for slices or a share."""
        return takes_part(self.job.request)

    @cached_property
    def reads_parts(self) -> bool:
        """Whether what it finds depends on GPUs in parts."""
        return parts_matter(self.base, self.job.request)

    @property
    def single(self) -> bool:
        """Whether it is about one job alone."""
        return len(self.unit) == 1

    def fits(self, job: Job | None = None) -> bool:
        """Whether the job (or what it would ask for instead) fits now, limits aside."""
        return self.place.fits(job or self.job, self.states, None if job else self.models)

    def accepts(self, ask: Job) -> bool:
        """Whether the job would start now if it asked for this instead, limits as they are."""
        if ask.runtime_seconds != self.job.runtime_seconds:
            open_ = without_nodes(self.raised, self.kept_from(ask))
            states = self.alone.states(open_, parts=self.reads_parts)
            if not self.alone.place(open_).fits(ask, states):
                return False
        elif not self.fits(ask):
            return False
        if not self.raises:
            return True
        jobs = tuple(ask if job.name == ask.name else job for job in self.snapshot.jobs)
        return self.starts(self.snapshot.model_copy(update={"jobs": jobs}))

    @cached_property
    def later(self) -> Later:
        """The nodes as they empty if nothing starts."""
        place = self.alone.place(self.raised)
        return Later(self.raised, place.supply, self.job, self.behind, parts=self.reads_parts)

    def fits_at(self, instant: datetime) -> bool:
        """Whether the job fits at a later time if nothing starts, limits aside."""
        return bool(self._open_at(instant) & self.models)

    def _open_at(self, instant: datetime) -> set[str | None]:
        """The models on which it fits then."""
        then = self.raised.model_copy(update={"now": instant})
        place = replace(self.alone.place(self.raised), snapshot=then)
        look = place.look(self.job, self.later.states(instant))
        return {
            alternative.way.need.model
            for alternative in look.ways
            if look.room.takes(self.job, alternative.way)
        }

    def could_at(self, instant: datetime) -> bool:
        """Whether it may start then too, limits as they are: as `starts` would say of `at_time`,
        for one job and where fragmentation has no price."""
        job, others, before = self._rules
        before = [other for other in before if self.later.there(other, instant)]
        holds = [
            hold
            for hold in self.snapshot.holds
            if hold.job == job.name and self.later.there(job, instant)
        ]
        then = self.snapshot.model_copy(
            update={"now": instant, "jobs": (job, *before), "holds": tuple(holds)}
        )
        if job.name not in eligible_jobs(then) or not self.later.there(job, instant):
            return False
        models = self._open_at(instant)
        beside = [other for other in others if self.later.there(other, instant)]
        return bool(models) and allowed(then, beside, job, models)

    @cached_property
    def _rules(self) -> tuple[Job, list[Job], list[Job]]:
        """The job as it is if nobody else waits, those with whom it shares limits, and those that
        it comes after."""
        alone = only(self.snapshot, (self.job.name,))
        job = next(job for job in alone.jobs if job.name == self.job.name)
        before = [other for other in alone.jobs if other.name in job.after]
        return job, sharers(alone, job), before

    def starts(self, snapshot: Snapshot) -> bool:
        """Whether the unit starts in this variant of the snapshot if nobody else waits."""
        return self.alone.starts(snapshot, self.unit)

    def works(self, remedy: Remedy) -> bool:
        """Whether the job starts once the remedy is carried out: the proof of every remedy."""
        changed = with_remedy(self.snapshot, self.job.name, remedy)
        if any(entry.owner == "budget" for entry in remedy.raises):
            return self.alone.starts_by_preemption(changed, self.unit)
        return self.starts(changed)
