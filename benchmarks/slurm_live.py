"""The live loop beside Slurm's own backfill: one workload, a real Slurm on loopback.

    python benchmarks/slurm_live.py [--seeds 1 2 3] [--seconds 10 40] [--write docs/results.md]

Each seed's forty jobs are submitted at once, held for the loop and not held for Slurm; waits and
makespan are what the jobs themselves wrote down. Both have the same nodes, accounts and priorities;
Slurm's accounts have no guarantees without its accounting database, and its partitions of higher
`PriorityTier` go first. Runs are kept in a file (`--cache`), so a stopped series goes on where it
was; runs of other code are made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean

from replay_lab.page import inserted
from replay_lab.paired import difference

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from slurm_lab.lab import Lab, lab, missing
from slurm_lab.workload import CONFIG, Outcome, ended, mixed, outcome, submit

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- slurm: written by benchmarks/slurm_live.py -->", "<!-- end of slurm -->"
WHO = ("Slurm", "Trencadis")
CODE = ("adapters/live", "adapters/slurm", "models", "solver", "tests/slurm_lab")
COLUMNS = (
    ("mean_wait_s", "mean wait, s", 1),
    ("gpu_wait_s", "mean wait by GPUs, s", 1),
    ("high_wait_s", "mean wait of high, s", 1),
    ("makespan_s", "makespan, s", 1),
    ("used", "GPU-seconds in use, %", 100),
    ("short_gpu_s", "below guarantees, GPU-s", 1),
)


@dataclass(frozen=True)
class Setting:
    """What all runs of a series share."""

    shortest: int
    longest: int
    interval: float

    def key(self, seed: int, who: str) -> str:
        """Of a run, in the cache."""
        return f"{seed} {who} {self.shortest} {self.longest} {self.interval:g} {code()}"


def code() -> str:
    """A digest of the files that decide how a run goes."""
    digest = hashlib.sha256()
    for place in CODE:
        for path in sorted((ROOT / place).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def measure(seed: int, setting: Setting, live: bool) -> Outcome:
    """One run, on a cluster of its own."""
    with tempfile.TemporaryDirectory() as directory, lab(Path(directory)) as cluster:
        loop = None
        if live:
            loop = _loop(cluster, Path(directory), setting.interval)
            time.sleep(3)  # until it has loaded: a loop runs for months
        began = time.time()
        wishes = mixed(seed, seconds=(setting.shortest, setting.longest))
        jobs = submit(cluster, wishes, held=live)
        try:
            cluster.wait(
                lambda: ended(cluster, jobs), "not at an end", 300 + 20 * setting.longest
            )
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


def run_all(seeds: Iterable[int], setting: Setting, cache: Path) -> dict[tuple[int, str], Outcome]:
    """Every seed, Slurm and the loop in turn; what the cache has is taken from there."""
    kept = json.loads(cache.read_text()) if cache.exists() else {}
    found = {}
    for seed in seeds:
        for who in WHO:
            key = setting.key(seed, who)
            if key not in kept:
                kept[key] = asdict(measure(seed, setting, who == "Trencadis"))
                cache.parent.mkdir(parents=True, exist_ok=True)
                cache.write_text(json.dumps(kept, indent=1))
            found[seed, who] = Outcome(**kept[key])
            figures = (f"{name} {getattr(found[seed, who], name):.3g}" for name, _, _ in COLUMNS)
            print(f"seed {seed}  {who}:", ", ".join(figures), file=sys.stderr, flush=True)
    return found


def page(found: dict[tuple[int, str], Outcome], setting: Setting, today: str) -> str:
    """The section of docs/results.md: what was run, its figures, and what can be said of them."""
    seeds = sorted({seed for seed, _ in found})
    shortest, longest, interval = setting.shortest, setting.longest, setting.interval
    command = f"--seeds {' '.join(map(str, seeds))} --seconds {shortest} {longest}"
    lines = [
        "## The live loop beside Slurm's own backfill",
        "",
        f"`python benchmarks/slurm_live.py {command} --interval {interval:g}`, {today}: Slurm on "
        f"loopback, {os.cpu_count()} cores shared with other programs, four nodes of eight pretend "
        f"GPUs, forty jobs submitted at once (1 GPU to two whole nodes, {shortest} to {longest} s "
        "long, two accounts, one job in three in the partition of high priority), rounds every "
        f"{interval:g} s; Slurm's backfill looks every second. Waits count from the first "
        "submission. Below guarantees: each account has 16 of the 32 GPUs guaranteed, as far as "
        "it asks for them.",
        "",
        f"| seed | who | {' | '.join(title for _, title, _ in COLUMNS)} |",
        "|" + " --- |" * (2 + len(COLUMNS)),
    ]
    for seed in seeds:
        for who in WHO:
            one = found[seed, who]
            cells = (f"{scale * getattr(one, name):.1f}" for name, _, scale in COLUMNS)
            lines.append(f"| {seed} | {who} | {' | '.join(cells)} |")
    lines += ["", "Trencadis less Slurm, means over the seeds with 95 % intervals:", ""]
    for name, title, scale in COLUMNS:
        ours, theirs = (
            [scale * getattr(found[seed, who], name) for seed in seeds] for who in WHO[::-1]
        )
        between = difference(ours, theirs)
        part = f", {100 * between.mean / mean(theirs):+.0f} %" if mean(theirs) else ""
        sure = "" if between.sure else "; may be chance"
        lines.append(f"- {title}: {between.mean:+.1f} ± {between.half:.1f}{part}{sure}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs what is missing; writes the section between its marks, or prints it."""
    parser = argparse.ArgumentParser(description="The live loop beside Slurm's own backfill.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seconds", type=int, nargs=2, default=[10, 40],
                        help="How long the shortest and the longest jobs run.")  # fmt: skip
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--cache", type=Path, default=ROOT / "out" / "slurm-live.json")
    parser.add_argument("--write", type=Path, metavar="FILE", help="Markdown file with the marks.")
    given = parser.parse_args()
    reason = missing()
    if reason:
        raise SystemExit(reason)
    if len(given.seeds) < 2 or not 0 < given.seconds[0] <= given.seconds[1]:
        raise SystemExit("give two seeds or more, and seconds in order")
    setting = Setting(*given.seconds, given.interval)
    found = run_all(given.seeds, setting, given.cache)
    text = page(found, setting, f"{datetime.now(UTC):%Y-%m-%d}")
    if given.write is None:
        print(text)
    else:
        given.write.write_text(inserted(given.write.read_text(), text, BEGIN, END))


if __name__ == "__main__":
    main()
