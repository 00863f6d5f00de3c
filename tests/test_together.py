"""How many tasks of several profiles fit: solver, verifier and plain enumeration must agree."""

from __future__ import annotations

from functools import cache

import build as b
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.parts import is_legal

from trencadis.models import Job, MigGpu, MigInstance, Request, Snapshot, TaskAllocation
from trencadis.models.mig import MigTable, find_table
from trencadis.solver.cuts import cutter
from trencadis.solver.pieces import MigCut
from trencadis.solver.verify.situation import situate

A100 = "A100-SXM4-40GB"
NAMES = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb")


def table() -> MigTable:
    found = find_table(A100)
    assert found is not None
    return found


Layout = tuple[tuple[str, int], ...]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """A legal layout of a few instances."""
    layout: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(0, 4))):
        profile = table().profile(draw(st.sampled_from(NAMES)))
        assert profile is not None
        start = draw(st.sampled_from(profile.starts))
        more = (profile.name, start)
        if legal((*layout, more)):
            layout.append(more)
    return tuple(layout)


def plainly(gpus: list[Layout], wanted: list[str]) -> bool:
    """Whether all wanted instances fit: every start on every GPU is tried, alike GPUs once."""

    @cache
    def fits(layouts: tuple[Layout, ...], left: tuple[str, ...]) -> bool:
        if not left:
            return True
        profile = table().profile(left[0])
        assert profile is not None
        for i, layout in enumerate(layouts):
            for start in profile.starts:
                more = (*layout, (profile.name, start))
                if legal(more):
                    changed = (*layouts[:i], tuple(sorted(more)), *layouts[i + 1 :])
                    if fits(tuple(sorted(changed)), left[1:]):
                        return True
        return False

    return fits(tuple(sorted(gpus)), tuple(sorted(wanted, reverse=True)))


@cache
def legal(layout: Layout) -> bool:
    """The oracle's word on it."""
    return is_legal(table(), [(start, name) for name, start in layout])


def cluster(used: list[Layout], wanted: tuple[str, ...]) -> Snapshot:
    """One node; each of its instances has a job."""
    mig = [
        MigGpu(gpu=i, instances=tuple(MigInstance(profile=p, start=s) for p, s in layout))
        for i, layout in enumerate(used)
    ]
    jobs: list[Job] = []
    for gpu, layout in enumerate(used):
        for profile, start in layout:
            where = TaskAllocation(
                node="n1", gpus=(gpu,), mig=(MigInstance(profile=profile, start=start),)
            )
            request = Request(mig=(profile,))
            jobs.append(b.running(f"r{len(jobs)}", where, request=request))
    ask = b.job("ask", request=Request(mig=wanted))
    return b.snapshot(b.node("n1", len(used), A100, mig=mig), jobs, ask)


def counted(snap: Snapshot, wanted: tuple[str, ...]) -> tuple[int, int]:
    """Tasks that fit, by the solver and by the verifier."""
    knife = cutter(snap)
    pieces = knife.pieces(Request(mig=wanted), A100)
    assert pieces is not None
    cuts = []
    for entry in snap.nodes[0].mig:
        cut = knife.mig_cut(A100, entry.instances, (), fixed=False)
        assert isinstance(cut, MigCut)
        cuts.append(cut)
    situation = situate(snap)
    second = situation.states["n1"].second
    theirs = situation.knife.tasks(second, 0, situation.asks["ask"], A100)
    return knife.most_on(cuts, None, 0, A100, pieces), theirs


@settings(max_examples=40, deadline=None)
@given(
    st.lists(layouts(), min_size=1, max_size=2),
    st.lists(st.sampled_from(NAMES), min_size=2, max_size=3),
)
def test_several_profiles_are_counted_as_by_enumeration(
    used: list[Layout], wanted: list[str]
) -> None:
    ours, theirs = counted(cluster(used, tuple(wanted)), tuple(wanted))
    assert ours == theirs
    assert plainly(used, wanted * ours)
    assert not plainly(used, wanted * (ours + 1))


def test_a_node_of_sixteen_gpus_is_counted_too() -> None:
    """Beside two 3g there is no room for a 1g, beside one there is for four of them, alone for
    seven."""
    wanted = ("3g.20gb", "1g.5gb")
    ours, theirs = counted(cluster([()] * 16, wanted), wanted)
    best = max(
        min(2 * pairs + single, 7 * (16 - pairs - single) + 4 * single)
        for pairs in range(17)
        for single in range(17 - pairs)
    )
    assert ours == theirs == best
