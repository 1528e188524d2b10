"""Own when the sketches' log is folded into the sketches: beside the consumer, when it has become long or old."""

from __future__ import annotations

import threading
from collections.abc import Callable

from service.core.errors import SketchError, StateError
from service.usecases.ports import SketchLog

LOOK_SECONDS = 1.0
MOST_VERSIONS = 1000
MOST_BYTES = 16 << 20
"""How long the log may be: who reads a sketch reads all of the log."""

MOST_LOOKS = 300
"""How often it may be found short and left: that smallest hashes ran short is seen only when it is folded."""

PORTION_BYTES = 32 << 20
"""So much of it is folded in one transaction, and held in memory."""


class SketchCompactor:
    """Keep the log short and the sketches full, as the one that does (there may be more who would)."""

    def __init__(self, log: SketchLog, telling: Callable[[str], None]) -> None:
        """Compact `log`; `telling` hears of sketches that cannot be kept, and of what is tried again."""
        self._log = log
        self._telling = telling
        self._looks = 0

    def run(self, stop: threading.Event) -> None:
        """Look every second until `stop` is set; what fails is tried again."""
        fault = ""
        while not stop.wait(LOOK_SECONDS):
            try:
                self.look(stop)
                fault = ""
            except (SketchError, StateError) as error:
                if str(error) != fault:
                    fault = str(error)
                    self._telling(fault)

    def look(self, stop: threading.Event) -> None:
        """Fold the log if it is long or old, and read smallest hashes again where there are too few left."""
        versions, size = self._log.backlog()
        self._looks = self._looks + 1 if versions else 0
        if versions > MOST_VERSIONS or size > MOST_BYTES or self._looks >= MOST_LOOKS:
            while not stop.is_set() and self._log.backlog()[0]:
                faults = self._log.fold(PORTION_BYTES)
                if faults is None:
                    break  # somebody else is at it
                for told in faults:
                    self._telling(told)
            self._looks = 0
        while not stop.is_set() and self._log.rescan():
            pass
