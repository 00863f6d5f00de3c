"""Ports of this machine that nobody listens on."""

from __future__ import annotations

import os
import random
import socket

LOWEST, ABOVE = 10_000, 32_768
"""Linux gives connections ports from 32,768 up: such a one may be gone before a daemon takes it."""


def free_ports(number: int) -> list[int]:
    """So many, all different; workers of pytest-xdist never draw the same."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = range(LOWEST + worker, ABOVE, workers)
    # Not `random.sample`: Hypothesis and tests seed that one.
    drawn = iter(random.SystemRandom().sample(own, len(own)))
    found: list[int] = []
    while len(found) < number:
        port = next(drawn)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
