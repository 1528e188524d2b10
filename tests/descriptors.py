"""Own what makes a process have many files open, as one with many connections has."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

SELECTABLE = 1024
"""How many descriptors `select` knows."""


@contextmanager
def high_descriptors() -> Iterator[None]:
    """Let what is opened from now on have a descriptor that `select` does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * SELECTABLE), hard))
        descriptor = 0
        while descriptor < SELECTABLE:
            descriptor = os.open(os.devnull, os.O_RDONLY)
            opened.callback(os.close, descriptor)
        yield
