"""Whether the preemption budget is what keeps a job waiting: more would have to stop than may.

Proven both ways: there are victims that the rules allow and that suffice, and any that suffice are
more than the budget leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.models.explanation import Reason
from trencadis.models.plan import Evidence
from trencadis.solver.explain.changes import without_nodes
from trencadis.solver.explain.place import place_of
from trencadis.solver.explain.said import Said, some
from trencadis.solver.explain.stop import Stopper, Victims
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.choose import delayed
from trencadis.solver.preempt.tally import Tally
from trencadis.solver.preempt.victims import Allowance, Victim, allowance, gpus_of, victims
from trencadis.solver.shapes import Alternative

IN_A_ROUND = 3_000
"""Nodes that a round may search for victims when it gives reasons; explanations search all."""


@dataclass(slots=True)
class Spending:
    """What a round has stopped, and whom else it might have."""

    facts: Facts
    """With those gone that it stops."""
    ledger: Ledger
    """Its starts on their accounts."""
    gone: Mapping[str, Victim]
    """Jobs that it stops, and tasks that it takes from elastic ones."""
    starts: Mapping[str, tuple[TaskAllocation, ...]]
    """Where its starts are."""
    nodes: int | None = None
    """Nodes that may still be searched; None: any number."""
    _stopper: Stopper | None = None
    _victims: dict[str, Victim] | None = None
    _tally: Tally | None = field(default=None)

    @property
    def snapshot(self) -> Snapshot:
        """As the round found it."""
        return self.facts.snapshot

    @property
    def total(self) -> Allowance:
        """What the round might have stopped in all."""
        return allowance(self.snapshot, self.facts.capacity.gpus)

    def stopped(self) -> list[Victim]:
        """The jobs that the round stops."""
        return [victim for victim in self.gone.values() if victim.task is None]

    def candidates(self, tier: int) -> dict[str, Victim]:
        """Further jobs that may stop for one of a tier, each by itself."""
        if self._victims is None:
            names = {victim.job.name for victim in self.gone.values()}
            horizon = self.snapshot.policy.horizon_seconds
            self._victims = {
                name: victim
                for name, victim in victims(self.facts).items()
                if victim.task is None and name not in names and victim.grace < horizon
            }
        return {name: v for name, v in self._victims.items() if v.yields_below > tier}

    def stopper(self) -> Stopper:
        """Finds victims once the round is over. Nodes with GPUs in parts are left alone, as by the
        round itself."""
        if self._stopper is None:
            parts = {node.name for node in self.snapshot.nodes if node.mig or node.shareable}
            after = without_nodes(self._after(), parts)
            self._stopper = Stopper(after, place_of(after))
        return self._stopper

    def _after(self) -> Snapshot:
        lost = Counter(
            (victim.job.name, task)
            for victim in self.gone.values()
            for task in victim.tasks
        )
        jobs = []
        for job in self.snapshot.jobs:
            if job.name in self.starts:
                running = {"state": "running", "allocation": self.starts[job.name]}
                jobs.append(job.model_copy(update=running))
                continue
            left = tuple(task for task in job.allocation if (job.name, task) not in lost)
            if left or not job.allocation:
                jobs.append(job.model_copy(update={"allocation": left}))
        return self.snapshot.model_copy(update={"jobs": tuple(jobs)})

    def legal(self, chosen: Sequence[Victim]) -> bool:
        """Whether guarantees let all of these go."""
        if self._tally is None:
            self._tally = Tally(self.facts, self.ledger, {})
        lost: Counter[str] = Counter()
        for victim in chosen:
            lost[victim.job.queue] += victim.units
        return not any(self._tally.needs(queue, units, "") for queue, units in lost.items())


def spent(spending: Spending | None, job: Job, ways: Sequence[Alternative]) -> Said | None:
    """The reason of a job that finds no room now; None if the budget is not proven to be it."""
    if spending is None or job.group is not None:
        return None
    worth = spending.facts.values.worth[job.name]
    may = spending.candidates(worth.tier)
    stopped = spending.stopped()
    total = spending.total
    jobs_left = max(0, total.jobs - len(stopped))
    gpus_left = max(0, total.gpus - sum(victim.gpus for victim in stopped))
    if not may or _ample(may, job, jobs_left, gpus_left):
        return None
    if spending.nodes is not None:
        spending.nodes -= len(spending.snapshot.nodes)
        if spending.nodes < 0:
            return None
    stopper = spending.stopper()
    models = {alternative.way.need.model for alternative in ways}
    if not stopper.fits(job, list(may), models):
        return None
    fewest = stopper.cheapest(job, models, dict.fromkeys(may, 1))
    if fewest is None:
        return None
    chosen = [may[name] for name in fewest.names]
    if not spending.legal(chosen) or not _pays(spending.facts, job, ways, chosen):
        return None
    evidence: Evidence = {
        "tasks": job.minimum,
        "gpus_per_task": job.request.gpus,
        "stopped_by_the_round": len(stopped),
        "jobs_left": jobs_left,
        "gpus_left": gpus_left,
    }
    # None can do with no job at all, proven the fewest or not.
    if _beyond(len(chosen), fewest, jobs_left) or not jobs_left:
        evidence |= {"stops_needed": len(fewest.names), "jobs_budget": total.jobs}
        return Said(Reason.BUDGET, _jobs_text(len(fewest.names), total.jobs, stopped), evidence)
    # By GPUs; the number of jobs only tells sets of as many GPUs apart.
    scale = len(may) + 1
    freed = stopper.cheapest(job, models, {name: v.gpus * scale + 1 for name, v in may.items()})
    gpus = 0 if freed is None else sum(gpus_of(may[name].job) for name in freed.names)
    if freed is None or not _beyond(gpus, freed, gpus_left):
        return None
    before = spending.snapshot.budget_use.preempted_gpus_last_hour
    evidence |= {"gpus_needed": gpus, "gpus_stopped_last_hour": before}
    text = (
        f"room for it takes stopping jobs on {some(gpus, 'GPU')} at least; the preemption budget "
        f"leaves {some(gpus_left, 'GPU')} of an hour's"
    )
    if before:
        text += f", after {before:,} in the last hour"
    if stopped:
        text += f", and {sum(victim.gpus for victim in stopped):,} that stop for other jobs now"
    return Said(Reason.BUDGET, text, evidence)


def _beyond(amount: int, found: Victims, left: int) -> bool:
    """Whether all sets that suffice are beyond what is left. `amount`: of the cheapest found."""
    return amount > left and found.cheapest


def _ample(may: Mapping[str, Victim], job: Job, jobs_left: int, gpus_left: int) -> bool:
    """Whether the budget would do even if all that may stop had to, on the fullest nodes."""
    jobs: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    for victim in may.values():
        for node in {task.node for task in victim.tasks}:
            jobs[node] += 1
            gpus[node] += victim.gpus
    count = job.minimum
    return count * max(jobs.values()) <= jobs_left and count * max(gpus.values()) <= gpus_left


def _jobs_text(needed: int, budget: int, stopped: Sequence[Victim]) -> str:
    text = f"room for it takes stopping {some(needed, 'job')} at least; the preemption budget "
    left = max(0, budget - len(stopped))
    if not stopped:
        return text + f"leaves {left} this round"
    return text + f"leaves {left}: of {budget} this round, {len(stopped)} stop for other jobs"


def _pays(
    facts: Facts, job: Job, ways: Sequence[Alternative], chosen: Sequence[Victim]
) -> bool:
    """Whether stopping these would gain anything: the start comes late, and may cost as much."""
    wait = facts.values.worth[job.name].wait
    late = delayed(wait, max(v.grace for v in chosen), facts.values.rates.horizon)
    saved = wait - late - min(alternative.cost for alternative in ways)
    strict = facts.snapshot.policy.priority_mode == "strict"
    return saved > sum(0 if strict else v.loss for v in chosen)
