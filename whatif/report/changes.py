"""What a plan changes and what it leaves waiting, as tables."""

from __future__ import annotations

from collections import Counter, defaultdict

from trencadis.models import Job, Plan, Snapshot, TaskAllocation
from trencadis.whatif.report.page import Block, Group, Table
from trencadis.whatif.report.words import count


def changes(snapshot: Snapshot, plan: Plan) -> list[Block]:
    """Starts, stops, sizes, MIG layouts: a group for each kind that occurs."""
    jobs = {job.name: job for job in snapshot.jobs}
    groups = [
        _starts(plan, jobs),
        _repairs(plan, jobs),
        _stops(plan, jobs),
        _sizes(plan),
        _layouts(plan),
    ]
    return [group for group in groups if group.table.rows] or ["Nothing."]


def _starts(plan: Plan, jobs: dict[str, Job]) -> Group:
    rows = [
        (
            start.job,
            jobs[start.job].queue,
            _places(start.allocation),
            f"{start.level} {start.domain}".strip(),
            f"{start.waiting_saved:,}",
            f"{start.spread_cost:,}",
        )
        for start in plan.starts
    ]
    columns = ("job", "queue", "where", "level", "saves (GPU-s)", "spread (GPU-s)")
    return Group(f"{count(len(rows), 'job')} to start", Table(columns, rows, 4), open=True)


def _repairs(plan: Plan, jobs: dict[str, Job]) -> Group:
    rows = [
        (
            repair.job,
            jobs[repair.job].queue,
            _places(repair.add),
            f"{repair.level} {repair.domain}".strip(),
            f"{repair.waiting_saved:,}",
        )
        for repair in plan.repairs
    ]
    columns = ("gang", "queue", "new tasks", "level", "saves (GPU-s)")
    return Group(f"{count(len(rows), 'gang')} to repair", Table(columns, rows, 4), open=True)


def _stops(plan: Plan, jobs: dict[str, Job]) -> Group:
    rows = [
        (
            stop.job,
            jobs[stop.job].queue,
            ", ".join(stop.makes_room_for),
            f"{stop.gpus_free_at:%H:%M:%S}",
            f"{stop.lost_gpu_seconds:,}",
        )
        for stop in plan.preempts
    ]
    columns = ("job", "queue", "makes room for", "GPUs free at", "lost (GPU-s)")
    return Group(f"{count(len(rows), 'job')} to stop", Table(columns, rows, 3), open=True)


def _sizes(plan: Plan) -> Group:
    rows = [
        (resize.job, f"{len(resize.add) - len(resize.remove):+d}", f"{resize.lost_gpu_seconds:,}")
        for resize in plan.resizes
    ]
    columns = ("job", "tasks", "lost (GPU-s)")
    return Group(f"{count(len(rows), 'job')} to grow or shrink", Table(columns, rows))


def _layouts(plan: Plan) -> Group:
    rows = [
        (
            f"{change.node} GPU {change.gpu}",
            " ".join(i.profile for i in change.before) or "none",
            "MIG off" if change.turn_off else " ".join(i.profile for i in change.after) or "none",
        )
        for change in plan.reconfigures
    ]
    columns = ("GPU", "MIG layout before", "after")
    return Group(f"{count(len(rows), 'MIG layout')} to change", Table(columns, rows, 3))


def pending(snapshot: Snapshot, plan: Plan) -> list[Block]:
    """A group per reason, the most frequent first."""
    if not plan.pending:
        return ["No job waits."]
    queues = {job.name: job.queue for job in snapshot.jobs}
    groups: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for entry in plan.pending:
        groups[entry.code].append((entry.job, queues.get(entry.job, "?"), entry.sentence))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    columns = ("job", "queue", "why")
    return [
        Group(f"{code}: {count(len(rows), 'job')}", Table(columns, rows, 3), number == 0)
        for number, (code, rows) in enumerate(ordered)
    ]


def _places(allocation: tuple[TaskAllocation, ...]) -> str:
    nodes = Counter(task.node for task in allocation)
    named = [f"{name} ×{n}" if n > 1 else name for name, n in list(nodes.items())[:4]]
    if len(nodes) > len(named):
        named.append(f"and {len(nodes) - len(named)} more")
    return ", ".join(named)
