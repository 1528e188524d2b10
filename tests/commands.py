"""Own the `subsetd` command in tests: processes of their own on one state, what they say, their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import BOUND_SECONDS


class Commands:
    """Run the command as processes of their own on one state."""

    def __init__(self, url: str, folder: Path) -> None:
        self._environment = {**os.environ, "SUBSETD_DATABASE_URL": url, "SUBSETD_PORT": "0"}
        self._folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **settings: object) -> subprocess.Popen[str]:
        """Start a command; what it says is in `said`."""
        environment = {**self._environment, **{f"SUBSETD_{name.upper()}": str(v) for name, v in settings.items()}}
        with (self._folder / f"said-{len(self.running)}").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", *arguments], env=environment, stdout=log, stderr=log, text=True
            )
        self.running.append(process)
        return process

    def said(self, process: subprocess.Popen[str]) -> str:
        return (self._folder / f"said-{self.running.index(process)}").read_text()

    def run(self, *arguments: str, seconds: float = BOUND_SECONDS, **settings: object) -> tuple[int, str]:
        """Run a command to its end: exit code and what it said."""
        process = self.start(*arguments, **settings)
        code = process.wait(seconds)
        # Of a worker that Spark ends amid its own there is the first line at most.
        assert '\n  File "' not in self.said(process), self.said(process)
        return code, self.said(process)

    def end(self, process: subprocess.Popen[str]) -> None:
        """Ask a command to end, as an operator does; it must end well."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0, self.said(process)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """End a command at once; it must have been running."""
        process.kill()
        assert process.wait() == -signal.SIGKILL, self.said(process)

    def close(self) -> None:
        """End what still runs, and print what all have said: of a test that failed one wants to know."""
        for process in self.running:
            process.kill()
            process.wait()
            print(f"{process.args} said:\n{self.said(process)}")


@pytest.fixture
def subsetd(database_url: str, tmp_path: Path) -> Iterator[Commands]:
    """Give the command on the test's state; what still runs at the end is killed."""
    commands = Commands(database_url, tmp_path)
    yield commands
    commands.close()
