"""How `show` draws GPUs in parts: slices by legal starts with their jobs, and shares."""

from __future__ import annotations

import json
from pathlib import Path

import build as b
import pytest
from command import Program

from trencadis.instances.generate import generate
from trencadis.models import Job, MigGpu, MigInstance, Node, Request, Share, TaskAllocation
from trencadis.models.mig import find_table
from trencadis.solver.layouts import is_legal
from trencadis.views.parts import MigFacts, ShareFacts, part_facts

A100 = "A100-SXM4-40GB"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def instance(profile: str, start: int) -> MigInstance:
    return MigInstance(profile=profile, start=start)


def machine(*layouts: tuple[MigInstance, ...], gpus: int = 2, **fields: object) -> Node:
    mig = [MigGpu(gpu=gpu, instances=layout) for gpu, layout in enumerate(layouts)]
    return b.node("n1", gpus, A100, mig=mig, **fields)


def on(name: str, gpu: int, *instances: MigInstance) -> Job:
    where = TaskAllocation(node="n1", gpus=(gpu,) * len(instances), mig=instances)
    return b.running(name, where, request=Request(mig=tuple(i.profile for i in instances)))


def test_slices_are_drawn_by_their_starts(program: Program) -> None:
    """One 1g at start 6: no profile reaches the last slice beside it. Of the 3g at 0 nobody has
    the use."""
    layout = (instance("3g.20gb", 0), instance("1g.5gb", 6))
    snap = b.snapshot(machine(layout), on("holder", 0, layout[1]))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "[□□□□]··[■]×" in done.out
    assert "3g.20gb@0 idle, 1g.5gb@6" in done.out
    assert "2g.10gb at 4" in done.out
    told = json.loads(program("show", "-", "--json", stdin=snap.model_dump_json()).out)
    assert told["gpus"]["mig"] == 1
    (part,) = told["nodes"][0]["parts"]
    assert part["instances"] == [
        {"profile": "3g.20gb", "start": 0, "job": None},
        {"profile": "1g.5gb", "start": 6, "job": "holder"},
    ]
    assert part["free_slices"] == [4, 5, 7]
    assert part["lost_slices"] == [7]
    assert part["room"]["1g.5gb"] == [4, 5]


def test_shares_are_drawn_by_tenths(program: Program) -> None:
    half = b.running(
        "half", b.at("n1", 1), request=Request(share=Share(gpu_milli=450, memory_mib=1_024))
    )
    snap = b.snapshot(
        b.node("n1", 2, A100, shareable=True, max_jobs_per_gpu=3), half
    )
    done = program("show", "-", stdin=snap.model_dump_json())
    assert "(■■■■■·····)" in done.out
    assert "0.55 GPU, 2 shares" in done.out
    told = json.loads(program("show", "-", "--json", stdin=snap.model_dump_json()).out)
    assert told["gpus"]["shared"] == 1
    assert told["nodes"][0]["parts"] == [
        {
            "gpu": 1,
            "kind": "shared",
            "shares": [{"job": "half", "gpu_milli": 450, "memory_mib": 1_024}],
            "left_milli": 550,
            "left_memory_mib": None,
            "shares_left": 2,
        }
    ]


def test_without_a_table_only_the_layout_is_told(program: Program) -> None:
    mig = [MigGpu(gpu=0, instances=(instance("1g.5gb", 0),))]
    snap = b.snapshot(b.node("n1", 1, "X1", mig=mig))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "no MIG table for this model" in done.out


def test_many_gpus_are_folded_by_layout(program: Program) -> None:
    snap = generate(100, 10, 0.7, 1, 5, mig=0.4, share=0.3)
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "GPUs in parts, by layout" in done.out
    assert len(done.out.splitlines()) < 130


def test_fragmentation_counts_idle_parts_of_gpus(program: Program) -> None:
    """All of what is idle is lost to tasks of eight GPUs: F is all of it, not more."""
    snap = b.snapshot(machine((instance("3g.20gb", 0),), ()), b.job("large", 8))
    told = json.loads(program("show", "-", "--json", stdin=snap.model_dump_json()).out)
    assert told["fragmentation_milli"] == 1_000


def test_room_and_lost_slices_follow_from_the_table() -> None:
    """Independent of how they were worked out: one more instance fits at each start in `room` and
    nowhere else, and no legal instance beside those of jobs covers a lost slice."""
    snap = generate(20, 5, 0.9, 3, 2, mig=0.6, share=0.2)
    facts = [part for parts in part_facts(snap).values() for part in parts]
    migs = [part for part in facts if isinstance(part, MigFacts)]
    assert any(part.lost for part in migs)
    assert any(isinstance(part, ShareFacts) for part in facts)
    for part in migs:
        table = part.table
        assert table is not None
        assert table is find_table(part.model, 80 * 1_024)
        everything = [instance(name, start) for (name, start), _ in part.instances]
        used = [instance(name, start) for (name, start), job in part.instances if job]
        for profile in table.profiles:
            for start in range(table.memory_slices):
                more = instance(profile.name, start)
                fits = more not in everything and is_legal(table, [*everything, more])
                if profile.plain:
                    assert fits == (start in part.room.get(profile.name, ()))
                if more not in used and is_legal(table, [*used, more]):
                    covered = range(start, start + profile.memory_slices)
                    assert not set(covered) & set(part.lost)
