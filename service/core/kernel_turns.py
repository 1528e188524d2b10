"""Own the turns in which processes compile a kernel: those that need it at the same moment do not all compile it.

One does, as of Spark's workers behind an installation, and the others load what it made from numba's cache.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

MOST_SECONDS = 60.0
"""How long a process waits for another one that compiles: no kernel takes as long, but a process may be suspended."""

LOOK_SECONDS = 0.02


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Hold the lock of a kernel: a byte of a file, which the system frees with the process.

    A kernel waits for kernels that it calls, and never for one that calls it. Where there can be no lock all compile.
    """
    file, place = _lock_file(os.getpid()), zlib.crc32(name.encode())
    held = file if file is not None and _lock(file, place) else None
    try:
        yield
    finally:
        if held is not None:
            fcntl.lockf(held, fcntl.LOCK_UN, 1, place)


def _lock(file: int, place: int) -> bool:
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            return True
        except BlockingIOError:
            time.sleep(LOOK_SECONDS)
        except OSError:
            return False
    return False


@cache
def _lock_file(_: int) -> int | None:
    """Open the file of locks, which stays open: with any of its descriptors all locks of a process would go."""
    try:
        path = Path(tempfile.gettempdir(), f"subsetd-kernels-{os.getuid()}.lock")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
