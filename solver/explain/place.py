"""Whether one job fits given nodes, limits and order aside: asked many times over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from trencadis.models import Job, Snapshot
from trencadis.solver.admission import Admission, admission
from trencadis.solver.capacity import Capacity, NodeState, capacity
from trencadis.solver.fabric import Tree, tree
from trencadis.solver.room import Room, room_of
from trencadis.solver.shapes import Alternative, ShapeMaker
from trencadis.solver.worth import Rates, rates, size_of, tier_of


def coarsest(alternatives: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """For each GPU model the way that asks for the least nearness: all others are restrictions."""
    found: dict[str | None, Alternative] = {}
    for alternative in alternatives:
        known = found.setdefault(alternative.way.need.model, alternative)
        if alternative.way.depth < known.way.depth:
            found[alternative.way.need.model] = alternative
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Look:
    """A job among nodes."""

    ways: tuple[Alternative, ...]
    """The coarsest per GPU model: what fits a finer one fits it too."""
    room: Room
    column: Mapping[str, int]
    """By node name: the bit of a need's mask that says whether the job may use it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What it takes to ask for room for one job, limits and order aside."""

    snapshot: Snapshot
    rates: Rates
    fabric: Tree
    supply: Capacity
    admitted: dict[object, tuple[object, Admission]] = field(default_factory=dict)
    """What is known of admission; shared by the variants of a place."""

    def look(self, job: Job, states: Iterable[NodeState]) -> Look:
        """The job among these nodes."""
        listed = list(states)
        admitted = self._admission(job)
        maker = ShapeMaker(self.snapshot, self.supply, self.rates, self.fabric, admitted)
        size = size_of(job, job.minimum, self.rates, self.supply)
        shape = maker.shape(job, tier_of(self.snapshot, job), size, "")
        room = room_of(listed, admitted.column, self.fabric)
        return Look(coarsest(shape.alternatives), room, admitted.column)

    def _admission(self, job: Job) -> Admission:
        """Which nodes admit the job; asked once for jobs that demand the same of nodes."""
        ends = any(node.leaves for node in self.snapshot.nodes)
        key = (
            job.name,
            id(self.snapshot.nodes),
            tuple(job.node_selector.items()),
            job.excluded_nodes,
            job.required_nodes,
            job.tolerations,
            (self.snapshot.now, job.runtime_seconds) if ends else None,
            job.minimum > 1 and job.minimum * job.request.gpus,
        )
        if key not in self.admitted:
            up = [node for node in self.snapshot.nodes if not (node.down or node.cordoned)]
            # The nodes are kept as well: their identity is part of the key.
            self.admitted[key] = self.snapshot.nodes, admission(self.snapshot, [job], up)
        return self.admitted[key][1]

    def fits(
        self, job: Job, states: Iterable[NodeState], models: Collection[str | None] | None = None
    ) -> bool:
        """Whether the job alone fits these nodes, on these models only if some are given."""
        look = self.look(job, states)
        return any(
            look.room.takes(job, alternative.way)
            for alternative in look.ways
            if models is None or alternative.way.need.model in models
        )


def place_of(
    snapshot: Snapshot, fabric: Tree | None = None, supply: Capacity | None = None
) -> Place:
    """The place that a snapshot's nodes are; parts that are known already may be given."""
    return Place(
        snapshot,
        rates(snapshot),
        tree(snapshot) if fabric is None else fabric,
        capacity(snapshot) if supply is None else supply,
    )


def without_boundary(fabric: Tree) -> Tree:
    """The same fabric, where gangs may cross what were boundaries."""
    return replace(fabric, boundary=0)
