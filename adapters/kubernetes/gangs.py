"""Decides what a gang is before it becomes a job: pods that start together, and where it queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from trencadis.adapters.kubernetes.claims import Device
from trencadis.adapters.kubernetes.fields import Json
from trencadis.models.jobs import Segments, Toleration, Topology

Phase = Literal["pending", "held", "running", "draining"]


@dataclass(slots=True)
class Task:
    """A pod, or `count` alike that aren't made yet."""

    path: str
    name: str
    """Without the namespace."""
    namespace: str
    spec: Json
    labels: dict[str, str]
    annotations: dict[str, str]
    phase: Phase
    created: datetime
    owner: Json = field(default_factory=dict)
    count: int = 1
    node: str = ""
    started: datetime | None = None
    drain_ends: datetime | None = None
    devices: list[Device] = field(default_factory=list)
    status: Json = field(default_factory=dict)
    podset: str = ""
    uid: str = ""
    """Empty where the pod isn't made yet."""


@dataclass(slots=True)
class Gang:
    """Tasks that belong together."""

    name: str
    path: str
    queue: str
    tasks: list[Task] = field(default_factory=list)
    minimum: int | None = None
    """Tasks that must start together; all of them where None, each by itself where 1."""
    priority: int | None = None
    """Outranks what the pods say."""
    held: str = ""
    """Why it may not start."""
    preemptible: bool = True
    topology: Topology | None = None
    segments: Segments | None = None
    selector: dict[str, str] = field(default_factory=dict)
    """Beside the pods' own."""
    tolerations: tuple[Toleration, ...] = ()
    runtime_seconds: int | None = None
    minimums: dict[str, int] = field(default_factory=dict)
    """Minimum by pod set, where a gang has several."""
    topologies: dict[str, Topology] = field(default_factory=dict)
    sliced: dict[str, Segments] = field(default_factory=dict)
