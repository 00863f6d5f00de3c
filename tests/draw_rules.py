"""Tiny queues, QOS and policies whose limits are near what is asked for."""

from __future__ import annotations

from draw_cluster import Cluster
from pen import Pen

from trencadis.models import DemandEntry, Limits, Policy, Qos, Queue, Quota, Request, Tier
from trencadis.models.policy import Preemption


def draw_queues(pen: Pen, cluster: Cluster) -> tuple[Queue, ...]:
    if not pen.has("queues"):
        return (Queue(name="q0"),)
    number = pen.of(2, 3) if pen.has("lending") else pen.between(1, 3)
    leaves = [_queue(pen, cluster, f"q{i}") for i in range(number)]
    if pen.some("parents", 2):
        parent = _queue(pen, cluster, "top").model_copy(update={"order": "best_effort"})
        first = leaves[0].model_copy(update={"parent": "top"})
        others = [leaf.model_copy(update={"parent": pen.of("top", None)}) for leaf in leaves[1:]]
        return (first, *others, parent)
    return tuple(leaves)


def _queue(pen: Pen, cluster: Cluster, name: str) -> Queue:
    guarantee = Quota()
    if pen.between(1, 3) > 1:
        guarantee = _quota(pen, cluster)
    limit = _limits(pen, cluster) if pen.between(1, 3) > 1 and pen.has("limits") else Limits()
    lending = None
    if pen.some("lending", 1) and (guarantee.total_milli() or guarantee.by_model):
        lending = Quota(
            gpus=pen.of(0, 0, 1, None),
            by_model={model: pen.of(0, 1) for model in guarantee.by_model},
        )
    return Queue(
        name=name,
        weight=pen.of(1, 1, 2, 3),
        guarantee=guarantee,
        limit=limit,
        lending_limit=lending,
        past_usage_gpu_hours=pen.of(0, 1, 10) if pen.has("usage") else 0,
        order="strict_fifo" if pen.between(1, 3) > 1 and pen.has("fifo") else "best_effort",
    )


def _quota(pen: Pen, cluster: Cluster) -> Quota:
    most = max(1, min(6, cluster.supply))
    by_model = {}
    if cluster.models and pen.between(1, 3) == 3:
        by_model = {pen.of(*cluster.models): pen.between(0, min(3, most))}
    kind = pen.between(1, 6)
    if kind == 6:
        return Quota(gpu_milli=pen.of(500, 1_500, 2_500), by_model=by_model)
    if kind == 5 and by_model:
        return Quota(by_model=by_model)
    return Quota(gpus=pen.of(1, 2, most, 0, max(1, most - 1)), by_model=by_model)


def _limits(pen: Pen, cluster: Cluster) -> Limits:
    kind = pen.between(0, 3) if pen.has("users") else pen.of(0, 2)
    return Limits(
        quota=_quota(pen, cluster) if kind in (0, 3) else Quota(),
        quota_per_user=_quota(pen, cluster) if kind == 1 else Quota(),
        jobs=pen.of(1, 2, 1, 3, 0) if kind == 2 else None,
        jobs_per_user=pen.of(1, 2) if kind == 3 else None,
    )


def draw_qos(pen: Pen) -> tuple[Qos, ...]:
    if not pen.has("qos"):
        return ()
    limit = pen.of(
        Limits(jobs=1),
        Limits(quota=Quota(gpus=2)),
        Limits(quota_per_user=Quota(gpus=1)),
        Limits(jobs_per_user=1),
    )
    return (Qos(name="gold", limit=limit),)


def draw_policy(pen: Pen, cluster: Cluster) -> Policy:
    tiers = pen.of(
        (Tier(name="normal", weight=4),),
        (Tier(name="high", weight=16), Tier(name="normal", weight=4)),
        (Tier(name="high", weight=5), Tier(name="normal", weight=2), Tier(name="low", weight=1)),
    )
    slow = {"pcie": pen.of(150, 0, 300), "cluster": pen.of(100, 30), "spine": 50, "leaf": 30}
    if pen.has("fabric"):
        slow |= {"odd": pen.of(10, 200, 0), "other": pen.of(50, 0)}
    profile: tuple[DemandEntry, ...] = ()
    if pen.some("profile", 2):
        profile = (
            DemandEntry(request=Request(gpus=pen.of(1, 2, 4)), weight=pen.of(1, 3)),
            DemandEntry(
                request=Request(gpus=2, cpu_milli=1_000),
                gpu_models=cluster.models[:1],
                nvlink_required=pen.of(False, True),
            ),
        )
    modes = pen.has("modes") or pen.has("horizon")
    return Policy(
        tiers=tiers if pen.has("tiers") else (Tier(name="normal", weight=pen.of(1, 4)),),
        default_tier="normal",
        priority_mode=pen.of("strict", "strict", "weighted") if modes else "strict",
        fragmentation=pen.of("last", "last", "weighted", "off") if modes else "last",
        fragmentation_weight_milli=pen.of(1_000, 0, 350, 2_500) if modes else 1_000,
        promote_after_seconds=pen.of(86_400, 3_600, 3_600, 600, None)
        if pen.has("aging")
        else 86_400,
        horizon_seconds=pen.of(3_600, 60, 7, 1) if modes else 3_600,
        aging_seconds=pen.of(14_400, 1_000) if pen.has("aging") else 14_400,
        short_first_seconds=pen.of(None, 600, 86_400) if pen.has("aging") else None,
        share_floor_milli=pen.of(500, 1, 333, 1_000) if pen.has("weights") else 500,
        slowdown_milli=slow,
        missed_preference_milli=pen.of(40, 0, 200) if pen.has("topology") else 40,
        gpu_speed_milli=pen.of({}, {"h100": 2_500, "a100": 1_000}, {"a100": 3_000})
        if pen.has("models")
        else {},
        demand_profile=profile,
        poor_health_milli=500,
        large_gang_gpus=pen.of(2, 3, 4, 16) if pen.has("health") else 16,
        # The brute force starts jobs; what preempting plans must keep has tests of its own.
        preemption=Preemption(mode="none"),
    )
