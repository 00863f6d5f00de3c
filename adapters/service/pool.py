"""Decides which worker does a task, how long it may take, and when it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from trencadis.adapters.service.worker import LENGTHS, Header, frame

STARTUP_SECONDS = 120.0
"""A worker that hasn't loaded its libraries by then is given up."""


class OverloadedError(Exception):
    """All workers are busy and enough requests wait."""


class WorkerError(Exception):
    """A worker died, or took too long and was killed. The task may be tried again."""


class _Died(Exception):  # noqa: N818 - never leaves this module
    """A worker died."""


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's answer."""

    header: Header
    body: bytes


class Pool:
    """Processes that do one task at a time each. Used from one event loop."""

    def __init__(
        self, workers: int, waiting: int, module: str = "trencadis.adapters.service.worker"
    ) -> None:
        """`module`: what each process runs."""
        self._module = module
        self._size, self._most_waiting = workers, waiting
        self._free: asyncio.Queue[_Worker] = asyncio.Queue()
        self._all: set[_Worker] = set()
        self._dying: set[_Worker] = set()
        self._waiting = 0
        self.killed = 0
        """Workers killed or found dead so far."""

    async def start(self) -> None:
        """Starts the processes, which load their libraries while nobody waits."""
        for _ in range(self._size):
            self._free.put_nowait(await self._made())

    async def close(self) -> None:
        """Kills all."""
        for worker in [*self._all, *self._dying]:
            await worker.kill()
        self._all.clear()
        self._dying.clear()

    @property
    def busy(self) -> int:
        """Workers at work."""
        return self._size - self._free.qsize()

    @property
    def waiting(self) -> int:
        """Tasks without a worker."""
        return self._waiting

    async def run(
        self, header: Header, body: bytes, seconds: float, *, patient: bool = False
    ) -> Done:
        """The answer to a task that may take so many seconds of work.

        Raises OverloadedError, unless `patient`, and WorkerError. A task whose worker dies is given
        to another once: the worker may have been dead before. If the caller is cancelled, the
        worker is killed. The time in which a new worker loads its libraries isn't counted.
        """
        for _ in range(2):
            with contextlib.suppress(_Died):
                async with self._worker(patient) as worker:
                    async with asyncio.timeout(STARTUP_SECONDS):
                        await worker.ready()
                    async with asyncio.timeout(seconds):
                        return await worker.ask(header, body)
        raise WorkerError("the process that worked on it died")

    @contextlib.asynccontextmanager
    async def _worker(self, patient: bool) -> AsyncIterator[_Worker]:
        if self._free.empty() and not patient and self._waiting >= self._most_waiting:
            raise OverloadedError
        self._waiting += 1
        try:
            worker = await self._free.get()
        finally:
            self._waiting -= 1
        sound = False
        try:
            if worker.dead:
                await self._replace(worker)
                worker = await self._made()
            yield worker
            sound = True
        except TimeoutError:
            raise WorkerError("it took too long and was stopped") from None
        except (OSError, asyncio.IncompleteReadError, ValueError):
            raise _Died from None
        finally:
            if not sound:
                # Not awaited, as the caller may be gone: another takes the place in any case.
                self._dying = {entry for entry in self._dying if not entry.dead} | {worker}
                self._all.discard(worker)
                worker.kill_now()
                self.killed += 1
                worker = _Worker(self._module)
                self._all.add(worker)
            self._free.put_nowait(worker)

    async def _made(self) -> _Worker:
        worker = _Worker(self._module)
        self._all.add(worker)
        await worker.start()
        return worker

    async def _replace(self, worker: _Worker) -> None:
        self.killed += 1
        self._all.discard(worker)
        await worker.kill()


class _Worker:
    def __init__(self, module: str) -> None:
        self._module = module
        self._starting: asyncio.Future[asyncio.subprocess.Process] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ready = False

    @property
    def dead(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        # Shielded: a process half made when the caller leaves would be nobody's.
        self._starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )
        self._process = await asyncio.shield(self._starting)

    async def ready(self) -> None:
        """Returns once the process has said that it takes tasks."""
        if self._process is None:
            await self.start()
        if not self._ready:
            await self._read()
            self._ready = True

    async def ask(self, header: Header, body: bytes) -> Done:
        process: Any = self._process
        process.stdin.write(frame(header, body))
        await process.stdin.drain()
        return await self._read()

    async def _read(self) -> Done:
        process: Any = self._process
        first, second = LENGTHS.unpack(await process.stdout.readexactly(LENGTHS.size))
        answer = json.loads(await process.stdout.readexactly(first))
        return Done(answer, await process.stdout.readexactly(second))

    def kill_now(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def kill(self) -> None:
        if self._starting is not None and self._process is None:
            self._process = await self._starting
        self.kill_now()
        if self._process is not None:
            await self._process.wait()
