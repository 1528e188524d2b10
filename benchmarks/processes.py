"""Own the running and measuring of processes: time by the clock, CPU and memory of a whole tree, from /proc."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

_TICK = os.sysconf("SC_CLK_TCK")
_INTERVAL = 0.1


class CommandFailed(Exception):
    """A measured command ended with an error; the message has the end of what it printed."""


@dataclass(slots=True)
class Usage:
    """Hold what a process tree took: peak memory and CPU time, sampled every 0.1 s.

    Memory is the sum over the tree of the private and file-backed resident pages (a library used by two processes
    counts twice), and of the largest shared segment once. CPU of a process that lived less than a sample is lost.
    Spark's workers are the processes below a Java one; theirs is the peak of those pages, at a moment of its own.
    """

    peak_bytes: int = 0
    workers_peak_bytes: int = 0
    cpu_by_process: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu_by_process.values())


@dataclass(slots=True)
class Measured:
    """Hold one finished command: seconds by the clock, its tree's usage, and the usage of trees watched beside it."""

    seconds: float
    usage: Usage
    beside: dict[str, Usage]
    output: str


def run(
    command: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    beside: Mapping[str, int] | None = None,
) -> Measured:
    """Run a command to its end; `beside` names root processes that work for it, such as a Postgres server.

    Standard output is returned, standard error goes to `log`. Raise CommandFailed on an exit code other than 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as errors:
        started = perf_counter()
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        except FileNotFoundError as error:
            raise CommandFailed(f"{command[0]} is not there: `make env` installs it") from error
        with watched({"": process.pid, **(beside or {})}) as usages:
            output, _ = process.communicate()
        seconds = perf_counter() - started
    if process.returncode:
        tail = "\n".join([*output.splitlines()[-5:], *log.read_text("utf-8", "replace").splitlines()[-25:]])
        raise CommandFailed(f"{' '.join(map(str, command))} ended with code {process.returncode}:\n{tail}")
    return Measured(seconds, usages.pop(""), usages, output)


def own_peak_bytes() -> int:
    """Return the most memory that this process has had resident; what its parent had before it does not count."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def watched(roots: Mapping[str, int]) -> Iterator[dict[str, Usage]]:
    """Sample the process trees under `roots` while the block runs; a tree inside another one counts on its own only."""
    usages = {name: Usage() for name in roots}
    done = threading.Event()

    def sample_until_done() -> None:
        while True:
            _sample(roots, usages)
            if done.wait(_INTERVAL):
                return

    sampler = threading.Thread(target=sample_until_done, name="sampler")
    sampler.start()
    try:
        yield usages
    finally:
        done.set()
        sampler.join()


def _sample(roots: Mapping[str, int], usages: Mapping[str, Usage]) -> None:
    children: dict[int, list[int]] = {}
    java: set[int] = set()
    times: dict[int, tuple[int, float]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := _stat(entry.name)):
            pid = int(entry.name)
            children.setdefault(int(fields[2]), []).append(pid)
            times[pid] = (int(fields[20]), (int(fields[12]) + int(fields[13])) / _TICK)
            if fields[0] == "java":
                java.add(pid)
    for name, root in roots.items():
        others = set(roots.values()) - {root}
        private = shared = workers = 0
        waiting = [(root, False)]
        while waiting:
            pid, is_worker = waiting.pop()
            below = is_worker or pid in java
            waiting.extend((child, below) for child in children.get(pid, ()) if child not in others)
            if pid in times:
                start, cpu = times[pid]
                usages[name].cpu_by_process[(pid, start)] = cpu
            own, segment = _resident(pid)
            private += own
            workers += own if is_worker else 0
            shared = max(shared, segment)
        usages[name].peak_bytes = max(usages[name].peak_bytes, private + shared)
        usages[name].workers_peak_bytes = max(usages[name].workers_peak_bytes, workers)


def _stat(pid: str) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the command's name on, which may hold blanks; None once it is gone."""
    try:
        head, _, fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return [head.partition("(")[2], *fields.split()]


def _resident(pid: int) -> tuple[int, int]:
    """Return the bytes of (anonymous and file pages, shared memory) of a process; zeros once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss")}
    return sizes.get("RssAnon", 0) + sizes.get("RssFile", 0), sizes.get("RssShmem", 0)
