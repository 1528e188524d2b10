"""Own a running `subsetd serve` or `subsetd run` and what its answers cost."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx

from benchmarks.context import subsetd
from benchmarks.processes import CommandFailed


def free_port() -> int:
    """Return a port of the loopback that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path, seconds: float = 120
) -> Iterator[httpx.Client]:
    """Run a subsetd command that serves the API for a block; give a client once it is ready.

    Raise CommandFailed when it ends, or is not ready in time.
    """
    port = free_port()
    settings = {"SUBSETD_HOST": "127.0.0.1", "SUBSETD_PORT": str(port), **environment}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as lines:
        process = subprocess.Popen(
            [subsetd(), *arguments], stdout=lines, stderr=subprocess.STDOUT, env={**os.environ, **settings}
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            deadline = time.monotonic() + seconds
            while not _ready(client):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise CommandFailed(f"subsetd {' '.join(arguments)} is not ready:\n{log.read_text()[-2000:]}")
                time.sleep(0.05)
            yield client
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def answer_seconds(client: httpx.Client, path: str) -> float:
    """Return the median seconds of an answer, after three that warm the caches."""
    return answers_in_turn([(client, path)])[0]


def answers_in_turn(asked: Sequence[tuple[httpx.Client, str]], repeats: int = 30) -> list[float]:
    """Return the median seconds of each answer; they are asked for in turn, so that what slows one slows the others."""
    taken: list[list[float]] = [[] for _ in asked]
    for number in range(repeats + 3):
        for (client, path), seconds in zip(asked, taken, strict=True):
            started = time.perf_counter()
            client.get(path).raise_for_status()
            if number >= 3:
                seconds.append(time.perf_counter() - started)
    return [median(seconds) for seconds in taken]


def walked_seconds(client: httpx.Client, path: str) -> list[float]:
    """Return the seconds of each page of a list, from the first to the last."""
    taken, cursor = [], None
    while True:
        started = time.perf_counter()
        answer = client.get(path, params={} if cursor is None else {"cursor": cursor}).raise_for_status()
        taken.append(time.perf_counter() - started)
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return taken


def percentile_99(seconds: Sequence[float]) -> float:
    """Return the smallest of the seconds that 99 of 100 do not exceed."""
    ordered = sorted(seconds)
    return ordered[-(-99 * len(ordered) // 100) - 1]
