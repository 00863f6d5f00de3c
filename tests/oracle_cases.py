"""Short builders for the hand-worked cases of the oracle's tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from oracle import outcomes

from trencadis.models import (
    Fabric,
    FabricLevel,
    GpuGroup,
    Job,
    Node,
    Policy,
    Queue,
    Request,
    Snapshot,
    TaskAllocation,
    Tier,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def after(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def node(name: str, gpus: int, model: str = "a", **fields: Any) -> Node:
    groups = (GpuGroup(model=model, count=gpus),) if gpus else ()
    return Node(name=name, **{"gpus": groups, **fields})


def job(name: str, gpus: int = 1, tasks: int = 1, waited: int = 0, **fields: Any) -> Job:
    request = Request(gpus=gpus, **fields.pop("request", {}))
    defaults = {"queue": "q", "submit": after(-waited), "tasks": tasks, "request": request}
    return Job(name=name, **{**defaults, **fields})


def running(name: str, *where: tuple[str, tuple[int, ...] | None], **fields: Any) -> Job:
    """A job that runs since now, a task per place."""
    allocation = tuple(TaskAllocation(node=place, gpus=gpus) for place, gpus in where)
    defaults = {"state": "running", "start": NOW, "tasks": len(where), "allocation": allocation}
    return job(name, **{**defaults, **fields})


def snap(nodes: list[Node], jobs: list[Job], levels: str = "", **fields: Any) -> Snapshot:
    """One tier, an hour's horizon, fl = 500; `policy` overrides single fields of the policy."""
    base: dict[str, Any] = {"tiers": (Tier(name="t"),), "default_tier": "t"}
    policy = {**base, "share_floor_milli": 500, **fields.pop("policy", {})}
    fabric = Fabric(levels=tuple(FabricLevel(name=name) for name in levels.split()))
    parts = {"queues": (Queue(name="q"),), "fabric": fabric, **fields}
    return Snapshot(now=NOW, nodes=tuple(nodes), jobs=tuple(jobs), policy=Policy(**policy), **parts)


def tier_costs(snapshot: Snapshot) -> set[int]:
    """The values of the only tier."""
    return {values[2] for values in outcomes(snapshot)}
