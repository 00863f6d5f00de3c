"""Reports in a real browser: no complaint on its console, figures there, pictures not blank."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import both_schemes, browse, with_browser
from command import INSTANCES

from trencadis.models import load_snapshot
from trencadis.solver.round import Options, solve
from trencadis.whatif.report.solved import solve_report

pytestmark = with_browser


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
    pictures = both_schemes(page)
    assert pictures[0] != pictures[1]
    assert min(map(len, pictures)) > 20_000
