"""In which order workers of pytest-xdist begin: first the files with tests that are `slow`."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Most of those wait for a live cluster, and what others compute meanwhile costs no time.

    By themselves the files are run by name, as pytest collects them.
    """
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
