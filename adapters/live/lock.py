"""That only one process acts: a lock that the operating system drops when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from trencadis.models import Fault, InvalidInputError

LOOK_SECONDS = 0.05


@contextlib.contextmanager
def locked(state: Path, what: str = "lock", wait_seconds: float = 0.0) -> Iterator[None]:
    """Holds the lock beside the store, waiting for it so long at most.

    `what`: "lock" for whoever acts; "run" for the one loop. Raises InvalidInputError if another
    process has it.
    """
    path = state.with_name(f"{state.name}.{what}")
    end = time.monotonic() + wait_seconds
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() < end:
                    time.sleep(LOOK_SECONDS)
                    continue
                raise InvalidInputError(
                    [Fault(str(path), "another `run` or `apply` works with this state")]
                ) from None
        yield
