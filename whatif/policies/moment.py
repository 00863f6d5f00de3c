"""A moment of a replay as a snapshot: what the solver of one round sees of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from trencadis.models import Checkpoint, Hold, Job, Node, Snapshot
from trencadis.models.policy import BudgetUse
from trencadis.whatif.decisions import Disturbance, View
from trencadis.whatif.policies.elastic import pays_to_grow
from trencadis.whatif.runs import MICRO, JobRun, State

HALF_LIFE_S = 7 * 86_400
"""Past usage counts half after a week, as Slurm's PriorityDecayHalfLife does by default."""
HOUR, DAY = 3_600, 86_400

Key = tuple[object, ...]


class Moments:
    """Makes snapshots; remembers past usage, and the records of jobs that haven't changed."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[Key, Job]] = {}
        self._changed: dict[tuple[str, bool, bool], Node] = {}
        """Nodes other than the cluster says: by name, whether down, whether shareable."""
        self._usage: dict[str, float] = {}
        """GPU-hours by queue, decayed to `_usage_at`."""
        self._usage_at: int | None = None

    def observe(self, view: View) -> None:
        """Brings the past usage up to now."""
        if self._usage_at is not None:
            span = view.now - self._usage_at
            fade = 0.5 ** (span / HALF_LIFE_S)
            used = Counter[str]()
            for run in view.running:
                used[run.job.queue] += run.milli * min(span, view.now - run.began)
            for name in sorted(self._usage.keys() | used.keys()):
                hours = used[name] / 1_000 / HOUR
                self._usage[name] = self._usage.get(name, 0.0) * fade + hours
        self._usage_at = view.now

    def snapshot(self, view: View) -> Snapshot:
        """The moment. Names, nodes, queues and policy are those of the replay's cluster."""
        base = view.snapshot
        runs = (*view.running, *view.draining, *view.pending, *view.waiting_elsewhere, *view.held)
        shared = any(run.job.request.share is not None for run in (*runs, *view.holding))
        nodes = self._nodes(view, shared or bool(base.policy.demand_profile))
        queues = tuple(
            queue.model_copy(
                update={
                    "past_usage_gpu_hours": queue.past_usage_gpu_hours
                    + int(self._usage.get(queue.name, 0))
                }
            )
            for queue in base.queues
        )
        return base.model_copy(
            update={
                "now": _instant(view.now),
                "nodes": nodes,
                "queues": queues,
                "jobs": (*(self._record(run, view) for run in runs), *_partial(view)),
                "holds": tuple(_holds(view)),
                "budget_use": used(view.disturbed, view.now),
            }
        )

    def _nodes(self, view: View, shared: bool) -> tuple[Node, ...]:
        """Nodes up or down as they are.

        Where nobody asks for a share, no node offers any: that changes no place and no cost, and
        the solver makes room by preemption only on nodes that aren't shareable.
        """
        return tuple(
            self._node(node, not bool(up), shared and node.shareable)
            for node, up in zip(view.snapshot.nodes, view.state.up, strict=True)
        )

    def _node(self, node: Node, down: bool, shareable: bool) -> Node:
        if node.down == down and node.shareable == shareable:
            return node
        key = (node.name, down, shareable)
        if key not in self._changed:
            update = {"down": down, "shareable": shareable}
            self._changed[key] = node.model_copy(update=update)
        return self._changed[key]

    def _record(self, run: JobRun, view: View) -> Job:
        key: Key = (run.state, run.epoch, run.preemptions, run.failures)
        if run.state is State.RUNNING:
            grows = len(run.allocation) < run.job.tasks and pays_to_grow(run, view)
            key = (*key, saved_at(run, view.now), grows)
        known = self._records.get(run.name)
        if known is None or known[0] != key:
            known = (key, _record(run, view))
            self._records[run.name] = known
        return known[1]


def saved_at(run: JobRun, now: int) -> int:
    """When a running job last wrote a periodic checkpoint; at first, when it began."""
    ran = max(0, now - run.began - run.restart)
    whole = ran - ran % run.interval
    return run.began + (run.restart + whole if whole else 0)


def used(disturbed: tuple[Disturbance, ...], now: int) -> BudgetUse:
    """What earlier rounds have used of the budgets of the last hour and day."""
    day = [entry for entry in disturbed if now - entry.at < DAY]
    return BudgetUse(
        preempted_gpus_last_hour=sum(e.milli // 1_000 for e in day if now - e.at < HOUR),
        preempted_jobs_last_day=len(day),
    )


def _record(run: JobRun, view: View) -> Job:
    if not run.starts and run.state in (State.WAITING, State.HELD):
        return run.job
    update: dict[str, object] = {"preempted": run.preemptions}
    if run.last_preempted is not None:
        update["preempted_at"] = _instant(run.last_preempted)
    estimate = run.job.runtime_seconds
    if run.state in (State.RUNNING, State.DRAINING):
        update["start"] = _instant(run.began)
        update["allocation"] = run.allocation
        update["state"] = "running" if run.state is State.RUNNING else "draining"
    if run.state is State.DRAINING:
        update["drain_ends"] = _instant(run.began + run.restart)
    elif run.state is State.RUNNING:
        if run.estimate_left is not None:
            estimate = run.restart + -(-run.estimate_left // run.rate)
        saved = run.job.checkpoint or Checkpoint()
        update["checkpoint"] = saved.model_copy(update={"last": _instant(saved_at(run, view.now))})
        if not pays_to_grow(run, view):
            update["tasks"] = len(run.allocation)
    elif run.estimate_left is not None:
        again = view.snapshot.policy.preemption.restart_seconds
        estimate = again + -(-run.estimate_left // MICRO)
    update["runtime_seconds"] = None if estimate is None else max(1, estimate)
    return run.job.model_copy(update=update)


def _partial(view: View) -> Iterator[Job]:
    """Without gangs: tasks that wait on their GPUs for the others, as jobs that nobody stops."""
    for run in view.holding:
        yield run.job.model_copy(
            update={
                "state": "running",
                "start": _instant(run.began),
                "tasks": len(run.allocation),
                "min_tasks": None,
                "preemptible": False,
                "allocation": run.allocation,
            }
        )


def _holds(view: View) -> Iterator[Hold]:
    """Delayed starts, until the last of their victims is gone."""
    ends = {run.index: run.began + run.restart for run in view.draining}
    for run in view.held:
        at = max((ends[index] for index in run.waits_for if index in ends), default=view.now)
        yield Hold(job=run.name, at=_instant(at), allocation=run.allocation)


def _instant(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)
