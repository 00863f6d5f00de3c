"""Decides the fabric's levels and each node's place in them, from topology.conf or scontrol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.models.cluster import Fabric, FabricLevel
from trencadis.models.faults import Fault, InvalidInputError

LEAF = "leaf"
BLOCK = "block"
JOINED = "block-"
_NAMES = (LEAF, "spine", "core")
_KINDS = ("leaf", "spine", "cluster")
_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")
_SKIPPED = ("switchname=none",)


@dataclass(frozen=True, slots=True)
class Placement:
    """The fabric, and the path of each node that it lists."""

    fabric: Fabric = field(default_factory=Fabric)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[Fault, ...] = ()
    block_nodes: int | None = None
    """Nodes that a block counts for; None in a tree."""

    @property
    def finest(self) -> str | None:
        """The level next to the nodes: a leaf switch or a block."""
        return self.fabric.levels[-1].name if self.fabric.levels else None


@dataclass(slots=True)
class _Switch:
    line: int
    nodes: list[str]
    switches: list[str]
    parent: str | None = None


def read_topology(text: str, name: str = "topology", block_kind: str = "nvl72") -> Placement:
    """Tree (SwitchName) or blocks (BlockName, BlockSizes), or what `scontrol show topology` prints.

    A tree's levels are `leaf`, `spine`, `core`, `tier4`… from the nodes up. A block is priced as
    `block_kind`; what BlockSizes joins are levels above it, `block-2`, `block-4`… (in blocks).
    Several roots, or nodes under no switch, make the top level a boundary: Slurm lets no job span
    what no switch joins. Raises InvalidInputError with the lines that make no sense.
    """
    faults: list[Fault] = []
    switches: dict[str, _Switch] = {}
    blocks: dict[str, list[str]] = {}
    sizes: set[int] = set()
    joined: set[int] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        if not content or content.lower().startswith(_SKIPPED):
            continue
        path = f"{name}:line {number}"
        pairs = {key.lower(): value for key, value in _PAIR.findall(content)}
        try:
            if "switchname" in pairs:
                children = expand(pairs.get("switches"))
                # scontrol lists the nodes below as well: only a leaf's own count.
                nodes = [] if children else expand(pairs.get("nodes"))
                if pairs["switchname"] in switches:
                    faults.append(Fault(path, f"switch {pairs['switchname']} is there already"))
                switches[pairs["switchname"]] = _Switch(number, nodes, children)
            elif "blockname" in pairs:
                blocks[pairs["blockname"]] = expand(pairs.get("nodes"))
                if "blocksize" in pairs:  # as scontrol prints it
                    sizes.add(_size(pairs["blocksize"]))
            elif "blocksizes" in pairs:
                sizes |= {_size(size) for size in pairs["blocksizes"].split(",")}
            elif "aggregatedblock" in pairs:
                joined.add(len(expand(pairs["aggregatedblock"])))
            else:
                hint = ""
                if content == "---" or content.endswith(":"):
                    hint = (
                        ": it looks like topology.yaml; give the output of scontrol show topology"
                    )
                faults.append(Fault(path, f"neither a switch nor a block{hint}"))
        except HostlistError as error:
            faults.append(Fault(path, str(error)))
        except ValueError:
            faults.append(Fault(path, f"BlockSizes: {_sizes_in(pairs)!r} are not numbers"))
        if faults and len(faults) > 100:
            break
    if switches and blocks:
        faults.append(Fault(f"{name}:line 1", "switches and blocks in one topology"))
    faults.extend(_join(switches, name))
    if faults:
        raise InvalidInputError(faults)
    if blocks:
        return _blocks(blocks, sizes, joined, block_kind, name)
    return _tree(switches, name)


def _sizes_in(pairs: Mapping[str, str]) -> str | None:
    return pairs.get("blocksizes", pairs.get("blocksize"))


def _size(text: str) -> int:
    if not re.fullmatch(r"\s*[1-9]\d{0,8}\s*", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def _join(switches: dict[str, _Switch], name: str) -> Iterable[Fault]:
    """Gives every switch its parent. Yields what makes the switches no forest."""
    for switch_name, switch in switches.items():
        for child in switch.switches:
            path = f"{name}:line {switch.line}"
            if child not in switches:
                yield Fault(path, f"switch {child} is not defined")
            elif switches[child].parent is not None:
                yield Fault(path, f"switch {child} is below {switches[child].parent} as well")
            else:
                switches[child].parent = switch_name
    settled: set[str] = set()
    for start in switches:
        chain: dict[str, None] = {}
        here: str | None = start
        while here is not None and here not in settled and here not in chain:
            chain[here] = None
            here = switches[here].parent
        if here is not None and here in chain:
            yield Fault(f"{name}:line {switches[here].line}", f"switch {here} is below itself")
        settled |= chain.keys()


def _tree(switches: dict[str, _Switch], name: str) -> Placement:
    warnings: list[Fault] = []
    chains: dict[str, tuple[str, ...]] = {}
    for switch_name, switch in switches.items():
        for node in switch.nodes:
            if node in chains:
                where = f"{name}:line {switch.line}"
                warnings.append(
                    Fault(where, f"node {node} is below two switches; the first counts")
                )
                continue
            chain, here = [switch_name], switch.parent
            while here is not None:
                chain.append(here)
                here = switches[here].parent
            chains[node] = tuple(reversed(chain))
    depth = max(map(len, chains.values()), default=0)
    # A leaf that hangs higher than others is a domain of its own on the levels it skips.
    paths = {node: chain + chain[-1:] * (depth - len(chain)) for node, chain in chains.items()}
    boundary = len({path[0] for path in paths.values()}) > 1
    levels = [
        FabricLevel(
            name=_NAMES[height] if height < len(_NAMES) else f"tier{height + 1}",
            kind=_KINDS[min(height, len(_KINDS) - 1)],
            boundary=boundary and height == depth - 1,
        )
        for height in reversed(range(depth))
    ]
    return Placement(Fabric(levels=tuple(levels)), paths, tuple(warnings))


def _blocks(
    blocks: dict[str, list[str]], sizes: set[int], joined: set[int], block_kind: str, name: str
) -> Placement:
    """Levels from BlockSizes: the first is a block's nodes, the others multiples of it."""
    given = sorted(sizes)
    # A block may hold spare nodes beyond its size, so multiples are of the size, not of its nodes.
    base = given[0] if given else 0
    warnings = []
    for size in given[1:]:
        if size % base:
            message = f"BlockSizes: {size} is no multiple of {base}; left out"
            warnings.append(Fault(f"{name}:$", message))
        else:
            joined.add(size // base)
    steps = sorted((step for step in joined if 1 < step <= len(blocks)), reverse=True)
    paths: dict[str, tuple[str, ...]] = {}
    for index, (block, nodes) in enumerate(blocks.items()):
        domains = (*(f"blocks-{step}.{index // step}" for step in steps), block)
        for node in nodes:
            if node in paths:
                message = f"node {node} is in two blocks; the first counts"
                warnings.append(Fault(f"{name}:$", message))
            paths.setdefault(node, domains)
    levels = [FabricLevel(name=f"{JOINED}{step}", kind="spine") for step in steps]
    levels.append(FabricLevel(name=BLOCK, kind=block_kind))
    smallest = base or min(map(len, blocks.values()))
    return Placement(Fabric(levels=tuple(levels)), paths, tuple(warnings), smallest or None)


def nodes_of_level(placement: Placement) -> list[tuple[str, int]]:
    """Of blocks, from the finest up: each level's name, and the nodes that it counts for."""
    size = placement.block_nodes or 0
    names = [level.name for level in reversed(placement.fabric.levels)]
    return [(n, size * (1 if n == BLOCK else int(n.removeprefix(JOINED)))) for n in names]
