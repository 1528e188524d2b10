"""Own where the tests' servers keep their files: in memory, where the machine has room there, as nothing of it is kept.

A database of a test is 700 new files. On a disk each of them costs the kernel as much as in memory twenty do.
"""

from __future__ import annotations

import os
from pathlib import Path

MEMORY = Path("/dev/shm")
WANTED_BYTES = 4 << 30
"""What servers of four processes need is less than half of it; containers often have 64 MB there."""


def roomy(folder: Path, wanted: int) -> str | None:
    """Give the folder when files can be made in it and `wanted` bytes are free, else None: the usual one."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    held = os.statvfs(folder)
    return str(folder) if held.f_bavail * held.f_frsize >= wanted else None


IN_MEMORY = roomy(MEMORY, WANTED_BYTES)
"""The folder to make temporary folders of servers in, as `tempfile` takes it (`dir=`)."""
