"""Whether a job would start if nobody else waited: exactly, without a search.

All rules are asked, and nothing else waits: what a solve of the snapshot with that job alone
decides, without its search. Tests compare the two. Many variants of one snapshot are asked about,
so what they share is read once: nodes with the same occupants, the fabric, the supply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from trencadis.models import Snapshot
from trencadis.solver.capacity import Capacity, NodeState, capacity, node_state
from trencadis.solver.cuts import parts_matter
from trencadis.solver.explain.allow import allowed, sharers
from trencadis.solver.explain.menus import Occupants, occupants
from trencadis.solver.explain.place import Place, place_of
from trencadis.solver.round import Options, solve
from trencadis.solver.worth import eligible_jobs

EXACT = Options(time_limit_s=10.0, gap=0.0, workers=1, deterministic=True)


def only(snapshot: Snapshot, unit: Collection[str]) -> Snapshot:
    """The snapshot in which nobody but the unit waits.

    Jobs that the unit comes after, and those that GPUs are held for, stay but never start. The
    throttle of an array is the smallest that any of its jobs names, whether it stays or not.
    """
    still = {name for job in snapshot.jobs if job.name in unit for name in job.after}
    still |= {hold.job for hold in snapshot.delayed}
    throttles: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.array is not None:
            known = throttles.get(job.array.name, job.array.throttle)
            throttles[job.array.name] = min(known, job.array.throttle)
    jobs = []
    for job in snapshot.jobs:
        if job.name in unit and job.array is not None:
            throttle = throttles[job.array.name]
            array = job.array.model_copy(update={"throttle": throttle})
            jobs.append(job.model_copy(update={"array": array}))
        elif job.on_nodes or job.name in unit or job.state == "held":
            jobs.append(job)
        elif job.name in still:
            jobs.append(job.model_copy(update={"state": "held", "group": None}))
    # A reservation keeps nobody away whose job isn't there.
    holds = tuple(h for h in snapshot.holds if h.kind == "delayed_start" or h.job in unit)
    return snapshot.model_copy(update={"jobs": tuple(jobs), "holds": holds})


def with_more(supply: Capacity, added: Capacity) -> Capacity:
    """The supply with that of further nodes, which have the same resources."""
    by_model = Counter(supply.gpus_by_model) + Counter(added.gpus_by_model)
    return replace(
        supply,
        states=(*supply.states, *added.states),
        empty=(*supply.empty, *added.empty),
        empty_cut=(*supply.empty_cut, *added.empty_cut),
        gpus=sum(by_model.values()) or supply.gpus + added.gpus,
        cpu_milli=supply.cpu_milli + added.cpu_milli,
        memory_mib=supply.memory_mib + added.memory_mib,
        gpus_by_model=dict(sorted(by_model.items())),
    )


def without_preemption(snapshot: Snapshot) -> Snapshot:
    """The snapshot under a policy that stops nobody."""
    rules = snapshot.policy.preemption.model_copy(update={"mode": "none"})
    policy = snapshot.policy.model_copy(update={"preemption": rules})
    return snapshot.model_copy(update={"policy": policy})


@dataclass(slots=True)
class Alone:
    """Answers about variants of one snapshot."""

    snapshot: Snapshot
    _place: Place | None = None
    _states: dict[object, tuple[Occupants, NodeState]] = field(default_factory=dict)

    @property
    def base(self) -> Place:
        """The snapshot's own nodes."""
        if self._place is None:
            self._place = place_of(self.snapshot)
        return self._place

    def place(self, snapshot: Snapshot) -> Place:
        """The nodes of a variant."""
        if snapshot.nodes is self.snapshot.nodes and snapshot.fabric is self.snapshot.fabric:
            return replace(self.base, snapshot=snapshot)
        # What nodes were before anything ran is all that is read of the supply.
        known = {id(node) for node in self.snapshot.nodes}
        new = tuple(node for node in snapshot.nodes if id(node) not in known)
        idle = tuple(job for job in snapshot.jobs if not job.on_nodes)
        if len(new) + len(known) == len(snapshot.nodes):
            bare = snapshot.model_copy(update={"nodes": new, "jobs": idle, "holds": ()})
            supply = with_more(self.base.supply, capacity(bare))
        else:
            bare = snapshot.model_copy(update={"jobs": idle, "holds": ()})
            supply = replace(capacity(bare), resources=self.base.supply.resources)
        return replace(place_of(snapshot, supply=supply), rates=self.base.rates)

    def states(self, snapshot: Snapshot, *, parts: bool = False) -> list[NodeState]:
        """The nodes that take work in a variant, by name; with GPUs in parts if `parts`."""
        here = occupants(snapshot)
        states = []
        for node in sorted(snapshot.nodes, key=lambda node: node.name):
            if node.down or node.cordoned:
                continue
            on = here.get(node.name, [])
            if any(job.exclusive and job.on_nodes for job, _ in on):
                continue
            # Tasks are told apart by identity; the table keeps them alive, so ids stay theirs.
            key = (id(node), parts, tuple((job.name, id(task)) for job, task in on))
            if key not in self._states:
                state = node_state(node, on, self.base.supply, snapshot if parts else None)
                self._states[key] = (on, state)
            states.append(self._states[key][1])
        return states

    def starts(self, snapshot: Snapshot, unit: Sequence[str]) -> bool:
        """Whether the unit (a job, or all waiting jobs of a group) starts if nobody else waits."""
        alone = only(snapshot, unit)
        # Groups share limits and room; what fragmentation costs, and smaller shares than anyone
        # asks for now would find of a GPU, the round alone knows.
        weighs = alone.policy.fragmentation == "weighted"
        shares = {job.request.share for job in alone.jobs if job.name in unit} - {None}
        if len(unit) > 1 or weighs or not shares <= set(self.base.supply.cutter.shares):
            return self.starts_by_preemption(without_preemption(alone), unit)
        return self.could(alone, unit[0])

    def starts_by_preemption(self, snapshot: Snapshot, unit: Sequence[str]) -> bool:
        """Whether a round starts the unit if nobody else waits, stopping others if it may."""
        started = {start.job for start in solve(only(snapshot, unit), EXACT).starts}
        return started.issuperset(unit)

    def could(self, snapshot: Snapshot, name: str) -> bool:
        """Whether room and rules let a job start; exact where fragmentation has no price."""
        alone = only(snapshot, (name,))
        job = eligible_jobs(alone).get(name)
        if job is None:
            return False
        states = self.states(alone, parts=parts_matter(alone, job.request))
        look = self.place(alone).look(job, states)
        models = {
            alternative.way.need.model
            for alternative in look.ways
            if look.room.takes(job, alternative.way)
        }
        return bool(models) and allowed(alone, sharers(alone, job), job, models)
