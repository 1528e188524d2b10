"""Own the folder of a job's process in the temporary directory: it goes when the process ends, or the next job begins.

A process holds a lock on a file in its folder, which the system takes from it however it ends. So what is not locked
was left by one that was killed.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import IO

PREFIX = "subsetd-job-"
LOCK = "lock"

SOCKET_PATH_BYTES = 103
"""So long may a Unix socket's path be everywhere: 107 bytes on Linux, 103 on macOS."""


@cache
def job_folder() -> Path:
    """Make this process' folder, for what Java reads; folders of jobs that were killed go."""
    remove_remains(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    # Locked before it has its name: nobody finds it unlocked. Open until the process ends.
    own = _locked(folder / "new")
    assert own is not None
    os.rename(own.name, folder / LOCK)
    atexit.register(_remove, folder, own)
    return folder


def remove_remains(temporary: Path) -> None:
    """Remove the folders whose locks nobody holds, if they are this user's; one without a lock stays."""
    for path in temporary.glob(f"{PREFIX}*/{LOCK}"):
        try:
            held = _locked(path) if path.parent.lstat().st_uid == os.getuid() else None
        except OSError:  # it goes right now, or is not ours to open
            continue
        if held is not None:
            _remove(path.parent, held)


def _locked(path: Path) -> IO[bytes] | None:
    """Open a file under a lock that ends with the process; None when another process has it."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _remove(folder: Path, held: IO[bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.close()
