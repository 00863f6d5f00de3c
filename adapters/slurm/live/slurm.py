"""Slurm as a native scheduler: how it is read, and by which commands it is steered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trencadis.adapters.live.cluster import (
    PREFIX,
    JobView,
    Reading,
    RefusedError,
    Terms,
    UnavailableError,
)
from trencadis.adapters.slurm.fields import entries
from trencadis.adapters.slurm.hostlist import compress
from trencadis.adapters.slurm.live import show
from trencadis.adapters.slurm.live.commands import Commands
from trencadis.adapters.slurm.live.config import SlurmConfig
from trencadis.adapters.slurm.live.contested import contested
from trencadis.adapters.slurm.live.documents import (
    Documents,
    read_documents,
    without_ours,
)
from trencadis.adapters.slurm.live.preemption import objections
from trencadis.adapters.slurm.live.qos import QosLimits, qos_table
from trencadis.adapters.slurm.live.records import MAX_ARRAY, Prepared, prepare
from trencadis.adapters.slurm.live.reservations import Reservations
from trencadis.adapters.slurm.live.rest import Rest
from trencadis.adapters.slurm.snapshot import read_slurm
from trencadis.models import Job, Snapshot, TaskAllocation


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class SlurmCluster:
    """`adapters.live.cluster.Cluster` for Slurm."""

    def __init__(
        self,
        config: SlurmConfig,
        run: Commands | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.config = config
        self._run = run or Commands(config.slurm.command_timeout_seconds)
        self._clock = clock
        self._rest = None
        if config.slurm.slurmrestd is not None:
            self._rest = Rest(
                config.slurm.slurmrestd, config.slurm.token, config.slurm.command_timeout_seconds
            )
        self._qos = QosLimits(self._run)
        self._nodes: frozenset[str] = frozenset()
        self._users: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        self._reservations = Reservations(self._run, clock)

    # Reading

    def read(self, remembered: Mapping[str, Terms]) -> Reading:
        """Jobs, nodes and all else, as a snapshot and views."""
        documents = read_documents(self.config.slurm, self._run, self._rest)
        now = self._clock()
        records = entries(documents.jobs, "jobs", "jobs")
        blocks = documents.settings.get("TopologyPlugin", "").endswith("/block")
        prepared = prepare(records, self.config, remembered, now, blocks=blocks)
        self._users, self._reserved = prepared.users, prepared.reserved
        silent = () if self.config.qos else self._qos.read(documents.settings)
        nodes, reservations = without_ours(documents, PREFIX, now)
        config = self.config
        snapshot, warnings = read_slurm(
            {**documents.jobs, "jobs": prepared.records},
            nodes,
            documents.topology,
            partitions_json=documents.partitions,
            reservations_json=reservations,
            licenses_json=documents.licenses,
            now=now,
            queue_by=config.slurm.queue_by,
            tiers=config.slurm.tiers,
            policy=config.policy,
            queues=config.queues,
            qos=config.qos or self._qos.known,
            array_tasks=MAX_ARRAY,
        )
        self._nodes = frozenset(node.name for node in snapshot.nodes)
        return Reading(
            self._fitted(snapshot, prepared, documents),
            prepared.views,
            (*warnings, *silent),
            contested(documents.partitions, prepared, remembered, config.live.scope),
        )

    def _fitted(self, snapshot: Snapshot, prepared: Prepared, documents: Documents) -> Snapshot:
        scope = self.config.live.scope
        return snapshot.model_copy(
            update={
                # A layout that the plan counts on would have to be there, and none is sent; nor
                # does anything add a task to a job that runs.
                "policy": snapshot.policy.model_copy(
                    update={
                        "mig": snapshot.policy.mig.model_copy(update={"reconfigure": "forbid"}),
                        "repairs": False,
                    }
                ),
                "jobs": tuple(self._job(job, prepared, documents) for job in snapshot.jobs),
                "nodes": tuple(
                    node
                    if scope.has_node(node.name)
                    else node.model_copy(update={"cordoned": True})
                    for node in snapshot.nodes
                ),
            }
        )

    def _job(self, job: Job, prepared: Prepared, documents: Documents) -> Job:
        update: dict[str, Any] = {}
        view = prepared.views.get(job.name)
        outside = any(not self.config.live.scope.has_node(t.node) for t in job.allocation)
        if view is None or not view.stoppable or outside:
            update["preemptible"] = False
        if job.qos not in self.config.slurm.tiers:
            # `normal` is most sites' only QOS and the name of a tier: what is said outranks it.
            tiers = self.config.slurm.partition_tiers
            found = [tiers[p] for p in prepared.partitions.get(job.name, ()) if p in tiers]
            if found:
                update["priority"] = found[0]
        if not documents.counts_memory and job.request.memory_mib:
            update["request"] = job.request.model_copy(update={"memory_mib": 0})
        return job.model_copy(update=update) if update else job

    @property
    def layouts(self) -> None:
        """Slurm's nodes keep their MIG layouts."""

    def objections(self) -> list[str]:
        """Slurm's own preemption, where it acts in scope."""
        return objections(
            show.settings(self._run("scontrol", "show", "config")),
            show.lines(self._run("scontrol", "-o", "show", "partitions")),
            lambda: qos_table(self._run),
            self.config.live.scope,
        )

    def alive(self) -> bool:
        """Whether the controller answers."""
        try:
            return "UP" in self._run("scontrol", "ping")
        except (RefusedError, UnavailableError):
            return False

    # Acting

    def start(
        self, job: str, tasks: Sequence[TaskAllocation], view: JobView, *, reserved: bool = False
    ) -> None:
        """Names the nodes, or all others, then lets the job go: inside of what is reserved for it,
        if it can."""
        nodes = sorted({task.node for task in tasks})
        if "ExcNodeList" in view.terms:
            changes = {"ExcNodeList": compress(self._nodes.difference(nodes))}
        else:
            changes = {"ReqNodeList": ",".join(nodes)}
        changes |= self._runs_in(view.terms)
        if reserved and self._reservations.open(PREFIX + job, nodes):
            changes["ReservationName"] = PREFIX + job
        self._update(job, changes)
        self._run("scontrol", "release", job)

    def withdraw(self, job: str, terms: Terms) -> None:
        """Holds the job as its user would, so that the user may still let it go."""
        self._run("scontrol", "uhold", job)
        self._update(job, terms)

    def restore(self, job: str, terms: Terms) -> None:
        """Names the nodes that the user named, if any."""
        self._update(job, terms)

    def warn(self, job: str) -> None:
        """The signal, to all processes of the job."""
        self._run("scancel", f"--signal={self.config.slurm.signal}", "--full", job)

    def stop(self, job: str) -> None:
        """Requeues the job, held."""
        self._run("scontrol", "requeuehold", job)

    def give_back(self, job: str, terms: Terms) -> None:
        """As the user submitted it, only not held."""
        changes = dict(terms)
        changes |= self._runs_in(changes)
        self._update(job, changes)
        self._run("scontrol", "release", job)

    def reserve(
        self, name: str, job: str, nodes: Sequence[str], start: datetime, end: datetime
    ) -> None:
        """Whole nodes for the job's user. What runs there goes on."""
        if job in self._reserved:
            raise RefusedError(f"its user has it run in the reservation {self._reserved[job]}")
        self._reservations.keep(name, self._users.get(job) or "root", nodes, start, end)

    def unreserve(self, name: str) -> None:
        """Deletes it. A job inside goes on."""
        self._reservations.end(name)

    def reservations(self) -> list[str]:
        """Those whose names begin as ours do."""
        return list(self._reservations.listed())

    def _runs_in(self, terms: Terms) -> dict[str, str]:
        """Where a job of a held partition runs."""
        listed = terms.get("Partition", "").split(",")
        runs_in = self.config.slurm.runs_in(listed)
        return {"Partition": ",".join(runs_in)} if runs_in != listed else {}

    def _update(self, job: str, changes: Mapping[str, str]) -> None:
        if changes:
            words = [f"{key}={value}" for key, value in sorted(changes.items())]
            self._run("scontrol", "update", f"JobId={job}", *words)
