"""Own how tests start `subsetd`: a process that has loaded what commands need forks one for each.

    python -m tests.command_forks FD

Nearly all that a short command takes is loading modules, and tests start some hundred. A forked one has an environment,
a folder and output of its own, and ends as any process does. Only what Python and libraries read of the environment as
they start is that of the process which it was forked from.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import service
from service.library_settings import prepare

READ_AT_START = (
    "PYTHON",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "GLIBC_",
    "NPY_",
    "NUMBA_",
    "TERM",
    "COLUMNS",
    "NO_COLOR",
    "FORCE_COLOR",
)
"""What variables begin with that Python, libraries and our terminal read as they start; all else is read when used."""

MOST_BYTES = 1 << 20
NUMBER = struct.Struct("i")


class ForkedCommand:
    """Be to a forked command what `subprocess.Popen` is to a child."""

    def __init__(self, args: Sequence[str], told: int) -> None:
        self.args = args
        self.returncode: int | None = None
        self._told = told
        self.pid = self._next()

    def poll(self) -> int | None:
        """Give the exit code of a command that has ended, or minus the number of the signal that ended it."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise subprocess.TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the command at once."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = self._next()
            os.close(self._told)
        return self.returncode

    def _next(self) -> int:
        (number,) = NUMBER.unpack(os.read(self._told, NUMBER.size))
        return int(number)


class CommandForks:
    """Ask the process that forks commands."""

    def __init__(self, control: socket.socket, environment: Mapping[str, str]) -> None:
        self._control = control
        self._read_at_start = _read_at_start(environment)

    def start(self, args: Sequence[str], environment: Mapping[str, str], output: IO[Any]) -> ForkedCommand | None:
        """Start a command; None if it would begin in another way than the process that it is to be forked from."""
        if _read_at_start(environment) != self._read_at_start:
            return None
        asked = json.dumps({"args": list(args), "environment": dict(environment), "folder": os.getcwd()})
        told, telling = os.pipe()
        try:
            socket.send_fds(self._control, [asked.encode()], [output.fileno(), telling])
        finally:
            os.close(telling)
        return ForkedCommand(args, told)


@contextmanager
def command_forks() -> Iterator[CommandForks]:
    """Run the process that forks commands; those that run live on at its end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.command_forks", str(theirs.fileno())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        with ours:
            yield CommandForks(ours, os.environ)
        process.wait()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def main() -> None:
    """Load, and fork; in a forked process go on as the command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    prepare()
    for module in pkgutil.walk_packages(service.__path__, "service."):
        import_module(module.name)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "what another thread holds would be held for ever in a forked process"
    gc.collect()
    gc.freeze()
    asked = _serve(control)
    if asked is not None:
        cli = import_module("service.cli")
        sys.modules["__main__"] = cli
        sys.argv[:] = [str(cli.__file__), *asked["args"]]
        cli.main()


def _serve(control: socket.socket) -> Any:
    """Fork a command for each question; give the question to the command, and None at the end of the tests' process."""
    telling: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                pid, told = telling.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                os.write(told, NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
                os.close(told)
                continue
            question, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
            if not question:
                return None
            output, told = descriptors
            pid = os.fork()
            if not pid:
                control.close()
                for process, other in telling.items():
                    os.close(process)
                    os.close(other[1])
                os.close(told)
                asked = json.loads(question)
                _become(asked, output)
                return asked
            os.close(output)
            os.write(told, NUMBER.pack(pid))
            process = os.pidfd_open(pid)
            telling[process] = pid, told
            poll.register(process, select.POLLIN)


def _become(asked: Mapping[str, Any], output: int) -> None:
    """Take the environment, the folder and the output of a command."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["folder"])
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)


if __name__ == "__main__":
    main()
