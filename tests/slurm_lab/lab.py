"""A real Slurm on loopback: a controller and node daemons, eight pretend GPUs a node.

No root services, no munge, no accounting database (`accounting` adds one); everything is in one
directory and ends with `stop`. Works with Debian's slurm-wlm
22.05 and 24.11.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from loopback import free_ports
from slurm_lab.gres import gres_conf

PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
PROGRAMS = ("slurmctld", "slurmd", "squeue", "sinfo", "scontrol", "sbatch", "scancel")

CONF = """\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/ctld.pid
SlurmdPidFile={dir}/%n.pid
SlurmctldLogFile={dir}/ctld.log
SlurmdLogFile={dir}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1024
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_resolution=1,sched_interval=2,batch_sched_delay=0
GresTypes=gpu,shard
Licenses=meter:1
SlurmdParameters=config_overrides
TopologyPlugin=topology/{topology}
ReturnToService=2
KillWait=1
CompleteWait=0
MessageTimeout=5
PreemptType={preempt}
PreemptMode={preempt_mode}
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP
PartitionName=inbox Nodes=ALL MaxTime=INFINITE State=DOWN
"""

JOB = """\
#!/bin/bash
# Says when it starts, is warned and ends, in a file that all jobs share.
me=$SLURM_JOB_ID
[[ -n "${SLURM_ARRAY_TASK_ID:-}" ]] && me=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
say() { echo "$1 $me $(date +%s.%N) $SLURM_JOB_NODELIST" >> "$LAB_OUT"; }
trap 'say warned' TERM
say start
# A second run has less to do: the first left a checkpoint, so to say.
(( ${SLURM_RESTART_COUNT:-0} > 0 )) && set -- 2
end=$((SECONDS + $1))
while (( SECONDS < end )); do sleep 0.2; done
say end
"""


def missing() -> str | None:
    """Why there can be no lab on this machine."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PLACES) is None]
    return f"Slurm isn't installed ({', '.join(absent)})" if absent else None


@cache
def version() -> tuple[int, int]:
    """Of the Slurm that is installed."""
    words = [str(shutil.which("slurmctld", path=PLACES)), "-V"]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    first, second = told.stdout.split()[-1].split(".")[:2]
    return int(first), int(second)


class Lab:
    """One cluster of nodes g1, g2, …; two to a leaf switch."""

    def __init__(
        self,
        directory: Path,
        nodes: int = 4,
        *,
        preempts: bool = False,
        blocks: bool = False,
        more: str = "",
        gres: Mapping[str, str] | None = None,
    ) -> None:
        """`gres`: of nodes that haven't eight whole GPUs, as `gpu:h100:4,shard:16`."""
        names = [f"g{number}" for number in range(1, nodes + 1)]
        self.gres = {name: (gres or {}).get(name, "gpu:h100:8") for name in names}
        self.directory = directory
        self.names = list(self.gres)
        self.conf = directory / "slurm.conf"
        self.out = directory / "out"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": PLACES}
        self._write(preempts, blocks, more)

    def _write(self, preempts: bool, blocks: bool, more: str) -> None:
        for name in ("state", "spool", "dev"):
            (self.directory / name).mkdir()
        for number in range(8):
            (self.directory / "dev" / f"nvidia{number}").touch()
        self.out.touch()
        port, *ports = free_ports(1 + len(self.names))
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={at} CPUs=64"
            f" RealMemory=512000 Gres={self.gres[name]} State=UNKNOWN"
            for name, at in zip(self.names, ports, strict=True)
        ]
        self.conf.write_text(
            CONF.format(
                port=port,
                user=getpass.getuser(),
                dir=self.directory,
                nodes="\n".join(lines),
                topology="block" if blocks else "tree",
                preempt="preempt/partition_prio" if preempts else "preempt/none",
                preempt_mode="REQUEUE" if preempts else "OFF",
            )
            + more
        )
        (self.directory / "gres.conf").write_text(gres_conf(self.gres, self.directory / "dev"))
        pairs = [self.names[i : i + 2] for i in range(0, len(self.names), 2)]
        what = "BlockName=block" if blocks else "SwitchName=leaf"
        fabric = [f"{what}{i} Nodes={','.join(pair)}" for i, pair in enumerate(pairs, 1)]
        top = "BlockSizes=2" if blocks else f"SwitchName=spine Switches=leaf[1-{len(pairs)}]"
        fabric.append(top)
        (self.directory / "topology.conf").write_text("\n".join(fabric) + "\n")
        (self.directory / "job.sh").write_text(JOB)
        if version() >= (23, 2):
            (self.directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")

    # Daemons

    def start(self) -> None:
        """Starts everything, and waits until all nodes are idle."""
        self.start_controller()
        for name in self.names:
            self.run("slurmd", "-N", name)
        self.wait(lambda: self.squeue_nodes() == {"idle"}, "the nodes don't come up")

    def start_controller(self) -> None:
        """Starts the controller, and waits until it answers."""
        self.run("slurmctld")
        self.wait(lambda: "UP" in self.run("scontrol", "ping", check=False), "no controller")

    def stop_controller(self) -> None:
        """Ends the controller; jobs go on."""
        stop_daemons(self.directory / "ctld.pid")

    def stop(self) -> None:
        """Ends all jobs and daemons."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.run("scancel", "--user", getpass.getuser(), check=False, timeout=10)
            self.wait(lambda: not self.run("squeue", "-h", "-t", "R,CG"), "", seconds=8)
        stop_daemons(*self.directory.glob("*.pid"))

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """It runs meanwhile."""
        try:
            self.start()
            yield
        finally:
            self.stop()

    @contextlib.contextmanager
    def rest(self) -> Iterator[str]:
        """slurmrestd on a socket; its URL. It refuses to run as root, and is somebody else then."""
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            place.chmod(0o777)
            for conf in self.directory.glob("*.conf"):
                shutil.copy(conf, place)
            root = os.getuid() == 0
            process = subprocess.Popen(
                [
                    str(shutil.which("slurmrestd", path=PLACES)), "-a", "rest_auth/local",
                    # What tells of the accounting database won't load without one.
                    "-s", "slurmctld" if version() >= (23, 11) else "openapi/v0.0.38",
                    *(["-u", "nobody", "-g", "nogroup"] if root else []), f"unix:{place}/socket",
                ],
                env={**self.environment, "SLURM_CONF": str(place / self.conf.name)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                self.wait((place / "socket").exists, "slurmrestd doesn't listen", 10)
                yield f"unix:{place}/socket"
            finally:
                process.terminate()
                process.wait(10)

    # Commands

    def run(self, *words: str, check: bool = True, timeout: float = 60) -> str:
        """A command's output."""
        program = shutil.which(words[0], path=PLACES)
        done = subprocess.run(
            [str(program), *words[1:]],
            env=self.environment,
            capture_output=True,
            text=True,
            errors="replace",  # a column may end within a letter
            check=False,
            timeout=timeout,
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def squeue_nodes(self) -> set[str]:
        """The states of the nodes."""
        return set(self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split())

    def submit(self, seconds: int, *options: str, held: bool = True) -> str:
        """A job that runs so long; its number."""
        told = self.run(
            "sbatch", "--parsable", *(["-H"] if held else []), "-o", "/dev/null",
            f"--export=ALL,LAB_OUT={self.out}", *options,
            str(self.directory / "job.sh"), str(seconds),
        )  # fmt: skip
        return told.strip().split(";")[0]

    def states(self) -> dict[str, str]:
        """State by job, of those that Slurm still lists."""
        lines = self.run("squeue", "-h", "-t", "all", "-r", "-o", "%i %T").splitlines()
        pairs = (line.split() for line in lines)
        return {pair[0]: pair[1] for pair in pairs}

    def told(self) -> list[tuple[str, str, float, str]]:
        """What jobs said: word, number, when, host list."""
        rows = (line.split() for line in self.out.read_text().splitlines())
        return [(row[0], row[1], float(row[2]), row[3]) for row in rows]

    def wait(
        self, until: Callable[[], object], why: str | Callable[[], str], seconds: float = 30
    ) -> None:
        """Until the condition holds; the daemons have no other way to tell."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise AssertionError(why if isinstance(why, str) else why())
            time.sleep(0.1)


@contextlib.contextmanager
def lab(
    directory: Path,
    nodes: int = 4,
    *,
    preempts: bool = False,
    blocks: bool = False,
    gres: Mapping[str, str] | None = None,
) -> Iterator[Lab]:
    """A running cluster that is gone afterwards. `blocks`: of two nodes, instead of switches."""
    cluster = Lab(directory, nodes, preempts=preempts, blocks=blocks, gres=gres)
    with cluster.up():
        yield cluster


def stop_daemons(*pid_files: Path) -> None:
    """Ends daemons by their numbers, and waits until all are gone: each takes some seconds."""
    left = set()
    for file in pid_files:
        with contextlib.suppress(OSError, ValueError):
            pid = int(file.read_text())
            os.kill(pid, signal.SIGTERM)
            left.add(pid)
    end = time.monotonic() + 10
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = {pid for pid in left if Path(f"/proc/{pid}").exists()}
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
