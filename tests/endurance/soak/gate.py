"""Own the time of a soak: the clock that stands while all is compared, and who may do what meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Let writers, the killer and chores work, until one asks them all to rest.

    `working()` is held for each piece of work: a transaction, a kill with its restart, a chore. `resting()` waits for
    the end of all pieces, and holds new ones back. `load_seconds` counts the time outside of rests.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._working = 0
        self._rests = False
        self._rested = 0.0
        self._rest_began = 0.0
        self._began = time.monotonic()
        self.stopped = threading.Event()

    def begin(self) -> None:
        """Let time count from now on."""
        self._began, self._rested = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """Give the seconds since the load began."""
        return time.monotonic() - self._began

    @property
    def load_seconds(self) -> float:
        """Give the seconds of load."""
        now = self._rest_began if self._rests else time.monotonic()
        return now - self._began - self._rested

    @contextmanager
    def working(self) -> Iterator[bool]:
        """Hold off rests for the block; tell whether there is still something to do."""
        with self._condition:
            self._condition.wait_for(lambda: not self._rests or self.stopped.is_set())
            self._working += 1
        try:
            yield not self.stopped.is_set()
        finally:
            with self._condition:
                self._working -= 1
                self._condition.notify_all()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Let nobody work during the block."""
        with self._condition:
            self._rests, self._rest_began = True, time.monotonic()
            self._condition.wait_for(lambda: self._working == 0)
        try:
            yield
        finally:
            with self._condition:
                self._rests = False
                self._rested += time.monotonic() - self._rest_began
                self._condition.notify_all()

    def wait_until(self, load_seconds: float) -> bool:
        """Wait until so much load was there; tell whether the soak still goes on."""
        while self.load_seconds < load_seconds and not self.stopped.is_set():
            self.stopped.wait(min(1.0, max(0.01, load_seconds - self.load_seconds)))
        return not self.stopped.is_set()

    def stop(self) -> None:
        """Let all who wait go, and do nothing more."""
        self.stopped.set()
        with self._condition:
            self._condition.notify_all()
