"""Why no nodes suit a job even when they are empty: a smallest set of its demands that conflict.

A set conflicts if a job with these demands alone does not fit the emptied cluster. Smaller sets are
tried before larger ones, and what is found is verified by deletion: without any one of its members
the rest fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from trencadis.models import Job, Snapshot
from trencadis.models.explanation import Reason
from trencadis.models.plan import Evidence
from trencadis.solver.capacity import capacity
from trencadis.solver.explain.demands import demands
from trencadis.solver.explain.pieces import slots
from trencadis.solver.explain.place import Place, without_boundary
from trencadis.solver.explain.said import Said, some
from trencadis.solver.explain.scene import Scene

MOST = 4
"""Members of a set; larger ones are found by deletion alone."""


class TooMuchWorkError(Exception):
    """The conflict is not worth more work here."""


@dataclass(slots=True)
class Work:
    """How many nodes may still be looked at in search of conflicts; None: any number."""

    nodes: int | None = None

    def spend(self, nodes: int) -> None:
        """Books a look at so many nodes. Raises TooMuchWorkError if that is too many."""
        if self.nodes is not None:
            self.nodes -= nodes
            if self.nodes < 0:
                raise TooMuchWorkError


class Emptied:
    """Whether a job with some of its demands fits the emptied cluster."""

    def __init__(self, scene: Scene, job: Job, work: Work) -> None:
        bare = scene.snapshot.model_copy(update={"jobs": (), "holds": ()})
        self.scene, self.job, self.snapshot, self.work = scene, job, bare, work
        self.demands = demands(bare, job)
        self._known: dict[frozenset[int], bool] = {}

    def fits(self, kept: frozenset[int]) -> bool:
        """Whether it fits if it keeps only these demands."""
        if kept not in self._known:
            self.work.spend(len(self.snapshot.nodes))
            snapshot, job = self.snapshot, self.job
            for index, demand in enumerate(self.demands):
                if index not in kept:
                    snapshot, job = demand.drop(snapshot, job)
            self._known[kept] = self._fits(snapshot, job)
        return self._known[kept]

    def _fits(self, snapshot: Snapshot, job: Job) -> bool:
        read = self.scene.facts
        alone = snapshot.model_copy(update={"jobs": (job,)})
        same = snapshot.fabric == self.snapshot.fabric
        fabric = read.fabric if same else without_boundary(read.fabric)
        supply = capacity(alone)
        place = Place(alone, read.values.rates, fabric, supply)
        return place.fits(job, supply.empty)


def smallest_conflict(emptied: Emptied) -> tuple[int, ...]:
    """Indices of a smallest conflicting set; by deletion only where it is larger than MOST."""
    everything = frozenset(range(len(emptied.demands)))
    core = set(everything)
    for index in reversed(range(len(emptied.demands))):
        if not emptied.fits(frozenset(core - {index})):
            core.discard(index)
    for size in range(1, min(MOST + 1, len(core))):
        for chosen in combinations(sorted(everything), size):
            if not emptied.fits(frozenset(chosen)):
                return chosen
    return tuple(sorted(core))


def verified(emptied: Emptied, chosen: Sequence[int]) -> bool:
    """Whether the set conflicts and no longer does once any one of its members is deleted."""
    whole = frozenset(chosen)
    return not emptied.fits(whole) and all(emptied.fits(whole - {index}) for index in whole)


def _unnamed(job: Job, largest: int) -> Said:
    """The reason without a conflicting set: where finding one would take too long."""
    evidence: Evidence = {
        "tasks": job.minimum,
        "gpus_per_task": job.request.gpus,
        "largest_node_gpus": largest,
    }
    if job.request.gpus > largest:
        text = f"asks for {some(job.request.gpus, 'GPU')} on one node; the largest has {largest}"
        return Said(Reason.NEVER_FITS, text, evidence)
    text = "could not run even on the empty cluster: no nodes meet all that it asks for"
    return Said(Reason.CONSTRAINTS, text, evidence)


def never(scene: Scene, job: Job, work: Work) -> tuple[Said, tuple[str, ...]]:
    """The reason of a job that does not fit the emptied cluster, and the conflicting set."""
    largest = scene.largest_node
    if not scene.snapshot.nodes:
        return Said(Reason.OUTAGE, "the cluster has no nodes"), ()
    emptied = Emptied(scene, job, work)
    try:
        chosen = smallest_conflict(emptied)
        if not verified(emptied, chosen):
            chosen = ()
    except TooMuchWorkError:
        chosen = ()
    if not chosen:
        return _unnamed(job, largest), ()
    found = [emptied.demands[index] for index in chosen]
    kinds, texts = {demand.kind for demand in found}, tuple(demand.text for demand in found)
    evidence: dict[str, int | str] = {
        "tasks": job.minimum,
        "gpus_per_task": job.request.gpus,
        "largest_node_gpus": largest,
        "conflict": " + ".join(texts),
    }
    if kinds & {"outage", "health"}:
        return Said(
            Reason.OUTAGE,
            f"needs nodes that are out of service: with those back it would fit ({_and(texts)})",
            evidence,
        ), texts
    if "window" in kinds:
        return Said(
            Reason.WINDOW,
            f"would not end before the nodes that suit it are taken away ({_and(texts)})",
            evidence,
        ), texts
    if kinds == {"gpus"}:
        return Said(
            Reason.NEVER_FITS,
            f"asks for {some(job.request.gpus, 'GPU')} on one node; the largest has {largest}",
            evidence,
        ), texts
    if kinds == {"gpus", "tasks"}:
        worth = scene.facts.values.worth[job.name]
        shape = scene.facts.maker.shape(job, worth.tier, worth.size, "")
        room = slots(scene.empty, shape.alternatives)
        return Said(
            Reason.NEVER_FITS,
            f"asks for {some(job.minimum, 'task')} of {some(job.request.gpus, 'GPU')}; the empty "
            f"cluster has room for {room}",
            evidence | {"slots_empty": room},
        ), texts
    if kinds <= {"gpus", "cpu", "memory", "resource", "tasks"}:
        return Said(
            Reason.NEVER_FITS,
            f"asks for {_and(texts)}; the empty cluster has no room for "
            f"{'that' if len(texts) == 1 else 'both' if len(texts) == 2 else 'all of that'}",
            evidence,
        ), texts
    return Said(
        Reason.CONSTRAINTS,
        f"no nodes meet {'this demand' if len(texts) == 1 else 'these demands together'}: "
        f"{_and(texts)}",
        evidence,
    ), texts


def _and(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
