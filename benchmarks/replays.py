"""Every policy on public traces, window by window: what docs/results.md says of replays.

    python benchmarks/replays.py --data ../shared/data/traces --write docs/results.md

Each replay's figures are kept in a file (`--cache`), so a stopped run goes on where it was. Figures
of other code than the present are replayed again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from replay_lab.cases import FILES, cases
from replay_lab.page import inserted, page
from replay_lab.ranges import ranges
from replay_lab.runs import run_all
from replay_lab.slices import left

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Replays what is missing; writes the section between its marks, or prints it."""
    parser = argparse.ArgumentParser(description="Replays of public traces, compared.")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "traces")
    parser.add_argument("--cache", type=Path, default=ROOT / "out" / "replays")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="FILE", help="Markdown file with the marks.")
    args = parser.parse_args()
    if not args.data.is_dir():
        print(f"there are no traces in {args.data}; give --data DIR", file=sys.stderr)
        sys.exit(65)
    rows, failed = run_all(list(cases()), args.data, args.cache, args.processes)
    for case, error in failed.items():
        print(f"{case.name}: {error}", file=sys.stderr)
    if any(case.trace in FILES and "+" not in case.policy for case in failed):
        sys.exit(70)  # nothing to compare by windows
    said, rounds = ranges(args.data, args.cache), left(args.data, args.cache)
    text = page(rows, said, rounds, tuple(failed))
    if args.write is None:
        print(text)
    else:
        args.write.write_text(inserted(args.write.read_text(), text))
    if failed:
        sys.exit(70)


if __name__ == "__main__":
    main()
