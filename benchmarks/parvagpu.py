"""The least number of A100s for the six sets of MIG segments that ParvaGPU published.

    python benchmarks/parvagpu.py PATH [--json]

PATH is the `deployment` folder of the published artifact: SLO1/SLO1_ParvaGPU_deploy.csv and so on.
Only the sizes of the segments are read; some of the published starts are not legal.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import Counter
from pathlib import Path

from trencadis.models.mig import MigTable, find_table
from trencadis.solver.segments import fewest_gpus

PROFILES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}


def table() -> MigTable:
    """The A100 of the paper."""
    found = find_table("A100-80GB")
    assert found is not None
    return found


def segments(path: Path) -> Counter[str]:
    """Profiles wanted by one set."""
    with path.open(newline="", encoding="utf-8") as lines:
        return Counter(PROFILES[int(row["Instance size"])] for row in csv.DictReader(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    files = sorted(args.path.glob("*/*_deploy.csv"))
    if not files:
        print(f"no */*_deploy.csv below {args.path}", file=sys.stderr)
        return 65
    rows = []
    for path in files:
        wanted = segments(path)
        began = time.perf_counter()
        packing = fewest_gpus(table(), wanted)
        rows.append(
            {
                "set": path.parent.name,
                "segments": wanted.total(),
                "gpus": len(packing.layouts),
                "bound": packing.bound,
                "seconds": round(time.perf_counter() - began, 3),
            }
        )
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        print("{set}: {segments} segments, {gpus} GPUs, bound {bound}, {seconds} s".format(**row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
