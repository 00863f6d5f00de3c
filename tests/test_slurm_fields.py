"""Slurm's strings and numbers, one rule at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trencadis.adapters.slurm.features import ConstraintError, fulfils, plain
from trencadis.adapters.slurm.fields import count, infinite, instant, number, states, words
from trencadis.adapters.slurm.gres import gpus_of_tres, parse_gres, parse_memory, parse_tres
from trencadis.adapters.slurm.hostlist import HostlistError, compress, expand
from trencadis.adapters.slurm.topology import read_topology
from trencadis.models import InvalidInputError

NAMES = st.from_regex(r"[a-z][a-z.-]{0,4}([0-9]{1,6}([a-z-]{1,3}[0-9]{0,3})?)?", fullmatch=True)


@given(st.lists(NAMES, max_size=40))
def test_a_compressed_hostlist_expands_to_the_same_names(names: list[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(set(names))


@given(st.integers(0, 999), st.integers(0, 60), st.integers(1, 5), NAMES)
def test_a_range_keeps_its_padding(first: int, more: int, width: int, prefix: str) -> None:
    text = f"{prefix}[{first:0{width}d}-{first + more}]"
    assert expand(text) == [f"{prefix}{n:0{width}d}" for n in range(first, first + more + 1)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("g[01-03,7],h2", ["g01", "g02", "g03", "g7", "h2"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("a,a,b", ["a", "b"]),
        ("(null)", []),
        (None, []),
        ("g[08-11]", ["g08", "g09", "g10", "g11"]),
    ],
)
def test_hostlists(text: str | None, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["g[1-", "g1]", "g[3-1]", "g[a]", "g[[1]]", "g[1-999999999]", "g[1-999]n[1-999]", "g[]"]
)
def test_a_broken_hostlist_is_refused(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@given(st.integers(0, 10**9))
def test_both_shapes_of_a_number_mean_the_same(value: int) -> None:
    assert number(value) == number({"set": True, "infinite": False, "number": value}) == value


def test_what_is_not_set_or_has_no_limit_is_no_number() -> None:
    unset = {"set": False, "infinite": False, "number": 5}
    endless = {"set": False, "infinite": True, "number": 0}
    for value in (unset, endless, None, 4_294_967_294, 0xFFFFFFFFFFFFFFFE, True, float("nan"), "x"):
        assert number(value) is None
        assert count(value) == 0
    assert infinite(endless)
    assert infinite(0xFFFFFFFF)
    assert not infinite(unset)
    assert instant(0) is None
    assert instant(10**15) is None


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ((["IDLE", "DRAIN"],), {"IDLE", "DRAIN"}),
        (("idle+drain",), {"IDLE", "DRAIN"}),
        (("mixed", ["MAINTENANCE"]), {"MIXED", "MAINTENANCE"}),
        (("down*",), {"DOWN", "NOT_RESPONDING"}),
        (("idle~",), {"IDLE", "POWERED_DOWN"}),
        ((None, []), set()),
    ],
)
def test_states(values: tuple[object, ...], found: set[str]) -> None:
    assert states(*values) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:h100:4(S:0-1)", [("gpu", "h100", 4, None)]),
        ("gpu:h100:4(IDX:0-3)", [("gpu", "h100", 4, (0, 1, 2, 3))]),
        ("gpu:h100:3(IDX:0,2-3),nic:1", [("gpu", "h100", 3, (0, 2, 3)), ("nic", "", 1, None)]),
        ("gpu:4", [("gpu", "", 4, None)]),
        ("gpu", [("gpu", "", 1, None)]),
        ("gres:gpu:h100:2", [("gpu", "h100", 2, None)]),
        ("gres/gpu:8", [("gpu", "", 8, None)]),
        ("gres/gpu:a100-sxm4-80gb=4", [("gpu", "a100-sxm4-80gb", 4, None)]),
        ("gpu:fake1:0(IDX:N/A)", [("gpu", "fake1", 0, None)]),
        ("gpu:(null):2(IDX:0-1)", [("gpu", "", 2, (0, 1))]),
        ("nic:no_consume:2", [("nic", "", 2, None)]),
        ("tmpsize:7T", [("tmpsize", "", 7 << 40, None)]),
        ("(null)", []),
        ("N/A", []),
    ],
)
def test_gres(text: str, found: list[tuple[object, ...]]) -> None:
    parsed = parse_gres(text)
    assert [(entry.name, entry.type, entry.count, entry.indices) for entry in parsed] == found


def test_mig_devices_are_told_from_gpus() -> None:
    full, part, other = parse_gres("gpu:a100:1,gpu:a100_3g.20gb:2,gpu:1g.10gb:1")
    assert full.is_gpu
    assert not full.is_mig
    assert part.is_mig
    assert other.is_mig
    assert other.key == "gres/gpu:1g.10gb"


def test_shards_tell_how_many_are_in_use_on_each_gpu() -> None:
    assert parse_gres("shard:6(2/8,0/8,4/8)")[0].per_gpu == (2, 0, 4)


@pytest.mark.parametrize("text", [":3", "gpu:a:b:c:1", "gpu:4(IDX:3", "gpu:1(IDX:9999)"])
def test_a_broken_gres_string_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_gres(text)


def test_a_type_and_the_total_of_a_tres_string_are_not_added() -> None:
    assert gpus_of_tres(parse_tres("cpu=64,gres/gpu:h100=16,gres/gpu=16")) == 16
    assert gpus_of_tres(parse_tres("gres/gpu:h100=8,gres/gpu:a100=4")) == 12
    assert parse_tres("cpu=8,gres/gpumem=80G,gres/gpuutil=0,gres/gpu=1") == {
        "cpu": 8,
        "gres/gpu": 1,
    }


@pytest.mark.parametrize(
    ("text", "mib"), [("512M", 512), ("62.50G", 64_000), ("1T", 1_048_576), ("7", 7), ("1K", 1)]
)
def test_memory(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


FEATURES = ("a", "b", "c")


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> tuple[str, str]:
    """A constraint, and the same for Python; parentheses wherever the order would matter."""
    if depth == 0 or draw(st.booleans()):
        feature = draw(st.sampled_from(FEATURES))
        return feature, f"('{feature}' in have)"
    left, right = draw(formulas(depth - 1)), draw(formulas(depth - 1))
    sign, word = draw(st.sampled_from([("&", "and"), ("|", "or")]))
    return f"({left[0]}){sign}({right[0]})", f"({left[1]} {word} {right[1]})"


@given(formulas(), st.frozensets(st.sampled_from(FEATURES)))
def test_constraints_are_logic(formula: tuple[str, str], have: frozenset[str]) -> None:
    assert fulfils(formula[0], have) == eval(formula[1], {"have": have})


def test_constraints_about_several_nodes_are_refused() -> None:
    assert plain("a100-80gb&preemptible&gpu-1") == ["a100-80gb", "preemptible", "gpu-1"]
    assert plain("a|b") is None
    for text in ("[a|b]", "a*2&b", "a&", "(a", "&"):
        with pytest.raises(ConstraintError):
            fulfils(text, {"a"})


def test_words() -> None:
    assert words("a, b,,(null)") == words(["a", "b", ""]) == ["a", "b"]
    assert words(None) == words(7) == []


TREE = """
# a comment
SwitchName=core Switches=spine[1-2]
SwitchName=spine1 Switches=leaf[1-2]   # another
SwitchName=spine2 Switches=leaf3
switchname=leaf1 nodes=g[1-2] LinkSpeed=100
SwitchName=leaf2 Nodes=g[3-4]
SwitchName=leaf3 Nodes=g[5-6]
"""


def test_a_tree_becomes_levels_and_paths() -> None:
    placement = read_topology(TREE)
    assert [level.name for level in placement.fabric.levels] == ["core", "spine", "leaf"]
    assert placement.paths["g3"] == ("core", "spine1", "leaf2")
    assert not any(level.boundary for level in placement.fabric.levels)
    assert placement.finest == "leaf"


def test_what_scontrol_prints_means_the_same() -> None:
    printed = """
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=g[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=g[3-4]
SwitchName=leaf3 Level=0 LinkSpeed=1 Nodes=g[5-6]
SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=g[1-4] Switches=leaf[1-2]
SwitchName=spine2 Level=1 LinkSpeed=1 Nodes=g[5-6] Switches=leaf3
SwitchName=core Level=2 LinkSpeed=1 Nodes=g[1-6] Switches=spine[1-2]
"""
    assert read_topology(printed) == read_topology(TREE)


def test_uneven_trees_and_several_roots() -> None:
    placement = read_topology(
        "SwitchName=top Switches=a,b\nSwitchName=a Nodes=g1\n"
        "SwitchName=b Nodes=g2\nSwitchName=c Nodes=g3"
    )
    assert placement.paths["g1"] == ("top", "a")
    assert placement.paths["g3"] == ("c", "c")
    assert [level.boundary for level in placement.fabric.levels] == [True, False]


@given(st.integers(1, 5), st.integers(1, 3))
def test_trees_of_any_depth(depth: int, width: int) -> None:
    lines = []
    for level in range(1, depth):
        for index in range(width ** (level - 1)):
            below = ",".join(f"s{level + 1}x{index * width + k}" for k in range(width))
            lines.append(f"SwitchName=s{level}x{index} Switches={below}")
    leaves = width ** (depth - 1)
    lines += [f"SwitchName=s{depth}x{index} Nodes=n{index}" for index in range(leaves)]
    placement = read_topology("\n".join(lines))
    assert len(placement.fabric.levels) == depth
    for index in range(leaves):
        path = placement.paths[f"n{index}"]
        assert path == tuple(
            f"s{level}x{index // width ** (depth - level)}" for level in range(1, depth + 1)
        )


def test_blocks_join_by_their_sizes() -> None:
    lines = [f"BlockName=b{i} Nodes=n[{i}1-{i}2]" for i in range(1, 5)]
    placement = read_topology("\n".join([*lines, "BlockSizes=2,4,8"]))
    assert [level.name for level in placement.fabric.levels] == ["block-4", "block-2", "block"]
    assert placement.paths["n31"] == ("blocks-4.0", "blocks-2.1", "b3")
    printed = "\n".join(
        [
            *(
                f"BlockName=b{i} BlockIndex={i - 1} Nodes=n[{i}1-{i}2] BlockSize=2"
                for i in range(1, 5)
            ),
            "AggregatedBlock=b[1-2] BlockIndex=4 Nodes=n[11-12,21-22] BlockSize=4",
            "AggregatedBlock=b[3-4] BlockIndex=5 Nodes=n[31-32,41-42] BlockSize=4",
            "AggregatedBlock=b[1-4] BlockIndex=6 Nodes=n[11-12,21-22,31-32,41-42] BlockSize=8",
        ]
    )
    assert read_topology(printed) == placement


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SwitchName=a Switches=b", 1),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", 1),
        ("SwitchName=a Nodes=g[1-\n", 1),
        ("\nnonsense here", 2),
        ("SwitchName=c Nodes=g\nSwitchName=a Switches=c\nSwitchName=b Switches=c", 3),
        ("BlockName=a Nodes=g1\nBlockSizes=0", 2),
        ("---\n- topology: t1", 1),
    ],
)
def test_a_broken_topology_names_its_line(text: str, line: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_topology(text)
    assert caught.value.faults[0].path == f"topology:line {line}"
