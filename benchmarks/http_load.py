"""Own the load of many polling clients, in a process of its own: plain sockets, so that they are no bottleneck.

`python -m benchmarks.http_load PORT CLIENTS SECONDS EVERY PATH...` prints `Load` as JSON; clients take paths in turn.
`{known}` in a path is the version that the client knows.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from random import Random

WARM_UP = 3.0
"""Seconds at the start that do not count: connections are opened, and caches filled."""

LATE = 1.0
"""Seconds that somebody may wait at the end without being one who is never answered."""


@dataclass
class Load:
    """Hold what the clients saw: seconds of each answer by "path status", what failed, and the CPU that they took."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    cpu_seconds: float = 0

    def of(self, status: int, path: str = "") -> list[float]:
        """Give the seconds of all answers of a status, of one path or all."""
        return [one for key, many in self.seconds.items() if key == f"{path or key[:-4]} {status}" for one in many]


class Poller(asyncio.Protocol):
    """Ask for a path every so many seconds, with the ETag of the last answer, on a connection that is kept."""

    def __init__(self, path: str, every: float, phase: float, load: Load, counts_from: float) -> None:
        self._path = path
        self._load = load
        self._every = every
        self._next = phase
        self._counts_from = counts_from
        self._etag = b""
        self._buffer = b""
        self._sent = 0.0
        self._is_waiting = False
        self._is_over = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop.call_at(self._next, self._ask)

    def connection_lost(self, exc: Exception | None) -> None:
        # Also between two questions: nobody asks on this connection any more.
        if not self._is_over:
            self._is_over = True
            self._load.errors.append(f"{self._path}: the connection was lost: {exc or 'the server closed it'}")

    def end(self) -> None:
        """Ask no more; who still waits has waited at least so long for an answer, as for a new one."""
        if self._is_waiting and not self._is_over:
            waited = self._loop.time() - self._sent
            self._count(200, waited)
            if waited > LATE:
                self._load.errors.append(f"{self._path}: no answer after {waited:.1f} s")
        self._is_over = True
        self._transport.abort()

    def _ask(self) -> None:
        if self._is_over or self._transport.is_closing():
            return
        path = self._path.replace("{known}", self._etag.strip(b'"').decode() or "0")
        known = b"If-None-Match: %s\r\n" % self._etag if self._etag else b""
        self._is_waiting = True
        self._sent = self._loop.time()
        self._transport.write(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n" % (path.encode(), known))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        headers = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
        if len(body) < int(headers.get(b"content-length", 0)):
            return
        now = self._loop.time()
        status = int(head[9:12])
        self._count(status, now - self._sent)
        if status not in (200, 304):
            self._load.errors.append(f"{self._path}: {status}")
        self._etag = headers.get(b"etag", b"")
        self._buffer = b""
        self._is_waiting = False
        # A client that was answered late does not ask twice at once.
        self._next = max(self._next + self._every, now)
        self._loop.call_at(self._next, self._ask)

    def _count(self, status: int, seconds: float) -> None:
        if self._sent >= self._counts_from:
            self._load.seconds[f"{self._path} {status}"].append(seconds)


async def poll(port: int, clients: int, seconds: float, every: float, paths: Sequence[str]) -> Load:
    """Let clients poll for so long, their times spread evenly by chance."""
    load, loop, chance = Load(), asyncio.get_running_loop(), Random(clients)
    start = loop.time()
    pollers = []
    for path in islice(cycle(paths), clients):
        phase = start + chance.random() * every
        poller = Poller(path, every, phase, load, start + WARM_UP)
        await loop.create_connection(lambda poller=poller: poller, "127.0.0.1", port)
        pollers.append(poller)
    await asyncio.sleep(start + seconds - loop.time())
    for poller in pollers:
        poller.end()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    load.cpu_seconds = usage.ru_utime + usage.ru_stime
    return load


@contextmanager
def polling(port: int, clients: int, seconds: float, every: float, paths: Sequence[str]) -> Iterator[Load]:
    """Let clients poll while the block runs; what they saw is there behind it."""
    numbers = [str(one) for one in (port, clients, seconds, every)]
    command = [sys.executable, "-m", "benchmarks.http_load", *numbers, *paths]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    load = Load()
    try:
        yield load
        output, _ = process.communicate(timeout=seconds + 60)
    finally:
        process.kill()
        process.wait()
    told = json.loads(output)
    load.seconds, load.errors, load.cpu_seconds = told["seconds"], told["errors"], told["cpu_seconds"]


def main(arguments: Sequence[str]) -> None:
    """Poll as the arguments say."""
    port, clients, seconds, every, *paths = arguments
    load = asyncio.run(poll(int(port), int(clients), float(seconds), float(every), paths))
    json.dump({"seconds": load.seconds, "errors": load.errors, "cpu_seconds": load.cpu_seconds}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
