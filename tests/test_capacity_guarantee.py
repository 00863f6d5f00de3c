"""What a guarantee to each team costs: equal to brute force, and by hand."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from build import ago, job, node, queue, running, snapshot
from build import at as on
from command import INSTANCES, Program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trencadis.models import InvalidInputError, Job, Queue, Snapshot
from trencadis.solver.round import Options
from trencadis.solver.verify import verify
from trencadis.whatif.capacity.claims import check_teams, claims_of, moment, unclaimed
from trencadis.whatif.capacity.guarantees import GuaranteeSearch, Step, marginal_milli, steps_of
from trencadis.whatif.capacity.offers import Offer, with_mix
from trencadis.whatif.capacity.snapshot import Status

OPTIONS = Options(time_limit_s=10, deterministic=True)
MOST = 3
PRICES = (5, 3)


def offers() -> list[Offer]:
    """Nodes of four GPUs, and of two."""
    made = []
    for number, (price, gpus) in enumerate(zip(PRICES, (4, 2), strict=True)):
        nodes = tuple(node(f"new{number}-{i}", gpus) for i in range(MOST))
        made.append(Offer(f"kind{number}", price, MOST, lambda n, nodes=nodes: nodes[:n]))
    return made


def steps(snap: Snapshot, teams: tuple[str, ...], gpus: int) -> tuple[Step, ...]:
    wanted = GuaranteeSearch(
        snap, teams, gpus * 1_000, lambda load: (load, offers(), True), OPTIONS
    )
    return steps_of(wanted)


# Brute force: its own reading of docs/capacity.md, and every way to put tasks onto nodes.


def asked_for(snap: Snapshot, guarantees: dict[str, int]) -> tuple[list[Job], list[list[int]]]:
    """Running jobs that stay, and for each job that has to start the GPUs of its tasks."""
    stays: list[Job] = []
    starts: list[list[int]] = []
    for entry in snap.queues:
        name = entry.name
        left = guarantees[name]
        own = [j for j in snap.jobs if j.queue == name]
        on_nodes = sorted(
            (j for j in own if j.state == "running"),
            key=lambda j: (j.preemptible, j.start, j.name),
        )
        mine = []
        for j in on_nodes:
            size = j.tasks * j.request.gpus
            if not j.preemptible or size <= left:
                mine.append(j.name)
                stays.append(j)
                left -= size
        left = max(0, left)
        rest = sorted((j for j in own if j.name not in mine), key=lambda j: (j.submit, j.name))
        shapes = own or sorted(snap.jobs, key=lambda j: (j.submit, j.name))
        for group, again in ((rest, False), (shapes, True)):
            while True:
                before = left
                for j in group:
                    if j.tasks * j.request.gpus <= left:
                        left -= j.tasks * j.request.gpus
                        starts.append([j.request.gpus] * j.tasks)
                if not again or left == before:
                    break
    return stays, starts


def fits(free: list[int], tasks: list[int]) -> bool:
    """Whether the tasks fit, each on one node."""
    if not tasks:
        return True
    tried = set()
    for i, room in enumerate(free):
        if room >= tasks[0] and room not in tried:
            tried.add(room)
            if fits([*free[:i], room - tasks[0], *free[i + 1 :]], tasks[1:]):
                return True
    return False


def by_brute_force(snap: Snapshot, guarantees: dict[str, int]) -> int | None:
    stays, starts = asked_for(snap, guarantees)
    used = [a.node for j in stays for a in j.allocation for _ in a.gpus or ()]
    free = [entry.gpu_count - used.count(entry.name) for entry in snap.nodes]
    tasks = sorted((gpus for each in starts for gpus in each), reverse=True)
    mixes = sorted(
        product(range(MOST + 1), repeat=2),
        key=lambda mix: sum(p * n for p, n in zip(PRICES, mix, strict=True)),
    )
    for mix in mixes:
        if fits([*free, *[4] * mix[0], *[2] * mix[1]], tasks):
            return sum(p * n for p, n in zip(PRICES, mix, strict=True))
    return None


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to two nodes, three teams, gangs of up to four GPUs, some of which run."""
    nodes = [node(f"n{i}", draw(st.sampled_from([2, 4]))) for i in range(draw(st.integers(1, 2)))]
    teams = [queue(name, guarantee=draw(st.integers(0, 2))) for name in "abc"]
    free = {entry.name: list(range(entry.gpu_count)) for entry in nodes}
    jobs = []
    for number in range(draw(st.integers(1, 6))):
        team, gpus = draw(st.sampled_from("abc")), draw(st.integers(1, 3))
        name, waited = f"j{number}", draw(st.integers(0, 5))
        place = draw(st.sampled_from([None, *free]))
        if place is not None and len(free[place]) >= gpus:
            taken, free[place] = free[place][:gpus], free[place][gpus:]
            stays = draw(st.booleans())
            jobs.append(
                running(name, on(place, *taken), queue=team, start=ago(waited), preemptible=stays)
            )
        else:
            tasks = draw(st.integers(1, 2))
            jobs.append(job(name, gpus, tasks=tasks, queue=team, waited=waited))
    return snapshot(nodes, *teams, *jobs)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snap=clusters(), gpus=st.integers(1, 5), teams=st.permutations("abc"))
def test_each_step_costs_what_brute_force_says(
    snap: Snapshot, gpus: int, teams: list[str]
) -> None:
    own = {entry.name: (entry.guarantee.total_milli() or 0) // 1_000 for entry in snap.queues}
    for step in steps(snap, tuple(teams[:2]), gpus):
        expected = by_brute_force(snap, own | dict.fromkeys(teams[: step.teams], gpus))
        if expected is None:
            assert step.found.status is Status.IMPOSSIBLE
            continue
        assert step.found.status is Status.PROVEN
        assert step.price_milli == step.lower_milli == expected
        assert step.found.best is not None
        whole = with_mix(step.search.base, step.search.offers, step.found.best.mix)
        assert not verify(whole, step.found.best.plan).violations
        assert not step.found.best.plan.pending


# By hand


def names(jobs: tuple[Job, ...]) -> list[str]:
    return [entry.name for entry in jobs]


def test_what_runs_beyond_the_guarantee_goes_and_what_may_not_stop_stays() -> None:
    snap = snapshot(
        node("n", 8),
        queue("a", guarantee=3),
        running("fixed", on("n", 0, 1), queue="a", preemptible=False, start=ago(1)),
        running("old", on("n", 2), queue="a", start=ago(900)),
        running("young", on("n", 3), queue="a", start=ago(9)),
        running("guest", on("n", 4, 5, 6, 7), queue="b", start=ago(900)),
        job("next", queue="a"),
    )
    mine, other = claims_of(snap, {})
    assert (names(mine.running), names(mine.waiting)) == (["fixed", "old"], [])
    assert (mine.claimed_milli, other.claimed_milli) == (3_000, 0)
    mine, other = claims_of(snap, {"a": 6_000, "b": 1_000})
    assert names(mine.running) == ["fixed", "old", "young"]
    # `next`, and the one copy that is left room for: of the first of its shapes that is so small.
    assert names(mine.waiting) == ["next", "a+1"]
    assert (other.running, other.waiting, other.claimed_milli) == ((), (), 0)


def test_a_team_without_jobs_asks_in_the_shapes_of_all() -> None:
    snap = snapshot(node("n", 8), queue("new"), job("gang", 2, tasks=2, queue="a"))
    claim = next(c for c in claims_of(snap, {"new": 9_000}) if c.queue == "new")
    assert [(entry.tasks, entry.request.gpus) for entry in claim.waiting] == [(2, 2)] * 2
    assert claim.claimed_milli == 8_000


def test_elastic_jobs_claim_their_minimum_and_jobs_with_nodes_are_not_copied() -> None:
    snap = snapshot(
        node("n", 8),
        job("e", 1, tasks=8, min_tasks=2, queue="a", waited=2),
        job("here", 1, queue="a", required_nodes=("n",), waited=1),
    )
    (claim,) = claims_of(snap, {"a": 6_000})
    assert names(claim.waiting) == ["e", "here", "a+1"]
    assert [entry.tasks for entry in claim.waiting] == [2, 1, 2]


def test_a_guarantee_costs_more_than_its_gpus_where_shapes_are_large() -> None:
    """Eight GPUs are free, in halves: a task of eight needs a node of its own."""
    snap = snapshot(
        [node(f"n{i}", 4) for i in range(2)],
        *(running(f"r{i}", on(f"n{i}", 0), queue="b", preemptible=False) for i in range(2)),
        job("whole", 4, queue="a"),
    )
    none, one = steps(snap, ("a",), 4)
    assert (none.price_milli, one.price_milli) == (0, 5)
    assert marginal_milli(none, one) == (5, 5, 5)


def test_moments_know_no_limits() -> None:
    snap = snapshot(
        node("n", 4), queue("a", limit=1), job("x", 2, queue="a"), job("y", 2, queue="a")
    )
    whole = moment(snap, claims_of(snap, {"a": 4_000}))
    assert whole.queues == (Queue(name="a"),)
    assert len(whole.jobs) == 2


@pytest.mark.parametrize(
    ("teams", "gpus", "word"),
    [
        (("nobody",), 1, "no queue 'nobody'"),
        (("a", "a"), 1, "twice"),
        (("top",), 1, "below it"),
        (("a",), 5, "at most 4"),
        ((), 1, "no queue"),
    ],
)
def test_teams_that_can_not_be_asked_about(teams: tuple[str, ...], gpus: int, word: str) -> None:
    top, below = queue("top", limit=4), queue("a", parent="top")
    snap = snapshot(node("n", 8), top, below, job("j", queue="a"))
    with pytest.raises(InvalidInputError, match=word):
        check_teams(snap, teams, gpus * 1_000)


def test_no_shapes_are_no_question_and_what_is_left_over_is_told() -> None:
    with pytest.raises(InvalidInputError, match="no shapes"):
        check_teams(snapshot(node("n", 8), queue("a")), ("a",), 1_000)
    snap = snapshot(node("n", 8), queue("a"), job("gang", 4, tasks=2, queue="a"))
    told = unclaimed(claims_of(snap, {"a": 20_000}))
    assert told.endswith("no job fits what is left: a 16 of 20")
    assert not unclaimed(claims_of(snap, {"a": 16_000}))


# The command

SOURCE = str(INSTANCES / "four_h100.json")
FIXED = ("--deterministic", "--time-limit", "5")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def test_the_table_and_its_proof(program: Program) -> None:
    words = ("--sku", "h100-8", "--guarantee-each", "24", *FIXED)
    told = program("capacity", SOURCE, *words, "--json")
    assert told.code == 0, told.err
    record = json.loads(told.out)
    assert record["teams"] == ["production", "research"]
    assert record["present_per_hour"] == 103.68
    last = record["steps"][-1]
    assert (last["status"], last["mix"]) == ("proven", {"h100-8": 2})
    assert last["marginal_per_hour"] == last["marginal_at_least_per_hour"] == 51.84
    assert last["fleet_per_hour"] == 155.52
    shown = program("capacity", SOURCE, *words)
    assert "A guarantee of 24 GPUs to each of 2 teams: 2xh100-8, 51.84 USD an hour" in shown.out
    assert "Present fleet: 103.68 USD an hour" in shown.out


def test_a_team_of_choice_among_present_nodes(program: Program) -> None:
    words = ("--shrink", "--guarantee-each", "8", "--team", "research", *FIXED, "--json")
    told = program("capacity", SOURCE, *words)
    record = json.loads(told.out)
    assert (told.code, record["teams"], len(record["steps"])) == (0, ["research"], 2)
    assert record["steps"][-1]["fleet_per_hour"] < record["present_per_hour"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--guarantee-each", "4"), 2),
        (("--sku", "h100-8", "--team", "research"), 2),
        (("--sku", "h100-8", "--guarantee-each", "0"), 2),
        (("--sku", "h100-8", "--guarantee-each", "4", "--target", "pending==0"), 2),
        (("--sku", "h100-8", "--guarantee-each", "4", "--team", "nobody"), 65),
        (("--sku", "h100-8", "--guarantee-each", "99", "--max-nodes", "2"), 4),
    ],
)
def test_what_it_refuses(program: Program, words: tuple[str, ...], code: int) -> None:
    told = program("capacity", SOURCE, *words)
    assert told.code == code
    assert "Traceback" not in told.err
