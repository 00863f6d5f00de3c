"""How long answers take on a synthetic cluster: one job, all jobs, the doctor, as commands.

    python benchmarks/explain.py --nodes 1000 --pending 2000 --seed 1 --json

Each command runs in a process of its own, from the text of a snapshot to the text of the answer.
`with_plan` is given the plan that the question is about; without one a round is solved first.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from trencadis.instances.generate import generate
from trencadis.models.units import asks_for_mig

PROGRAM = (sys.executable, "-c", "from trencadis.cli import main; main()")


def main() -> None:
    """Generates, asks, prints."""
    parser = argparse.ArgumentParser(description="Measures explain and doctor.")
    parser.add_argument("--nodes", type=int, default=1_000, metavar="N")
    parser.add_argument("--pending", type=int, default=2_000, metavar="M")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--load", type=float, default=0.7, metavar="L", help="part of GPUs in use")
    parser.add_argument("--mig", type=float, default=0.0, metavar="P", help="nodes in MIG mode")
    parser.add_argument("--share", type=float, default=0.0, metavar="P", help="shared nodes")
    parser.add_argument("--jobs", type=int, default=3, metavar="N", help="asked one by one")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(args, Path(folder))
    if args.json:
        print(json.dumps(report))
        return
    print(f"{args.nodes} nodes, {args.pending} pending, seed {args.seed}, load {args.load}")
    for entry in report["commands"]:
        print(f"  {entry['what']:34} {entry['wall_s']:7.2f} s  user {entry['user_s']:6.2f} s")


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Times of all commands."""
    file, plan = folder / "snapshot.json", folder / "plan.json"
    snapshot = generate(
        args.nodes, args.pending, args.load, args.seed, mig=args.mig, share=args.share
    )
    file.write_text(snapshot.model_dump_json(exclude_defaults=True), encoding="utf-8")
    solve, _ = timed("solve --time-limit 2", "solve", file, "--time-limit", "2", "-o", plan)
    everyone, text = timed("explain --all with_plan", "explain", file, "--all", "--plan", plan)
    groups = json.loads(text)["groups"]
    parts = {
        job.name
        for job in snapshot.jobs
        if asks_for_mig(job.request) or job.request.share is not None
    }
    # A job for each of the most common reasons, in turn.
    seen: dict[str, list[str]] = {}
    for group in groups:
        first = group["jobs"][0]
        kind = "slice" if first in parts else "whole"
        seen.setdefault(f"{group['code']} {kind}", []).append(first)
    asked = [(code, jobs[0]) for code, jobs in seen.items()][: args.jobs]
    for code, jobs in seen.items():
        asked += [(code, job) for job in jobs[1:]][: max(0, args.jobs - len(asked))]
    commands = [solve, everyone]
    for code, job in asked:
        entry, _ = timed(f"explain {code} with_plan", "explain", file, job, "--plan", plan)
        commands.append(entry)
    for code, job in asked[:1]:
        commands.append(timed(f"explain {code}, round solved", "explain", file, job)[0])
    commands.append(timed("doctor", "doctor", file)[0])
    waiting = sum(len(group["jobs"]) for group in groups)
    return {
        "nodes": args.nodes,
        "pending": args.pending,
        "seed": args.seed,
        "load": args.load,
        "waiting": waiting,
        "groups": len(groups),
        "commands": commands,
    }


def timed(what: str, *words: object) -> tuple[dict[str, Any], str]:
    """Wall and user seconds of one command, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    begin = time.perf_counter()
    command = [*PROGRAM, *map(str, words), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    wall = time.perf_counter() - begin
    if done.returncode:
        sys.exit(done.returncode)
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return {"what": what, "wall_s": round(wall, 2), "user_s": round(user, 2)}, done.stdout


if __name__ == "__main__":
    main()
