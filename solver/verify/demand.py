"""Which jobs take part in the round, and in which tier (problem.md, 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from trencadis.models import Job, Policy, Snapshot
from trencadis.solver.verify.units import Ask


def ineligible(snapshot: Snapshot, asks: Mapping[str, Ask]) -> dict[str, str]:
    """Why a pending or held job may not start, by name."""
    present = {job.name for job in snapshot.jobs}
    held = {hold.job for hold in snapshot.delayed}
    reasons: dict[str, str] = {}
    members: dict[str, list[str]] = defaultdict(list)
    for job in snapshot.jobs:
        if job.state not in ("pending", "held"):
            continue
        if job.group is not None:
            members[job.group].append(job.name)
        if job.state == "held":
            reasons[job.name] = "it is held"
        elif job.not_before is not None and job.not_before > snapshot.now:
            reasons[job.name] = f"it may not start before {job.not_before.isoformat()}"
        elif not present.isdisjoint(job.after):
            first = next(name for name in job.after if name in present)
            reasons[job.name] = f"job {first} must have left first"
        elif job.name in held:
            reasons[job.name] = "a hold keeps its place for a later start"
        elif asks[job.name].slices and job.minimum >= 2 and job.communicates:
            reasons[job.name] = "its tasks communicate, which MIG slices can't"
    for group, names in members.items():
        stopped = next((name for name in names if name in reasons), None)
        if stopped is not None:
            for name in names:
                reasons.setdefault(name, f"job {stopped} of its group {group} may not start")
    return reasons


def tier_of(job: Job, waited: int, policy: Policy, index: Mapping[str, int]) -> int:
    """The job's tier after promotions; 0 is the top. `index` is the place of each tier's name."""
    tier = index[job.priority or policy.default_tier]
    if policy.promote_after_seconds is not None:
        tier -= waited // policy.promote_after_seconds
    return max(0, tier)
