"""The live loop beside Slurm's own backfill: one workload, a real Slurm on loopback.

    python benchmarks/slurm_live.py [--seeds 1 2 3] [--interval 1]

Each seed's forty jobs are submitted at once, held for the loop and not held for Slurm; waits and
makespan are what the jobs themselves wrote down. Both have the same nodes, accounts and priorities;
Slurm's accounts have no guarantees without its accounting database, and its partitions of higher
`PriorityTier` go first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from slurm_lab.lab import Lab, lab, missing
from slurm_lab.workload import CONFIG, Outcome, ended, mixed, outcome, submit


def measure(seed: int, interval: float, live: bool) -> Outcome:
    """One run, on a cluster of its own."""
    with tempfile.TemporaryDirectory() as directory, lab(Path(directory)) as cluster:
        loop = None
        if live:
            loop = _loop(cluster, Path(directory), interval)
            time.sleep(3)  # until it has loaded: a loop runs for months
        began = time.time()
        jobs = submit(cluster, mixed(seed), held=live)
        try:
            cluster.wait(lambda: ended(cluster, jobs), "not at an end", 300)
        finally:
            if loop is not None:
                loop.terminate()
                loop.wait()
        return outcome(cluster, jobs, began)


def _loop(cluster: Lab, directory: Path, interval: float) -> subprocess.Popen[bytes]:
    config = directory / "slurm.toml"
    config.write_text(CONFIG.format(mode="enforce", interval=interval))
    words = ["slurm", "run", "--config", str(config), "--state", str(directory / "live.sqlite")]
    return subprocess.Popen(
        [sys.executable, "-m", "trencadis.cli", *words, "--workers", "2", "--log-level", "error"],
        env=cluster.environment,
        cwd=directory,
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--interval", type=float, default=1.0)
    given = parser.parse_args()
    reason = missing()
    if reason:
        raise SystemExit(reason)
    names = list(asdict(Outcome(0, 0, 0, 0, 0, 0)))
    print("seed", "who", *names, sep="\t")
    for seed in given.seeds:
        for who in ("slurm", "trencadis"):
            found = asdict(measure(seed, given.interval, who == "trencadis"))
            print(seed, who, *(f"{found[name]:.3g}" for name in names), sep="\t", flush=True)


if __name__ == "__main__":
    main()
