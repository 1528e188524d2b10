"""Own the samples of a soak: memory of our processes, lag of the consumers, room on the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from tests.endurance.soak.gate import Gate
from tests.endurance.soak.judge import Seen
from tests.endurance.soak.room import Service

PERIOD = 5.0
DISK_EVERY = 6
LAG = re.compile(r"^subsetd_consumer_lag_records (\S+)$", re.MULTILINE)
CACHE = re.compile(r"^subsetd_val_cache_bytes (\S+)$", re.MULTILINE)


class Sampler:
    """Look each 5 s while the soak goes on: MB of memory, records behind, and each 30 s MB of disk."""

    def __init__(self, gate: Gate, seen: Seen, services: Mapping[str, Service], folder: Path) -> None:
        self._gate, self._seen, self._services, self._folder = gate, seen, services, folder

    def sample(self) -> None:
        """Look until the soak is over."""
        turn = 0
        while not self._gate.stopped.wait(PERIOD):
            for name, service in self._services.items():
                at = self._gate.seconds
                with suppress(psutil.Error):
                    parts = _resident(service.process.pid)
                    whole = {} if len(parts) == 1 else {name: sum(parts.values())}  # what both share counts twice
                    for part, size in [*whole.items(), *((f"{name}{part}", size) for part, size in parts.items())]:
                        self._seen.memory.setdefault(part, []).append((at, size / 1e6))
                told = "" if name == "serve" else _metrics(service)
                if (lag := LAG.search(told)) and lag[1] != "NaN":
                    self._seen.lag.setdefault(name, []).append((at, float(lag[1])))
                if cache := CACHE.search(told):
                    self._seen.memory.setdefault(f"{name}: ValCache", []).append((at, float(cache[1]) / 1e6))
            if turn % DISK_EVERY == 0:
                for name in ("state", "source", "broker"):
                    size = folder_bytes(self._folder / name) / 1e6
                    self._seen.disk.setdefault(name, []).append((self._gate.seconds, size))
            turn += 1


def _resident(pid: int) -> dict[str, int]:
    """Give the bytes of a service, and apart from it those of its consumer's process, if it has one."""
    process = psutil.Process(pid)
    own = process.cmdline()
    consumer = next((child for child in process.children() if child.cmdline() == own), None)
    if consumer is None:
        return {"": process.memory_info().rss}
    return {": serving": process.memory_info().rss, ": consuming": consumer.memory_info().rss}


def _metrics(service: Service) -> str:
    """Give the metrics of a service; nothing of one that is away."""
    with suppress(httpx.HTTPError):
        return httpx.get(f"{service.address}/metrics", timeout=60).text
    return ""


def folder_bytes(folder: Path) -> int:
    """Add up the files below a folder; one that goes meanwhile counts nothing."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(path, name).stat().st_blocks * 512
    return total
