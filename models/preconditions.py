"""What must still be true when an action of a plan is carried out."""

from __future__ import annotations

from enum import StrEnum


class Precondition(StrEnum):
    """What must still be true when an action is carried out."""

    JOB_PENDING = "job-pending"
    JOB_RUNNING_THERE = "job-running-there"
    GPUS_IDLE = "gpus-idle"
    NODE_SCHEDULABLE = "node-schedulable"
    CPU_MEMORY_FREE = "cpu-memory-free"
    MIG_LAYOUT = "mig-layout"


START_PRECONDITIONS = (
    Precondition.JOB_PENDING,
    Precondition.NODE_SCHEDULABLE,
    Precondition.GPUS_IDLE,
    Precondition.CPU_MEMORY_FREE,
)

DELAYED_PRECONDITIONS = (Precondition.JOB_PENDING, Precondition.NODE_SCHEDULABLE)
"""Of a start that waits for victims: what it takes is not idle yet."""

REPAIR_PRECONDITIONS = (
    Precondition.JOB_RUNNING_THERE,
    Precondition.NODE_SCHEDULABLE,
    Precondition.GPUS_IDLE,
    Precondition.CPU_MEMORY_FREE,
)

DELAYED_REPAIR_PRECONDITIONS = (Precondition.JOB_RUNNING_THERE, Precondition.NODE_SCHEDULABLE)
