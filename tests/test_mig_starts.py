"""Arrangements of slices are legal by the captured placements, and found where one exists."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trencadis.adapters.mig_starts import arrange, placements, spread

# As `nvidia-smi mig -lgipp` prints them: length, starts.
A100_40 = {
    "1g.5gb": (1, (0, 1, 2, 3, 4, 5, 6)),
    "2g.10gb": (2, (0, 2, 4)),
    "3g.20gb": (4, (0, 4)),
    "4g.20gb": (4, (0,)),
    "7g.40gb": (8, (0,)),
}
H100_80 = {
    "1g.10gb": (1, (0, 1, 2, 3, 4, 5, 6)),
    "1g.10gb+me": (1, (0, 1, 2, 3, 4, 5, 6)),
    "1g.20gb": (2, (0, 2, 4, 6)),
    "2g.20gb": (2, (0, 2, 4)),
    "3g.40gb": (4, (0, 4)),
    "4g.40gb": (4, (0,)),
    "7g.80gb": (8, (0,)),
}
A30 = {
    "1g.6gb": (1, (0, 1, 2, 3)),
    "2g.12gb": (2, (0, 2)),
    "4g.24gb": (4, (0,)),
}
MODELS = [
    ("NVIDIA-A100-SXM4-40GB", 40_960, A100_40),
    ("NVIDIA-H100-80GB-HBM3", 81_559, H100_80),
    ("NVIDIA-A30", 24_576, A30),
]


@pytest.mark.parametrize(("model", "memory", "table"), MODELS)
def test_placements_are_the_captured_ones(
    model: str, memory: int, table: dict[str, tuple[int, tuple[int, ...]]]
) -> None:
    assert {profile: placements(profile, model, memory) for profile in table} == table


@given(st.sampled_from(MODELS), st.data())
def test_an_arrangement_is_found_exactly_where_there_is_one(
    gpu: tuple[str, int, dict[str, tuple[int, tuple[int, ...]]]], data: st.DataObject
) -> None:
    model, memory, table = gpu
    wanted = data.draw(st.lists(st.sampled_from(sorted(table)), max_size=5))
    found = arrange(wanted, model, memory)
    most = 4 if model == "NVIDIA-A30" else 7
    # One set of media engines, so one slice with it.
    within = sum(int(p[0]) for p in wanted) <= most and sum("+me" in p for p in wanted) <= 1
    fits = within and any(
        _disjoint(
            [(start, table[profile][0]) for start, profile in zip(chosen, wanted, strict=True)]
        )
        for chosen in product(*(table[profile][1] for profile in wanted))
    )
    assert (found is not None) == fits
    if found is not None:
        assert sorted(i.profile for i in found) == sorted(wanted)
        assert all(i.start in table[i.profile][1] for i in found)
        assert _disjoint([(i.start, table[i.profile][0]) for i in found])


def _disjoint(pieces: list[tuple[int, int]]) -> bool:
    cells = [cell for start, length in pieces for cell in range(start, start + length)]
    return len(cells) == len(set(cells))


def test_slices_of_a_node_spread_over_its_gpus() -> None:
    cut = spread(["3g.40gb"] * 3 + ["1g.10gb"] * 4, [2, 3], "NVIDIA-H100-80GB-HBM3", 81_559)
    assert cut is not None
    assert [len(cut[gpu]) for gpu in (2, 3)] == [2, 5]
    assert spread(["7g.80gb"] * 2, [0], "NVIDIA-H100-80GB-HBM3", 81_559) is None


def test_the_same_on_all_gpus() -> None:
    """The GPU operator's `all-balanced`, which no first fit finds."""
    profiles = ["1g.10gb"] * 16 + ["2g.20gb"] * 8 + ["3g.40gb"] * 8
    cut = spread(profiles, range(8), "NVIDIA-H100-80GB-HBM3", 81_559)
    assert cut is not None
    assert {tuple(i.profile for i in cut[gpu]) for gpu in range(8)} == {
        ("2g.20gb", "1g.10gb", "1g.10gb", "3g.40gb")
    }


@given(st.sampled_from(MODELS), st.integers(1, 4), st.data())
def test_what_was_on_gpus_fits_on_as_many(
    gpu: tuple[str, int, dict[str, tuple[int, tuple[int, ...]]]], size: int, data: st.DataObject
) -> None:
    model, memory, table = gpu
    names = st.lists(st.sampled_from(sorted(table)), min_size=1, max_size=7)
    layouts = names.filter(lambda wanted: arrange(wanted, model, memory) is not None)
    held = [data.draw(layouts) for _ in range(size)]
    profiles = [name for layout in held for name in layout]
    cut = spread(profiles, range(size), model, memory)
    assert cut is not None
    assert sorted(i.profile for layout in cut.values() for i in layout) == sorted(profiles)


def test_twelve_slices_and_engines() -> None:
    pro = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97_887
    made = arrange(["1g.24gb", "1g.24gb", "2g.48gb"], *pro)
    assert made is not None
    assert [(i.profile, i.start) for i in made] == [
        ("2g.48gb", 0), ("1g.24gb", 6), ("1g.24gb", 9)]  # fmt: skip
    assert arrange(["1g.10gb+me", "1g.10gb+me"], "NVIDIA-H100-80GB-HBM3", 81_559) is None
