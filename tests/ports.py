"""Own the ports of the tests' servers: each is one run's alone, also while its server is stopped."""

from __future__ import annotations

import fcntl
import getpass
import random
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import IO

PORTS = range(20_000, 32_000)
"""Below those that systems give to clients: one of a stopped server's could otherwise come to be a client's."""

_held: list[IO[str]] = []


def free_ports(count: int) -> list[int]:
    """Give ports that are free now, and that no other run of the tests is given while this process lives."""
    folder = Path(tempfile.gettempdir()) / f"subsetd-ports-{getpass.getuser()}"
    folder.mkdir(exist_ok=True)
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        if _hold(folder / str(port)) and _is_free(port):
            found.append(port)
    return found


def _hold(path: Path) -> bool:
    """Take the lock that is a port's, until this process ends."""
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    _held.append(file)
    return True


def _is_free(port: int) -> bool:
    try:
        with closing(socket.create_server(("127.0.0.1", port))):
            return True
    except OSError:
        return False
