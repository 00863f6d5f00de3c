"""What must outlive the loop: an append-only record, and what is under way. One SQLite file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from trencadis.adapters.live.cluster import Terms
from trencadis.models import TaskAllocation

Control = Literal["active", "paused", "uninstalled"]
Phase = Literal["waits", "sending", "sent", "called-off", "announced", "stopping"]
"""`called-off`: given back while on its way; the next look tells whether it began after all."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rounds (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, mode TEXT NOT NULL, snapshot TEXT NOT NULL,
  policy TEXT NOT NULL, status TEXT NOT NULL, plan TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, round INTEGER, job TEXT NOT NULL, kind TEXT NOT NULL,
  detail TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_job ON events (job, id);
CREATE INDEX IF NOT EXISTS events_by_kind ON events (kind, at);
CREATE TABLE IF NOT EXISTS intents (
  id INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, phase TEXT NOT NULL,
  round INTEGER, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS terms (job TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS refusals (
  job TEXT NOT NULL, nodes TEXT NOT NULL, until TEXT NOT NULL, PRIMARY KEY (job, nodes));
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

# What is written stays as it is: SQLite itself refuses to change or delete it.
_APPEND_ONLY = """
CREATE TRIGGER IF NOT EXISTS {table}_no_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
"""


class FencedError(Exception):
    """Somebody gave the jobs back, or paused, since this round began: nothing more is sent."""


@dataclass(frozen=True, slots=True)
class Intent:
    """An action under way. Written before anything is sent, so that a crash leaves no question."""

    job: str
    kind: Literal["start", "preempt", "move"]
    """A move is a start as soon as its run has ended."""
    phase: Phase
    at: datetime
    deadline: datetime
    nodes: tuple[str, ...] = ()
    allocation: tuple[Mapping[str, Any], ...] = ()
    """A start's tasks, as in the plan; where a move goes."""
    group: str | None = None
    waits_for: tuple[str, ...] = ()
    """Jobs that must have left their nodes first."""
    begun: datetime | None = None
    """When the run that is to be stopped, or was moved, began: a later run is another one."""
    room_for: tuple[str, ...] = ()
    gpus: int = 0
    lost_gpu_seconds: int = 0
    round: int | None = None
    reserved: bool = False
    """Of a start: the native scheduler keeps nodes for it."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The nodes of its tasks."""
        return tuple(sorted({str(task["node"]) for task in self.allocation}))

    @property
    def moved(self) -> bool:
        """Whether it is a start that goes on with a move."""
        return self.kind == "start" and self.begun is not None

    @property
    def tasks(self) -> tuple[TaskAllocation, ...]:
        """The allocation of a start, parsed."""
        return tuple(TaskAllocation.model_validate(task) for task in self.allocation)


class Store:
    """The file. Usable from several processes; each writes in short transactions."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with self._write():
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._db.execute(statement)
            for table in ("rounds", "events"):
                for verb in ("UPDATE", "DELETE"):
                    self._db.execute(_APPEND_ONLY.format(table=table, verb=verb))

    def close(self) -> None:
        """Ends the use of the file."""
        self._db.close()

    @contextlib.contextmanager
    def _write(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A full disk has it rolled back already; what can't be committed stays open.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # State

    def get(self, key: str) -> str | None:
        """A value of the state."""
        row = self._db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, **values: str) -> None:
        """Sets values of the state."""
        with self._write():
            self._put(values)

    def put_fenced(self, epoch: int, **values: str) -> None:
        """Sets values of the state. Raises FencedError if the epoch is over."""
        with self._write():
            self.check(epoch)
            self._put(values)

    def _put(self, values: Mapping[str, str]) -> None:
        for key, value in values.items():
            self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def control(self) -> Control:
        """What the operator wants."""
        found = self.get("control")
        return found if found in ("paused", "uninstalled") else "active"  # type: ignore[return-value]

    def epoch(self) -> int:
        """Grows whenever jobs are given back; a round that began in an earlier one is fenced."""
        return int(self.get("epoch") or 0)

    def fence(self, **values: str) -> None:
        """Begins the next epoch, and sets values of the state with it."""
        with self._write():
            self._put({**values, "epoch": str(1 + self.epoch())})

    # Under way

    def intents(self) -> list[Intent]:
        """All that is under way, oldest first."""
        rows = self._db.execute("SELECT content FROM intents ORDER BY id")
        return [_intent(json.loads(row[0])) for row in rows]

    def begin(self, intent: Intent, terms: Terms | None, epoch: int) -> None:
        """Writes what is about to be sent. Raises FencedError if the epoch is over."""
        with self._write():
            self.check(epoch)
            self._db.execute(
                "INSERT INTO intents (job, kind, phase, round, content) VALUES (?, ?, ?, ?, ?)",
                (intent.job, intent.kind, intent.phase, intent.round, _text(intent)),
            )
            self._remember(intent.job, terms)

    def advance(
        self,
        intent: Intent,
        phase: Phase,
        *,
        terms: Terms | None = None,
        epoch: int | None = None,
        **changes: Any,
    ) -> Intent:
        """Notes how far it has come. Raises FencedError if an epoch is given and over."""
        after = replace(intent, phase=phase, **changes)
        with self._write():
            if epoch is not None:
                self.check(epoch)
            self._db.execute(
                "UPDATE intents SET phase = ?, content = ? WHERE job = ?",
                (phase, _text(after), intent.job),
            )
            self._remember(intent.job, terms)
        return after

    def check(self, epoch: int) -> None:
        """Raises FencedError if the epoch is over."""
        if self.epoch() != epoch:
            raise FencedError

    def _remember(self, job: str, terms: Terms | None) -> None:
        # The first terms are the user's own; later ones may be ours.
        if terms is not None:
            self._db.execute(
                "INSERT OR IGNORE INTO terms VALUES (?, ?)", (job, json.dumps(dict(terms)))
            )

    def end(self, job: str, kind: str, at: datetime, round: int | None, **detail: Any) -> None:
        """Ends what is under way for the job, with how it went."""
        with self._write():
            self._db.execute("DELETE FROM intents WHERE job = ?", (job,))
            self._event(at, round, job, kind, detail)

    def terms(self) -> dict[str, Terms]:
        """The old terms of jobs that starts have changed."""
        rows = self._db.execute("SELECT job, content FROM terms")
        return {str(job): json.loads(content) for job, content in rows}

    def forget_terms(self, job: str) -> None:
        """They are restored, or the job is gone."""
        with self._write():
            self._db.execute("DELETE FROM terms WHERE job = ?", (job,))

    def refuse(self, job: str, nodes: tuple[str, ...], until: datetime) -> None:
        """The job doesn't get these nodes again until then; with no nodes: none at all."""
        with self._write():
            self._db.execute(
                "INSERT OR REPLACE INTO refusals VALUES (?, ?, ?)",
                (job, json.dumps(nodes), stamp(until)),
            )

    def refusals(self, now: datetime) -> dict[str, set[str] | None]:
        """Nodes that a job doesn't get for now; None: none at all."""
        found: dict[str, set[str] | None] = {}
        rows = self._db.execute("SELECT job, nodes FROM refusals WHERE until > ?", (stamp(now),))
        for job, nodes in rows:
            listed = json.loads(nodes)
            before = found.get(job, set())
            found[job] = None if before is None or not listed else before | set(listed)
        return found

    # The record

    def add_round(
        self, at: datetime, mode: str, snapshot: str, policy: str, status: str, plan: str
    ) -> int:
        """A round that was decided; returns its number."""
        with self._write():
            done = self._db.execute(
                "INSERT INTO rounds (at, mode, snapshot, policy, status, plan)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (stamp(at), mode, snapshot, policy, status, plan),
            )
        return int(done.lastrowid or 0)

    def add_event(
        self, at: datetime, round: int | None, job: str, kind: str, **detail: Any
    ) -> None:
        """Something that happened, to a job or ("") to all."""
        with self._write():
            self._event(at, round, job, kind, detail)

    def _event(
        self, at: datetime, round: int | None, job: str, kind: str, detail: Mapping[str, Any]
    ) -> None:
        self._db.execute(
            "INSERT INTO events (at, round, job, kind, detail) VALUES (?, ?, ?, ?, ?)",
            (stamp(at), round, job, kind, json.dumps(detail, default=str)),
        )

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a reader of the record asks for."""
        return self._db.execute(query, values).fetchall()


def stamp(at: datetime) -> str:
    """An instant as the record has it."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def instant(text: str | None) -> datetime | None:
    """An instant of the state."""
    return None if text is None else datetime.fromisoformat(text)


def _text(intent: Intent) -> str:
    content = {name: getattr(intent, name) for name in Intent.__slots__}
    return json.dumps({k: stamp(v) if isinstance(v, datetime) else v for k, v in content.items()})


def _intent(content: dict[str, Any]) -> Intent:
    for key in ("at", "deadline", "begun"):
        if content[key] is not None:
            content[key] = datetime.fromisoformat(content[key])
    for key in ("nodes", "allocation", "waits_for", "room_for"):
        content[key] = tuple(content[key])
    return Intent(**content)
