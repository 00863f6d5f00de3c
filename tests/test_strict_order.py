"""In a strict queue nobody passes who comes first, whatever the search had no place for."""

from __future__ import annotations

import random

import build as b
import pytest

from trencadis.solver.model.problem import Thresholds
from trencadis.solver.round import Options, solve

AROUND_A_GUIDE = Options(time_limit_s=10, workers=1, thresholds=Thresholds(patterns=1, whole=0))


@pytest.mark.parametrize("seed", range(150))
def test_nobody_passes_a_head_whose_place_was_not_found(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [b.node(f"n{i}", draw.choice((2, 4, 4, 8))) for i in range(3)]
    jobs = [
        b.job(
            f"j{i}",
            draw.choice((1, 2, 2, 3, 4)),
            draw.choice((1, 1, 2, 3)),
            queue="q",
            waited=draw.choice((600, 1_200, 3_600)),
        )
        for i in range(6)
    ]
    line = b.queue("q", order="strict_fifo")
    solve(b.snapshot(nodes, line, jobs), AROUND_A_GUIDE)  # verifies
