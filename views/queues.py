"""Queues in figures: what each uses and asks for, against what it is guaranteed and limited to."""

from __future__ import annotations

from typing import Any

from trencadis.models.broken import Missing
from trencadis.models.queues import Queue
from trencadis.solver.verify.situation import Situation
from trencadis.views import words


def queue_records(situation: Situation) -> list[dict[str, Any]]:
    """A record per queue, parents before their children."""
    snapshot, tree = situation.snapshot, situation.tree
    names = list(tree.queues)
    used, asked = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    running, pending = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for job in snapshot.jobs:
        if job.on_nodes:
            used[job.queue] += situation.units(job)
            running[job.queue] += 1
        elif job.state == "pending":
            asked[job.queue] += situation.units(job)
            # What a broken gang lacks is asked for, but is no job.
            pending[job.queue] += not isinstance(job, Missing)
    sums = [tree.sums(values) for values in (used, asked, running, pending)]
    records: list[dict[str, Any]] = []
    todo = list(reversed(tree.children.get(None, ())))
    while todo:
        name = todo.pop()
        todo.extend(reversed(tree.children.get(name, ())))
        queue = tree.queues[name]
        unit = situation.scale.unit
        in_use, wanted = (values[name] * 1_000 // unit for values in sums[:2])
        records.append(
            {
                "name": name,
                "parent": queue.parent,
                "depth": len(tree.chains[name]) - 1,
                "weight": queue.weight,
                "used_milli": in_use,
                "asked_milli": wanted,
                "guarantee_milli": queue.guarantee.total_milli(),
                "guarantee_by_model": dict(queue.guarantee.by_model),
                "limit_milli": queue.limit.quota.total_milli(),
                "limit_by_model": dict(queue.limit.quota.by_model),
                "running_jobs": sums[2][name],
                "pending_jobs": sums[3][name],
                "guarantee_text": words.quota(queue.guarantee),
                "limit_text": words.quota(queue.limit.quota),
                "note": _note(queue, in_use, wanted),
            }
        )
    return records


def _note(queue: Queue, used: int, asked: int) -> str:
    guarantee, limit = queue.guarantee.total_milli(), queue.limit.quota.total_milli()
    if limit is not None and used >= limit and asked:
        return "at its limit"
    if guarantee is not None and used < min(guarantee, used + asked):
        return f"{words.gpus(min(guarantee, used + asked) - used)} below its guarantee"
    if guarantee is not None and used > guarantee:
        return f"{words.gpus(used - guarantee)} above its guarantee"
    return ""
