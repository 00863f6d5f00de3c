"""Readers of traces: what they make of a row, and where they say that one is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trencadis.instances.traces.muri import read_muri
from trencadis.instances.traces.philly import read_philly
from trencadis.instances.traces.read import guess, read_trace
from trencadis.instances.traces.sacct import read_sacct, read_sacct_json
from trencadis.instances.traces.table import read_table
from trencadis.models import InvalidInputError
from trencadis.models.trace import EPOCH, Trace

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the public traces are not here")

MURI = "job_id,num_gpu,submit_time,duration,priority\n7,16,1500,2500,1\n8,1,0,400,0\n"
SACCT = "JobID|User|Account|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|State\n"


def test_muri() -> None:
    trace = read_muri(MURI)
    assert [entry.job.name for entry in trace.jobs] == ["job-8", "job-7"]
    first, second = trace.jobs
    assert (first.seconds, second.seconds) == (1, 2)  # 400 ms is a second; 2,500 ms two
    assert second.job.request.gpus == 16
    assert (first.job.priority, second.job.priority) == ("normal", "high")
    assert (second.job.submit - EPOCH).total_seconds() == 2


def test_jobs_larger_than_a_node_become_gangs_of_whole_nodes() -> None:
    shaped = read_muri(MURI).shaped_for(8).jobs[1].job
    assert (shaped.tasks, shaped.request.gpus) == (2, 8)
    odd = read_table("submit,seconds,gpus\n0,10,12\n").shaped_for(8).jobs[0]
    assert (odd.job.tasks, odd.job.request.gpus) == (3, 4)
    assert odd.gpu_milli == 12_000


def test_load_is_scaled_by_arrivals_alone() -> None:
    trace = read_table("submit,seconds,gpus\n0,100,4\n50,100,4\n100,100,2\n")
    assert trace.gpu_seconds == 1_000
    assert trace.offered_load(10) == pytest.approx(1.0)
    assert trace.faster(2).offered_load(10) == pytest.approx(2.0)
    assert trace.faster(2).gpu_seconds == 1_000
    assert [entry.job.name for entry in trace.between(50, 100).jobs] == ["job-1"]
    with pytest.raises(ValueError, match="above 0"):
        trace.faster(0)


def test_table_reads_every_column() -> None:
    header = (
        "name,submit,seconds,gpus,tasks,min_tasks,queue,user,priority,gpu_models,estimate_seconds,"
        "checkpoint_seconds,on_signal,grace_seconds,preemptible,level,tokens_per_second,cpu_milli"
    )
    row = "a,2026-03-01T10:00:00+01:00,60,2,4,1,red,ann,high,H|A,?,600,yes,0,no,leaf,90,500"
    entry = read_table(f"{header}\n{row}\n").jobs[0]
    job = entry.job
    assert job.submit == datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert (job.tasks, job.minimum, job.request.gpus, job.request.cpu_milli) == (4, 1, 2, 500)
    assert (job.queue, job.user, job.priority) == ("red", "ann", "high")
    assert job.gpu_models == ("A", "H")
    assert job.runtime_seconds is None
    assert job.checkpoint is not None
    assert (job.checkpoint.interval_seconds, job.checkpoint.on_signal) == (600, True)
    assert (job.grace_seconds, job.preemptible) == (0, False)
    assert job.topology is not None
    assert (job.topology.level, job.topology.mode) == ("leaf", "required")
    assert entry.tokens_per_second == 90


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("x,10,1", "submit"),
        ("0,0,1", "seconds"),
        ("0,10,-1", "gpus"),
        ("0,10,1.5", "gpus"),
        ("0,nan,1", "seconds"),
        ("2026-01-01T00:00:00,10,1", "offset"),
    ],
)
def test_table_says_which_cell_is_wrong(row: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_table(f"submit,seconds,gpus\n0,5,1\n{row}\n")
    (line,) = caught.value.lines()
    assert line.startswith("line 3: ")
    assert said in line


def test_names_may_not_repeat() -> None:
    with pytest.raises(InvalidInputError, match="line 3: a second job 'a'"):
        read_table("name,submit,seconds,gpus\na,0,5,1\na,0,5,1\n")


def test_philly_divides_steps_by_throughput() -> None:
    table = {"v100": {"('LM (batch size 5)', 2)": {"null": 4.0}}}
    rows = "LM (batch size 5)\tcmd\t-n\t1\t100\t7.0\t2\nGAN\tcmd\t-n\t1\t100\t9.0\t1\n"
    trace = read_philly(rows, json.dumps(table))
    (entry,) = trace.jobs
    assert (entry.seconds, entry.job.request.gpus) == (25, 2)
    assert trace.warnings == ("1 rows left out: they never ran or used nothing",)


def row(**cells: object) -> str:
    values: dict[str, object] = {
        "JobID": "1",
        "User": "ann",
        "Account": "bio",
        "Submit": "2026-01-15T09:00:00",
        "Start": "2026-01-15T10:00:00",
        "End": "2026-01-15T11:00:00",
        "ElapsedRaw": 3_600,
        "TimelimitRaw": 120,
        "NNodes": 2,
        "AllocTRES": "billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=256G,node=2",
        "State": "COMPLETED",
        **cells,
    }
    return "|".join(str(value) for value in values.values()) + "\n"


def sacct(*rows: str, zone: str = "UTC") -> Trace:
    return read_sacct(SACCT + "".join(rows), zone)


def test_sacct() -> None:
    (entry,) = sacct(row(), row(JobID="1.batch"), row(JobID="2", ElapsedRaw=0)).jobs
    job = entry.job
    assert (entry.seconds, job.runtime_seconds) == (3_600, 7_200)
    assert (job.tasks, job.request.gpus, job.gpu_models) == (2, 4, ("a100",))
    assert (job.request.cpu_milli, job.request.memory_mib) == (32_000, 131_072)
    assert (job.queue, job.user) == ("bio", "ann")
    assert job.submit == datetime(2026, 1, 15, 9, tzinfo=UTC)


def test_sacct_local_time_is_read_in_its_zone() -> None:
    (winter,) = sacct(row(), zone="Europe/Berlin").jobs
    assert winter.job.submit == datetime(2026, 1, 15, 8, tzinfo=UTC)
    summer = row(
        Submit="2026-07-15T09:00:00", Start="2026-07-15T10:00:00", End="2026-07-15T11:00:00"
    )
    assert sacct(summer, zone="Europe/Berlin").jobs[0].job.submit.hour == 7


def test_sacct_the_hour_that_clocks_show_twice() -> None:
    """On 2026-10-25 Berlin's clocks go from 03:00 back to 02:00."""
    def submit(start: str, end: str, elapsed: int) -> datetime:
        cells = row(Submit="2026-10-25T02:30:00", Start=start, End=end, ElapsedRaw=elapsed)
        return sacct(cells, zone="Europe/Berlin").jobs[0].job.submit

    # From 02:40 to 03:10 it ran 90 minutes: 02:40 was the first one, and so was 02:30.
    assert submit("2026-10-25T02:40:00", "2026-10-25T03:10:00", 5_400) == datetime(
        2026, 10, 25, 0, 30, tzinfo=UTC
    )
    # 30 minutes: it began at the second 02:40. Of two possible submissions the later one counts.
    assert submit("2026-10-25T02:40:00", "2026-10-25T03:10:00", 1_800) == datetime(
        2026, 10, 25, 1, 30, tzinfo=UTC
    )


def test_sacct_the_hour_that_clocks_skip() -> None:
    """On 2026-03-29 there is no 02:30 in Berlin: some machine's clock was late."""
    skipped = row(
        Submit="2026-03-29T02:30:00", Start="2026-03-29T03:30:00", End="2026-03-29T04:30:00"
    )
    submit = sacct(skipped, zone="Europe/Berlin").jobs[0].job.submit
    assert submit == datetime(2026, 3, 29, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"Submit": "yesterday"}, "Submit: 'yesterday' is no time"),
        ({"AllocTRES": "cpu"}, "'cpu' is no TRES"),
        ({"AllocTRES": "mem=12X"}, "'12X' is no amount of memory"),
    ],
)
def test_sacct_says_what_is_wrong(cells: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        sacct(row(**cells))
    assert said in str(caught.value)


def test_unknown_zone() -> None:
    with pytest.raises(InvalidInputError, match="no time zone"):
        sacct(row(), zone="Mars/Olympus")


def test_sacct_json() -> None:
    job = {
        "job_id": 12,
        "array": {"job_id": 10, "task_id": {"set": True, "infinite": False, "number": 3}},
        "account": "bio",
        "association": {"user": "ann"},
        "allocation_nodes": 1,
        "time": {
            "submission": 1_768_467_600,
            "start": 1_768_471_200,
            "end": 1_768_474_800,
            "elapsed": 3_600,
            "limit": {"set": True, "infinite": False, "number": 120},
        },
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "id": 1, "count": 8},
                {"type": "mem", "name": "", "id": 2, "count": 4_096},
                {"type": "gres", "name": "gpu", "id": 1001, "count": 2},
            ]
        },
    }
    (entry,) = read_sacct_json(json.dumps({"jobs": [job]})).jobs
    assert entry.job.name == "10_3"
    assert (entry.seconds, entry.job.runtime_seconds) == (3_600, 7_200)
    assert (entry.job.request.gpus, entry.job.request.memory_mib) == (2, 4_096)
    with pytest.raises(InvalidInputError, match=r"\$\.jobs\[0\]"):
        read_sacct_json(json.dumps({"jobs": [{"job_id": 1}]}))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (MURI, "muri"),
        (SACCT, "sacct"),
        ('{"jobs": []}', "sacct-json"),
        ("submit,seconds,gpus\n", "csv"),
        ("a\tb\tc\td\t1\t2\t3\n", "philly"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "openb"),
    ],
)
def test_the_form_is_told_from_the_first_line(text: str, form: str) -> None:
    assert guess(text.encode()) == form


def test_an_unknown_form_is_a_fault() -> None:
    with pytest.raises(InvalidInputError, match="choose one"):
        guess(b"a,b,c\n")


@needs_data
def test_the_public_traces() -> None:
    """Counts from the data's own description; GPU-hours from a sum over the file."""
    muri = read_trace(DATA / "traces/muri/trace1.csv")
    assert len(muri.jobs) == 1_494
    assert muri.gpu_seconds // 3_600 == 383_326
    folder = DATA / "traces/gavel_philly_vc"
    philly = [read_trace(path) for path in sorted(folder.glob("*.trace"))]
    assert len(philly) == 15
    left_out = sum(int(w.split()[0]) for trace in philly for w in trace.warnings)
    assert left_out == 1_548
    assert sum(len(trace.jobs) for trace in philly) + left_out == 15_264
