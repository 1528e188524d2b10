"""Own Spark jobs as processes of their own: their command line, their end, and what they said last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from service.core.errors import SourceError
from service.signals import handling_signals

STOPPED = frozenset({128 + signal.SIGINT, 128 + signal.SIGTERM})
"""Exit codes of a job that was asked to end."""

SAID_BYTES = 4000
"""How much of the end of what a job said is kept."""

NICE = 10
"""A job takes minutes: where processors are short, following (5) goes before it, and answers before both."""


def spark_command(module: str, master: str, arguments: Sequence[str]) -> list[str]:
    """Give the command of a Spark job, which reads the state's address from its standard input."""
    return [sys.executable, "-m", module, "--database-url=-", f"--master={master}", *arguments]


def run_attached(
    command: Sequence[str], secrets: Sequence[str], *, stays_open: bool = False, output: TextIO | None = None
) -> int:
    """Run a job before the user's eyes, to its end; return its exit code, as a shell has it.

    What it tells goes to standard output, or to `output`; `secrets` go to its standard input, a line each, which then
    `stays_open` for a job that ends with us, however we end. What ends us by a signal ends the job, which is waited
    for: it tidies up.
    """
    started: list[subprocess.Popen[str]] = []

    def end(number: int) -> None:
        if not started:
            raise KeyboardInterrupt
        if number != signal.SIGINT or not sys.stdin.isatty():  # a terminal interrupts the job as well
            started[0].terminate()

    with handling_signals(end):
        job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, text=True)
        started.append(job)
        assert job.stdin is not None
        with suppress(BrokenPipeError):  # it may have ended; its exit code tells
            job.stdin.write("".join(f"{secret}\n" for secret in secrets))
            job.stdin.flush() if stays_open else job.stdin.close()
        return shell_code(job.wait())


def shell_code(code: int) -> int:
    """Give the exit code of a process as a shell has it: 128 and the number of the signal that ended it."""
    return code if code >= 0 else 128 - code


def require_readable_scheme(scheme: str) -> None:
    """Raise SourceError when the Spark jobs cannot read addresses of a scheme: one of them is asked."""
    command = [sys.executable, "-m", "spark_jobs.hadoop_files", f"--scheme={scheme}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SourceError(ended.stderr.strip().removeprefix("error: "))


class JobProcess:
    """Run a command in a session of its own, so that a signal to the terminal or to us does not reach it.

    It gives way to what follows and answers. `secrets` go to its standard input, a line each. What it says goes to a
    file that nobody else sees.
    """

    def __init__(self, command: Sequence[str], secrets: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it is open for as long as the process may write
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
        )
        assert self._process.stdin is not None
        let_give_way(self._process.pid)
        with suppress(BrokenPipeError), self._process.stdin as pipe:  # it may have ended; its exit code tells
            pipe.write("".join(f"{secret}\n" for secret in secrets).encode())

    def exit_code(self) -> int | None:
        """Give the exit code, as a shell has it, of an ended process; None while it runs."""
        code = self._process.poll()
        return None if code is None else shell_code(code)

    def end(self) -> None:
        """Ask it to end (SIGTERM); Java and the Python workers end with the driver."""
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """End it and all that it has started at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def said(self) -> str:
        """Give the end of what it said."""
        size = os.fstat(self._log.fileno()).st_size
        found = os.pread(self._log.fileno(), SAID_BYTES, max(0, size - SAID_BYTES))
        return found.decode(errors="replace").strip()

    def close(self) -> None:
        """Free what is kept of an ended process."""
        self._log.close()


def let_give_way(session: int) -> None:
    """Lower the priority of the first process of a session, and so of all that it will start."""
    with suppress(OSError):  # it may have ended
        os.setpriority(os.PRIO_PROCESS, session, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    # Where Linux shares processors by session, a priority counts only within one: the session has its own.
    with suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text(str(NICE))
