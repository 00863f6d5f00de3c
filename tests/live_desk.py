"""The commands of a live cluster as processes, with a configuration and a state of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trencadis.adapters.live.store import Store


class LiveDesk:
    """`trencadis slurm` or `trencadis kubernetes`."""

    def __init__(
        self, group: str, directory: Path, config: str, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.group, self.directory, self.environment = group, directory, environment
        self.state = directory / "state.sqlite"
        self.config = directory / "live.toml"
        self.config.write_text(config)

    def words(self, *words: str) -> list[str]:
        code = "from trencadis.cli import main; main()"
        group = [] if words[0] == "log" else [self.group]
        config = [] if words[0] == "log" else ["--config", str(self.config)]
        state = [] if words[0] == "snapshot" else ["--state", str(self.state)]
        return [sys.executable, "-c", code, *group, *words, *config, *state]

    def __call__(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            self.words(*words),
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert code is None or done.returncode == code, done.stderr
        return done.stdout

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """One that goes on until somebody ends it."""
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                self.words(*words), env=self.environment, cwd=self.directory, stderr=log
            )

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.begin(*words)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)

    def events(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        store = Store(self.state)
        rows = store.rows("SELECT job, detail FROM events WHERE kind = ? ORDER BY id", kind)
        store.close()
        return [(job, json.loads(detail)) for job, detail in rows]

    def rounds(self) -> int:
        """How many have been decided."""
        store = Store(self.state)
        ((number,),) = store.rows("SELECT COUNT(*) FROM rounds")
        store.close()
        return int(number)

    def logged(self, lines: int) -> list[str]:
        """The end of what its processes said."""
        log = self.directory / "log"
        return log.read_text().splitlines()[-lines:] if log.exists() else []
