"""Every plan of a tiny snapshot, the values they reach, and the best of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from oracle.ground import Ground, Placed, model_of_plan, occupy
from oracle.rules import placements
from oracle.values import Pricing, StartSets, stage_names, stage_values
from trencadis.models import Job, Missing, Node, Plan, Snapshot

CAP = 20_000
"""States and values that one enumeration may hold."""

Started = tuple[tuple[str, str | None], ...]
Sums = tuple[int, ...]


class TooLarge(Exception):  # noqa: N818 (a limit, not an error)
    """The snapshot has more plans than a brute force should look at."""


def start_units(pricing: Pricing) -> list[tuple[Job, ...]]:
    """Eligible jobs that start together: groups, and each other job alone."""
    units: dict[tuple[bool, str], list[Job]] = {}
    for job in sorted(pricing.facts.eligible, key=lambda job: job.name):
        key = (False, job.name) if job.group is None else (True, job.group)
        units.setdefault(key, []).append(job)
    return [tuple(unit) for unit in units.values()]


def look_alikes(pricing: Pricing) -> list[object]:
    """For each node, what sets it apart from others whatever its state: equal ones may swap."""
    jobs = pricing.facts.snapshot.jobs
    named = {name for job in jobs for name in (*job.excluded_nodes, *job.required_nodes)}
    named |= {name for job in jobs if isinstance(job, Missing) for name in job.beside}
    named |= {name for nodes in pricing.facts.barred.values() for name in nodes}

    def mark(node: Node) -> str:
        return node.name if node.name in named else repr(node.model_copy(update={"name": "-"}))

    return [mark(node) for node in pricing.facts.snapshot.nodes]


# plans, one by one


def feasible_plans(snapshot: Snapshot) -> Iterator[dict[str, Placed]]:
    """All feasible sets of starts, the empty one included, but for symmetry.

    The tasks of a job, the GPUs of a node whose links make no difference, and nodes that are equal
    in everything but their name are interchangeable: one representative each.
    """
    pricing = Pricing(snapshot)
    units = start_units(pricing)
    alike = look_alikes(pricing)

    def extend(i: int, ground: Ground, plan: dict[str, Placed]) -> Iterator[dict[str, Placed]]:
        if i == len(units):
            if pricing.limits.in_order(models_of(plan)):
                yield plan
            return
        yield from extend(i + 1, ground, plan)
        for placed, after in unit_starts(pricing, units[i], ground, alike):
            more = {**plan, **placed}
            if pricing.limits.allow(models_of(more)):
                yield from extend(i + 1, after, more)

    return extend(0, pricing.ground, {})


def models_of(plan: Mapping[str, Placed]) -> dict[str, str | None]:
    return {name: placed.model for name, placed in plan.items()}


def unit_starts(
    pricing: Pricing, unit: tuple[Job, ...], ground: Ground, alike: list[object] | None
) -> Iterator[tuple[dict[str, Placed], Ground]]:
    """Ways to start all jobs of the unit, with the ground after each."""
    if not unit:
        yield {}, ground
        return
    for placed in placements(pricing.facts, unit[0], ground, alike):
        after = occupy(pricing.facts, ground, unit[0], placed)
        for others, last in unit_starts(pricing, unit[1:], after, alike):
            yield {unit[0].name: placed, **others}, last


# values, with plans merged that leave the same behind


def outcomes(
    snapshot: Snapshot, cap: int = CAP, plan: Plan | None = None
) -> set[tuple[int, ...]]:
    """The values of the stages that feasible plans reach. Raises TooLarge.

    Unit by unit of jobs that start together; plans that have started the same jobs on the same
    models and left the same ground go on as one, with the set of their tier sums. `plan`: whose
    reservations are respected.
    """
    pricing = Pricing(snapshot, plan)
    alike = look_alikes(pricing)
    layer: dict[tuple[Ground, Started], set[Sums]] = {
        (pricing.ground, ()): {tuple(pricing.running())}
    }
    for unit in start_units(pricing):
        steps: dict[Ground, dict[tuple[Ground, Started], set[Sums]]] = {}
        permitted: dict[Started, bool] = {}
        following: dict[tuple[Ground, Started], set[Sums]] = {}
        held = 0
        stay = _tier_sums(pricing, [(job, pricing.waits[job.name]) for job in unit])
        for (ground, started), sums in layer.items():
            if ground not in steps:
                steps[ground] = _steps(pricing, unit, ground, alike, cap)
            moves = {(ground, ()): {stay}, **steps[ground]}
            for (after, added), costs in moves.items():
                now = started + added
                if now not in permitted:
                    permitted[now] = not added or pricing.limits.allow(dict(now))
                if permitted[now]:
                    reached = following.setdefault((after, now), set())
                    held -= len(reached)
                    reached |= {_plus(old, cost) for old in sums for cost in costs}
                    held += len(reached)
                    if held > cap:
                        raise TooLarge
        layer = following
    return {
        pricing.total(dict(started), sums, ground)
        for (ground, started), all_sums in layer.items()
        if pricing.limits.in_order(dict(started))
        for sums in all_sums
    }


def _steps(
    pricing: Pricing, unit: tuple[Job, ...], ground: Ground, alike: list[object], cap: int
) -> dict[tuple[Ground, Started], set[Sums]]:
    """What starting the unit can lead to, with the costs of the ways there."""
    found: dict[tuple[Ground, Started], set[Sums]] = {}
    for tried, (placed, after) in enumerate(unit_starts(pricing, unit, ground, alike)):
        if tried > cap:
            raise TooLarge
        spreads = [
            (job, pricing.spread(job, placed[job.name].model, placed[job.name])) for job in unit
        ]
        added = tuple((job.name, placed[job.name].model) for job in unit)
        found.setdefault((after, added), set()).add(_tier_sums(pricing, spreads))
    return found


def _tier_sums(pricing: Pricing, costs: Iterable[tuple[Job, int]]) -> Sums:
    sums = [0] * pricing.rows()
    for job, cost in costs:
        sums[pricing.row(job)] += cost
    return tuple(sums)


def _plus(one: Sums, other: Sums) -> Sums:
    return tuple(a + b for a, b in zip(one, other, strict=True))


# optima


def lexicographic_optimum(snapshot: Snapshot, plan: Plan | None = None) -> dict[str, int]:
    """The least value of each stage, given the least of the stages before it.

    `plan`: whose reservations are respected.
    """
    return dict(zip(stage_names(snapshot), min(outcomes(snapshot, plan=plan)), strict=True))


def conditional_optimum(
    snapshot: Snapshot, achieved: Mapping[str, int], plan: Plan | None = None
) -> dict[str, int]:
    """For each stage the least value among plans no worse than `achieved` in earlier stages.

    `plan`: whose reservations are respected. Raises ValueError where no plan is as good as that.
    """
    left = outcomes(snapshot, plan=plan)
    least = {}
    for k, name in enumerate(stage_names(snapshot)):
        if not left:
            raise ValueError(f"no plan achieves {dict(achieved)}")
        least[name] = min(values[k] for values in left)
        if name in achieved:
            left = {values for values in left if values[k] <= achieved[name]}
    return least


def is_work_conserving(snapshot: Snapshot, plan: StartSets) -> bool:
    """§7: whether no further job (with its group) could start on top of the plan.

    With `fragmentation: weighted`: whether none could that lowers the objective.
    """
    pricing = Pricing(snapshot)
    facts = pricing.facts
    ground = pricing.ground
    full: dict[str, Placed] = {}
    for name, tasks in plan.items():
        job = facts.job[name]
        full[name] = Placed.on(model_of_plan(facts, job, tasks), tasks)
        ground = occupy(facts, ground, job, full[name])
    for unit in start_units(pricing):
        if unit[0].name in full:
            continue
        for placed, _ in unit_starts(pricing, unit, ground, None):
            more = {**full, **placed}
            starts = models_of(more)
            if not (pricing.limits.allow(starts) and pricing.limits.in_order(starts)):
                continue
            if facts.policy.fragmentation != "weighted":
                return False
            now, then = stage_values(snapshot, full), stage_values(snapshot, more)
            if list(then.values()) < list(now.values()):
                return False
    return True
