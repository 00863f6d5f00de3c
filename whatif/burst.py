"""Nodes rented by the hour beside the cluster, for jobs that were preempted and wait.

No policy sees them: what a round leaves waiting although it ran before goes there, and stays until
its end. A node is paid for in begun hours, from the moment it is asked for until the hour is over
in which its last job ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from trencadis.models import Fault, InvalidInputError, Job, Snapshot, TaskAllocation
from trencadis.whatif.cluster import ClusterState
from trencadis.whatif.clusters import node_of, sku_of
from trencadis.whatif.decisions import model_of
from trencadis.whatif.kinds import NODES_PER_LEAF, spelled
from trencadis.whatif.placing import Placer
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.prices import Burst, FabricKind, PriceList, Sku
from trencadis.whatif.runs import JobRun, rate_of

HOUR = 3_600


@dataclass(frozen=True, slots=True)
class BurstKind:
    """What can be rented, with its node and network looked up."""

    burst: Burst
    sku: Sku
    fabric: FabricKind | None


@dataclass(frozen=True, slots=True)
class BurstUse:
    """What burst nodes did in a replay."""

    kind: str
    jobs: int
    """Sent there."""
    most_nodes: int
    """Rented at once."""
    node_hours: int
    """Paid for."""
    gpu_hours: float
    """That jobs occupied."""
    useful_gpu_hours: float
    """Of that: without starts, waits for nodes, distance."""
    cost: float


def burst_kind(name: str, prices: PriceList) -> BurstKind:
    """The kind with this name. Raises InvalidInputError."""
    burst = next((entry for entry in prices.bursts if entry.name == name), None)
    if burst is None:
        known = ", ".join(entry.name for entry in prices.bursts) or "none"
        raise InvalidInputError([Fault("burst", f"no burst kind {name!r}; there are {known}")])
    sku = sku_of(burst.sku, prices)
    fabric = None if burst.fabric is None else prices.fabric(burst.fabric)
    faults = []
    if sku is None:
        faults.append(Fault("burst", f"{name}: no kind of node {burst.sku!r}"))
    if burst.fabric is not None and fabric is None:
        faults.append(Fault("burst", f"{name}: no fabric {burst.fabric!r}"))
    if sku is None or faults:
        raise InvalidInputError(faults)
    return BurstKind(burst, sku, fabric)


def mean_use(uses: Sequence[BurstUse | None]) -> BurstUse | None:
    """Of several replays; counts are rounded up. None where there were no burst nodes."""
    known = [use for use in uses if use is not None]
    if not known:
        return None

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(known)

    return BurstUse(
        kind=known[0].kind,
        jobs=ceil(mean(use.jobs for use in known)),
        most_nodes=max(use.most_nodes for use in known),
        node_hours=ceil(mean(use.node_hours for use in known)),
        gpu_hours=mean(use.gpu_hours for use in known),
        useful_gpu_hours=mean(use.useful_gpu_hours for use in known),
        cost=mean(use.cost for use in known),
    )


class BurstPool:
    """The nodes that can be rented, which of them are, and since when."""

    def __init__(self, kind: BurstKind, cluster: Snapshot, jobs: Iterable[Job]) -> None:
        self.kind = kind.burst
        self.place = _beside(kind, cluster)
        self.placer = Placer(self.place, jobs)
        self.state = ClusterState(self.place)
        self.rented = np.zeros(len(self.place.nodes), dtype=bool)
        self.ready = np.zeros(len(self.place.nodes), dtype=np.int64)
        """When a rented node can be used."""
        self._since = np.zeros_like(self.ready)
        self._empty = np.zeros_like(self.ready)
        """When the last job of a rented node without one ended."""
        self.jobs = 0
        self.most_nodes = 0
        self.node_hours = 0
        """Of rentals that are over."""

    def send(self, run: JobRun, now: int, serial_milli: int) -> bool:
        """Puts the job onto nodes, rented ones first; False where it fits on none."""
        self._hand_back(now)
        allocation = self._find(run.job, now)
        if allocation is None:
            return False
        rows = sorted({self.state.row[task.node] for task in allocation})
        for row in rows:
            if not self.rented[row]:
                self.rented[row] = True
                self._since[row] = now
                self.ready[row] = now + self.kind.start_seconds
        self.state.take(run.job, allocation)
        rules = self.place.policy.preemption
        again = rules.restart_seconds_multi_node if len(rows) > 1 else rules.restart_seconds
        run.allocation = allocation
        run.restart = max(0, int(self.ready[rows].max()) - now) + again
        run.slow = self.placer.slowdown(run.job, allocation)
        speed = self.placer.speed(run.job, model_of(self.state, allocation))
        run.rate = rate_of(run.job, len(allocation), speed, run.slow, serial_milli)
        self.jobs += 1
        self.most_nodes = max(self.most_nodes, int(self.rented.sum()))
        return True

    def release(self, run: JobRun, now: int) -> None:
        """Takes the job off its nodes."""
        self.state.release(run.job, run.allocation)
        for task in run.allocation:
            row = self.state.row[task.node]
            if not self.state.tasks[row]:
                self._empty[row] = now

    def use(self, runs: Iterable[JobRun], now: int) -> BurstUse:
        """What it came to until now."""
        hours = self.node_hours
        for row in np.flatnonzero(self.rented):
            end = now if self.state.tasks[row] else int(self._empty[row])
            hours += _begun(end - int(self._since[row]))
        spent = [run.away for run in runs]
        micro = 1_000 * 1_000 * HOUR
        return BurstUse(
            kind=self.kind.name,
            jobs=self.jobs,
            most_nodes=self.most_nodes,
            node_hours=hours,
            gpu_hours=sum(entry.total for entry in spent) / micro,
            useful_gpu_hours=sum(entry.useful for entry in spent) / micro,
            cost=hours * self.kind.price_per_hour_milli / 1_000,
        )

    def _find(self, job: Job, now: int) -> tuple[TaskAllocation, ...] | None:
        """All its tasks on rented nodes, else with further ones; else its minimum."""
        for tasks in dict.fromkeys((job.tasks, job.minimum)):
            for up in (self.rented, np.ones_like(self.rented)):
                self.state.up = up.copy()
                found = self.placer.place(self.state, job, now, BestFit(), tasks)
                if found is not None:
                    return found
        return None

    def _hand_back(self, now: int) -> None:
        """Empty nodes whose paid hours are over."""
        for row in np.flatnonzero(self.rented & (self.state.tasks == 0)):
            hours = _begun(int(self._empty[row] - self._since[row]))
            if now >= self._since[row] + hours * HOUR:
                self.rented[row] = False
                self.node_hours += hours


def _begun(span: int) -> int:
    """Hours of which at least a part is over; a rental lasts one."""
    return max(1, -(-span // HOUR))


def _beside(kind: BurstKind, cluster: Snapshot) -> Snapshot:
    """The burst nodes, under levels named as the cluster's, apart from all of its nodes."""
    burst, fabric = kind.burst, kind.fabric
    sku = spelled(kind.sku, cluster)
    per_leaf = NODES_PER_LEAF if fabric is None else fabric.nodes_per_leaf
    depth = len(cluster.fabric.levels)
    nodes = []
    for number in range(burst.nodes):
        leaf = f"{burst.name}~{number // per_leaf + 1}"
        path = (*[burst.name] * (depth - 1), leaf) if depth else ()
        nodes.append(node_of(sku, f"{burst.name}~{number + 1}", path))
    levels = cluster.fabric.levels
    if fabric is not None and levels:
        kinds = [*[fabric.beyond] * (depth - 1), fabric.leaf]
        levels = tuple(
            level.model_copy(update={"kind": name})
            for level, name in zip(levels, kinds, strict=True)
        )
    return cluster.model_copy(
        update={
            "nodes": tuple(nodes),
            "fabric": cluster.fabric.model_copy(update={"levels": levels}),
        }
    )
