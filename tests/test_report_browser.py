"""Reports in a real browser: no complaint on its console, figures there, pictures not blank."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from command import INSTANCES

from trencadis.models import load_snapshot
from trencadis.solver.round import Options, solve
from trencadis.whatif.report.solved import solve_report

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


def browse(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
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


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    snap, _ = load_snapshot((INSTANCES / "inference_training.json").read_bytes())
    plan = solve(snap, Options(time_limit_s=5, deterministic=True))
    target = tmp_path_factory.mktemp("report") / "report.html"
    target.write_text(solve_report(snap, plan).html())
    return target


def test_the_page_loads_without_complaint(page: Path) -> None:
    seen = browse(page, "--dump-dom")
    assert "CONSOLE" not in seen.stderr, seen.stderr
    for figure in ("Proven optimal", "14</b>", "of 16; before 8", "1g.10gb", "inference"):
        assert figure in seen.stdout, figure


def test_complaints_would_be_seen(page: Path) -> None:
    """The policy in the page forbids scripts: one that got in would not run, and would be told."""
    broken = page.with_name("broken.html")
    text = page.read_text().replace("</main>", "<script>document.title='run'</script></main>")
    broken.write_text(text)
    seen = browse(broken, "--dump-dom")
    assert "CONSOLE" in seen.stderr
    assert "<title>run</title>" not in seen.stdout


def test_light_and_dark_differ(page: Path) -> None:
    pictures = []
    for scheme in ("1", "0"):  # light, dark
        target = page.with_name(f"scheme{scheme}.png")
        browse(
            page,
            f"--blink-settings=preferredColorScheme={scheme}",
            "--window-size=1000,900",
            f"--screenshot={target}",
        )
        pictures.append(target.read_bytes())
    assert pictures[0] != pictures[1]
    assert min(map(len, pictures)) > 20_000
