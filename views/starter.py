"""What `init` writes: a commented policy, options, and a snapshot with a queue per team."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trencadis.models.policy import Policy
from trencadis.models.snapshot import Snapshot
from trencadis.views.io import OutputError, clean, write
from trencadis.views.settings import FILE
from trencadis.views.snapshots import snapshot_text

POLICY_FILE = "trencadis-policy.toml"
SNAPSHOT_FILE = "snapshot.json"
GPUS_PER_NODE = 8

MORE_WORDS = {
    "default_tier": "The tier of jobs that name none.",
    "fragmentation_weight_milli": "With `weighted`: what a GPU-second of fragmentation weighs.",
    "round_seconds": "How often a round is solved.",
    "poor_health_milli": "Nodes with a lower health score are in poor health.",
    "runtime_unknown": "What is assumed of a job that doesn't say how long it runs.",
    "time_limit_seconds": "The longest that a round may search.",
    "gpu_speed_milli": "Relative speed of GPU models; 1,000 where absent.",
    "preemption": "How running work is asked to make room.",
    "mode": "`graceful`: with time to save; `none`: never (`suspend` acts as `none`).",
    "grace_seconds": "The time a job has to save and stop.",
    "checkpoint_interval_seconds": "How often jobs save, where they don't say.",
    "restart_seconds_multi_node": "Restart on several nodes.",
    "min_runtime_seconds": "No job is stopped before it has run so long.",
    "budget": "The most that a round, an hour or a day may disturb.",
    "jobs": "Jobs that a round may stop.",
    "jobs_per_day_milli": "Preempted jobs in a day, part of the running ones.",
    "per_job_and_day": "How often one job may be preempted in a day.",
    "reclaim_jobs": "Jobs that a round may stop so that a queue gets its guarantee.",
    "lost_gpu_hours_per_day": "The most work that may be lost in a day.",
    "mig": "Whether MIG layouts may be changed.",
    "reconfigure": "`forbid`; `idle`: GPUs without instances in use; `repack`: others as well.",
    "reconfigure_seconds": "How long a change of layout takes.",
    "gap_micro": "A stage is good enough at this gap, millionths.",
}
"""What the policy's fields mean, where the schema has no words of its own."""

OPTIONS = f"""\
# Options of `trencadis solve`, where neither a flag nor TRENCADIS_* sets them.

[solve]
policy = "{POLICY_FILE}"
# time_limit = 30.0        # seconds; the policy's time_limit_seconds where absent
# gap = 0.0001             # a stage is good enough at this gap; the policy's gap_micro where absent
# workers = 8              # threads of the search
# deterministic = false    # same input, same plan, byte for byte
# seed = 0
"""


def starter_files(teams: int, now: datetime) -> dict[str, str]:
    """Name -> content of each file."""
    return {
        POLICY_FILE: policy_toml(Policy()),
        FILE: OPTIONS,
        SNAPSHOT_FILE: snapshot_text(starter_snapshot(teams, now)),
    }


def write_starter(directory: Path, teams: int, force: bool) -> list[Path]:
    """Write the files. Raises OutputError, having written nothing, if one is there already."""
    files = starter_files(teams, datetime.now(UTC))
    there = [name for name in files if (directory / name).exists()]
    if there and not force:
        raise OutputError(
            f"{', '.join(there)} in {clean(str(directory))} would be overwritten. Maybe --force?"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"can't make {clean(str(directory))}: {error.strerror}") from None
    for name, content in files.items():
        write(str(directory / name), content)
    return [directory / name for name in files]


def starter_snapshot(teams: int, now: datetime) -> Snapshot:
    """Enough eight-GPU nodes for a guaranteed GPU per team; one job waits, to show the form."""
    nodes = -(-teams // GPUS_PER_NODE)
    return Snapshot.model_validate(
        {
            "now": now.isoformat(),
            "nodes": [
                {
                    "name": f"node-{number}",
                    "gpus": [{"model": "H100", "count": GPUS_PER_NODE, "memory_mib": 81_920}],
                    "cpu_milli": 128_000,
                    "memory_mib": 1_048_576,
                    "nvlink": {"kind": "nvswitch"},
                    "fabric": ["leaf-1"],
                }
                for number in range(1, nodes + 1)
            ],
            "fabric": {"levels": [{"name": "leaf"}]},
            "queues": [
                {"name": f"team-{number}", "guarantee": {"gpus": 1}}
                for number in range(1, teams + 1)
            ],
            "jobs": [
                {
                    "name": "example",
                    "queue": "team-1",
                    "user": "someone",
                    "submit": now.isoformat(),
                    "request": {"gpus": 2, "cpu_milli": 16_000, "memory_mib": 131_072},
                    "runtime_seconds": 3_600,
                }
            ],
        }
    )


def policy_toml(policy: Policy) -> str:
    """The policy as TOML, each field with the schema's own words above it."""
    head = [
        "# The policy of Trencadis: what the owner of the cluster wants.",
        "# Every value here is the default; delete what you keep. TOML can't say null: where",
        "# the words speak of an absent value, use null in a policy written as JSON.",
        "",
    ]
    return "\n".join([*head, *_table(policy, "")]).rstrip() + "\n"


def _table(record: BaseModel, prefix: str) -> Iterator[str]:
    """Plain values first, then tables: TOML knows no way back from a table."""
    fields = type(record).model_fields
    values = {name: getattr(record, name) for name in fields}
    tables = {
        name: value
        for name, value in values.items()
        if isinstance(value, BaseModel | dict) or (isinstance(value, tuple) and _of_records(value))
    }
    for name, value in values.items():
        if name in tables or name == "schema_version":
            continue
        yield from _comment(name, fields[name])
        if value is None:
            yield f"# {name} ="
        else:
            yield f"{name} = {_value(value)}"
        yield ""
    for name, value in tables.items():
        yield from _comment(name, fields[name])
        path = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield f"[{path}]"
            yield from _table(value, f"{path}.")
        elif isinstance(value, dict):
            yield f"[{path}]"
            yield from (f"{json.dumps(key)} = {_value(inner)}" for key, inner in value.items())
            yield ""
        else:
            for entry in value:
                yield f"[[{path}]]"
                yield from _entry(entry)
                yield ""


def _entry(record: BaseModel) -> Iterator[str]:
    for name, value in record:
        yield f"{name} = {_value(value)}"


def _of_records(value: tuple[object, ...]) -> bool:
    return bool(value) and all(isinstance(entry, BaseModel) for entry in value)


def _comment(name: str, field: FieldInfo) -> Iterator[str]:
    for line in wrap(field.description or MORE_WORDS.get(name, ""), 96):
        yield f"# {line}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_value(entry) for entry in value)}]"
    return json.dumps(value)
