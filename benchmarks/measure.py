"""One round measured in a fresh process, from the text of a snapshot to the text of a plan.

python benchmarks/measure.py SNAPSHOT [--time-limit S] [--gap G] [--workers N]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from trencadis.models import Plan, load_snapshot
from trencadis.solver.round import Options, solve


def measure(text: bytes, options: Options) -> dict[str, Any]:
    """Times, proof and peak memory of the round."""
    begin = time.perf_counter()
    snapshot, _ = load_snapshot(text)
    parsed = time.perf_counter()
    plan = solve(snapshot, options)
    solved = time.perf_counter()
    plan.model_dump_json(exclude_defaults=True)
    end = time.perf_counter()
    timings = plan.timings_s or {}
    return {
        "build_s": round(timings.get("build", 0.0), 3),
        "solve_s": round(solved - parsed, 3),
        "total_s": round(end - begin, 3),
        **proof_of(plan),
        "peak_mib": round(peak_mib()),
        "parse_s": round(parsed - begin, 3),
        "dump_s": round(end - solved, 3),
        "started": len(plan.starts),
        "timings_s": {name: round(value, 3) for name, value in timings.items()},
    }


def proof_of(plan: Plan) -> dict[str, Any]:
    """The stages, and the largest gap of those that decide who starts."""
    stages = plan.proof.stages
    return {
        "stages": [
            {
                "name": stage.name,
                "objective": stage.objective,
                "bound": stage.bound,
                "gap": stage.gap,
                "status": stage.status.value,
                "solve_s": None if stage.solve_s is None else round(stage.solve_s, 3),
            }
            for stage in stages
        ],
        "gap": max((stage.gap for stage in stages if stage.name != "fragmentation"), default=0.0),
        "bound_scope": plan.proof.bound_scope,
    }


def peak_mib() -> float:
    """The most memory that this process has held, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def main() -> None:
    """Reads a snapshot, prints the measurement as JSON."""
    parser = argparse.ArgumentParser(description="Measures one round.")
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--time-limit", type=float, metavar="S", help="the policy's where absent")
    parser.add_argument("--gap", type=float, metavar="G", help="the policy's where absent")
    parser.add_argument("--workers", type=int, default=8, metavar="N")
    parser.add_argument("--deterministic", action="store_true")
    args = parser.parse_args()
    given = {"time_limit_s": args.time_limit, "gap": args.gap}
    options = Options(
        workers=args.workers,
        deterministic=args.deterministic,
        seed=0,
        **{name: value for name, value in given.items() if value is not None},
    )
    print(json.dumps(measure(args.snapshot.read_bytes(), options)))


if __name__ == "__main__":
    main()
