"""Slurm's commands as a program calls them: an answer, a refusal, or silence."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from trencadis.adapters.live.cluster import RefusedError, UnavailableError

# What the commands say when the controller is away or too busy. `Unexpected message received` is
# what `scontrol release` of 22.05 makes of a refused connection.
_AWAY = re.compile(
    r"unable to contact|unexpected message received|connect failure|connection refused|"
    r"timed out|zero bytes were transmitted|communication connection failure|standby mode|"
    r"transport endpoint|connection reset|unable to establish|not responding|"
    r"cannot contact",
    re.IGNORECASE,
)
# A controller of 24.11 that is just looking at a job says so, and changes nothing of it.
_BUSY = re.compile(r"resource temporarily unavailable", re.IGNORECASE)
TRIES = 5
BUSY_SECONDS = 0.2


class _BusyError(UnavailableError):
    """It says that it can't right now."""


@dataclass(frozen=True, slots=True)
class Commands:
    """`squeue`, `sinfo`, `scontrol` and `scancel` of one cluster."""

    timeout: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's; `SLURM_CONF` says which cluster."""

    def __call__(self, *words: str) -> str:
        """Runs one; returns what it prints. Raises RefusedError or UnavailableError."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(_BusyError):
                return self._run(words)
            time.sleep(BUSY_SECONDS)
        return self._run(words)

    def _run(self, words: tuple[str, ...]) -> str:
        # Seconds since 1970 instead of local time; no defaults of a user's squeue.
        settings = {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("SQUEUE_", "SINFO_", "SCONTROL_"))
        }
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                timeout=self.timeout,
                check=False,
                stdin=subprocess.DEVNULL,
                env={**inherited, **settings, **self.environment},
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{words[0]} gave no answer in {self.timeout:g} s") from None
        except OSError as error:
            raise UnavailableError(f"{words[0]}: {error.strerror}") from None
        out = done.stdout.decode("utf-8", "replace")
        told = " ".join(done.stderr.decode("utf-8", "replace").split())
        if done.returncode == 0:
            return out
        said = told or " ".join(out.split())[:300] or f"exit code {done.returncode}"
        if _BUSY.search(said):
            raise _BusyError(f"{words[0]}: {said[:300]}")
        if _AWAY.search(said) or done.returncode < 0:
            raise UnavailableError(f"{words[0]}: {said[:300]}")
        raise RefusedError(f"{' '.join(words[:2])}: {said[:300]}")
