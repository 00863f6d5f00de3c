"""Load on the extender: filter and prioritize at a fixed rate while a solve is going on.

    python benchmarks/service_load.py [--rate 1000] [--seconds 30] [--nodes 1000] [--json]

Starts `trencadis serve` on loopback, pushes a state of that many nodes, then sends requests with
all node names at the given rate, on kept connections. A latency counts from the instant when the
request was due, so a server that falls behind can't hide it. Meanwhile a worker solves a cluster of
the same size.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from statistics import median
from typing import Any

from trencadis.instances.generate import generate

PODS = 500


def kubernetes_state(nodes: int) -> dict[str, Any]:
    """Nodes of eight GPUs, and pods of one GPU that wait."""
    created = "2026-03-01T11:00:00Z"
    size = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"gpu-node-{i:05d}.cluster.example",
                "creationTimestamp": created,
                "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            },
            "status": {"allocatable": size, "capacity": size},
        }
        for i in range(nodes)
    ]
    items += [{"apiVersion": "v1", "kind": "Pod", **pod(i)} for i in range(PODS)]
    return {"kind": "List", "items": items}


def pod(number: int) -> dict[str, Any]:
    """A pod as the scheduler sends it, with some of the ballast of a real one."""
    container = {
        "name": "main",
        "image": "registry.example/team/train:1.0",
        "env": [{"name": f"VARIABLE_{i}", "value": "x" * 20} for i in range(20)],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}},
    }
    return {
        "metadata": {
            "name": f"train-{number}",
            "namespace": "team",
            "uid": f"uid-{number}",
            "creationTimestamp": "2026-03-01T11:00:00Z",
        },
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }


def post(url: str, body: bytes, timeout: float = 300) -> bytes:
    """The answer's body."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        content: bytes = response.read()
        return content


def requests(nodes: int, port: int) -> list[bytes]:
    """Whole HTTP requests: filter and prioritize in turn."""
    names = [f"gpu-node-{i:05d}.cluster.example" for i in range(nodes)]
    made = []
    for number in range(100):
        body = json.dumps({"Pod": pod(number), "Nodes": None, "NodeNames": names}).encode()
        for verb in ("filter", "prioritize"):
            head = (
                f"POST /scheduler/{verb} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            made.append(head.encode() + body)
    return made


class Connection(asyncio.Protocol):
    """One kept connection: a request at a time, and the length of its answer."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.answered: asyncio.Future[bytes] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(exc or ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0 or self.answered is None or self.answered.done():
            return
        head = bytes(self.buffer[:end]).lower()
        start = head.index(b"content-length:") + len(b"content-length:")
        length = int(head[start:].split(b"\r\n", 1)[0])
        if len(self.buffer) >= end + 4 + length:
            status = head.split(b" ", 2)[1]
            self.buffer.clear()
            self.answered.set_result(status)

    async def ask(self, request: bytes) -> bytes:
        """The status of the answer."""
        assert self.transport is not None
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.answered


async def load(port: int, rate: int, seconds: float, made: list[bytes]) -> tuple[list[float], int]:
    """Latencies in seconds, and how many answers weren't 200."""
    loop = asyncio.get_running_loop()
    free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
    for _ in range(64):
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        free.put_nowait(connection)
    latencies: list[float] = []
    wrong = 0

    async def one(due: float, request: bytes) -> None:
        nonlocal wrong
        connection = await free.get()
        try:
            if await connection.ask(request) != b"200":
                wrong += 1
        except (OSError, ConnectionError):
            wrong += 1
        latencies.append(loop.time() - due)
        free.put_nowait(connection)

    started = loop.time()
    tasks: set[asyncio.Task[None]] = set()
    for number in range(int(rate * seconds)):
        due = started + number / rate
        delay = due - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        task = asyncio.create_task(one(due, made[number % len(made)]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return latencies, wrong


def cpu_seconds(pid: int) -> float:
    """What a process has used, without its children."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
        return number


def wait_until_up(url: str) -> None:
    """Returns when the service answers."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=1):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    raise SystemExit("the service didn't start")


def measure(rate: int, seconds: float, nodes: int) -> dict[str, Any]:
    """All figures of one run."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "trencadis.cli", "serve", "--port", str(port)]
    service = subprocess.Popen([*command, "--workers", "2", "--threads", "2"])
    solving = None
    try:
        wait_until_up(url)
        state = json.dumps(kubernetes_state(nodes)).encode()
        told = json.loads(post(f"{url}/v1/snapshot?format=kubernetes&wait=120", state))
        assert told["planned"], told
        snapshot = generate(nodes, 2 * nodes, 0.7, 0).model_dump_json().encode()
        solving = subprocess.Popen(
            [sys.executable, "-c", SOLVE, f"{url}/v1/solve?time_limit={seconds:.0f}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert solving.stdin is not None
        solving.stdin.write(snapshot)
        solving.stdin.close()
        made = requests(nodes, port)
        before = cpu_seconds(service.pid)
        gc.freeze()
        latencies, wrong = asyncio.run(load(port, rate, seconds, made))
        busy = cpu_seconds(service.pid) - before
        latencies.sort()
        assert solving.stdout is not None
        solved = solving.stdout.read().decode().strip()
        return {
            "nodes": nodes,
            "rate": rate,
            "seconds": seconds,
            "requests": len(latencies),
            "errors": wrong,
            "p50_ms": round(1_000 * median(latencies), 2),
            "p99_ms": round(1_000 * latencies[int(len(latencies) * 0.99)], 2),
            "p999_ms": round(1_000 * latencies[int(len(latencies) * 0.999)], 2),
            "max_ms": round(1_000 * latencies[-1], 2),
            "server_cpu_ms_per_request": round(1_000 * busy / len(latencies), 3),
            "solve_meanwhile": solved,
            "cores": os.cpu_count(),
        }
    finally:
        for process in (solving, service):
            if process is not None:
                process.terminate()
                process.wait()


SOLVE = """
import json, sys, time, urllib.request
began = time.time()
with urllib.request.urlopen(urllib.request.Request(sys.argv[1], sys.stdin.buffer.read())) as answer:
    plan = json.load(answer)
print(f"{plan['proof']['status']} after {time.time() - began:.1f} s, {len(plan['starts'])} starts")
"""


def main() -> None:
    """Prints the figures; ends with 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measure(given.rate, given.seconds, given.nodes)
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        for key, value in figures.items():
            print(f"{key:16} {value}")
    sys.exit(1 if figures["errors"] else 0)


if __name__ == "__main__":
    main()
