"""The names and units of the stages, in lexicographic order."""

from __future__ import annotations

from typing import Literal

from trencadis.models import Snapshot

GUARANTEE = "guarantee"
GUARANTEE_PARENTS = "guarantee_parents"
FRAGMENTATION = "fragmentation"

Unit = Literal["milli-GPU", "weighted GPU-s", "GPU-s"]


def wait_stages(snapshot: Snapshot) -> list[str]:
    """The stages of waiting: one per tier under strict priorities, else a single one."""
    if snapshot.policy.priority_mode == "weighted":
        return ["wait"]
    return [f"tier:{tier.name}" for tier in snapshot.policy.tiers]


def unit_of(stage: str) -> Unit:
    """What a stage's numbers count."""
    if stage in (GUARANTEE, GUARANTEE_PARENTS):
        return "milli-GPU"
    return "GPU-s" if stage == FRAGMENTATION else "weighted GPU-s"
