"""Own where tests, and all that they start, keep their files: in memory, where the machine has room there.

A database of a test is 700 new files. On a disk each of them costs the kernel as much as in memory twenty do, and on an
ext4 yet more where many others were removed a moment ago.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
WANTED_BYTES = 4 << 30
"""What servers of four processes need is less than half of it; containers often have 64 MB there."""


def roomy(folder: Path, wanted: int) -> str | None:
    """Give the folder when files can be made and run in it and `wanted` bytes are free, else None: the usual one."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    held = os.statvfs(folder)
    is_roomy = held.f_bavail * held.f_frsize >= wanted and not held.f_flag & os.ST_NOEXEC
    return str(folder) if is_roomy else None


IN_MEMORY = roomy(MEMORY, WANTED_BYTES)
"""The folder to make temporary folders of servers in, as `tempfile` takes it (`dir=`)."""


def stay_in_memory() -> None:
    """Let this process and those that it starts make their temporary files there, unless the user says where."""
    if IN_MEMORY is not None and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = IN_MEMORY
