"""Decides which tasks a record of a job array stands for, and how many may run at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trencadis.adapters.slurm.fields import Record, count, number, text

_ITEM = re.compile(r"^(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?$", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """Tasks of one record."""

    array: int
    tasks: tuple[int, ...]
    throttle: int | None
    left_out: int = 0
    """Tasks beyond the limit."""
    unread: bool = False
    """Whether part of the list can't be read: squeue cuts long ones short."""


def read_array(record: Record, limit: int) -> ArrayTasks | None:
    """None for a job that is no array's. Tasks are `1-10:2,15%3`, or one id."""
    array = count(record.get("array_job_id"))
    if not array:
        return None
    throttle = count(record.get("array_max_tasks")) or None
    task = number(record.get("array_task_id"))
    listed = text(record.get("array_task_string"))
    if not listed:
        return None if task is None else ArrayTasks(array, (task,), throttle)
    listed, _, most = listed.partition("%")
    if most.strip().isdecimal():
        throttle = int(most[:9]) or throttle
    tasks: dict[int, None] = {}
    beyond, unread = 0, False
    for item in filter(None, (part.strip() for part in listed.strip("[]").split(","))):
        match = _ITEM.match(item)
        if match is None:
            unread = True
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        span = range(first, last + 1, int(match[3] or 1) or 1)
        room = max(0, limit - len(tasks))
        tasks.update(dict.fromkeys(span[:room]))
        beyond += max(0, len(span) - room)
    return ArrayTasks(array, tuple(tasks), throttle, beyond, unread)
