"""Decides which records are jobs that take part, under which names, and in which state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from trencadis.adapters.slurm.arrays import read_array
from trencadis.adapters.slurm.context import Context
from trencadis.adapters.slurm.dependencies import JobIndex, group_owner
from trencadis.adapters.slurm.fields import (
    Record,
    count,
    instant,
    name,
    number,
    states,
    text,
    truth,
    words,
)
from trencadis.adapters.slurm.placements import OnNode, read_occupied

Phase = Literal["pending", "held", "running", "draining"]

RUNNING = states(
    "RUNNING,CONFIGURING,SUSPENDED,STOPPED,RESIZING,SIGNALING,POWER_UP_NODE,EXPEDITING"
)
WAITING = states("PENDING,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,SPECIAL_EXIT")
ENDED = states(
    "COMPLETED,CANCELLED,FAILED,TIMEOUT,NODE_FAIL,PREEMPTED,BOOT_FAIL,DEADLINE,OUT_OF_MEMORY,"
    "LAUNCH_FAILED,RECONFIG_FAIL,REVOKED"
)
LEAVING = states("COMPLETING,STAGE_OUT")

_HELD_BY_HAND = frozenset({"JobHeldUser", "JobHeldAdmin"})

# Reasons for which Slurm won't start a job whatever is idle, until somebody or something acts.
_STUCK = frozenset(
    words(
        "JobHoldMaxRequeue,DependencyNeverSatisfied,BadConstraints,InvalidAccount,InvalidQOS,"
        "AccountNotAllowed,QOSNotAllowed,PartitionDown,PartitionInactive,PartitionConfig,"
        "PartitionNodeLimit,PartitionTimeLimit,AccountingPolicy,Cleaning,ReservationDeleted,"
        "BurstBufferOperation,BurstBufferResources,BurstBufferStageIn,FedJobLock"
    )
)
# Beginnings of the names of limits, all of which are told in the accounting database only.
_LIMITS = ("Assoc", "QOSMax", "QOSGrp", "QOSJob", "QOSResource", "QOSTime", "QOSUsage", "QOSMin")


@dataclass(slots=True)
class Draft:
    """A record that takes part, with the jobs that it stands for."""

    path: str
    record: Record
    number: int
    phase: Phase
    submit: datetime
    jobs: list[tuple[str, int | None]]
    """Name and, in an array, the task's number."""
    user: str
    array: int | None = None
    throttle: int | None = None
    start: datetime | None = None
    occupied: list[OnNode] = field(default_factory=list)


def read_drafts(records: list[Record], document: str, context: Context) -> list[Draft]:
    """The jobs that wait, run or leave; what has ended is not among them."""
    drafts = []
    first: dict[str, str] = {}
    for index, record in enumerate(records):
        draft = _draft(f"{document}:$.jobs[{index}]", record, context)
        if draft is None:
            continue
        drafts.append(draft)
        for job, _ in draft.jobs:
            if first.setdefault(job, draft.path) != draft.path:
                context.report.fault(f"{draft.path}.job_id", f"job {job} is also {first[job]}")
    return drafts


def index_of(drafts: list[Draft]) -> JobIndex:
    """By which numbers and names jobs may refer to each other."""
    index = JobIndex()
    for draft in drafts:
        owner = group_owner(draft.record, draft.user)
        for job, task in draft.jobs:
            numbers = [draft.number] if draft.array is None else [draft.number, draft.array]
            key = None if draft.array is None or task is None else (draft.array, task)
            index.add(job, numbers, key)
            index.singles.setdefault(owner, []).append((draft.number, job))
            if draft.phase in ("running", "draining"):
                index.running.add(job)
    return index


def _draft(path: str, record: Record, context: Context) -> Draft | None:
    report = context.report
    job_id = number(record.get("job_id"))
    found = states(record.get("job_state"))
    if job_id is None or job_id < 0:
        report.fault(f"{path}.job_id", "required field is missing")
    if not found:
        report.fault(f"{path}.job_state", "required field is missing")
    if job_id is None or job_id < 0 or not found:
        return None
    phase = _phase(path, found, record, context)
    if phase is None:
        return None
    submit = instant(record.get("submit_time"))
    if submit is None:
        report.fault(f"{path}.submit_time", f"job {job_id}: required instant is missing")
        return None
    eligible = instant(record.get("eligible_time"))
    if eligible is not None and submit < eligible <= context.now:
        # Waiting for a dependency or a begin time is no waiting for room.
        submit = eligible
    draft = Draft(path, record, job_id, phase, submit, [(str(job_id), None)], _user(record))
    _array(draft, context)
    if phase in ("running", "draining") and not _occupy(draft, context):
        return None
    return draft


def _phase(path: str, found: frozenset[str], record: Record, context: Context) -> Phase | None:
    if found & LEAVING:
        return "draining"
    if "REVOKED" in found:
        return None
    if found & WAITING:
        return _waiting(path, found, record, context)
    if found & RUNNING:
        if found & {"SUSPENDED", "STOPPED"}:
            context.report.warn(
                f"{path}.job_state", "suspended jobs are read as running: they keep their devices"
            )
        return "running"
    if found & ENDED:
        return None
    context.report.warn(
        f"{path}.job_state", f"state {'+'.join(sorted(found))[:60]} is not known: left out"
    )
    return None


def _waiting(path: str, found: frozenset[str], record: Record, context: Context) -> Phase:
    reason = text(record.get("state_reason"))
    priority = record.get("priority")
    by_hand = truth(record.get("hold")) or reason in _HELD_BY_HAND
    by_hand = by_hand or (priority is not None and number(priority) == 0)
    if by_hand and context.options.held == "held":
        return "held"
    if found & {"REQUEUE_HOLD", "SPECIAL_EXIT"} or "held" in reason.lower().replace("jobheld", ""):
        return "held"
    if reason in _STUCK:
        context.report.warn(f"{path}.state_reason", f"held: Slurm won't start it ({reason})")
        return "held"
    if reason.startswith(_LIMITS):
        context.report.warn(
            f"{path}.state_reason", f"held: a limit that the documents don't show ({reason})"
        )
        return "held"
    return "pending"


def _array(draft: Draft, context: Context) -> None:
    tasks = read_array(draft.record, context.options.array_tasks)
    if tasks is None:
        return
    path = f"{draft.path}.array_task_string"
    if tasks.left_out:
        context.report.warn(
            path, f"array {tasks.array}: {tasks.left_out} further tasks are left out of this round"
        )
    if tasks.unread:
        context.report.warn(
            path, "a list of array tasks is cut short: the tasks not shown are left out"
        )
    draft.array, draft.throttle = tasks.array, tasks.throttle
    draft.jobs = [(f"{tasks.array}_{task}", task) for task in tasks.tasks]


def _occupy(draft: Draft, context: Context) -> bool:
    """Reads where the job runs; whether it takes part."""
    report = context.report
    draft.start = instant(draft.record.get("start_time"))
    try:
        draft.occupied = read_occupied(draft.record, context.nodes)
    except ValueError as error:
        report.fault(draft.path, f"job {draft.number} runs, but where: {error}")
        return False
    if not draft.occupied and draft.phase == "draining":
        return False  # it has left its nodes
    if not draft.occupied:
        report.fault(f"{draft.path}.nodes", f"job {draft.number} runs, but no node is named")
    if draft.start is None:
        report.fault(f"{draft.path}.start_time", f"job {draft.number} runs, but since when")
    return bool(draft.occupied) and draft.start is not None


def _user(record: Record) -> str:
    uid = count(record.get("user_id"))
    return name(record.get("user_name"), str(uid) if "user_id" in record else "unknown")
