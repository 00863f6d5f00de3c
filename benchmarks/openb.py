"""How much of a GPU cluster each policy can give away: the ATC'23 protocol on the openb trace.

    python benchmarks/openb.py --workload default --batch 64 --seed 1 --json

Pods arrive in random order until they have asked for 130 % of the cluster, and are placed for good
or dropped. Beside our policies run those that the paper compares, on the same arrivals, and the
limit that a linear program over share patterns sets.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from openb_lab.compare import BATCHED, POLICIES, bound, means, measure
from openb_lab.run import CHECKPOINTS
from openb_lab.workload import load

from trencadis.models.faults import InvalidInputError

INVALID = 65
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "openb"


def main() -> None:
    """Runs, prints."""
    args = arguments()
    try:
        trace = load(args.data, args.workload)
    except InvalidInputError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        sys.exit(INVALID)
    chosen = args.policy or [
        *([BATCHED] if args.batch > 1 else []),
        *("trencadis", "fgd", "best-fit", "dot-product", "random"),
    ]
    runs, limits = [], []
    for seed in range(args.seed, args.seed + args.seeds):
        limits.append(bound(trace, seed))
        for policy in chosen:
            runs.append(measure(trace, policy, seed, args.batch))
            reached = runs[-1]["allocated_pct"]["100"]
            print(f"seed {seed}, {policy}: {reached:.2f} %", file=sys.stderr)
    report = {
        "workload": args.workload,
        "batch": args.batch,
        "seeds": [args.seed + i for i in range(args.seeds)],
        "limit_pct": {"100": sum(limits) / len(limits)},
        "policies": means(runs),
        "runs": runs,
    }
    print(json.dumps(report) if args.json else table(report))


def positive(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Packs the openb trace by several policies.")
    parser.add_argument("--workload", default="default", metavar="NAME", help="of the pod table")
    parser.add_argument("--batch", type=positive, default=1, metavar="B", help="pods a round")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first")
    parser.add_argument("--seeds", type=positive, default=1, metavar="N", help="how many")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="of the tables")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def table(report: dict[str, Any]) -> str:
    """The report for a person."""
    head = "".join(f"{at:>8}" for at in CHECKPOINTS)
    lines = [
        f"{report['workload']}, {len(report['seeds'])} seeds, {report['batch']} pods a round",
        f"{'GPU allocated, % at % arrived':32}{head}   seconds  ms a round",
    ]
    for entry in report["policies"]:
        cells = "".join(f"{entry['allocated_pct'][str(at)]:8.2f}" for at in CHECKPOINTS)
        times = f"{entry['seconds']:10.1f}{entry['round_ms_median']:12.2f}"
        lines.append(f"  {entry['policy']:30}{cells}{times}")
    limits = report["limit_pct"]
    known = [f"{limits[str(at)]:.2f}" if str(at) in limits else "" for at in CHECKPOINTS]
    cells = "".join(f"{text:>8}" for text in known)
    lines += [f"  {'limit, CPU left out':30}{cells}".rstrip(), "fragmented, % of all GPUs"]
    for entry in report["policies"]:
        cells = "".join(f"{entry['fragmented_pct'][str(at)]:8.2f}" for at in CHECKPOINTS)
        lines.append(f"  {entry['policy']:30}{cells}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
