"""Reports: what the map shows, that figures agree, that names stay text and nothing is fetched."""

from __future__ import annotations

import importlib.util
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from build import NOW, at, job, node, queue, running, snapshot
from command import INSTANCES, Program
from hypothesis import given, settings
from hypothesis import strategies as st

from trencadis.instances.generate import generate
from trencadis.models import (
    Hold,
    MigGpu,
    MigInstance,
    Plan,
    Request,
    Share,
    Snapshot,
    TaskAllocation,
    load_snapshot,
)
from trencadis.models.units import sizes
from trencadis.solver.round import Options, solve
from trencadis.whatif.engine import Sample
from trencadis.whatif.report.cluster_map import DETAIL_NODES, draw, legend_of
from trencadis.whatif.report.palette import STYLES, style
from trencadis.whatif.report.places import places
from trencadis.whatif.report.series import means, shares, utilized, waiting
from trencadis.whatif.report.solved import cluster_report, solve_report
from trencadis.whatif.report.standing import standings

HOSTILE = "<script>alert('x')</script>&\"" + "y"
QUICK = Options(time_limit_s=5, deterministic=True)
VOID = {"meta", "link", "input", "br", "hr", "img"}


class Tree(HTMLParser):
    """Fails on tags that don't match; collects tags, texts, attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def check_page(html: str) -> Tree:
    """A whole page that runs nothing and fetches nothing."""
    tree = Tree(html)
    assert "script" not in tree.tags
    for name, value in tree.attributes:
        assert not name.startswith("on"), name
        if name in ("src", "href", "xlink:href"):
            assert value is not None
            assert value.startswith(("#", "data:")), value
    assert set(re.findall(r"url\(([^)]{2})", html)) <= {"#s"}
    assert "@import" not in html
    ids = [value for name, value in tree.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    return tree


def solved(name: str) -> tuple[Snapshot, Plan]:
    snap, _ = load_snapshot((INSTANCES / name).read_bytes())
    return snap, solve(snap, QUICK)


@pytest.mark.parametrize(
    "name",
    ["team_node.json", "inference_training.json", "empty.json", "fabric3.json", "mig_1g.json"],
)
def test_a_plan_as_a_page(name: str) -> None:
    snap, plan = solved(name)
    tree = check_page(solve_report(snap, plan).html())
    text = " ".join(tree.texts)
    for entry in plan.pending:
        assert entry.sentence in text
    for start in plan.starts:
        assert start.job in tree.texts
    assert f"{plan.metrics.used_after:,}" in tree.texts
    for stage in plan.proof.stages:
        assert f"{stage.objective:,}" in tree.texts
    check_page(cluster_report(snap).html())


def test_stops_and_what_is_held_for_whom() -> None:
    snap = snapshot(
        node("n", 2),
        running("low", at("n", 0), ran=7_200, priority="low", grace_seconds=60),
        job("high", gpus=2, priority="high", waited=600),
    )
    plan = solve(snap, QUICK)
    assert [stop.job for stop in plan.preempts] == ["low"]
    html = solve_report(snap, plan).html()
    tree = check_page(html)
    assert "1 job to stop" in tree.texts
    assert "n GPU 0 (H100): low, queue main, priority low, draining; then high" in tree.texts
    assert "n GPU 1 (H100): high, queue main, priority high, held" in tree.texts


def test_names_stay_text() -> None:
    snap = snapshot(
        node(HOSTILE, 4, "<b>H100", fabric=("</svg><script>",)),
        queue("<img/onerror=alert(1)>", guarantee=2, limit=3),
        running(f"r{HOSTILE}", at(HOSTILE, 0), queue="<img/onerror=alert(1)>"),
        job(HOSTILE, gpus=1, queue="<img/onerror=alert(1)>"),
        job(f"w{HOSTILE}", gpus=4, queue="<img/onerror=alert(1)>"),
        levels=("leaf",),
    )
    plan = solve(snap, QUICK)
    assert plan.starts
    assert plan.pending
    html = solve_report(snap, plan).html()
    tree = check_page(html)
    assert "<script" not in html
    assert "<img" not in html
    assert HOSTILE in tree.texts
    frame = solve_report(snap, plan)._repr_html_()
    assert "<script" not in frame
    assert Tree(frame).tags == ["iframe"]


def test_parts_of_gpus_have_their_places() -> None:
    gpu = MigGpu(gpu=0, instances=(MigInstance(profile="3g.40gb", start=4),))
    snap = snapshot(
        node("n", 4, "a100-80gb", mig=[gpu], shareable=True, max_jobs_per_gpu=4, unhealthy=[3]),
        job(
            "slice",
            state="running",
            start=NOW,
            request=Request(mig=("1g.10gb",)),
            allocation=(
                TaskAllocation(node="n", gpus=(0,), mig=(MigInstance(profile="1g.10gb", start=2),)),
            ),
        ),
        *(
            job(
                f"share{i}",
                state="running",
                start=NOW,
                request=Request(share=Share(gpu_milli=250)),
                allocation=(TaskAllocation(node="n", gpus=(1,)),),
            )
            for i in range(2)
        ),
    )
    (found,) = places(snap)
    cut, shared, idle, broken = found.gpus
    assert [(p.start, p.width, p.job, p.label) for p in cut.parts] == [
        (2 / 8, 1 / 8, "slice", "1g.10gb"),
        (4 / 8, 4 / 8, None, "3g.40gb"),
    ]
    assert [(p.start, p.width, p.job) for p in shared.parts] == [
        (0, 0.25, "share0"),
        (0.25, 0.25, "share1"),
    ]
    assert not idle.parts
    assert broken.broken
    (drawing,) = draw(snap, legend_of(snap))
    assert "1g.10gb: slice" in drawing.svg
    assert "3g.40gb: idle instance" in drawing.svg
    assert "n GPU 3 (a100-80gb): broken" in drawing.svg


def test_a_held_gpu_shows_who_uses_it_and_who_comes_next() -> None:
    snap = snapshot(
        node("n", 2),
        running("victim", at("n", 0), state="draining", drain_ends=NOW),
        job("next", gpus=2),
    )
    hold = Hold(job="next", at=NOW, allocation=(TaskAllocation(node="n", gpus=(0, 1)),))
    (found,) = places(snap.model_copy(update={"holds": (hold,)}))
    first, second = (gpu.parts for gpu in found.gpus)
    assert [(p.job, p.state, p.promised) for p in first] == [("victim", "draining", "next")]
    assert [(p.job, p.state) for p in second] == [("next", "held")]


def test_unknown_indices_are_counted() -> None:
    blind = TaskAllocation(node="n")
    snap = snapshot(
        node("n", 4),
        running("known", at("n", 0)),
        job("blind", gpus=2, state="running", start=NOW, allocation=(blind,)),
    )
    (found,) = places(snap)
    assert found.counted
    assert [[p.job for p in gpu.parts] for gpu in found.gpus] == [
        ["known"],
        ["blind"],
        ["blind"],
        [],
    ]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30), st.floats(0, 1), st.floats(0, 0.5))
def test_the_map_shows_what_queues_use(seed: int, nodes: int, load: float, mixed: float) -> None:
    snap = generate(nodes, 5, load, seed, mig=mixed, share=0.5 - mixed)
    whole = {j.name for j in snap.jobs if j.request.gpus or j.request.share}
    shown: dict[str, float] = {}
    by_name = {j.name: j for j in snap.jobs}
    for entry in places(snap):
        for gpu in entry.gpus:
            covered = sorted((p.start, p.start + p.width) for p in gpu.parts)
            for (_, end), (begin, _) in pairwise(covered):
                assert end <= begin + 1e-9
            for part in gpu.parts:
                assert -1e-9 <= part.start <= part.start + part.width <= 1 + 1e-9
                if part.job in whole:
                    name = by_name[part.job].queue
                    shown[name] = shown.get(name, 0.0) + part.width
    size = sizes(snap)
    for name in {j.queue for j in snap.jobs}:
        used = sum(
            size.job(j) for j in snap.jobs if j.queue == name and j.on_nodes and j.name in whole
        )
        assert shown.get(name, 0.0) == pytest.approx(used / size.unit)


def test_standings_add_up_the_tree_and_tell_shortfalls() -> None:
    snap = snapshot(
        node("n", 8),
        queue("all"),
        queue("a", parent="all", guarantee=4),
        queue("b", parent="all", limit=6),
        running("r", at("n", 0, 1), queue="b"),
        job("w", gpus=3, queue="a"),
    )
    rows = {row.name: row for row in standings(snap, snap)}
    assert (rows["all"].before, rows["b"].before, rows["a"].before) == (2, 2, 0)
    assert (rows["a"].short, rows["a"].asked, rows["b"].limit) == (3, 3, 6)
    assert [row.name for row in standings(snap, snap)][:1] == ["all"]
    assert rows["a"].depth == 1


def test_large_clusters_stay_light() -> None:
    snap = generate(1_000, 10, 0.9, 3, mig=0.1, share=0.1)
    assert len(snap.nodes) > DETAIL_NODES
    legend = legend_of(snap)
    drawn = draw(snap, legend)
    assert sum(domain.nodes for domain in drawn) == 1_000
    assert len({domain.label for domain in drawn}) == len(drawn)
    assert sum(len(domain.svg) for domain in drawn) < 2_000_000
    assert max(style(n) for n in legend.jobs.values()) < STYLES


# Curves


@given(
    st.lists(st.tuples(st.integers(1, 90_000), st.integers(0, 8_000)), min_size=1, max_size=60),
    st.integers(1, 40),
)
def test_curves_keep_the_area(steps: list[tuple[int, int]], points: int) -> None:
    now, samples = 1_000, []
    for span, idle in steps:
        samples.append(Sample(now, idle % 7, 0, 0, idle, 0, 8_000))
        now += span
    curve = means(samples, utilized, 1_000, points)
    assert len(curve) <= points + 1
    first, last = samples[0].at, samples[-1].at
    if first == last:
        return
    exact = sum((8_000 - a.idle_milli) / 8_000 * (b.at - a.at) for a, b in pairwise(samples))
    drawn = sum(
        a[1] * (b[0] - a[0]) * 86_400 for a, b in pairwise(curve)
    )  # fmt: skip
    assert drawn == pytest.approx(exact, rel=1e-6)
    assert curve[-1][0] * 86_400 == pytest.approx(last - first)
    assert max(y for _, y in means(samples, waiting, 1_000, points)) <= 6


@given(st.lists(st.integers(0, 50), min_size=1, max_size=80), st.integers(1, 100))
def test_waits_are_never_drawn_shorter_than_they_were(waits: list[int], points: int) -> None:
    waits.sort()
    curve = shares(waits, points)
    assert curve[0][0] == 0
    assert curve[-1] == (waits[-1] / 3_600, 1.0)
    for (x, y), (x2, y2) in pairwise(curve):
        assert x < x2
        assert y <= y2
    for x, y in curve:
        assert y <= sum(1 for wait in waits if wait / 3_600 <= x) / len(waits) + 1e-12


# The command line


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def test_solve_writes_a_report(program: Program) -> None:
    done = program("solve", INSTANCES / "team_node.json", "--report", "r.html", "--json")
    assert done.code == 0, done.err
    assert "The report is in r.html" in done.err
    assert done.out.startswith("{")
    page = (program.directory / "r.html").read_text()
    check_page(page)
    assert "Proven optimal" in page


def test_replay_writes_a_report(program: Program) -> None:
    rows = "".join(f"{i * 40},{200 + 70 * (i % 5)},{1 + i % 4},<q>&{i % 2}\n" for i in range(30))
    (program.directory / "<b>jobs.csv").write_text("submit,seconds,gpus,queue\n" + rows)
    done = program(
        "replay", "<b>jobs.csv", "--cluster", "1xh100-8", "--policy", "fifo", "--policy",
        "backfill", "--processes", "1", "--round", "10s", "--report", "r.html", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    page = (program.directory / "r.html").read_text()
    tree = check_page(page)
    assert "Replay of <b>jobs" in " ".join(tree.texts)
    import json  # noqa: PLC0415

    for entry in json.loads(done.out)["policies"]:
        assert f"{entry['cost_per_useful_gpu_hour']:,.2f}" in tree.texts
        assert f"{entry['gpu_hours']['capacity']:,.0f}" in tree.texts
        assert f"{100 * entry['preemption_ratio']:.1f} %" in tree.texts
    assert "<q>&1" in tree.texts


@pytest.mark.parametrize("target", ["-", "no/where.html"])
def test_reports_that_can_not_be_written(program: Program, target: str) -> None:
    done = program("solve", INSTANCES / "team_node.json", "--report", target)
    assert done.code == 2
    assert done.out == ""


def test_without_the_extra(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # noqa: ARG005
    done = program("solve", INSTANCES / "team_node.json", "--report", "r.html")
    assert done.code == 2
    assert "trencadis[report]" in done.err
    assert program.files() == set()
