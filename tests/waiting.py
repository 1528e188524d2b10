"""Own the waiting of tests: on a condition, with a bound, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

BOUND_SECONDS = 900.0
"""Many times what a busy machine takes: whoever waits so long waits in vain.

Jobs that a service starts give way to all else: an audit of 19 seconds took 285 beside eight busy processes.
"""

BOUND_MS = int(BOUND_SECONDS * 1000)

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = BOUND_SECONDS) -> T:
    """Wait until a condition gives something true, and give that; fail after a bound.

    The longer it takes, the more seldom it is asked: most conditions ask a database, over a connection of their own.
    """
    begun = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - begun
        assert waited < seconds, "it did not come to pass in time"
        time.sleep(min(max(0.01, waited / 50), 0.1))
    return found


def wait_for_end(process: psutil.Process, seconds: float = BOUND_SECONDS) -> None:
    """Wait until a process, whoever has started it, has ended; one that nobody reaps has."""
    wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, seconds)
