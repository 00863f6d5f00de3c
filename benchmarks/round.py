"""How long a round takes and how good its proof is, on a synthetic cluster, from JSON to JSON.

    python benchmarks/round.py --nodes 1000 --pending 2000 --seed 1 --json

Generating and measuring each run in a process of their own, so that times and peak memory are
those of a service that receives a snapshot as text and answers with a plan as text.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trencadis.instances.generate import generate
from trencadis.instances.reclaim import reclaim

HERE = Path(__file__).resolve()
MEASURE = HERE.with_name("measure.py")
NAIVE = HERE.with_name("naive.py")
SIZES = {"mix": (1_000, 2_000), "reclaim": (500, 4_000)}
"""Nodes and pending jobs where the command line names none."""


def main() -> None:
    """Generates, measures, prints."""
    args = arguments()
    if args.generate_to:
        write_snapshot(args, args.generate_to)
    else:
        report = run(args)
        print(json.dumps(report) if args.json else table(report))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measures one round on a synthetic cluster.")
    parser.add_argument(
        "--shape", choices=("mix", "reclaim"), default="mix",
        help="a working day's mix, or one-GPU jobs of which a queue reclaims its guarantee",
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="1,000; 500 to reclaim")
    parser.add_argument("--pending", type=int, metavar="M", help="2,000; 4,000 to reclaim")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--load", type=float, default=0.7, metavar="L", help="part of GPUs in use")
    parser.add_argument("--mig", type=float, default=0.0, metavar="P", help="nodes in MIG mode")
    parser.add_argument("--share", type=float, default=0.0, metavar="P", help="shared nodes")
    parser.add_argument("--mode", choices=("strict", "weighted"), default="strict")
    parser.add_argument("--preempt-budget", type=int, metavar="N", help="jobs; none where absent")
    parser.add_argument("--reservations", type=int, metavar="K", help="the policy's where absent")
    parser.add_argument("--time-limit", type=float, metavar="S", help="the policy's where absent")
    parser.add_argument("--gap", type=float, metavar="G", help="the policy's where absent")
    parser.add_argument("--workers", type=int, default=8, metavar="N")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--baseline", choices=("naive",), help="measure the plain model as well")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the snapshot here")
    parser.add_argument("--generate-to", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    nodes, pending = SIZES[args.shape]
    args.nodes = nodes if args.nodes is None else args.nodes
    args.pending = pending if args.pending is None else args.pending
    return args


def run(args: argparse.Namespace) -> dict[str, Any]:
    """All steps, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        file = args.keep or Path(folder) / "snapshot.json"
        child(HERE, *sys.argv[1:], "--generate-to", str(file))
        options = ["--workers", str(args.workers)]
        if args.time_limit is not None:
            options += ["--time-limit", str(args.time_limit)]
        exact = [] if args.gap is None else ["--gap", str(args.gap)]
        exact += ["--deterministic"] if args.deterministic else []
        measured = json.loads(child(MEASURE, str(file), *options, *exact))
        report = {"nodes": args.nodes, "pending": args.pending, **measured}
        report |= {"seed": args.seed, "load": args.load, "mode": args.mode}
        report |= {"mig": args.mig, "share": args.share, "shape": args.shape}
        if args.reservations is not None:
            report["reservations"] = args.reservations
        if args.baseline:
            report["naive"] = json.loads(child(NAIVE, str(file), *options))
            report["ratio"] = round(report["naive"]["solve_s"] / report["solve_s"], 1)
    return report


def child(script: Path, *options: str) -> str:
    """The standard output of a script in a process of its own; ends this one where that fails."""
    command = [sys.executable, str(script), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def write_snapshot(args: argparse.Namespace, file: Path) -> None:
    """Generates a snapshot and writes its JSON text."""
    if args.shape == "reclaim":
        snapshot = reclaim(args.nodes, args.pending)
    else:
        snapshot = generate(
            args.nodes,
            args.pending,
            args.load,
            args.seed,
            preempt_budget=args.preempt_budget,
            mig=args.mig,
            share=args.share,
        )
    changes: dict[str, Any] = {"priority_mode": args.mode}
    if args.reservations is not None:
        changes["reservations"] = args.reservations
    policy = snapshot.policy.model_copy(update=changes)
    snapshot = snapshot.model_copy(update={"policy": policy})
    file.write_text(snapshot.model_dump_json(exclude_defaults=True), encoding="utf-8")


def table(report: dict[str, Any]) -> str:
    """The report for a person."""
    lines = [
        f"{report['nodes']} nodes, {report['pending']} pending, seed {report['seed']}, "
        f"{report['mode']}: {report['started']} started",
        f"  parse {report['parse_s']} s   solve {report['solve_s']} s   dump {report['dump_s']} s"
        f"   total {report['total_s']} s   peak {report['peak_mib']} MiB",
        f"  gap {report['gap']:.6%}, bound scope {report['bound_scope']}",
    ]
    lines += [
        f"  {stage['name']:18} {stage['objective']:>16} >= {stage['bound']:>16}  "
        f"{stage['gap']:>10.4%}  {stage['status']:10} {stage['solve_s'] or 0:>8} s"
        for stage in report["stages"]
    ]
    if "naive" in report:
        plain = report["naive"]
        lines.append(
            f"  plain model: {plain['solve_s']} s, gap {plain['gap']:.4%}, {plain['status']}, "
            f"{plain['started']} started: {report['ratio']} times as long"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
