"""How snapshots and plans are written as JSON: defaults left out of snapshots, plans in full."""

from __future__ import annotations

from trencadis.models.base import SCHEMA_VERSION
from trencadis.models.plan import Plan
from trencadis.models.snapshot import Snapshot

MAX_INDENTED = 2_000
"""Nodes and jobs; larger snapshots are for machines and stand on one line."""


def snapshot_text(snapshot: Snapshot) -> str:
    """The snapshot as JSON. What it leaves out has the schema's default."""
    small = len(snapshot.nodes) + len(snapshot.jobs) <= MAX_INDENTED
    body = snapshot.model_dump_json(exclude_defaults=True, indent=2 if small else None)
    break_ = "\n  " if small else ""
    return f'{{{break_}"schema_version": {SCHEMA_VERSION},{body[1:]}\n'


def plan_text(plan: Plan) -> str:
    """The plan as JSON, every field."""
    return plan.model_dump_json(indent=2) + "\n"
