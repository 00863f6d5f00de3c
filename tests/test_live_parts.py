"""The smaller parts of the live loop: shadow, hooks, metrics, log lines, reservations."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from live_fake import T0, Fake, Work, context, first_fit, loop

from trencadis.adapters.live import reconcile
from trencadis.adapters.live.carry import carry_out, rehearse
from trencadis.adapters.live.cluster import JobView, Reading, Terms
from trencadis.adapters.live.config import Hook
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.hooks import HookError, tell
from trencadis.adapters.live.lock import locked
from trencadis.adapters.live.logs import decision, setup
from trencadis.adapters.live.loop import Loop
from trencadis.adapters.live.overlay import overlay
from trencadis.adapters.live.shadow import Shadow
from trencadis.adapters.live.store import Intent
from trencadis.models import InvalidInputError, Plan, Snapshot
from trencadis.models.plan import Reconfigure, Resize
from trencadis.solver.round import Options, solve


class Watched(Fake):
    """A scheduler that starts its jobs itself; what it may start is for the shadow to think of."""

    def read(self, remembered: Mapping[str, Terms]) -> Reading:
        reading = super().read(remembered)
        views = {
            name: JobView(
                name,
                view.state,
                managed=view.state == "released",
                nodes=view.nodes,
                start=view.start,
                submit=T0,
                end=self.now if view.state == "ended" else None,
            )
            for name, view in reading.jobs.items()
        }
        jobs = tuple(
            job.model_copy(update={"state": "pending"}) if job.state == "held" else job
            for job in reading.snapshot.jobs
        )
        return Reading(reading.snapshot.model_copy(update={"jobs": jobs}), views)


def test_shadow_sends_nothing_and_tells_the_difference(tmp_path: Path) -> None:
    """Slurm leaves `b` waiting for ever; the shadow starts it at once."""
    jobs = {"a": Work(4, state="released", lasts=3), "b": Work(4, state="released", never=True)}
    fake = Watched(jobs)
    live = context(fake, tmp_path / "state", mode="shadow")
    running = Loop(live, first_fit)
    for _ in range(4):
        running.round()
        fake.tick()
    assert {fake.jobs[name].required for name in "ab"} == {()}
    assert live.store.intents() == []
    assert live.store.rows("SELECT 1 FROM events") == []
    shadow = running.shadow
    assert shadow is not None
    report = shadow.report()
    assert (report.jobs, report.native_started, report.shadow_started) == (2, 1, 2)
    assert report.shadow_waiting_gpu_hours == 0
    # a waited one tick of 10 s, b all of 30 s, on four GPUs each.
    assert report.native_waiting_gpu_hours == pytest.approx(4 * 40 / 3_600, abs=0.001)
    assert Shadow(live.store)._twins.keys() == {"a", "b"}


def test_hooks(tmp_path: Path) -> None:
    out = tmp_path / "told"
    script = (
        f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read()); print('{{\"ack\": true}}')"
    )
    assert tell(Hook(command=(sys.executable, "-c", script)), {"job": "7"})
    assert json.loads(out.read_text()) == {"job": "7"}
    assert not tell(Hook(command=(sys.executable, "-c", "print('thanks')")), {})
    assert not tell(Hook(), {})
    for command in ((sys.executable, "-c", "raise SystemExit(3)"), (str(tmp_path / "none"),)):
        with pytest.raises(HookError):
            tell(Hook(command=command), {})
    with pytest.raises(HookError, match="neither http"):
        tell(Hook(webhook="file:///etc/passwd"), {})


def test_webhook() -> None:
    told: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ack": true}')

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        assert tell(Hook(webhook=f"http://127.0.0.1:{server.server_port}/x"), {"job": "7"})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert json.loads(told[0]) == {"job": "7"}


def test_a_required_hook_that_fails_spares_the_job(tmp_path: Path) -> None:
    fake = Fake({"v": Work(4, lasts=99), "u": Work(4)}, nodes=1)
    hook = Hook(command=(str(tmp_path / "none"),), required=True)
    live = loop(fake, tmp_path / "state", {"u": "v"}, hook=hook)
    for _ in range(4):
        live.round()
        fake.tick()
    assert fake.warned == []
    assert fake.jobs["v"].state == "running"
    assert fake.jobs["u"].state == "waiting"


def test_reservations_of_delayed_starts_come_and_go(tmp_path: Path) -> None:
    fake = Fake({"v": Work(4, lasts=99), "u": Work(4)}, nodes=1)
    live = loop(fake, tmp_path / "state", {"u": "v"}, reserve_delayed=True)
    live.round()
    fake.tick()
    live.round()
    assert fake.reserved == ["trencadis-u"]
    for _ in range(5):
        fake.tick()
        live.round()
    assert fake.reserved == []
    assert fake.jobs["u"].runs


def test_metrics_are_prometheus_text(tmp_path: Path) -> None:
    fake = Fake({"a": Work(3), "b": Work(4), "c": Work(4)})
    live = context(fake, tmp_path / "state")

    def decide(snapshot: Snapshot) -> Plan:
        return solve(snapshot, Options(deterministic=True, time_limit_s=2))

    file = tmp_path / "m.prom"
    assert Loop(live, decide, metrics_file=file).round()
    text = file.read_text()
    for line in text.splitlines():
        assert re.fullmatch(
            r"# (HELP|TYPE) trencadis_\w+ .+"
            r'|trencadis_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [-\d.e+]+',
            line,
        ), line
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert values["trencadis_gpus"] == "8"
    assert values["trencadis_gpus_used"] == "8"
    assert values['trencadis_guarantee_shortfall_gpus{level="queues"}'] == "0"
    assert sum(float(v) for k, v in values.items() if k.startswith("trencadis_pending_jobs")) == 1
    assert values['trencadis_idle_domain_ratio{level="node"}'] == "0.5"


def test_log_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        log = setup("info", stream)
        decision(log, "start", "7", name="train\x1b", nodes=("g1", "g2"), reason="saves 5 GPU-s")
        decision(log, "plan-wait", "8", level=10, reason="hidden at info")
    (line,) = plain.getvalue().splitlines()
    assert json.loads(line)["nodes"] == ["g1", "g2"]
    assert json.loads(line)["event"] == "start"
    (text,) = terminal.getvalue().splitlines()
    assert 'job=7 name=train? nodes=g1,g2 reason="saves 5 GPU-s"' in text.replace(
        '"train?"', "train?"
    )


def test_only_one_process_acts(tmp_path: Path) -> None:
    first = locked(tmp_path / "state")
    with first, pytest.raises(InvalidInputError, match="another"), locked(tmp_path / "state"):
        pass
    with locked(tmp_path / "state"), locked(tmp_path / "state", "run"):
        pass


def test_who_acts_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    held, given = threading.Event(), []

    def act() -> None:
        with locked(tmp_path / "state"):
            held.set()
            given.append("first")

    first = threading.Thread(target=act)
    first.start()
    held.wait()
    with locked(tmp_path / "state", wait_seconds=30):
        given.append("second")
    first.join()
    assert given == ["first", "second"]


def test_what_a_person_applied_is_seen_through_in_recommend(tmp_path: Path) -> None:
    """The loop sends nothing of its own, and settles what `apply` sent: started, or taken back."""
    fake = Fake({"a": Work(4, lasts=3), "b": Work(4, never=True), "c": Work(4)})
    live = context(fake, tmp_path / "state", mode="recommend")
    plans: list[Plan] = []
    recommending = Loop(live, first_fit, on_plan=plans.append)
    recommending.round()
    fake.tick()
    assert {work.state for work in fake.jobs.values()} == {"waiting"}
    reading = fake.read(live.store.terms())
    carry_out(live, plans[0], reading.snapshot, reading, live.store.epoch())
    for _ in range(12):
        fake.tick()
        recommending.round()
    told = dict(live.store.rows("SELECT job, kind FROM events WHERE kind IN (?, ?)",
                                "started", "rolled-back"))  # fmt: skip
    assert told == {"a": "started", "b": "rolled-back"}
    assert live.store.intents() == []
    assert fake.jobs["c"].state == "waiting"


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        (("n1", "n2"), "started"),
        (("n2",), "started"),  # its task on n1 is done
        (("n3",), "started-elsewhere"),
        (("n1", "n3"), "started-elsewhere"),
    ],
)
def test_where_a_start_was_seen(nodes: tuple[str, ...], kind: str) -> None:
    said: list[str] = []
    book = SimpleNamespace(finish=lambda _intent, word, *_, **__: said.append(word))
    intent = SimpleNamespace(nodes=("n1", "n2"))
    view = SimpleNamespace(nodes=nodes, title="a", gpus={}, start=None)
    reconcile._begun(cast(Context, book), cast(Intent, intent), cast(JobView, view))
    assert said == [kind]


@pytest.mark.parametrize("anew", [False, True])
def test_a_victim_that_began_again_since_the_plan_is_spared(anew: bool, tmp_path: Path) -> None:
    # Who applies a kept plan has no snapshot of its time, only what is there now.
    began = T0 - timedelta(hours=1)
    victim = Work(4, state="running", on=("n1",), start=began, left=99)
    fake = Fake({"v": victim, "u": Work(4)}, nodes=1)
    live = context(fake, tmp_path / "state")
    plan = first_fit(fake.read({}).snapshot, {"u": "v"})
    fake.now += timedelta(seconds=300)
    if anew:
        victim.start = fake.now - timedelta(seconds=5)
    reading = fake.read({})
    (stop,) = (s for s in rehearse(live, plan, reading.snapshot, reading) if s.kind == "preempt")
    assert stop.blocked == ("the job has been started anew since" if anew else None)


def test_running_jobs_keep_their_tasks_and_layouts_stay(tmp_path: Path) -> None:
    """A plan that was made without knowing that is told so, line by line."""
    fake = Fake({"a": Work(1, nodes=2, state="running", on=("n1", "n2"), start=T0)})
    live = context(fake, tmp_path / "state")
    reading = fake.read({})
    job = reading.snapshot.jobs[0].model_copy(update={"tasks": 3, "min_tasks": 1})
    elastic = reading.snapshot.model_copy(update={"jobs": (job,)})
    (rigid,) = overlay(Reading(elastic, reading.jobs), live.store, fake.now).jobs
    assert (rigid.tasks, rigid.min_tasks) == (2, None)
    plan = first_fit(reading.snapshot).model_copy(
        update={
            "resizes": (Resize(job="a", at=T0, remove=rigid.allocation[:1]),),
            "reconfigures": (Reconfigure(node="n1", gpu=0, step=1, before=(), after=()),),
        }
    )
    steps = rehearse(live, plan, elastic, reading)
    assert {step.kind: bool(step.blocked) for step in steps} == {
        "resize": True,
        "reconfigure": True,
    }
