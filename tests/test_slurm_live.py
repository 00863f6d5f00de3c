"""Slurm's side of the live loop: what is ours, what Slurm prints, when enforce is refused."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from slurm_docs import NOW, SHAPES, document, job, node, running

from trencadis.adapters.live.cluster import RefusedError, UnavailableError
from trencadis.adapters.live.config import Scope
from trencadis.adapters.slurm.live import SlurmCluster, SlurmConfig, load_config, show
from trencadis.adapters.slurm.live.commands import Commands
from trencadis.adapters.slurm.live.config import SlurmOptions
from trencadis.adapters.slurm.live.documents import read_documents
from trencadis.adapters.slurm.live.preemption import objections
from trencadis.adapters.slurm.live.qos import preempting, read_qos
from trencadis.adapters.slurm.live.records import prepare
from trencadis.adapters.slurm.live.rest import Rest
from trencadis.models import InvalidInputError, TaskAllocation
from trencadis.models.check import check

AT = datetime.fromtimestamp(NOW, UTC)
PARTITIONS = (
    "PartitionName=low Nodes=g[1-4] PriorityTier=1 PreemptMode={low} State=UP GraceTime=30"
    " DefaultTime=NONE MaxTime=1-02:00:00 OverSubscribe=NO\n"
    "PartitionName=high Nodes=g[3-4] PriorityTier=9 PreemptMode=OFF State=UP GraceTime=0"
    " DefaultTime=01:00:30 MaxTime=UNLIMITED OverSubscribe=EXCLUSIVE\n"
)


class Said:
    """Commands that answer from a table, and remember what was asked."""

    def __init__(self, jobs: str, nodes: str, **more: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.answers = {
            "scontrol show config": "SelectTypeParameters = CR_CORE_MEMORY\n"
            "SLURM_VERSION = 22.05.8",
            "scontrol show topology": "SwitchName=l1 Nodes=g[1-2]\nSwitchName=l2 Nodes=g[3-4]",
            "squeue --json --states=all": jobs,
            "sinfo --json": nodes,
            "scontrol show nodes --json": nodes,
            "scontrol -o show partitions": PARTITIONS.format(low="OFF"),
            "scontrol -o show reservations": "No reservations in the system",
            "scontrol -o show licenses": "LicenseName=ansys Total=4 Used=1 Free=3 Remote=no",
            "scontrol ping": "Slurmctld(primary) at vm is UP",
            **more,
        }

    def __call__(self, *words: str) -> str:
        self.asked.append(words)
        line = " ".join(words)
        if words[0] == "sacctmgr" and line not in self.answers:
            raise RefusedError("no accounting")
        return self.answers.get(line, "")

    def acts(self) -> list[str]:
        """What it was told to do."""
        reads = ("squeue", "sinfo", "sacctmgr")
        return [
            " ".join(words)
            for words in self.asked
            if words[0] not in reads and "show" not in words and "ping" not in words
        ]


def cluster(said: Said, text: str = "[live]\nmode = 'enforce'") -> SlurmCluster:
    return SlurmCluster(load_config(text), said, lambda: AT)  # type: ignore[arg-type]


def nodes(shape: str) -> str:
    return document(shape, "nodes", *(node(shape, f"g{i}", partitions="low") for i in range(1, 5)))


def held(shape: str, number: int, **fields: Any) -> dict[str, Any]:
    fields = {"priority": 0, "state_reason": "JobHeldUser", "tres_per_node": "gres/gpu:2", **fields}
    return job(shape, number, **{"partition": "low", **fields})


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_is_ours(shape: str) -> None:
    jobs = [
        held(shape, 1),
        held(shape, 2, comment="please trencadis:off"),
        held(shape, 3, partition="high"),
        held(shape, 4, partition="low,high"),
        held(shape, 5, state_reason="JobHoldMaxRequeue"),
        held(shape, 6, het_job_id=6),
        job(shape, 7, partition="low"),
        held(shape, 8, partition="inbox", priority=5, state_reason="PartitionDown"),
        held(shape, 9, array_job_id=9, array_task_string="1-3"),
        held(shape, 10, dependency="afterok:1(unfulfilled)"),
        running(shape, 20, {"g1": "gpu:h100:4(IDX:0-3)"}, partition="low"),
        running(shape, 21, {"g1": "gpu:h100:2(IDX:4-5)"}, partition="low", requeue=False),
        running(shape, 22, {"g2": "gpu:h100:2(IDX:0-1)"}, partition="low", batch_flag=False),
        running(shape, 23, {"g3": "gpu:h100:2(IDX:0-1)"}, partition="high"),
        running(shape, 24, {"g4": "gpu:h100:2(IDX:2-3)"}, partition="low"),
    ]
    said = Said(document(shape, "jobs", *jobs), nodes(shape))
    text = """
        [live]
        mode = "enforce"
        scope = { partitions = ["low"], nodes = ["g[1-3]"] }
        [slurm]
        held_partitions = { inbox = "low" }
        partition_tiers = { low = "low" }
    """
    reading = cluster(said, text).read({})
    check(reading.snapshot)
    ours = {name for name, view in reading.jobs.items() if view.managed}
    assert ours == {"1", "8", "9_1", "9_2", "9_3", "10"}
    found = {entry.name: entry for entry in reading.snapshot.jobs}
    assert {name for name, entry in found.items() if entry.state == "pending"} == ours
    assert {name for name, entry in found.items() if entry.state == "held"} == set("234567")
    assert found["10"].after == ("1",)
    assert found["1"].priority == "low"
    assert {n for n, e in found.items() if e.on_nodes and e.preemptible} == {"20"}
    assert {n.name for n in reading.snapshot.nodes if n.cordoned} == {"g4"}
    assert reading.jobs["20"].gpus == {"g1": (0, 1, 2, 3)}
    assert reading.snapshot.fabric.levels[0].name == "leaf"
    (licence,) = reading.snapshot.licences
    assert (licence.total, licence.used_elsewhere) == (4, 1)


def test_in_shadow_what_slurm_may_start_is_ours_to_think_of(shape: str) -> None:
    jobs = [held(shape, 1), job(shape, 2, partition="low")]
    said = Said(document(shape, "jobs", *jobs), nodes(shape))
    reading = cluster(said, "[live]\nmode = 'shadow'").read({})
    assert [name for name, view in reading.jobs.items() if view.managed] == ["2"]


def test_remembered_terms_count_not_what_a_start_left(shape: str) -> None:
    said = Said(document(shape, "jobs", held(shape, 1, required_nodes="g2")), nodes(shape))
    slurm = cluster(said)
    assert slurm.read({}).snapshot.jobs[0].required_nodes == ("g2",)
    reading = slurm.read({"1": {"ReqNodeList": ""}})
    assert reading.snapshot.jobs[0].required_nodes == ()
    assert reading.jobs["1"].changed


def test_memory_counts_only_where_slurm_counts_it(shape: str) -> None:
    jobs = document(shape, "jobs", held(shape, 1, tres_req_str="cpu=1,mem=500G,node=1"))
    said = Said(jobs, nodes(shape))
    assert cluster(said).read({}).snapshot.jobs[0].request.memory_mib == 512_000
    said.answers["scontrol show config"] = "SelectTypeParameters = CR_CORE"
    assert cluster(said).read({}).snapshot.jobs[0].request.memory_mib == 0


@pytest.mark.parametrize("names", [True, False])
def test_our_own_reservations_keep_nothing_from_us(shape: str, names: bool) -> None:
    mine = node(shape, "g1", state="IDLE+RESERVED", reservation="trencadis-7")
    theirs = node(shape, "g2", state="IDLE+RESERVED", reservation="maint")
    if not names:  # 22.05 doesn't say which
        mine.pop("reservation")
        theirs.pop("reservation")
    said = Said(document(shape, "jobs"), document(shape, "nodes", mine, theirs))
    line = "ReservationName={} StartTime={} EndTime={} Nodes={} Flags=MAINT Licenses=(null)"
    said.answers["scontrol -o show reservations"] = "\n".join(
        line.format(name, NOW - 9, NOW + 999, where)
        for name, where in (("trencadis-7", "g1"), ("maint", "g2"))
    )
    found = {entry.name: entry for entry in cluster(said).read({}).snapshot.nodes}
    assert not found["g1"].taints
    assert not found["g1"].cordoned
    assert found["g2"].taints


def test_what_slurm_is_told(shape: str) -> None:
    jobs = document(shape, "jobs", held(shape, 1), held(shape, 8, partition="inbox", priority=4))
    said = Said(jobs, nodes(shape))
    slurm = cluster(said, "[live]\nmode='enforce'\n[slurm]\nheld_partitions = {inbox = 'low'}")
    views = slurm.read({}).jobs
    slurm.start("1", [TaskAllocation(node="g1"), TaskAllocation(node="g2")], views["1"])
    slurm.start("8", [TaskAllocation(node="g1")], views["8"])
    slurm.withdraw("8", views["8"].terms)
    slurm.warn("1")
    slurm.stop("1")
    slurm.give_back("8", views["8"].terms)
    slurm.reserve("trencadis-1", "1", ["g1"], AT, AT + timedelta(minutes=9, seconds=1))
    slurm.reserve("trencadis-8", "8", ["g2"], AT + timedelta(hours=1), AT + timedelta(hours=3))
    assert said.acts() == [
        "scontrol update JobId=1 ReqNodeList=g1,g2",
        "scontrol release 1",
        "scontrol update JobId=8 Partition=low ReqNodeList=g1",
        "scontrol release 8",
        "scontrol uhold 8",
        "scontrol update JobId=8 Partition=inbox ReqNodeList=",
        "scancel --signal=TERM --full 1",
        "scontrol requeuehold 1",
        "scontrol update JobId=8 Partition=low ReqNodeList=",
        "scontrol release 8",
        "scontrol create reservation ReservationName=trencadis-1 Users=ada Nodes=g1"
        " StartTime=now Duration=10 Flags=IGNORE_JOBS",
        "scontrol create reservation ReservationName=trencadis-8 Users=ada Nodes=g2"
        " StartTime=now+3600 Duration=120"
        " Flags=IGNORE_JOBS",
    ]


def test_a_start_of_segments_excludes_all_other_nodes() -> None:
    """Slurm takes required nodes for a job with segments, and never starts it."""
    record = held("25.11", 1, node_count=2, segment_size=1, excluded_nodes="g4")
    said = Said(document("25.11", "jobs", record), nodes("25.11"))
    slurm = cluster(said)
    views = slurm.read({}).jobs
    slurm.start("1", [TaskAllocation(node="g1"), TaskAllocation(node="g3")], views["1"])
    slurm.withdraw("1", views["1"].terms)
    assert said.acts() == [
        "scontrol update JobId=1 ExcNodeList=g[2,4]",
        "scontrol release 1",
        "scontrol uhold 1",
        "scontrol update JobId=1 ExcNodeList=g4",
    ]
    ours = held("25.11", 1, node_count=2, segment_size=1, excluded_nodes="g[2,4]")
    slurm = cluster(Said(document("25.11", "jobs", ours), nodes("25.11")))
    (found,) = slurm.read({"1": views["1"].terms}).snapshot.jobs
    assert found.excluded_nodes == ("g4",)


@pytest.mark.parametrize(("plugin", "term"), [("block", "ExcNodeList"), ("tree", "ReqNodeList")])
def test_where_segments_may_be_hidden(plugin: str, term: str) -> None:
    """24.11 takes `--segment`, and lists it nowhere."""
    records = [held("24.05", 1, node_count=2), held("24.05", 2)]
    said = Said(document("24.05", "jobs", *records), nodes("24.05"))
    said.answers["scontrol show config"] += f"\nTopologyPlugin = topology/{plugin}"
    views = cluster(said).read({}).jobs
    assert (views["1"].terms, views["2"].terms) == ({term: ""}, {"ReqNodeList": ""})


def test_a_job_that_leaves_after_a_requeue_has_no_start(shape: str) -> None:
    leaving = running(shape, 1, {"g1": "gpu:h100:4(IDX:0-3)"}, state="COMPLETING", start_time=0)
    said = Said(document(shape, "jobs", leaving), nodes(shape))
    (found,) = cluster(said).read({}).snapshot.jobs
    assert found.state == "draining"


# What scontrol prints


def test_scontrol_as_documents() -> None:
    text = PARTITIONS.format(low="REQUEUE")
    low, high = show.partitions(text)["partitions"]
    assert (low["maximums"]["time"], low["defaults"]["time"], low["grace_time"]) == (
        1_560,
        None,
        30,
    )
    assert (high["maximums"], high["defaults"]) == ({"time": None, "shares": 0}, {"time": 61})
    assert show.lines("A=1 B=two words C=(null)") == [{"A": "1", "B": "two words", "C": "(null)"}]
    assert show.settings("PreemptMode             = OFF\nX\n") == {"PreemptMode": "OFF"}
    assert show.reservations("No reservations in the system") == {"reservations": []}


@pytest.mark.parametrize(
    ("dependency", "state"),
    [
        ("afterok:7(unfulfilled)", "pending"),
        ("afterok:8(unfulfilled)", "held"),
        ("afternotok:8(unfulfilled),afterany:7(unfulfilled):8(unfulfilled)", "pending"),
        ("afterok:9(unfulfilled)", "pending"),
        ("afterok:7(unfulfilled)?afterok:8(unfulfilled)", "held"),
        ("afterok:7(unfulfilled),afterok:99(unfulfilled)", "held"),
    ],
)
def test_dependencies_that_slurm_has_not_looked_at_again(dependency: str, state: str) -> None:
    """7 ended well, 8 failed, 9 runs; Slurm still lists all of them."""
    shape = "24.05"
    records = [
        job(shape, 7, job_state="COMPLETED"),
        job(shape, 8, job_state="FAILED"),
        running(shape, 9, {"g1": "gpu:h100:1"}, partition="low"),
        held(shape, 10, dependency=dependency),
    ]
    said = Said(document(shape, "jobs", *records), nodes(shape))
    found = {job.name: job for job in cluster(said).read({}).snapshot.jobs}
    assert found["10"].state == state
    assert found["10"].after == (("9",) if "9(" in dependency and "99" not in dependency else ())


def test_switches_that_only_scontrol_tells() -> None:
    """squeue of 22.05 prints no switches; newer ones do, and scontrol isn't asked."""
    tight, loose = held("24.05", 1, node_count=2), held("24.05", 2)
    told = "JobId=1 JobName=a b Switches=1@02:00:00 Power=\nJobId=2 JobName=c Power=\n"
    for record in (tight, loose):
        record.pop("required_switches", None)
    jobs = document("24.05", "jobs", tight, loose)
    said = Said(jobs, nodes("24.05"), **{"scontrol -o show jobs": told})
    first, second = cluster(said).read({}).snapshot.jobs
    assert first.topology is not None
    assert (first.topology.mode, first.topology.relax_after_seconds) == ("required", 7_200)
    assert second.topology is None
    new = held("24.05", 1, node_count=2, required_switches=1)
    said = Said(document("24.05", "jobs", new), nodes("24.05"))
    assert cluster(said).read({}).snapshot.jobs[0].topology is not None
    assert ("scontrol", "-o", "show", "jobs") not in said.asked


def test_a_name_that_poses_as_another_job_changes_nothing_of_it() -> None:
    """Names are printed with their line ends: what follows may look like another job's line."""
    posing = "x\nJobId=1 JobName=y Switches=1@02:00:00"
    records = [held("24.05", 1), held("24.05", 2, name=posing), held("24.05", 3, name="a")]
    for record in records:
        record.pop("required_switches", None)
    lines = {
        "1": "JobId=1 JobName=a Power=",
        "2": f"JobId=2 JobName={posing} Switches=3@01:00:00 Power=",
        "3": "JobId=3 JobName=JobId=1 Switches=1@02:00:00 Power=",
    }
    said = Said(document("24.05", "jobs", *records), nodes("24.05"))
    said.answers["scontrol -o show jobs"] = "\n".join(lines.values())
    said.answers |= {f"scontrol -o show job {job}": line for job, line in lines.items()}
    read = read_documents(SlurmOptions(), said, None).jobs["jobs"]  # type: ignore[arg-type]
    assert [r.get("required_switches") for r in read] == [None, "3@01:00:00", "1@02:00:00"]


@pytest.mark.parametrize("make", [None, Path.mkdir, lambda p: p.write_bytes(b"\xff")])
def test_a_topology_file_that_cannot_be_read(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    if make is not None:
        make(path)
    said = Said(document("24.05", "jobs"), nodes("24.05"))
    with pytest.raises(InvalidInputError, match="topology_file"):
        cluster(said, f"[slurm]\ntopology_file = '{path}'").read({})


# Preemption of Slurm's own


@pytest.mark.parametrize(
    ("settings", "low", "scope", "words"),
    [
        ({"PreemptType": "preempt/none", "PreemptMode": "OFF"}, "REQUEUE", Scope(), ()),
        ({"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}, "REQUEUE", Scope(),
         ("jobs of partition high preempt those of low",)),
        ({"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}, "OFF", Scope(), ()),
        ({"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}, "REQUEUE",
         Scope(nodes=("g1", "g2")), ()),
        ({"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}, "REQUEUE",
         Scope(pools=("low",), nodes=("g3",)), ("jobs of partition high",)),
        ({"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}, "OFF", Scope(),
         ("QOS urgent preempts others",)),
        ({}, "OFF", Scope(pools=("lou",)), ("partition lou of the scope is not there",)),
    ],
)  # fmt: skip
def test_enforce_is_refused(
    settings: dict[str, str], low: str, scope: Scope, words: tuple[str, ...]
) -> None:
    partitions = show.lines(PARTITIONS.format(low=low))
    found = objections(settings, partitions, lambda: "normal|||||\nurgent|||||normal\n", scope)
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))


def test_preemption_by_qos_that_nobody_tells_is_refused() -> None:
    settings = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
    assert len(objections(settings, [], lambda: None, Scope())) == 1


def test_qos() -> None:
    text = "normal||gres/gpu=8|||\nurgent|cpu=9,gres/gpu=16,gres/gpu:h100=4||20|2|normal\n\n"
    normal, urgent = read_qos(text)
    assert normal.limit.quota_per_user.gpus == 8
    assert normal.limit.jobs is None
    assert urgent.limit.quota.gpus == 16
    assert urgent.limit.quota.by_model == {"h100": 4}
    assert (urgent.limit.jobs, urgent.limit.jobs_per_user) == (20, 2)
    assert preempting(text) == ["urgent"]


# Configuration


def test_the_configuration() -> None:
    config = load_config("[live.scope]\npartitions = ['a']\nnodes = ['g[1-3]', 'x']\n")
    assert config.live.scope == Scope(pools=("a",), nodes=("g1", "g2", "g3", "x"))
    assert load_config("") == SlurmConfig()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[live", "Invalid TOML"),
        ("[live]\nmode = 'on'", "$.live.mode"),
        ("[live]\nscop = 1", "$.live.scop"),
        ("[live.scope]\nnodes = ['g[1-']", "$.live.scope.nodes"),
        ("[slurm]\ntiers = {x = 'gold'}", "$.slurm.tiers.x"),
        ("[slurm]\nsignal = 'TERM; x'", "$.slurm.signal"),
    ],
)
def test_a_configuration_with_faults(text: str, fault: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_config(text)
    assert fault in "\n".join(caught.value.lines())


# Commands and slurmrestd


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (
            "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
            UnavailableError,
        ),
        ("echo 'Unexpected message received for job 4' >&2; exit 1", UnavailableError),
        ("echo 'Invalid job id specified' >&2; exit 1", RefusedError),
        ("kill -9 $$", UnavailableError),
        ("sleep 9", UnavailableError),
    ],
)
def test_commands_tell_a_refusal_from_silence(script: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Commands(timeout=0.5)("sh", "-c", script)


def test_a_busy_controller_is_asked_again(tmp_path: Path) -> None:
    said = "echo 'Resource temporarily unavailable for job 9' >&2; exit 1"
    run = Commands()
    assert run("sh", "-c", f"[ -e {tmp_path}/1 ] && exit; touch {tmp_path}/1; {said}") == ""
    with pytest.raises(UnavailableError, match="temporarily"):
        run("sh", "-c", f"echo >> {tmp_path}/tries; {said}")
    assert len((tmp_path / "tries").read_text()) == 5


def test_commands_print_instants_as_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "odd")
    run = Commands(environment={"SLURM_CONF": "/x"})
    out = run("sh", "-c", 'echo "$SLURM_TIME_FORMAT $SLURM_CONF ${SQUEUE_FORMAT:-none}"')
    assert out == "%s /x none\n"
    with pytest.raises(UnavailableError, match="No such file"):
        run("no-such-program")


class _Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass


@pytest.fixture(params=["http", "unix"])
def restd(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[dict[str, Any]], str]]:
    """A server that answers from a table of paths; a number is a status."""
    table: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = table.get(self.path, 404)
            if self.headers.get("X-SLURM-USER-TOKEN") != "secret":
                answer = 401
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            self.wfile.write(b"" if isinstance(answer, int) else json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

        def address_string(self) -> str:
            return "here"

    server: Any
    if request.param == "http":
        server = HTTPServer(("127.0.0.1", 0), Handler)
        url = f"http://127.0.0.1:{server.server_port}"
    else:
        server = _Unix(str(tmp_path / "sock"), Handler)
        url = f"unix:{tmp_path / 'sock'}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def serve(paths: dict[str, Any]) -> str:
        table.update(paths)
        return url

    yield serve
    server.shutdown()
    thread.join()
    server.server_close()


def test_slurmrestd_takes_the_newest_version(restd: Callable[[dict[str, Any]], str]) -> None:
    openapi = {"paths": {f"/slurm/v0.0.{n}/jobs": {} for n in (38, 45, 9)} | {"/x": {}}}
    paths = {"/openapi": openapi, "/slurm/v0.0.45/jobs": {"jobs": []}, "/slurm/v0.0.45/nodes": 500}
    rest = Rest(restd(paths), "secret")
    assert rest.document("jobs") == {"jobs": []}
    with pytest.raises(UnavailableError):
        rest.document("nodes")
    with pytest.raises(RefusedError, match="404"):
        rest.document("partitions")
    with pytest.raises(RefusedError, match="401"):
        Rest(rest.url, "wrong").document("jobs")


def test_a_snapshot_through_slurmrestd(restd: Callable[[dict[str, Any]], str]) -> None:
    jobs = document("24.05", "jobs", held("24.05", 1))
    paths = {
        "/openapi": {"paths": {"/slurm/v0.0.41/jobs/": {}}},
        "/slurm/v0.0.41/jobs": json.loads(jobs),
        "/slurm/v0.0.41/nodes": json.loads(nodes("24.05")),
    }
    text = f"[live]\nmode = 'enforce'\n[slurm]\nslurmrestd = '{restd(paths)}'\ntoken = 'secret'"
    said = Said("{}", "{}")
    reading = cluster(said, text).read({})
    assert reading.jobs["1"].managed
    assert len(reading.snapshot.nodes) == 4
    assert not any(words[0] in ("squeue", "sinfo") for words in said.asked)


def test_slurmrestd_that_is_not_there(tmp_path: Path) -> None:
    for url in (f"unix:{tmp_path / 'none'}", "http://127.0.0.1:1"):
        with pytest.raises(UnavailableError):
            Rest(url, timeout=1).document("jobs")


# Samples

DATA = Path(__file__).parents[2] / "shared" / "data" / "formats" / "slurm"


@pytest.mark.skipif(not DATA.is_dir(), reason="the samples are not beside the repository")
def test_every_sample_of_jobs_is_read_as_live() -> None:
    config = load_config("[live]\nmode = 'enforce'")
    files = [*DATA.glob("*slurm-job*.json"), *DATA.glob("squeue*.json")]
    assert len(files) >= 5
    for file in files:
        records = json.loads(file.read_text())["jobs"]
        prepared = prepare(records, config, {}, AT)
        assert prepared.views, file.name
        for view in prepared.views.values():
            assert (view.state in ("running", "leaving")) <= bool(view.nodes), file.name
