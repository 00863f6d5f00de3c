"""That only one process acts: a lock that the operating system drops when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from trencadis.models import Fault, InvalidInputError


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """Holds the lock beside the store. Raises InvalidInputError if another process has it."""
    path = state.with_name(f"{state.name}.lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInputError(
                [Fault(str(path), "another `run` or `apply` works with this state")]
            ) from None
        yield
