"""Which draws tests see, and in which order workers of pytest-xdist begin: with `slow` files."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same draws each time, so that what passed fails by a change alone; `make fuzz` draws afresh.
settings.register_profile("repeated", derandomize=True)
settings.register_profile("fresh", print_blob=True)
settings.load_profile("repeated")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Most of those wait for a live cluster, and what others compute meanwhile costs no time.

    By themselves the files are run by name, as pytest collects them.
    """
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
