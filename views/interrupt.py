"""What Ctrl-C does to a solve: the first asks for the best plan so far, the second ends at once."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Generic, TypeVar

from trencadis.views.io import console_on, tell
from trencadis.views.outcome import Code

T = TypeVar("T")

SAME_PRESS_S = 0.25
"""`timeout` and some shells send one Ctrl-C twice: to the process and to its group."""


class _Work(Generic[T]):
    """A call in a thread of its own: only the main thread hears signals, so it must be free."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """The thread."""
        try:
            self._result.append(self._call())
        except BaseException as error:  # handed on to the main thread
            self._error = error
        finally:
            self.done.set()

    def result(self) -> T:
        """What the call returned, or its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]


def interruptible(call: Callable[[threading.Event], T], waiting: str) -> tuple[T, bool]:
    """The result of `call(stop)`, and whether Ctrl-C was pressed (`stop` is set then).

    `waiting` is shown beside a spinner if stderr is a terminal.
    """
    stop = threading.Event()
    first = math.inf

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if stop.is_set():
            if time.monotonic() - first > SAME_PRESS_S:
                os._exit(Code.INTERRUPTED)
            return
        first = time.monotonic()
        stop.set()
        tell("trencadis: stopping with the best plan so far; Ctrl-C again ends at once")

    work = _Work(lambda: call(stop))
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        thread = threading.Thread(target=work.run, name="trencadis-solve", daemon=True)
        thread.start()
        if sys.stderr.isatty():
            with console_on(sys.stderr).status(waiting):
                _wait(work.done)
        else:
            _wait(work.done)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    return work.result(), stop.is_set()


def _wait(done: threading.Event) -> None:
    """Waits in slices: a wait without a limit would keep signals away on some systems."""
    while not done.wait(0.2):
        pass
