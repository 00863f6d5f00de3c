"""slurmdbd with a MariaDB of its own, for a lab that has QOS: limits and preemption by QOS."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from loopback import free_ports
from slurm_lab.lab import PLACES, Lab, stop_daemons

PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db")

CONF = """\
AuthType=auth/none
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=root
StorageLoc=slurm
LogFile={dir}/dbd.log
PidFile={dir}/dbd.pid
"""

SLURM = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={port}
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu,gres/gpu:h100
"""


def missing() -> str | None:
    """Why there can be no accounting database on this machine."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PLACES) is None]
    return f"no accounting database ({', '.join(absent)})" if absent else None


class Accounting:
    """The database of one lab: two accounts, whatever user runs the tests."""

    def __init__(self, directory: Path) -> None:
        self.conf_file = directory / "slurmdbd.conf"  # where slurmdbd looks for it
        self.directory = directory / "accounts"
        self.directory.mkdir()
        self.port, self.sql_port = free_ports(2)
        self.conf = SLURM.format(port=self.port)
        """For the lab's slurm.conf."""

    def start_database(self) -> None:
        """An empty database, on loopback."""
        place, user = self.directory / "sql", getpass.getuser()
        install = [
            _program("mariadb-install-db"), "--no-defaults", f"--datadir={place}", "--basedir=/usr",
            "--auth-root-authentication-method=normal", "--skip-test-db", f"--user={user}",
        ]  # fmt: skip
        subprocess.run(install, check=True, capture_output=True, env={"PATH": PLACES})
        with (self.directory / "sql.log").open("wb") as log:
            self._sql = subprocess.Popen(
                [
                    _program("mariadbd"), "--no-defaults", f"--datadir={place}", f"--user={user}",
                    f"--socket={self.directory}/sql.sock", "--bind-address=127.0.0.1",
                    f"--port={self.sql_port}", f"--pid-file={self.directory}/pid",
                    "--innodb-buffer-pool-size=64M",
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip

    def start(self, cluster: Lab) -> None:
        """slurmdbd, as soon as its database answers."""
        self.conf_file.write_text(
            CONF.format(
                port=self.port, sql_port=self.sql_port, user=getpass.getuser(), dir=self.directory
            )
        )
        self.conf_file.chmod(0o600)
        cluster.wait((self.directory / "sql.sock").exists, "no database")
        cluster.run("slurmdbd")
        cluster.wait(lambda: cluster.run("sacctmgr", "-n", "show", "qos", check=False), "no answer")

    def stop_database(self) -> None:
        """Ends it."""
        self._sql.terminate()
        self._sql.wait(30)

    def stop(self) -> None:
        """Ends slurmdbd alone; the database goes on."""
        stop_daemons(self.directory / "dbd.pid")


@contextlib.contextmanager
def accounted(directory: Path, nodes: int = 2, more: str = "") -> Iterator[tuple[Lab, Accounting]]:
    """A lab with accounts alpha and beta for this user, and no QOS but `normal` yet."""
    accounting = Accounting(directory)
    accounting.start_database()
    user = getpass.getuser()
    cluster = Lab(directory, nodes, more=accounting.conf + more)
    try:
        accounting.start(cluster)
        for words in (
            ("add", "cluster", "lab"),
            ("add", "account", "alpha,beta", "Cluster=lab"),
            ("add", "user", user, "Account=alpha,beta"),
        ):
            cluster.run("sacctmgr", "-i", *words)
        with cluster.up():
            yield cluster, accounting
    finally:
        accounting.stop()
        accounting.stop_database()


def _program(name: str) -> str:
    return str(shutil.which(name, path=PLACES))
