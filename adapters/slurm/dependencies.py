"""Decides for which jobs of the document a job waits, and whether it waits for something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_TARGET = re.compile(r"^(\d+)(?:_(\d+|\*))?(?:\+\d+)?(?:\((\w+)\))?$", re.ASCII)
_AFTER_END = frozenset({"afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer"})

_MET = {
    "afterany": frozenset({True, False}),
    "afterok": frozenset({True}),
    "afternotok": frozenset({False}),
}
"""How the jobs must have ended: well or not."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What a dependency string asks for."""

    after: tuple[str, ...] = ()
    """Jobs of the document."""
    blocked: str = ""
    """Why the job must be held: something that no job of the document can fulfil."""
    note: str = ""


class Settled:
    """What has become of the jobs that others depend on.

    Slurm looks at the dependencies of a held job only now and then, so what it lists of them may
    have been fulfilled long ago.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._ends: dict[int, set[bool]] = {}

    def add(self, number: int, ended: bool, well: bool) -> None:
        """A record of a job or of a part of an array; 0 is no job."""
        if ended:
            self._ends.setdefault(number, set()).add(well)
        elif number:
            self._open.add(number)

    def left(self, listed: str) -> str:
        """The dependency without what is fulfilled; as it was where alternatives are listed."""
        if "?" in listed:
            return listed
        left = []
        for part in filter(None, listed.split(",")):
            kind, *targets = part.split(":")
            if kind not in _MET:
                left.append(part)
                continue
            kept = [target for target in targets if not self._met(target, _MET[kind])]
            if kept or not targets:
                left.append(":".join((kind, *kept)))
        return ",".join(left)

    def _met(self, target: str, ends: frozenset[bool]) -> bool:
        match = _TARGET.match(target)
        if match is None or match[2] is not None or match[3] == "failed":
            return False
        number = int(match[1])
        found = self._ends.get(number)
        return number not in self._open and found is not None and found <= ends


class JobIndex:
    """Names of the jobs that take part, by Slurm's numbers."""

    def __init__(self) -> None:
        self.by_id: dict[int, list[str]] = {}
        self.by_task: dict[tuple[int, int], str] = {}
        self.running: set[str] = set()
        self.singles: dict[tuple[str, str], list[tuple[int, str]]] = {}

    def add(self, job: str, numbers: Iterable[int], task: tuple[int, int] | None) -> None:
        """A job with its own number and, for an array's task, the array's."""
        for number in dict.fromkeys(numbers):
            self.by_id.setdefault(number, []).append(job)
        if task is not None:
            self.by_task[task] = job

    def find(self, number: int, task: str | None) -> list[str]:
        """The jobs that `123`, `123_4` or `123_*` means."""
        if task is None or task == "*":
            return self.by_id.get(number, [])
        job = self.by_task.get((number, int(task)))
        return [job] if job else []


def read_dependency(
    listed: str,
    job: str,
    index: JobIndex,
    *,
    reason: str,
    owner: tuple[str, str],
    number: int,
    task: int | None,
) -> Waits:
    """`afterok:123(unfulfilled),singleton` as jobs to wait for.

    Slurm removes what is fulfilled, so what is listed still counts. `after` (the other has begun)
    is read as its end where it still waits. Alternatives (`?`) are read as if all were needed.
    """
    after: dict[str, None] = {}
    note = ""
    if "?" in listed:
        note = "alternative dependencies: read as if all were needed"
    for part in filter(None, (piece.strip() for piece in re.split(r"[,?]", listed))):
        kind, *targets = part.split(":")
        kind = kind.split("(")[0].lower()
        if kind == "singleton":
            earlier = (name for n, name in index.singles.get(owner, ()) if n < number)
            after.update(dict.fromkeys(earlier))
            continue
        if kind not in _AFTER_END | {"after"} or not targets:
            return Waits(blocked=f"dependency {part[:60]!r} is not understood")
        for target in targets:
            match = _TARGET.match(target)
            if match is None:
                return Waits(blocked=f"dependency {part[:60]!r} is not understood")
            if match[3] == "failed":
                return Waits(blocked="a dependency failed: Slurm will never start it")
            wanted = match[2]
            if kind == "aftercorr" and task is not None and wanted is None:
                wanted = str(task) if index.find(int(match[1]), str(task)) else None
            found = [name for name in index.find(int(match[1]), wanted) if name != job]
            if kind == "after":
                found = [name for name in found if name not in index.running]
                if found:
                    note = "waits for another job's start: read as its end"
            elif not found and (match[3] == "unfulfilled" or reason == "Dependency"):
                return Waits(blocked="depends on a job that the document does not show")
            after.update(dict.fromkeys(found))
    return Waits(tuple(after), note=note)


def group_owner(record: Mapping[str, object], user: str) -> tuple[str, str]:
    """Among whose jobs `singleton` lets only one run: a user's jobs of one name."""
    return user, str(record.get("name") or "")
