"""`trencadis slurm` on a lab, and what must hold when its jobs have run."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from live_desk import LiveDesk
from slurm_lab.lab import Lab
from slurm_lab.workload import CONFIG, ended

from trencadis.adapters.slurm.hostlist import expand

INTERVAL = 1.0


class Desk(LiveDesk):
    """`trencadis slurm` on the lab."""

    def __init__(self, lab: Lab, directory: Path, mode: str = "enforce", more: str = "") -> None:
        self.lab = lab
        text = CONFIG.format(mode=mode, interval=INTERVAL).replace("[slurm]", f"{more}\n[slurm]")
        super().__init__("slurm", directory, text, lab.environment)

    def until_done(self, jobs: Iterable[str], seconds: float = 90) -> None:
        """Waits until all have said that they end."""
        self.lab.wait(lambda: ended(self.lab, jobs), self.tail, seconds)

    def settle(self) -> None:
        """One more round, that reads what became of what the last one started."""
        self("run", "--rounds", "1")

    def tail(self) -> str:
        """What is known when a test waits in vain."""
        said = [" ".join(map(str, row)) for row in self.lab.told()]
        return "\n".join([*self.logged(15), self.lab.run("squeue", "-t", "all"), *said])


@contextlib.contextmanager
def desk_on(lab: Lab, directory: Path, mode: str = "enforce", more: str = "") -> Iterator[Desk]:
    """A desk; whatever it leaves is cancelled."""
    try:
        yield Desk(lab, directory, mode, more)
    finally:
        for user in (str(os.getuid()), "root"):
            lab.run("scancel", "--user", user, check=False)
        lab.wait(lambda: not lab.run("squeue", "-h", "-t", "PD,R,CG"), "jobs stay", 30)


def runs(lab: Lab, jobs: Iterable[str], word: str = "start") -> Counter[str]:
    """How often each of the jobs has said so."""
    mine = set(jobs)
    return Counter(job for said, job, _, _ in lab.told() if said == word and job in mine)


def assert_ran_once_where_planned(desk: Desk, jobs: Mapping[str, object]) -> None:
    """Every job ran once, to its end, on the nodes that the plan named."""
    desk.settle()
    assert runs(desk.lab, jobs) == Counter(dict.fromkeys(jobs, 1))
    assert runs(desk.lab, jobs, "end") == Counter(dict.fromkeys(jobs, 1))
    where = {job: set(expand(nodes)) for said, job, _, nodes in desk.lab.told() if said == "start"}
    started = desk.events("started")
    assert sorted(job for job, _ in started) == sorted(jobs)
    assert {job: set(detail["planned"]) for job, detail in started} == {j: where[j] for j in jobs}
    assert desk.events("started-elsewhere") == []
