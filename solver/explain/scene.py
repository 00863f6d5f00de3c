"""What reasons are read from: the facts, what the plan starts, and what fits before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from trencadis.models import Job, Plan, Snapshot
from trencadis.models.units import uses_gpu
from trencadis.solver.capacity import Capacity, NodeState, capacity
from trencadis.solver.explain.spent import Spending
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Facts, facts, with_kept
from trencadis.solver.preempt.exchange import relieved
from trencadis.solver.preempt.victims import Victim, may_preempt, victims
from trencadis.solver.repair import starts_of
from trencadis.solver.reserve.kept import NOTHING_KEPT, Kept
from trencadis.solver.reserve.read import kept_of
from trencadis.solver.room import Room, room_of
from trencadis.solver.shapes import Alternative, Shape


@dataclass(slots=True)
class Scene:
    """A round that is over. Rooms tell exactly what a job would find if it came alone."""

    facts: Facts
    ledger: Ledger
    """The plan's starts on their accounts; its nodes are not read."""
    after: Room
    """The nodes as the plan leaves them."""
    shape_of: Mapping[str, Shape]
    kept: Kept = NOTHING_KEPT
    """What is reserved; the facts are those without it."""
    present: Sequence[NodeState] | None = None
    """The nodes as they are now, where the facts are those with somebody gone."""
    spending: Spending | None = None
    """What the round stops, and might; absent where nothing may be stopped."""
    _rooms: dict[object, Room] = field(default_factory=dict)
    _by_tier: Counter[int] | None = None
    _beside: tuple[Facts, Room] | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the round."""
        return self.facts.snapshot

    @property
    def before(self) -> Room:
        """The nodes as they are now."""
        states = self.facts.capacity.states if self.present is None else self.present
        return self._room("before", lambda: states)

    @property
    def empty(self) -> Room:
        """The nodes with nothing on them."""
        return self._room("empty", lambda: self.facts.capacity.empty)

    @property
    def weighted(self) -> bool:
        """Whether fragmentation is weighed against waiting."""
        return self.facts.profile.weight_milli is not None

    @property
    def largest_node(self) -> int:
        """The most GPUs of one model on a node that takes work."""
        return max(
            (len(gpus) for state in self.facts.capacity.empty for gpus in state.idle.values()),
            default=0,
        )

    def started_above(self, tier: int) -> int:
        """Jobs of higher tiers that the plan starts."""
        if self._by_tier is None:
            worth = self.facts.values.worth
            self._by_tier = Counter(worth[name].tier for name in self.ledger.started)
        return sum(count for other, count in self._by_tier.items() if other < tier)

    def without(self, gone: Collection[str], holds: Collection[str]) -> Room:
        """The nodes now, had these jobs left and were these jobs' holds let go."""

        def states() -> Sequence[NodeState]:
            snapshot = self.snapshot
            changed = {
                "jobs": tuple(job for job in snapshot.jobs if job.name not in gone),
                "holds": tuple(
                    hold
                    for hold in snapshot.holds
                    if hold.job not in holds and hold.job not in gone
                ),
            }
            return capacity(snapshot.model_copy(update=changed)).states

        return self._room((frozenset(gone), frozenset(holds)), states)

    def shape(self, job: Job) -> Shape:
        """The shape of an eligible job."""
        known = self.shape_of.get(job.name)
        if known is not None:
            return known
        worth = self.facts.values.worth[job.name]
        return self.facts.maker.shape(job, worth.tier, worth.size, "")

    def takes(self, room: Room, job: Job, ways: Collection[Alternative]) -> bool:
        """Whether the job fits one of these ways."""
        return any(room.takes(job, alternative.way) for alternative in ways)

    def fits_beside(self, job: Job, ways: Collection[Alternative]) -> bool:
        """Whether the job fits the nodes as they are now, those kept for others left out."""
        if self._beside is None:
            read = with_kept(self.facts, self.kept)
            room = room_of(self.facts.capacity.states, read.admission.column, read.fabric)
            self._beside = read, room
        read, room = self._beside
        worth, models = read.values.worth[job.name], {way.way.need.model for way in ways}
        shape = read.maker.shape(job, worth.tier, worth.size, "")
        return any(
            room.takes(job, alternative.way)
            for alternative in shape.alternatives
            if alternative.way.need.model in models
        )

    def _room(self, key: object, states: Callable[[], Sequence[NodeState]]) -> Room:
        if key not in self._rooms:
            self._rooms[key] = room_of(
                states(), self.facts.admission.column, self.facts.fabric
            )
        return self._rooms[key]


def scene_of(snapshot: Snapshot, plan: Plan, left: Capacity) -> Scene:
    """The scene of a plan that was made for the snapshot. `left`: supply after its actions."""
    read = facts(snapshot)
    ledger = Ledger(read)
    nodes = {node.name: node for node in snapshot.nodes}
    for start in starts_of(plan):
        job = read.values.eligible[start.job]
        models = {
            nodes[task.node].healthy_gpus()[index]
            for task in start.allocation
            for index in task.gpus or ()
        }
        if not models:
            models = {group.model for task in start.allocation for group in nodes[task.node].gpus}
        allowed = sorted(m for m in models if not job.gpu_models or m in job.gpu_models)
        ledger.start(job, allowed[0] if allowed and uses_gpu(job.request) else None, [])
    after = room_of(left.states, read.admission.column, read.fabric)
    kept = kept_of(read, plan)
    gone = _gone(read, plan)
    later = relieved(read, gone) if gone else read
    starts = {start.job: start.allocation for start in starts_of(plan)}
    spending = Spending(later, ledger, gone, starts) if may_preempt(snapshot) else None
    return Scene(later, ledger, after, {}, kept, read.capacity.states, spending)


def _gone(read: Facts, plan: Plan) -> dict[str, Victim]:
    """The jobs that the plan stops, and the tasks that it takes from others."""
    stops = {stop.job for stop in plan.preempts}
    lost = {(resize.job, task) for resize in plan.resizes for task in resize.remove}
    if not stops and not lost:
        return {}
    return {
        name: victim
        for name, victim in victims(read).items()
        if (victim.task is None and name in stops) or (victim.job.name, victim.task) in lost
    }
