"""MIG geometry: built-in tables against captures, how models find theirs, which layouts exist."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import build as b
import pytest
from oracle.parts import is_legal as plainly_legal
from pydantic import ValidationError

from trencadis.models import MigInstance, Policy, Request
from trencadis.models.mig import MigProfile, MigTable, built_in, find_table
from trencadis.models.policy import MigPolicy
from trencadis.models.units import mig_tables, sizes
from trencadis.solver.layouts import is_legal
from trencadis.solver.segments import maximal_layouts
from trencadis.solver.verify.second import legal

SHARED = Path(__file__).resolve().parents[2] / "shared/data"
CAPTURES = SHARED / "formats/nvidia-smi"
FACTS = SHARED / "mig/mig_profiles.json"
TABLES = {entry.gpu: entry.table for entry in built_in()}
BASE = frozenset({"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"})


def needs(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


def test_each_entry_says_where_it_is_from_and_how_sure_it_is() -> None:
    for entry in built_in():
        assert entry.table.source, entry.gpu
        assert entry.table.confidence in ("captured", "inferred", "unconfirmed")
    assert TABLES["A100-40GB"].confidence == "captured"
    assert TABLES["H200-141GB"].confidence == "inferred"


IDS = {
    "A100-40GB": {19: "1g.5gb", 14: "2g.10gb", 9: "3g.20gb", 5: "4g.20gb", 0: "7g.40gb"},
    "H100-80GB": {
        19: "1g.10gb", 20: "1g.10gb+me", 15: "1g.20gb", 14: "2g.20gb", 9: "3g.40gb",
        5: "4g.40gb", 0: "7g.80gb",
    },
    "A30": {14: "1g.6gb", 21: "1g.6gb+me", 5: "2g.12gb", 6: "2g.12gb+me", 0: "4g.24gb"},
}


def test_placements_are_those_that_nvidia_smi_printed() -> None:
    text = needs(CAPTURES / "mig-lgipp.all-models.txt").read_text()
    sections = re.split(r"^# --- ", text, flags=re.MULTILINE)[1:]
    checked = 0
    for gpu, section in zip(("A100-40GB", "H100-80GB", "A30"), sections, strict=True):
        assert section.startswith(gpu.split("-")[0])
        for line in section.splitlines()[1:]:
            found = re.match(r"GPU +0 Profile ID +(\d+) Placements? *: \{([\d,]+)\}:(\d+)", line)
            assert found is not None
            profile = TABLES[gpu].profile(IDS[gpu][int(found[1])])
            assert profile is not None
            assert profile.starts == tuple(int(start) for start in found[2].split(","))
            assert profile.memory_slices == int(found[3])
            checked += 1
    assert checked == 17


def test_profile_names_and_numbers_are_those_of_an_h100_nvl() -> None:
    text = needs(CAPTURES / "mig-lgip.h100-nvl-94gb.txt").read_text()
    rows = re.findall(r"MIG (\S+) +(\d+) +\d+/(\d+) ", text)
    assert rows
    for name, _, most in rows:
        profile = TABLES["H100-94GB"].profile(name)
        assert profile is not None
        assert profile.most == int(most)


def test_all_tables_agree_with_the_collected_facts() -> None:
    facts = json.loads(needs(FACTS).read_text())["gpus"]
    names = {
        "A30-24GB": "A30",
        "RTX-PRO-6000-Blackwell-96GB": "RTX-PRO-6000",
        "RTX-PRO-5000-Blackwell-48GB (current doc)": "RTX-PRO-5000",
        "RTX-PRO-4500-Blackwell-32GB": "RTX-PRO-4500",
    }
    assert {names.get(name, name) for name in facts} == TABLES.keys()
    for name, fact in facts.items():
        table = TABLES[names.get(name, name)]
        assert table.memory_slices == fact["memory_slices"]
        assert table.compute_slices == fact["compute_slices"]
        assert {profile.name for profile in table.profiles} == {p["name"] for p in fact["profiles"]}
        for entry in fact["profiles"]:
            profile = table.profile(entry["name"])
            assert profile is not None
            got = (profile.compute_slices, profile.memory_slices, profile.starts, profile.most)
            wanted = (entry["compute_slices"], entry["mem_size"], tuple(entry["starts"]))
            assert got == (*wanted, entry["max_instances"]), (name, entry["name"])
            if table.engines:
                engines = {k: v for k, v in entry["engines"].items() if v}
                assert profile.engines == engines, (name, entry["name"])


@pytest.mark.parametrize(
    ("model", "memory_mib", "gpu"),
    [
        ("A100-SXM4-40GB", 0, "A100-40GB"),
        ("NVIDIA-A100-SXM4-80GB", 0, "A100-80GB"),
        ("a100", 40_960, "A100-40GB"),
        ("a100", 81_559, "A100-80GB"),
        ("a100", 0, None),
        ("h100", 81_559, "H100-80GB"),
        ("NVIDIA H100 NVL", 0, "H100-94GB"),
        ("NVIDIA GB200", 0, "GB200-186GB"),
        ("B200", 0, "B200-180GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, "RTX-PRO-6000"),
        ("A30", 0, "A30"),
        ("Tesla-V100-SXM2-32GB", 0, None),
    ],
)
def test_a_model_finds_its_table(model: str, memory_mib: int, gpu: str | None) -> None:
    assert find_table(model, memory_mib) == (None if gpu is None else TABLES[gpu])


def test_instances_that_are_there_tell_models_apart() -> None:
    assert find_table("a100", 0, ["3g.20gb"]) == TABLES["A100-40GB"]
    assert find_table("a100", 0, ["3g.40gb"]) == TABLES["A100-80GB"]


def test_a_policy_overrides_the_table_of_a_model() -> None:
    own = MigTable(
        memory_slices=2,
        compute_slices=2,
        profiles=(
            MigProfile(
                name="1g.x", compute_slices=1, memory_slices=1, starts=(0, 1), most=2, memory_mib=9
            ),
        ),
    )
    node = b.node("n1", 1, "A30")
    snapshot = b.snapshot(node, mig=MigPolicy(tables={"A30": own}))
    assert mig_tables(snapshot) == {"A30": own}
    assert sizes(snapshot).task(Request(mig=("1g.x",))) == 500
    assert mig_tables(b.snapshot(node)) == {"A30": TABLES["A30"]}


def test_tables_that_contradict_themselves_are_refused() -> None:
    profile = {
        "name": "1g", "compute_slices": 1, "memory_slices": 2, "starts": [0, 3], "most": 1,
        "memory_mib": 1,
    }
    table = {"memory_slices": 4, "compute_slices": 4, "profiles": [profile]}
    with pytest.raises(ValidationError, match="reaches beyond the 4 memory slices"):
        Policy.model_validate({"mig": {"tables": {"X": table}}})
    table["profiles"] = [profile | {"starts": [0]}] * 2
    with pytest.raises(ValidationError, match="profiles given twice: 1g"):
        Policy.model_validate({"mig": {"tables": {"X": table}}})


@pytest.mark.parametrize(
    ("memory_mib", "compute_milli", "profile"),
    [
        (5 * 1_024, 0, "1g.5gb"),
        (10 * 1_024, 0, "1g.10gb"),
        (10 * 1_024 + 1, 0, "3g.20gb"),
        (12 * 1_024, 0, "3g.20gb"),
        (0, 142, "1g.5gb"),
        (0, 143, "2g.10gb"),
        (0, 285, "2g.10gb"),
        (0, 286, "3g.20gb"),
        (20 * 1_024, 500, "4g.20gb"),
        (0, 1_000, "7g.40gb"),
        (41 * 1_024, 0, None),
    ],
)
def test_a_request_gets_the_smallest_profile_that_holds_it(
    memory_mib: int, compute_milli: int, profile: str | None
) -> None:
    found = TABLES["A100-40GB"].smallest(memory_mib, compute_milli)
    assert (None if found is None else found.name) == profile


# layouts


def every_layout(table: MigTable, names: frozenset[str]) -> set[frozenset[tuple[int, str]]]:
    """All legal sets of instances, by trying all sets without overlaps."""
    spots = [
        (start, profile.name)
        for profile in table.profiles
        if profile.name in names
        for start in profile.starts
    ]
    return {
        frozenset(some)
        for number in range(8)
        for some in combinations(spots, number)
        if plainly_legal(table, some)
    }


@pytest.mark.parametrize("gpu", ["A30", "A100-40GB", "RTX-PRO-4500"])
def test_maximal_layouts_are_all_legal_sets_that_nothing_can_be_added_to(gpu: str) -> None:
    table = TABLES[gpu]
    names = BASE if gpu == "A100-40GB" else frozenset(profile.name for profile in table.profiles)
    layouts = every_layout(table, names)
    largest = {one for one in layouts if not any(one < other for other in layouts)}
    found = maximal_layouts(table, names)
    assert {frozenset((i.start, i.profile) for i in layout) for layout in found} == largest
    assert len(found) == len(largest)
    if gpu == "A100-40GB":
        assert len(found) == 19


@pytest.mark.parametrize("gpu", ["A30", "A100-40GB", "RTX-PRO-6000"])
def test_three_programs_agree_which_layouts_are_legal(gpu: str) -> None:
    table = TABLES[gpu]
    spots = [(start, profile.name) for profile in table.profiles for start in profile.starts]
    seen = {True: 0, False: 0}
    for some in combinations(spots, 3):
        instances = [MigInstance(profile=name, start=start) for start, name in some]
        verdict = plainly_legal(table, some)
        assert is_legal(table, instances) == verdict
        assert legal(table, [(name, start) for start, name in some]) == verdict
        seen[verdict] += 1
    assert min(seen.values()) > 0
