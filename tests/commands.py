"""Own the `subsetd` command in tests: processes of their own on one state, what they say, their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_forks import CommandForks, ForkedCommand, command_forks
from tests.waiting import BOUND_SECONDS

Running = ForkedCommand | subprocess.Popen[str]


class Commands:
    """Run the command as processes of their own on one state."""

    def __init__(self, url: str, folder: Path, forks: CommandForks) -> None:
        self._forks = forks
        self._environment = {**os.environ, "SUBSETD_DATABASE_URL": url, "SUBSETD_PORT": "0"}
        self._folder = folder
        self.running: list[Running] = []

    def start(self, *arguments: str, **settings: object) -> Running:
        """Start a command; what it says is in `said`."""
        environment = {**self._environment, **{f"SUBSETD_{name.upper()}": str(v) for name, v in settings.items()}}
        with (self._folder / f"said-{len(self.running)}").open("w") as log:
            process = self._forks.start(arguments, environment, log) or subprocess.Popen(
                [sys.executable, "-m", "service.cli", *arguments], env=environment, stdout=log, stderr=log, text=True
            )
        self.running.append(process)
        return process

    def said(self, process: Running) -> str:
        return (self._folder / f"said-{self.running.index(process)}").read_text()

    def run(self, *arguments: str, seconds: float = BOUND_SECONDS, **settings: object) -> tuple[int, str]:
        """Run a command to its end: exit code and what it said."""
        process = self.start(*arguments, **settings)
        code = process.wait(seconds)
        # Of a worker that Spark ends amid its own there is the first line at most.
        assert '\n  File "' not in self.said(process), self.said(process)
        return code, self.said(process)

    def end(self, process: Running) -> None:
        """Ask a command to end, as an operator does; it must end well."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0, self.said(process)

    def kill(self, process: Running) -> None:
        """End a command at once; it must have been running."""
        process.kill()
        assert process.wait() == -signal.SIGKILL, self.said(process)

    def close(self) -> None:
        """End what still runs, and print what all have said: of a test that failed one wants to know."""
        for process in self.running:
            process.kill()
            process.wait()
            print(f"{process.args} said:\n{self.said(process)}")


@pytest.fixture(scope="session")
def forks() -> Iterator[CommandForks]:
    """Run the process that forks commands for the whole session."""
    with command_forks() as forks:
        yield forks


@pytest.fixture
def subsetd(database_url: str, tmp_path: Path, forks: CommandForks) -> Iterator[Commands]:
    """Give the command on the test's state; what still runs at the end is killed."""
    commands = Commands(database_url, tmp_path, forks)
    yield commands
    commands.close()
