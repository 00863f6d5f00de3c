"""When Python's cycle collector may rest."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector(pause: bool = True) -> Iterator[None]:
    """No cycle collection meanwhile: reading and solving make millions of objects, no garbage."""
    running = pause and gc.isenabled()
    if running:
        gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
