"""What a Session gains over solving each round from nothing, as ratios of CPU and wall time.

    python benchmarks/session.py --nodes 1000 --pending 2000 --seeds 1 2 --rounds 3 --change 10

Each round's snapshot is solved twice, in turn: by the session that solved the ones before, and by
`solve` alone. From round to round a minute passes, as many jobs come as `--change` says, and as
many running and waiting ones go. `--accept` carries each plan out first; without it plans are only
recommended. The last two columns are the gaps: a fast round with a poor proof is no gain.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from trencadis import Delta, Options, Plan, Progress, Session, Snapshot, solve
from trencadis.instances.generate import generate


@dataclass(frozen=True)
class Took:
    """One solve."""

    cpu_s: float
    wall_s: float
    gap: float
    searches: int
    """More than from nothing: what was kept did not suffice."""


class Watch:
    """Counts the searches of a solve."""

    def __init__(self) -> None:
        self.searches = 0

    def __call__(self, progress: Progress) -> None:
        """Hears of each step."""
        self.searches += progress.step == "searched"

    def time(self, solve_it: Callable[[], Plan]) -> Took:
        """CPU time of all threads, and wall time."""
        self.searches = 0
        cpu, wall = time.process_time(), time.monotonic()
        gap = solve_it().proof.gap or 0.0
        return Took(time.process_time() - cpu, time.monotonic() - wall, gap, self.searches)


def next_minute(snapshot: Snapshot, others: Snapshot, number: int, change: int) -> Delta:
    """A minute later: `change` jobs of the other snapshot come, as many of each kind go."""
    draw = random.Random(number)
    waiting = [job for job in others.jobs if job.state == "pending" and not job.after]
    came = draw.sample(waiting, min(change, len(waiting)))
    now = snapshot.now + timedelta(seconds=60)
    gone = []
    for state in ("running", "pending"):
        here = [job.name for job in snapshot.jobs if job.state == state]
        gone += draw.sample(here, min(change, len(here)))
    lost = set(gone)
    stuck = {job.name for job in snapshot.jobs if lost.intersection(job.after)} - lost
    return Delta(
        now=now,
        jobs=tuple(
            job.model_copy(update={"name": f"new{number}-{job.name}", "submit": now, "group": None})
            for job in came
        ),
        gone=tuple(sorted(lost | stuck)),
    )


def series(args: argparse.Namespace, seed: int) -> list[tuple[Took, Took]]:
    """Per round: the session's, and from nothing."""
    options = Options(time_limit_s=args.time_limit, workers=args.workers, seed=seed, gap=args.gap)
    watch = Watch()
    first = generate(args.nodes, args.pending, args.load, seed)
    session = Session(first, options, on_progress=watch)
    others = generate(args.nodes, args.pending, args.load, seed + 1_000)
    found = []
    for number in range(args.rounds):
        if number:
            session.update(next_minute(session.snapshot, others, number, args.change))
        snapshot = session.snapshot
        kept = watch.time(session.solve)
        fresh = watch.time(partial(solve, snapshot, options, None, watch))
        found.append((kept, fresh))
        print(f"seed {seed}  round {number}  session {kept.cpu_s:.1f} s CPU {kept.wall_s:.1f} s"
              f"  from nothing {fresh.cpu_s:.1f} s CPU {fresh.wall_s:.1f} s"
              f"  ratio {kept.cpu_s / fresh.cpu_s:.2f} CPU {kept.wall_s / fresh.wall_s:.2f}"
              f"  searches {kept.searches} {fresh.searches}"
              f"  gaps {kept.gap:.3%} {fresh.gap:.3%}", flush=True)  # fmt: skip
        if args.accept:
            session.accept()
    return found


def main() -> None:
    """Runs the series; prints a line per round, and the ratios over all rounds but the first."""
    parser = argparse.ArgumentParser(description="A Session beside solving from nothing.")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pending", type=int, default=2_000)
    parser.add_argument("--load", type=float, default=0.7, help="part of GPUs in use")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--change", type=int, default=10, help="jobs that come, run out, give up")
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--gap", type=float, default=None, help="the policy's where absent")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    later = [pair for seed in args.seeds for pair in series(args, seed)[1:]]
    if later:
        cpu = sum(kept.cpu_s for kept, _ in later) / sum(fresh.cpu_s for _, fresh in later)
        wall = sum(kept.wall_s for kept, _ in later) / sum(fresh.wall_s for _, fresh in later)
        print(f"all later rounds: {cpu:.2f} of the CPU time, {wall:.2f} of the wall time")


if __name__ == "__main__":
    main()
