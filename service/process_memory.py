"""Own what a process that runs for months keeps of memory that nobody uses: in glibc's heaps, and in Arrow's."""

from __future__ import annotations

import ctypes
from typing import Any

M_ARENA_MAX = -8
"""Of mallopt(3): how many heaps the threads of a process have."""

M_MMAP_THRESHOLD = -3
"""Of mallopt(3): from which size on memory is mapped by itself, and so handed back as soon as it is freed."""

MAPPED_BYTES = 4 << 20
"""Above what fetched records and the columns of a batch take: each batch needs them again, at the cost of their pages.

Unless it is set, glibc raises its own 128 KiB to the largest that was freed, up to 32 MB: then what a state takes as it
is loaded lies in the heap, too, among what stays, and leaves holes.
"""


def share_one_heap() -> None:
    """Let Arrow, and threads that begin from now on, have no heaps of their own: each would keep what it once needed.

    Arrow's has one for each thread, and what ended ones had is handed back when it likes: 2 to 13 MB, up and down.
    A heap that a thread has made before this stays, and others come to use it: this is to be called before they begin.
    Buffers larger than a batch's are kept out of the one heap.
    """
    import pyarrow as pa  # type: ignore[import-untyped]  # here, behind what it reads as it is loaded

    _call("mallopt", M_ARENA_MAX, 1)
    _call("mallopt", M_MMAP_THRESHOLD, MAPPED_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> None:
    """Hand free pages back, in some milliseconds, without the interpreter's lock.

    Batches and states that are loaded leave holes, which glibc keeps for ever: who follows for hours would come to have
    all that its worst moments took.
    """
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of glibc; other C libraries lack it."""
    function: Any = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
