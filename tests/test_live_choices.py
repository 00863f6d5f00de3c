"""What is sent to a node that chooses the GPUs fits whatever it chooses: against all it might."""

from __future__ import annotations

from collections import Counter
from functools import cache

import build as b
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trencadis.adapters.live.choices import Choices
from trencadis.models import Job, Request, Share, Snapshot, TaskAllocation

PARTS = 4


def share(name: str, parts: int, *gpus: int, **fields: object) -> Job:
    request = Request(share=Share(gpu_milli=1_000 * parts // PARTS))
    if gpus:
        where = TaskAllocation(node="n", gpus=gpus, share=request.share)
        return b.running(name, where, gpus=0, request=request, **fields)
    return b.job(name, request=request, **fields)


def node(gpus: int, *jobs: Job) -> Snapshot:
    machine = b.node("n", gpus, shareable=True, max_jobs_per_gpu=PARTS, precision="node")
    return b.snapshot(machine, *jobs)


@cache
def always(left: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether all find a GPU, in any order and on any GPU with room. `PARTS` is a whole GPU."""
    for one in set(wanted):
        rest = list(wanted)
        rest.remove(one)
        rooms = [i for i, free in enumerate(left) if free >= one]
        if not rooms:
            return False
        for i in rooms:
            after = tuple(sorted((*left[:i], left[i] - one, *left[i + 1 :])))
            if not always(after, tuple(rest)):
                return False
    return True


@given(
    st.lists(st.integers(0, PARTS), min_size=1, max_size=3),
    st.lists(st.integers(1, PARTS), min_size=1, max_size=5),
)
def test_nothing_is_sent_that_could_find_no_room(used: list[int], wanted: list[int]) -> None:
    tenants = [share(f"t{i}", parts, i) for i, parts in enumerate(used) if parts]
    # A job of all parts is one that wants the whole GPU, half of the time.
    jobs = [
        b.job(f"j{i}", 1) if parts == PARTS and i % 2 else share(f"j{i}", parts)
        for i, parts in enumerate(wanted)
    ]
    choices = Choices(node(len(used), *tenants, *jobs))
    task = TaskAllocation(node="n", expected=(0,))
    sent = [
        parts
        for job, parts in zip(jobs, wanted, strict=True)
        if choices.take(job, [task]) is None
    ]
    left = tuple(sorted(PARTS - parts for parts in used))
    assert always(left, tuple(sorted(sent)))
    # The first that fits anywhere is always sent: nobody waits for ever.
    assert bool(sent) == any(parts <= max(left) for parts in wanted)


@pytest.mark.parametrize(("wanted", "number"), [(1, 12), (2, 6), (3, 3), (4, 3)])
def test_shares_of_one_size_go_together(wanted: int, number: int) -> None:
    jobs = [share(f"j{i}", wanted) for i in range(number + 1)]
    choices = Choices(node(3, *jobs))
    task = TaskAllocation(node="n", expected=(0,))
    told = Counter(choices.take(job, [task]) is None for job in jobs)
    assert told == {True: number, False: 1}


def test_what_is_on_its_way_counts_until_its_gpu_is_told() -> None:
    where = TaskAllocation(node="n", expected=(0,))
    sent = share("sent", 2).model_copy(
        update={"state": "running", "start": b.NOW, "allocation": (where,)}
    )
    whole = b.job("whole", 2)
    blocked = Choices(node(2, sent, whole)).take(whole, [TaskAllocation(node="n")])
    assert blocked is not None
    assert "whether it still fits" in blocked
    told = share("sent", 2, 0)
    assert Choices(node(3, told, whole)).take(whole, [TaskAllocation(node="n")]) is None
