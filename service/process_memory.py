"""Own what a process that runs for months keeps of memory that nobody uses: in glibc's heaps, and in Arrow's."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

M_ARENA_MAX = -8
"""Of mallopt(3): how many heaps the threads of a process have."""


def share_one_heap() -> None:
    """Let threads that begin from now on have no heaps of their own, each of which would keep what it once needed."""
    _call("mallopt", M_ARENA_MAX, 1)


def give_back() -> None:
    """Hand free pages back, in some milliseconds, without the interpreter's lock.

    Batches and states that are loaded leave holes, which glibc keeps for ever: who follows for hours would come to have
    all that its worst moments took.
    """
    _call("malloc_trim", 0)
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def _call(name: str, *arguments: int) -> None:
    """Call a function of glibc; other C libraries lack it."""
    function: Any = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
