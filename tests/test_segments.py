"""The least number of GPUs for MIG segments: known cases, brute force, published sets."""

from __future__ import annotations

import csv
from collections import Counter
from itertools import combinations_with_replacement, product
from pathlib import Path

import pytest

from trencadis.models.mig import MigTable, find_table
from trencadis.solver.layouts import is_legal
from trencadis.solver.segments import fewest_gpus, maximal_layouts

PARVA = Path(__file__).resolve().parents[2] / "shared/data/traces/parvagpu/deployment"
SIZES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}


def a100() -> MigTable:
    table = find_table("A100-80GB")
    assert table is not None
    return table


def fewest(*numbers: int) -> int:
    wanted = Counter(SIZES[number] for number in numbers)
    packing = fewest_gpus(a100(), wanted)
    assert packing.bound == len(packing.layouts)
    assert all(is_legal(a100(), layout) for layout in packing.layouts)
    assert Counter(i.profile for layout in packing.layouts for i in layout) == wanted
    return len(packing.layouts)


@pytest.mark.parametrize(
    ("numbers", "gpus"),
    [
        ((4, 3), 1),
        ((3, 3, 1), 2),
        ((3, 3, 3, 3, 1), 3),
        ((2,) * 7, 3),
        ((3, 2, 2), 1),
        ((2, 2, 2, 1), 1),
        ((), 0),
    ],
)
def test_worked_multisets(numbers: tuple[int, ...], gpus: int) -> None:
    assert fewest(*numbers) == gpus


def test_two_gpus_hold_what_two_layouts_hold() -> None:
    """Against all pairs of layouts: the least number of GPUs is 1, 2 or more exactly so."""
    layouts = [
        Counter(i.profile for i in layout)
        for layout in maximal_layouts(a100(), frozenset(SIZES.values()))
    ]
    for number in (2, 3, 4, 5):
        for numbers in combinations_with_replacement((1, 2, 3, 4), number):
            wanted = Counter(SIZES[n] for n in numbers)
            if any(wanted <= layout for layout in layouts):
                least = 1
            elif any(wanted <= one + two for one, two in product(layouts, layouts)):
                least = 2
            else:
                least = 3
            found = fewest(*numbers)
            assert found == least or (least == 3 and found >= 3), numbers


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("SLO1", 2), ("SLO2", 3), ("SLO3", 5), ("SLO4", 7), ("SLO5", 13), ("SLO6", 16)],
)
def test_parvagpu_sets_take_the_published_number_of_gpus_at_least(name: str, gpus: int) -> None:
    path = PARVA / name / f"{name}_ParvaGPU_deploy.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with path.open(newline="") as lines:
        numbers = [int(row["Instance size"]) for row in csv.DictReader(lines)]
    assert fewest(*numbers) == gpus


def test_unknown_profiles_are_named() -> None:
    with pytest.raises(ValueError, match=r"no profile 5g\.50gb"):
        fewest_gpus(a100(), {"5g.50gb": 1})
