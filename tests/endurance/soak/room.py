"""Own the programs of a soak: servers that are crashed and started again, commands that are watched and restarted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from service.job_process import let_give_way
from service.store.embedded import EmbeddedPostgres
from tests.integration.test_database_crash import crash
from tests.ports import free_ports

Log = Callable[..., None]

SAID_LINES = 12

TOO_OFTEN = 20
"""A service that has ended by itself so many times does not follow again."""


class Crashing(EmbeddedPostgres):
    """Run a Postgres that can be stopped at once, as `pg_ctl stop -m immediate` does, and started again."""

    def crash(self) -> None:
        crash(self)

    def back(self) -> None:
        """Start it again, beside ourselves who still count on it."""
        again = EmbeddedPostgres(self.data_dir, extra_settings=self.settings, port=self.port)
        again.start()
        again.stop()


class Commands:
    """Run `subsetd` in processes of their own."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.folder = folder
        self.log = log

    def environment(self, url: str, **settings: object) -> dict[str, str]:
        """Give the environment of a command on a state."""
        told = {
            "SUBSETD_DATABASE_URL": url,
            "SUBSETD_DATA_DIR": str(self.folder / "data"),
            "SUBSETD_LOG_LEVEL": "warning",
            "SUBSETD_DECIMAL_HANDLING": "string",
            "SUBSETD_SPARK_MASTER": "local[2]",
            **{f"SUBSETD_{name.upper()}": str(value) for name, value in settings.items()},
        }
        return {**os.environ, **told}

    def start(self, name: str, url: str, *arguments: str, **settings: object) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own; what it says is added to the file `name`.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "service.cli", *arguments],
                env=self.environment(url, **settings),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, url: str, *arguments: str, seconds: float = 900) -> tuple[int, str]:
        """Run a command to its end; give its exit code and what it said. One that takes too long is a failure."""
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", *arguments],
            env=self.environment(url),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        let_give_way(process.pid)  # it is the services beside it that are to be quick
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            kill_session(process)
            said = f"it did not end within {seconds:g} s"
        self.log("command", command=without_passwords(" ".join(arguments)), code=process.returncode)
        return process.returncode, without_passwords(said)

    def killed_in_work(
        self, url: str, *arguments: str, after: float, java: bool, now: Callable[[], float]
    ) -> tuple[float | None, list[str]]:
        """Start a job, and end it, or its Java, so long after its process, or Spark, is there.

        Give when by `now` (None: it had ended before), and what is wrong: without its Java it must end by itself.
        """
        process = self.start("killed", url, *arguments)
        let_give_way(process.pid)
        try:
            deadline = time.monotonic() + 120
            while process.poll() is None and not _jobs(process.pid, java):
                if time.monotonic() > deadline:
                    return None, [f"{arguments[0]} did not begin its work within 120 s"]
                time.sleep(0.05)
            with suppress(subprocess.TimeoutExpired):
                process.wait(after)
            jobs = _jobs(process.pid, java)
            if process.poll() is not None or not jobs:
                return None, []
            at = now()
            if not java:
                return at, []
            for one in jobs:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            try:
                # One whose last commit was behind it has ended well.
                process.wait(120)
            except subprocess.TimeoutExpired:
                return at, [f"{arguments[0]} did not end within 120 s behind its Java"]
            return at, []
        finally:
            kill_session(process)


def without_passwords(text: str) -> str:
    """Leave the passwords of addresses out."""
    return re.sub(r"//postgres:[0-9a-f]+@", "//postgres@", text)


def _jobs(pid: int, java: bool) -> list[psutil.Process]:
    """Give the processes that a command has started, or the one of Spark: not a Java that is asked for its version."""
    found = []
    for one in _below(pid):
        with suppress(psutil.Error):
            if not java or "org.apache.spark.deploy.SparkSubmit" in one.cmdline():
                found.append(one)
    return found


def _below(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def kill_session(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a command and all that it has started in its session, at once."""
    below = _below(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for one in below:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


class Service:
    """Keep one `subsetd run` or `serve` running, as a service manager does: what ends is started again.

    `give_up` is called when it has ended by itself too often: hours of load that nothing follows would show no more.
    `exits` has how it ended by itself, `faults` how it did not end when it was asked to.
    """

    def __init__(
        self,
        commands: Commands,
        name: str,
        url: str,
        arguments: tuple[str, ...],
        settings: Mapping[str, object],
        give_up: Callable[[str], None],
    ) -> None:
        self.name = name
        self._give_up = give_up
        self.exits: list[str] = []
        self.faults: list[str] = []
        (port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        self._commands = commands
        self._start = lambda: commands.start(name, url, *arguments, port=port, **settings)
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._watch, name=f"watch {name}", daemon=True)
        self._thread.start()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._process

    def kill(self) -> bool:
        """End it at once, and start it again; tell whether it ran."""
        with self._lock:
            runs = self._process.poll() is None
            if runs:
                kill_session(self._process)
                self._process = self._start()
        return runs

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Let it end in good order for the time of the block, and start it again."""
        with self._lock:
            self._end()
            try:
                yield
            finally:
                self._process = self._start()

    def close(self) -> None:
        """Let it end for good."""
        self._ends.set()
        self._thread.join()
        self._end()

    def _end(self) -> None:
        """Ask it to end, as an operator does; it must end well, and soon."""
        has_ended = self._note_exit()
        self._process.terminate()
        try:
            code = self._process.wait(60)
            if not has_ended and code not in (0, -signal.SIGTERM):  # the latter of one that has just been started
                self.faults.append(f"{self.name} ended with {code} when it was asked to: {self.said()}")
        except subprocess.TimeoutExpired:
            self.faults.append(f"{self.name} did not end within 60 s when it was asked to")
        finally:
            kill_session(self._process)

    def said(self) -> str:
        """Give the last lines of what it said."""
        lines = (self._commands.folder / f"{self.name}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-SAID_LINES:])

    def _watch(self) -> None:
        while not self._ends.wait(1.0):
            with self._lock:
                if self._note_exit():
                    self._process = self._start()

    def _note_exit(self) -> bool:
        """Tell whether it has ended by itself, and remember that."""
        code = self._process.poll()
        if code is None:
            return False
        self.exits.append(f"{self.name} ended by itself with {code}: {self.said()}")
        self._commands.log("ended by itself", part=self.name, code=code, said=self.said())
        if len(self.exits) == TOO_OFTEN:
            self._give_up(f"{self.name} has ended by itself {TOO_OFTEN} times")
        return True
