"""The live loop on Kubernetes: to the end, whatever fails; and a plan as kubectl would send it."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from command import Program
from kube_loop import TEXT, context, loop
from kube_server import World, WrongError, job, merged, pod_spec
from live_fake import KilledError
from test_kubernetes_live import kube_config, kubeconfig, put, world

from trencadis.adapters.kubernetes.live.api import HttpApi
from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.loop import Loop
from trencadis.adapters.live.store import Store
from trencadis.adapters.live.watchdog import Watchdog
from trencadis.solver.round import Options, solve

__all__ = ["kubeconfig", "world"]
SHAPES = (("a", 1, 1), ("b", 2, 2), ("c", 4, 1), ("d", 4, 2), ("e", 3, 1), ("f", 1, 3), ("g", 2, 1))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def fill(world: World) -> dict[str, int]:
    """Gangs that don't fit at once; pods by job."""
    put(world, *(job(name, gpus=gpus, pods=pods) for name, gpus, pods in SHAPES))
    return {name: pods for name, _, pods in SHAPES}


def done(world: World) -> bool:
    return all(entry["status"].get("conditions") for entry in world.of("jobs", "batch"))


def assert_each_ran_once_where_planned(
    world: World, state: Path, sizes: dict[str, int], *, whole: bool = True
) -> None:
    """Every pod ended well once, on the node that a plan named for it: if `whole`, the same plan.

    Of a start that was cut off some pods may have ended before the others were let go.
    """
    ended = [pod for pod in world.pods() if pod["status"]["phase"] == "Succeeded"]
    assert Counter(pod["metadata"]["ownerReferences"][0]["name"] for pod in ended) == sizes
    for pod in ended:
        assert pod["metadata"]["annotations"]["trencadis.io/node"] == pod["spec"]["nodeName"]
    store = Store(state)
    planned: defaultdict[str, list[list[str]]] = defaultdict(list)
    for (text,) in store.rows("SELECT plan FROM rounds ORDER BY id"):
        for start in json.loads(text).get("starts", ()):
            planned[start["job"]].append(sorted(task["node"] for task in start["allocation"]))
    for name in sizes:
        where = sorted(pod["spec"]["nodeName"] for pod in world.pods(name))
        plans = planned[f"ml/{name}"]
        assert where == plans[-1] if whole else set(where) <= {n for plan in plans for n in plan}
    assert store.intents() == []
    assert store.rows("SELECT job FROM events WHERE kind = 'started-elsewhere'") == []
    store.close()


def test_gangs_run_to_the_end_with_the_real_solver(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    sizes = fill(world)
    state = tmp_path / "state"
    live = context(world, kubeconfig, state)
    options = Options(time_limit_s=2, workers=1)
    running = loop(live, solve=lambda snapshot: solve(snapshot, options))
    for _ in range(40):
        assert running.round()
        world.tick()
        if done(world):
            break
    running.round()
    assert_each_ran_once_where_planned(world, state, sizes)
    assert len(world.runs) == sum(sizes.values())


class Mortal:
    """An API whose process dies at one of its writes: before it, or after it but not knowing."""

    def __init__(self, api: HttpApi, at: int, *, after: bool) -> None:
        self.api, self.left, self.after = api, at, after

    def _do(self, verb: str, *arguments: Any) -> Any:
        if verb == "get":
            return self.api.get(*arguments)
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KilledError
        found = getattr(self.api, verb)(*arguments)
        if self.left == 0:
            raise KilledError
        return found

    def get(self, *arguments: Any) -> Any:
        return self._do("get", *arguments)

    def patch(self, *arguments: Any) -> Any:
        return self._do("patch", *arguments)

    def post(self, *arguments: Any) -> Any:
        return self._do("post", *arguments)

    def delete(self, *arguments: Any) -> Any:
        return self._do("delete", *arguments)


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_any_write_and_begun_again(
    world: World, kubeconfig: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    sizes = fill(world)
    world.lasts = {name: draw.randint(1, 5) for name in sizes}
    preempt = {"ml/d": "ml/b", "ml/c": "ml/a"} if seed % 2 else {}
    state = tmp_path / "state"

    def begin() -> Loop:
        options = context(world, kubeconfig, tmp_path / "unused").cluster.config.kubernetes  # type: ignore[attr-defined]
        api = Mortal(HttpApi(options), draw.randint(1, 8), after=draw.random() < 0.5)
        return loop(context(world, kubeconfig, state, api), preempt)  # type: ignore[arg-type]

    running, kills = begin(), 0
    for _ in range(160):
        try:
            running.round()
        except KilledError:
            kills += 1
            running.context.store.close()
            running = begin() if kills < 6 else loop(context(world, kubeconfig, state))
        world.tick()
        if done(world):
            break
    assert kills >= 2
    running.round()
    assert_each_ran_once_where_planned(world, state, sizes, whole=False)


def test_preemption_through_the_owner_and_back(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    world.lasts = {"low": 30, "high": 2}
    put(world, job("low", gpus=4, pods=3, grace=3))
    live = context(world, kubeconfig, tmp_path / "state")
    running = loop(live, {"ml/high": "ml/low"})
    running.round()
    world.tick()
    running.round()
    put(world, job("high", gpus=4))
    for _ in range(30):
        running.round()
        world.tick()
        if not world.job("high")["status"].get("conditions"):
            continue
        world.lasts["low"] = 1
        if done(world):
            break
    assert done(world)
    kinds = [kind for (kind,) in live.store.rows("SELECT kind FROM events ORDER BY id")]
    wanted = ["preempt", "start-waits", "preempted", "start", "started"]
    positions = [kinds.index(kind, kinds.index("preempt")) for kind in wanted]
    assert positions == sorted(positions)
    assert len(world.runs) == 3 + 1 + 3
    assert not any(p["status"]["phase"] == "Failed" for p in world.pods())


def test_the_watchdog_takes_the_gates_off(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    """Killed for good in the middle of a start: all is left to the native scheduler."""
    sizes = fill(world)
    state = tmp_path / "state"
    options = context(world, kubeconfig, state).cluster.config.kubernetes  # type: ignore[attr-defined]
    dying = context(world, kubeconfig, state, Mortal(HttpApi(options), 5, after=True))  # type: ignore[arg-type]
    dying.store.put(mode="enforce", interval="1", beat=world.now.isoformat())
    with pytest.raises(KilledError):
        loop(dying).round()
    live = context(world, kubeconfig, state)
    dog = Watchdog(live, since_start=False, monotonic=world.seconds)
    assert dog.check() == []  # not yet
    for _ in range(60):
        world.tick()
        dog.check()
        if done(world):
            break
    assert done(world)
    assert Counter(p["metadata"]["ownerReferences"][0]["name"] for p in world.pods()) == sizes


def test_pause_and_resume(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    world.lasts = dict.fromkeys(["low", "next"], 9)
    put(world, job("low", gpus=4, pods=3, grace=3), job("next", gpus=4))
    live = context(world, kubeconfig, tmp_path / "state")
    running = loop(live, {"ml/next": "ml/low"})
    running.round()
    world.tick()
    running.round()  # low is told to leave
    assert live.cluster.read({}).jobs["ml/low"].state == "leaving"
    given, leaving = hand_back(live, "paused", control="paused")
    assert (given, leaving) == (["ml/next"], ["ml/low"])
    world.tick(4)
    running.round()
    assert all(not pod["spec"]["schedulingGates"] for pod in world.pods())
    assert not world.job("low")["spec"]["suspend"]


def test_away_is_no_round(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    fill(world)
    live = context(world, kubeconfig, tmp_path / "state")

    def away(_method: str, _path: str) -> None:
        raise WrongError(503, "etcd is away")

    world.before = away
    assert not loop(live).round()
    world.before = lambda *_: None
    assert loop(live).round()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_passing_faults_end_no_loop(
    world: World, kubeconfig: Path, tmp_path: Path, status: int
) -> None:
    """Any request may fail, first before it is looked at; then the faults pass."""
    draw = random.Random(status)
    sizes = fill(world)
    live = context(world, kubeconfig, tmp_path / "state")
    running = loop(live, {"ml/d": "ml/b"})
    faults = 0

    def fails(_method: str, _path: str) -> None:
        nonlocal faults
        if draw.random() < chance:
            faults += 1
            raise WrongError(status, "not now")

    world.before = fails
    for chance in (1.0, *(0.1 for _ in range(40)), *(0.0 for _ in range(60))):
        well = running.round()
        assert well or chance
        world.tick()
        if done(world) and not chance:
            break
    assert faults > 10
    running.round()
    assert_each_ran_once_where_planned(world, tmp_path / "state", sizes, whole=False)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_passing_faults_end_no_watchdog(
    world: World, kubeconfig: Path, tmp_path: Path, status: int
) -> None:
    """Whichever request of handing back fails, the next look does the rest."""
    fill(world)
    live = context(world, kubeconfig, tmp_path / "state")
    live.store.put(mode="enforce", interval="1", beat="2020-01-01T00:00:00+00:00")
    dog = Watchdog(live, since_start=False)
    for good in range(2, 200):  # the first asks whether the server is alive
        left = good

        def fails(_method: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise WrongError(status, "not now")

        world.before = fails
        dog.check()
        if left > 0:
            break
    assert left > 0
    assert all(not pod["spec"]["schedulingGates"] for pod in world.pods())


def test_no_right_to_read_is_one_line(world: World, kubeconfig: Path, program: Program) -> None:
    def forbidden(_method: str, path: str) -> None:
        if path.startswith(("/api/v1", "/apis/")):
            raise WrongError(403, f"{path} is forbidden")

    world.before = forbidden
    config = desk(kubeconfig)
    for words in (("snapshot",), ("run", "--rounds", "1"), ("pause",)):
        told = program("kubernetes", *words, "--config", config)
        assert told.code == 69, (words, told.err)
        assert "forbidden" in told.err
        assert len(told.err.splitlines()) == 1, told.err


# The commands


def desk(kubeconfig: Path, text: str = TEXT) -> Path:
    path = kubeconfig.with_name("kubernetes.toml")
    path.write_text(text + f"kubeconfig = {json.dumps(str(kubeconfig))}\n")
    return path


def plan_for(program: Program, config: Path) -> None:
    taken = program("kubernetes", "snapshot", "--config", config, "-o", "snap.json")
    assert taken.code == 0, taken.err
    solved = program("solve", "snap.json", "-o", "plan.json", "--workers", "1")
    assert solved.code == 0, solved.err


def test_a_plan_as_kubectl_would_send_it(world: World, kubeconfig: Path, program: Program) -> None:
    put(world, job("a", gpus=2, pods=2), job("b", gpus=4))
    config = desk(kubeconfig)
    plan_for(program, config)
    world.asked.clear()
    told = program("kubernetes", "apply", "plan.json", "--config", config, "--dry-run", "--json")
    assert told.code == 0, told.err
    assert world.asked == []
    requests = json.loads(told.out)["requests"]
    for request in requests:
        world.answer(request["method"], request["path"], request["body"])
    world.tick()
    starts = json.loads((program.directory / "plan.json").read_text())["starts"]
    planned = {s["job"]: sorted(t["node"] for t in s["allocation"]) for s in starts}
    for name in "ab":
        assert planned[f"ml/{name}"] == sorted(p["spec"]["nodeName"] for p in world.pods(name))
    # The first change of each pod is bound to the version that was read.
    assert ["resourceVersion" in r["body"].get("metadata", {}) for r in requests].count(True) == 3


def test_the_lines_are_kubectls(world: World, kubeconfig: Path, program: Program) -> None:
    put(world, job("a", gpus=2))
    config = desk(kubeconfig)
    plan_for(program, config)
    told = program("kubernetes", "apply", "plan.json", "--config", config, "--dry-run")
    name = world.pods("a")[0]["metadata"]["name"]
    first, second = told.out.splitlines()
    assert first.startswith(f"kubectl -n ml patch pods {name} --type merge -p '{{")
    assert second.endswith("""-p '{"spec":{"schedulingGates":[]}}'""")


def test_apply_sends_only_what_still_holds(
    world: World, kubeconfig: Path, program: Program
) -> None:
    put(world, job("a", gpus=2), job("b", gpus=4))
    config = desk(kubeconfig)
    plan_for(program, config)
    world.put(
        "pods",
        {"metadata": {"name": "late"}, "spec": pod_spec(4, gate="", nodeName="n1"),
         "status": {"phase": "Running"}},
    )  # fmt: skip
    starts = json.loads((program.directory / "plan.json").read_text())["starts"]
    hit = {s["job"] for s in starts if s["allocation"][0]["node"] == "n1"}
    assert hit
    dry = program("kubernetes", "apply", "plan.json", "--config", config, "--json")
    steps = json.loads(dry.out)["steps"]
    assert dry.code == 3
    assert {s["job"] for s in steps if s["blocked"]} == hit
    assert not [p for p in world.pods() if p["metadata"].get("annotations")]
    sent = program("kubernetes", "apply", "plan.json", "--config", config, "--yes")
    assert sent.code == 3
    named = {p["metadata"]["ownerReferences"][0]["name"] for p in world.pods()
             if p["metadata"].get("annotations")}  # fmt: skip
    assert named == {name.removeprefix("ml/") for name in {"ml/a", "ml/b"} - hit}


def test_commands_end_in_a_line(world: World, kubeconfig: Path, program: Program) -> None:
    config = desk(kubeconfig)
    assert program("kubernetes", "run", "--config", config, "--rounds", "1").code == 0
    record = {"metadata": {"name": "p"}, "value": 5}
    world.put("priorityclasses", record, "scheduling.k8s.io")
    refused = program("kubernetes", "run", "--config", config, "--rounds", "1")
    assert refused.code == 2
    assert "PriorityClass p" in refused.err
    assert program("kubernetes", "pause", "--config", config, "--json").code == 0
    assert program("kubernetes", "resume", "--config", config).code == 0
    assert program("kubernetes", "watchdog", "--once", "--config", config).code == 0
    kubeconfig.write_text(json.dumps(kube_config("http://127.0.0.1:9")))
    away = program("kubernetes", "snapshot", "--config", config)
    assert (away.code, "API server" in away.err) == (69, True)
    kubeconfig.write_text("{")
    wrong = program("kubernetes", "snapshot", "--config", config)
    assert wrong.code == 65
    assert "Traceback" not in wrong.err
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}
