"""A headless browser, where the machine has one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
with_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


def browse(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The browser's output on a page; it ends by itself."""
    assert BROWSER is not None
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--enable-logging=stderr", f"--user-data-dir={page.parent / 'profile'}")  # fmt: skip
    return subprocess.run(
        [BROWSER, *fixed, *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def both_schemes(page: Path) -> list[bytes]:
    """Pictures of the page, light and dark."""
    pictures = []
    for scheme in ("1", "0"):
        target = page.with_name(f"{page.stem}-{scheme}.png")
        browse(
            page,
            f"--blink-settings=preferredColorScheme={scheme}",
            "--window-size=1000,900",
            f"--screenshot={target}",
        )
        pictures.append(target.read_bytes())
    return pictures
