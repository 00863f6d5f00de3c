"""A cluster in figures: nodes by domain, what of their GPUs is used, idle, broken, held."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trencadis.models.cluster import Node
from trencadis.models.snapshot import Snapshot
from trencadis.models.spares import is_spare
from trencadis.solver.verify.fragmentation import Fragmentation
from trencadis.solver.verify.situation import Situation, situate
from trencadis.solver.verify.supply import NodeState
from trencadis.views.parts import MigFacts, PartFacts, part_facts, part_record

_NUMBERED = re.compile(r"([^0-9]*)([0-9]{0,18})")

USED, IDLE, BROKEN, HELD, MIG, SHARED = "used", "idle", "broken", "held", "mig", "shared"
STATES = (USED, IDLE, HELD, MIG, SHARED, BROKEN)
"""Of a GPU: whole and used, idle or held; cut by MIG; shared by jobs; broken."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node."""

    name: str
    path: tuple[str, ...]
    models: tuple[str, ...]
    gpus: tuple[str, ...]
    """State of each GPU by index; used ones first where indices are unknown."""
    counted: bool
    """Indices unknown: only the numbers are right."""
    marks: tuple[str, ...]
    """What keeps jobs away."""
    cpu_milli: int
    """Free."""
    memory_mib: int
    """Free."""
    jobs: int
    parts: tuple[PartFacts, ...] = ()
    """GPUs in MIG mode and shared ones, by index."""

    def number(self, state: str) -> int:
        """GPUs in this state."""
        return self.gpus.count(state)


@dataclass(frozen=True, slots=True)
class DomainFacts:
    """The nodes of one domain."""

    path: tuple[str, ...]
    nodes: tuple[NodeFacts, ...]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The domain's path."""
        return "/".join(self.path) or "(no fabric)"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The whole cluster."""

    snapshot: Snapshot
    situation: Situation
    nodes: tuple[NodeFacts, ...]
    counts: Mapping[str, int]
    by_model: Mapping[str, tuple[int, int]]
    """Model -> healthy GPUs and idle GPUs."""
    fragmentation_milli: int
    """F / idle GPUs, whole or in parts, thousandths."""

    def domains(self, depth: int) -> list[DomainFacts]:
        """The nodes by their domain at this depth."""
        groups: dict[tuple[str, ...], list[NodeFacts]] = defaultdict(list)
        for node in self.nodes:
            groups[node.path[:depth]].append(node)
        return [
            DomainFacts(path, tuple(group), totals(group))
            for path, group in sorted(groups.items(), key=lambda item: natural(*item[0]))
        ]


def natural(*names: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """A key that sorts leaf2 before leaf10."""
    return tuple(
        tuple((text, int(digits or 0)) for text, digits in _NUMBERED.findall(name))
        for name in names
    )


def totals(nodes: Iterable[NodeFacts]) -> dict[str, int]:
    """GPUs by state."""
    counts = dict.fromkeys(STATES, 0)
    for node in nodes:
        for state in node.gpus:
            counts[state] += 1
    return counts


def cluster_facts(snapshot: Snapshot) -> ClusterFacts:
    """Work out what `show` says."""
    situation = situate(snapshot)
    held: dict[str, set[int]] = defaultdict(set)
    for hold in snapshot.delayed:
        for task in hold.allocation:
            held[task.node].update(task.gpus or ())
    jobs: dict[str, set[str]] = defaultdict(set)
    used: dict[str, set[int]] = defaultdict(set)
    for job in snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                jobs[task.node].add(job.name)
                used[task.node].update(task.gpus or ())
    parts = part_facts(snapshot)
    facts = []
    by_model: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    idle = 0
    knife, unit = situation.knife, situation.scale.unit
    for node in snapshot.nodes:
        state = situation.states[node.name]
        facts.append(
            NodeFacts(
                name=node.name,
                path=node.fabric,
                models=tuple(dict.fromkeys(group.model for group in node.gpus)),
                gpus=_states(
                    node, state, used[node.name], held[node.name], parts.get(node.name, ())
                ),
                counted=state.counted,
                marks=_marks(node, snapshot, state),
                cpu_milli=state.cpu_milli,
                memory_mib=state.memory_mib,
                jobs=len(jobs[node.name]),
                parts=parts.get(node.name, ()),
            )
        )
        if not node.down:
            for model in state.models.values():
                by_model[model][0] += 1
            for model, amount in state.gpus.items():
                by_model[model][1] += amount
            if not node.cordoned and not state.exclusive:
                idle += unit * sum(state.gpus.values())
                idle += sum(knife.idle_units(gpu, unit) for gpu in state.second.gpus.values())
    lost = Fragmentation(situation).total_of(situation.states.values())
    horizon = snapshot.policy.horizon_seconds
    return ClusterFacts(
        snapshot=snapshot,
        situation=situation,
        nodes=tuple(sorted(facts, key=lambda node: natural(*node.path, "", node.name))),
        counts=totals(facts),
        by_model={model: (pair[0], pair[1]) for model, pair in sorted(by_model.items())},
        fragmentation_milli=lost * 1_000 * unit // (idle * horizon) if idle else 0,
    )


def _states(
    node: Node, state: NodeState, used: set[int], held: set[int], parts: Sequence[PartFacts]
) -> tuple[str, ...]:
    broken = node.gpu_count - len(state.models)
    if state.counted:
        idle = sum(state.gpus.values())
        busy = node.gpu_count - broken - idle
        return (USED,) * busy + (IDLE,) * idle + (BROKEN,) * broken
    in_parts = {part.gpu: MIG if isinstance(part, MigFacts) else SHARED for part in parts}
    kinds = []
    for gpu in range(node.gpu_count):
        if gpu not in state.models:
            kinds.append(BROKEN)
        elif gpu in in_parts:
            kinds.append(in_parts[gpu])
        elif gpu in used:
            kinds.append(USED)
        elif gpu in held:
            kinds.append(HELD)
        else:
            kinds.append(IDLE)
    return tuple(kinds)


def _marks(node: Node, snapshot: Snapshot, state: NodeState) -> tuple[str, ...]:
    marks = []
    if node.down:
        marks.append("down")
    if node.cordoned:
        marks.append("cordoned")
    if state.exclusive:
        marks.append("exclusive")
    if node.free_until is not None:
        marks.append(f"until {node.free_until:%m-%d %H:%M}")
    for window in node.maintenance:
        if snapshot.now < window.end:
            marks.append(f"out {window.start:%m-%d %H:%M} to {window.end:%m-%d %H:%M}")
    if node.health_score_milli < snapshot.policy.poor_health_milli:
        marks.append("poor health")
    if is_spare(state.node):
        marks.append("spare")
    marks.extend(f"taint {taint.key}" for taint in node.taints)
    return tuple(marks)


def cluster_record(facts: ClusterFacts, queues: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The cluster for `--json`."""
    snapshot = facts.snapshot
    return {
        "now": snapshot.now.isoformat().replace("+00:00", "Z"),
        "levels": [level.name for level in snapshot.fabric.levels],
        "gpus": dict(facts.counts),
        "by_model": {
            model: {"healthy": healthy, "idle": idle}
            for model, (healthy, idle) in facts.by_model.items()
        },
        "fragmentation_milli": facts.fragmentation_milli,
        "nodes": [
            {
                "name": node.name,
                "fabric": list(node.path),
                "gpu_models": list(node.models),
                "gpus": list(node.gpus),
                "counted": node.counted,
                "marks": list(node.marks),
                "free_cpu_milli": node.cpu_milli,
                "free_memory_mib": node.memory_mib,
                "jobs": node.jobs,
                **({"parts": [part_record(part) for part in node.parts]} if node.parts else {}),
            }
            for node in facts.nodes
        ],
        "queues": [
            {key: value for key, value in queue.items() if not key.endswith("_text")}
            for queue in queues
        ],
    }
