"""How far several pieces of work are, on stderr; nothing without a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from trencadis.views.io import clean, console_on


class Progress:
    """A bar with the time that is left."""

    def __init__(self, total: int, title: str) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console_on(sys.stderr),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._title = title
        self._task = self._bar.add_task(title, total=total)

    def step(self, name: str) -> None:
        """One more is done."""
        self._bar.update(self._task, advance=1, description=f"{self._title}: {clean(name)} done")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
