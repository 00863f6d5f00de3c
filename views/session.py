"""What a command reads and delivers: records in, warnings to stderr, checked snapshots out."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from trencadis.models import (
    Fault,
    Plan,
    Policy,
    Snapshot,
    load_mig_tables,
    load_plan,
    load_policy,
    load_snapshot,
)
from trencadis.models.check import check
from trencadis.models.load import decode
from trencadis.models.mig import MigTable
from trencadis.views import io
from trencadis.views.snapshots import snapshot_text


class Session:
    """One command's inputs. `texts` goes into the file that reproduces an internal error.

    `mig_tables`: a file with MIG geometry that every snapshot of the command is read with.
    """

    def __init__(self, context: typer.Context, mig_tables: str | None = None) -> None:
        self._texts: dict[str, str] = context.find_root().obj
        self._mig_tables = mig_tables

    def snapshot(
        self, source: str, policy: str | None = None, *, quiet: bool = False
    ) -> Snapshot:
        """The snapshot, under another policy if a file is given.

        Its warnings go to stderr, unless `quiet`: they name jobs.
        """
        other, tables = self.policy(policy), self._tables()
        with io.source_named(source):
            snapshot, warnings = load_snapshot(self._read(source), other, tables)
        if not quiet:
            io.warn(source, warnings)
        gc.freeze()  # it stays until the end: no use in walking through its objects ever again
        return snapshot

    def both(self, snapshot: str, plan: str, *, quiet: bool = False) -> tuple[Snapshot, Plan]:
        """A snapshot and a plan."""
        if snapshot == plan == io.STANDARD:
            raise typer.BadParameter("only one of SNAPSHOT and PLAN can be stdin")
        snap = self.snapshot(snapshot, quiet=quiet)
        with io.source_named(plan):
            return snap, load_plan(self._read(plan))

    def text(self, source: str) -> str:
        """A document that somebody else reads. Raises InvalidInputError where it isn't text."""
        data = self.data(source)
        with io.source_named(source):
            return decode(data)

    def data(self, source: str) -> bytes:
        """The bytes of a document that somebody else reads."""
        if source == io.STANDARD and source in self._texts:
            raise typer.BadParameter("only one file can be stdin")
        with io.source_named(source):
            return self._read(source)

    def policy(self, source: str | None) -> Policy | None:
        """The policy of a file, if one is given."""
        if source is None:
            return None
        with io.source_named(source):
            return load_policy(self._read(source), toml=source.endswith(".toml"))

    def _tables(self) -> Mapping[str, MigTable] | None:
        source = self._mig_tables
        if source is None:
            return None
        with io.source_named(source):
            return load_mig_tables(self._read(source), toml=source.endswith(".toml"))

    def _read(self, source: str) -> bytes:
        data = io.read(source)
        self._texts[source] = data.decode("utf-8", "replace")
        return data


def deliver(snapshot: Snapshot, warnings: Sequence[Fault], output: str, also_stdout: bool) -> None:
    """Write a snapshot that this program made; it must pass the checks that its readers make."""
    io.warn("the new snapshot", [*warnings, *check(snapshot)])
    text = snapshot_text(snapshot)
    io.write(output, text)
    if also_stdout and output != io.STANDARD:
        io.write(io.STANDARD, text)


def dumps(content: Any) -> str:
    """JSON for stdout."""
    return json.dumps(content, indent=2) + "\n"
