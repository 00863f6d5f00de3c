"""What waits, in job classes: jobs that are interchangeable but for their weight.

The heaviest of a class start first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trencadis.models import Job
from trencadis.solver.accounts import Charge
from trencadis.solver.shapes import Shape, ShapeMaker
from trencadis.solver.worth import Values


@dataclass(frozen=True, slots=True)
class Member:
    """A job's part in a unit: its shape, its tier and what it uses up."""

    shape: int
    tier: int
    charges: tuple[Charge, ...]


@dataclass(frozen=True, slots=True)
class JobClass:
    """Units that are alike but for their weight. A unit is a job, or a whole group."""

    members: tuple[Member, ...]
    units: tuple[tuple[str, ...], ...]
    """Job names of each unit in the order of `members`, heaviest unit first."""
    waits: tuple[tuple[int, ...], ...]
    """Cost of waiting by member, per unit."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a round."""

    shapes: tuple[Shape, ...]
    classes: tuple[JobClass, ...]
    shape_of: Mapping[str, int]
    """By job name."""


def demand(
    worths: Values,
    maker: ShapeMaker,
    charges: Mapping[str, tuple[Charge, ...]],
    split: frozenset[str],
    alone: Callable[[Job], bool],
) -> Demand:
    """Sorts the eligible jobs into classes.

    `split`: jobs whose needs are to be their own, because their class could not be placed as
    counted. `alone`: jobs that must be a class of their own (strict order).
    """
    keys = {
        name: maker.key(job, worths.worth[name].tier, worths.worth[name].size)
        for name, job in worths.eligible.items()
    }
    sharing = Counter(keys.values())
    shapes: dict[Shape, int] = {}
    made: dict[tuple[object, ...], int] = {}
    shape_of: dict[str, int] = {}
    for job in worths.eligible.values():
        worth = worths.worth[job.name]
        # Per-node limits of one job are exact in a pattern only if its needs are its own.
        per_job = job.minimum > 1 and (job.exclusive or job.max_tasks_per_node is not None)
        own = job.name in split or (per_job and sharing[keys[job.name]] == 1)
        key = (*keys[job.name], job.name if own else "")
        if key not in made:
            shape = maker.shape(job, worth.tier, worth.size, job.name if own else "")
            made[key] = shapes.setdefault(shape, len(shapes))
        shape_of[job.name] = made[key]
    return Demand(
        shapes=tuple(shapes),
        classes=_classes(worths, charges, shape_of, alone),
        shape_of=shape_of,
    )


def _classes(
    worths: Values,
    charges: Mapping[str, tuple[Charge, ...]],
    shape_of: Mapping[str, int],
    alone: Callable[[Job], bool],
) -> tuple[JobClass, ...]:
    groups: defaultdict[str, list[Job]] = defaultdict(list)
    singles: list[list[Job]] = []
    for job in worths.eligible.values():
        if job.group is None:
            singles.append([job])
        else:
            groups[job.group].append(job)
    found: defaultdict[tuple[object, ...], list[tuple[Job, ...]]] = defaultdict(list)
    members_of: dict[tuple[object, ...], tuple[Member, ...]] = {}
    for unit in (*singles, *groups.values()):
        parts = sorted(
            (
                (Member(shape_of[job.name], worths.worth[job.name].tier, charges[job.name]), job)
                for job in unit
            ),
            key=lambda part: (part[0].shape, part[0].tier, part[0].charges, part[1].name),
        )
        members = tuple(member for member, _ in parts)
        jobs = tuple(job for _, job in parts)
        tiers = {member.tier for member in members}
        single = len(tiers) > 1 or any(alone(job) for job in jobs)
        key: tuple[object, ...] = (members, jobs[0].name if single else "")
        found[key].append(jobs)
        members_of[key] = members
    classes = []
    for kind, units in found.items():
        ordered = sorted(
            units, key=lambda jobs: (-sum(worths.worth[j.name].wait for j in jobs), jobs[0].name)
        )
        classes.append(
            JobClass(
                members=members_of[kind],
                units=tuple(tuple(job.name for job in jobs) for jobs in ordered),
                waits=tuple(
                    tuple(worths.worth[job.name].wait for job in jobs) for jobs in ordered
                ),
            )
        )
    return tuple(classes)
