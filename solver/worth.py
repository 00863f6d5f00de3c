"""What a job is worth: tier, size, cost of waiting, cost of being spread or on slower GPUs.

The formulas are those of docs/problem.md, sections 1, 2, 5 and 6, in integers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models import Job, Missing, Policy, Snapshot
from trencadis.models.base import seconds
from trencadis.models.units import Sizes, asks_for_mig, sizes
from trencadis.solver.capacity import Capacity
from trencadis.solver.entitlement import QueueTree, entitlements, queue_tree, share_factors

MOST_WEIGHT_MILLI = 1_000_000
"""As of `Job.weight_milli`."""


def ceil_div(a: int, b: int) -> int:
    """Division rounded up, for non-negative a and positive b."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Worth:
    """An eligible job in the currency of the round."""

    tier: int
    """0 is the top."""
    units: int
    """Quota units of its minimum."""
    size: int
    """Size in units."""
    wait: int
    """Weighted GPU-seconds that it costs to leave it pending."""
    rate: int
    """The same per unit of size, on a scale of its own, not rounded: what compares jobs."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The parts of the cost formulas that don't depend on the job's placement."""

    sizes: Sizes
    """Quota units of requests."""
    horizon: int
    floor: int
    pcie: int
    missed: int
    tier_weight: tuple[int, ...]
    """1 each under strict priorities."""
    level_slowdown: tuple[int, ...]
    """Thousandths by depth, 0 (cluster) to the finest level; coarser is never cheaper."""

    @property
    def unit(self) -> int:
        """Units of a GPU."""
        return self.sizes.unit

    def spread(self, tier: int, size: int, rest: int, speed: int, slowdown: int) -> int:
        """A: loss to distance and slower GPUs of a whole job, weighted GPU-seconds."""
        lost = 1_000_000 - speed * (1_000 - slowdown)
        scale = 1_000 * 1_000_000 * self.unit
        return self.tier_weight[tier] * self.floor * size * rest * lost // scale

    def unlinked(self, tier: int, gpus: int, rest: int, speed: int) -> int:
        """B: loss of one set of GPUs that NVLink doesn't join."""
        if gpus < 2:
            return 0
        scale = 1_000 * 1_000_000
        return self.tier_weight[tier] * self.floor * gpus * rest * speed * self.pcie // scale


@dataclass(frozen=True, slots=True)
class Values:
    """The eligible jobs and what each is worth."""

    rates: Rates
    eligible: Mapping[str, Job]
    worth: Mapping[str, Worth]
    tree: QueueTree
    entitlement: Mapping[str, int]


def tier_of(snapshot: Snapshot, job: Job) -> int:
    """Index of the job's tier after promotion; 0 is the top."""
    policy = snapshot.policy
    names = [tier.name for tier in policy.tiers]
    index = names.index(job.priority or policy.default_tier)
    if policy.promote_after_seconds:
        index -= waited(snapshot, job) // policy.promote_after_seconds
    return max(0, index)


def waited(snapshot: Snapshot, job: Job) -> int:
    """Seconds since it was submitted."""
    return max(0, seconds(snapshot.now) - seconds(job.submit))


def weight_milli(policy: Policy, job: Job) -> int:
    """Weight inside the tier while it waits; more for short jobs if the policy wants it so."""
    if policy.short_first_seconds is None or job.runtime_seconds is None:
        return job.weight_milli
    short = job.weight_milli * policy.short_first_seconds // job.runtime_seconds
    return min(MOST_WEIGHT_MILLI, max(job.weight_milli, short))


def talks_across_slices(job: Job) -> bool:
    """Whether tasks that talk to each other ask for MIG slices, which neither NVLink nor
    peer-to-peer copies join."""
    return job.minimum > 1 and job.communicates and asks_for_mig(job.request)


def eligible_jobs(snapshot: Snapshot) -> dict[str, Job]:
    """Pending jobs that take part in this round."""
    names = {job.name for job in snapshot.jobs}
    held = {hold.job for hold in snapshot.delayed}
    blocked_groups: set[str] = set()
    eligible: dict[str, Job] = {}
    for job in snapshot.jobs:
        if job.state not in ("pending", "held"):
            continue
        ready = (
            job.state == "pending"
            and (job.not_before is None or job.not_before <= snapshot.now)
            and not any(name in names for name in job.after)
            and job.name not in held
            and not talks_across_slices(job)
        )
        if ready:
            eligible[job.name] = job
        elif job.group is not None:
            blocked_groups.add(job.group)
    return {
        name: job
        for name, job in eligible.items()
        if job.group is None or job.group not in blocked_groups
    }


def rates(snapshot: Snapshot) -> Rates:
    """Reads the policy's numbers for the formulas."""
    policy = snapshot.policy
    kinds = ["cluster", *(level.kind or level.name for level in snapshot.fabric.levels)]
    slow = [policy.slowdown(kind) for kind in kinds]
    for depth in range(len(slow) - 2, -1, -1):
        slow[depth] = max(slow[depth], slow[depth + 1])
    strict = policy.priority_mode == "strict"
    return Rates(
        sizes=sizes(snapshot),
        horizon=policy.horizon_seconds,
        floor=policy.share_floor_milli,
        pcie=policy.slowdown("pcie"),
        missed=policy.missed_preference_milli,
        tier_weight=tuple(1 if strict else tier.weight for tier in policy.tiers),
        level_slowdown=tuple(slow),
    )


def size_of(job: Job, tasks: int, rates: Rates, supply: Capacity) -> int:
    """Size in units: the largest of its shares of GPUs, CPUs and memory."""
    unit = rates.unit
    terms = [1, tasks * rates.sizes.task(job.request)]
    if supply.cpu_milli:
        need = tasks * job.request.cpu_milli * unit * supply.gpus
        terms.append(ceil_div(need, supply.cpu_milli))
    if supply.memory_mib:
        need = tasks * job.request.memory_mib * unit * supply.gpus
        terms.append(ceil_div(need, supply.memory_mib))
    return max(terms)


def values(snapshot: Snapshot, supply: Capacity) -> Values:
    """Everything that the round needs to know of what jobs are worth."""
    table = rates(snapshot)
    eligible = eligible_jobs(snapshot)
    tree = queue_tree(snapshot)
    in_use: defaultdict[str, int] = defaultdict(int)
    asked: defaultdict[str, int] = defaultdict(int)
    for job in snapshot.jobs:
        if job.on_nodes:
            in_use[job.queue] += table.sizes.job(job)
    by_queue: defaultdict[str, list[tuple[Job, int, int]]] = defaultdict(list)
    for job in eligible.values():
        units = table.sizes.job(job)
        asked[job.queue] += units
        by_queue[job.queue].append((job, tier_of(snapshot, job), units))
    entitled = entitlements(tree, in_use, asked, supply.gpus * table.unit, table.unit)
    aging = snapshot.policy.aging_seconds
    worth: dict[str, Worth] = {}
    for queue, members in by_queue.items():
        factors = share_factors(members, in_use[queue], entitled.get(queue, 0), table.floor)
        # A gang that runs was let in before.
        factors |= {job.name: 1_000 for job, _, _ in members if isinstance(job, Missing)}
        for job, tier, units in members:
            size = size_of(job, job.minimum, table, supply)
            # A gang that lacks tasks waits as a whole.
            whole = size_of(job, job.gang_size, table, supply)
            weight = table.tier_weight[tier] * weight_milli(snapshot.policy, job)
            weight *= factors[job.name]
            rate = weight * (aging + waited(snapshot, job))
            cost = rate * whole * table.horizon
            wait = max(1, ceil_div(cost, 1_000 * aging * 1_000 * table.unit))
            worth[job.name] = Worth(tier, units, size, wait, rate)
    return Values(table, eligible, worth, tree, entitled)


def rest_of(snapshot: Snapshot, job: Job) -> int:
    """Seconds within the horizon that the job has still to run."""
    horizon = snapshot.policy.horizon_seconds
    if job.runtime_seconds is None:
        return horizon
    done = 0
    if job.on_nodes and job.start is not None:
        done = max(0, seconds(snapshot.now) - seconds(job.start))
    return min(horizon, max(0, job.runtime_seconds - done))


def speeds(
    snapshot: Snapshot, job: Job, present: Mapping[str, int], running_on: str = ""
) -> dict[str, int]:
    """Relative speed on each GPU model that it may use and that is there, thousandths."""
    table = snapshot.policy.gpu_speed_milli
    raw = {
        model: job.speed_milli.get(model, table.get(model, 1_000))
        for model in (*present, *([running_on] if running_on else ()))
        if not job.gpu_models or model in job.gpu_models or model == running_on
    }
    best = max(raw.values(), default=1)
    return {model: max(1, 1_000 * speed // best) for model, speed in raw.items()}
