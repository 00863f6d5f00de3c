"""Decides what a plan says about one pod: its node, that it waits and why, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from trencadis.models.plan import Plan


class Word(Enum):
    """What the plan says."""

    NODE = "node"
    """It runs on the node that is named, or is to start there."""
    WAIT = "wait"
    UNKNOWN = "unknown"
    """It isn't in the state that the plan was made for."""
    ASIDE = "aside"
    """There is no plan, or none that is fresh enough: the scheduler decides alone."""


@dataclass(frozen=True, slots=True)
class Said:
    """The plan's word on one pod."""

    word: Word
    node: str = ""
    job: str = ""
    reason: str = ""


PodRow = tuple[str, str, str]
"""UID, namespace/name, node where it is bound."""


@dataclass(frozen=True, slots=True)
class Index:
    """A plan, looked up by pod."""

    fingerprint: str
    at: datetime
    """The instant of the state."""
    _said: Mapping[str, Said] = field(default_factory=dict)
    victims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """UIDs and names of pods that are to make room, by job that needs the room."""
    jobs: Mapping[str, Said] = field(default_factory=dict)

    def pod(self, uid: str, name: str) -> Said:
        """What is said about the pod with this UID, else with this namespace/name."""
        return self._said.get(uid) or self._said.get(name) or Said(Word.UNKNOWN)

    def job(self, name: str) -> Said:
        """What is said about a job."""
        return self.jobs.get(name, Said(Word.UNKNOWN))


def make_index(
    plan: Plan,
    at: datetime,
    pods: Mapping[str, Iterable[PodRow]],
    gangs: Mapping[str, int],
    running: Iterable[str] = (),
) -> Index:
    """The index of a plan.

    `pods` by job; without any, as in a state that isn't Kubernetes', the job itself stands for its
    only pod. Each pod of a gang gets a node of its own from the plan's, in the order of names, so
    that two pods never count on the same room.
    """
    said: dict[str, Said] = {}
    jobs: dict[str, Said] = {}
    starts = {start.job: start for start in plan.starts}
    waits = {entry.job: entry.sentence for entry in plan.pending}
    on_nodes = set(running)
    for job, tasks in gangs.items():
        rows = sorted(pods.get(job, ()), key=lambda row: row[1])
        if not rows and tasks == 1:
            rows = [("", job, "")]
        start = starts.get(job)
        nodes = sorted(task.node for task in start.allocation) if start is not None else []
        reason = waits.get(job, "it waits")
        if job in on_nodes:
            jobs[job] = Said(Word.NODE, job=job)
        elif start is not None:
            jobs[job] = Said(Word.NODE, node=nodes[0] if nodes else "", job=job)
        else:
            jobs[job] = Said(Word.WAIT, job=job, reason=reason)
        for position, (uid, name, bound) in enumerate(rows):
            if bound:
                entry = Said(Word.NODE, node=bound, job=job)
            elif position < len(nodes):
                entry = Said(Word.NODE, node=nodes[position], job=job)
            else:
                why = "its gang starts with fewer pods" if start is not None else reason
                entry = Said(Word.WAIT, job=job, reason=why)
            for key in (uid, name):
                if key:
                    said[key] = entry
    victims: dict[str, set[str]] = {}
    for preempt in plan.preempts:
        keys = {key for row in pods.get(preempt.job, ()) for key in row[:2] if key}
        for job in preempt.makes_room_for:
            victims.setdefault(job, set()).update(keys)
    frozen = {job: frozenset(keys) for job, keys in victims.items()}
    return Index(plan.snapshot, at, said, frozen, jobs)
