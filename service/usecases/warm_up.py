"""Own the filling of ValCache: the records are read beside the feed, segment by segment, and put in between batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from queue import Empty, Full, Queue
from typing import NamedTuple

import numpy as np

from service.core.records import Keys, Records
from service.core.val_cache import LOADED_BYTES, SEGMENT_BITS, ValCache

WAITING = 2
"""Segments that are read and not yet put in, at most: each is some MB."""


PART_RECORDS = 16_384
"""About so many records are read at once: whoever else wants a processor waits some hundredths of a second for it."""

RESTS = 3
"""Beside the feed, reading rests so many times as long as it took: the feed keeps most of the machine."""


class WarmUpPolicy(StrEnum):
    """Say when ValCache is filled: while the feed is followed, before it is, or only by what the feed brings."""

    BESIDE = "beside"
    BEFORE = "before"
    OFF = "off"


class _Read(NamedTuple):
    number: int
    keys: Keys
    records: Records


class WarmUp:
    """Read all records of a state into its ValCache, on a thread, if they fit there.

    What is read is the committed state, so it may be older than what the cache knows of the session's own batches:
    `ValCache.load` keeps the newer, but not what a segment has forgotten: one that has is not put in, however long ago
    it was, as the batch in flight may be what it forgot. `records` and `seconds` tell how far it came.
    """

    def __init__(
        self, cache: ValCache, values: int, read_range: Callable[[int, int], tuple[Keys, Records]], policy: WarmUpPolicy
    ) -> None:
        self._cache = cache
        self._read_range = read_range
        self._read: Queue[_Read | BaseException | None] = Queue(WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="subsetd-warm-up", daemon=True)
        self.records = 0
        self.seconds = 0.0
        self._started = time.perf_counter()
        self._rest = RESTS if policy is WarmUpPolicy.BESIDE else 0
        self._part_bits = max(values // len(cache.segments()) // PART_RECORDS, 1).bit_length() - 1
        self._is_over = policy is WarmUpPolicy.OFF or not 0 < values * LOADED_BYTES <= cache.max_bytes
        if not self._is_over:
            self._thread.start()
            if policy is WarmUpPolicy.BEFORE:
                self.take(wait=True)

    def take(self, wait: bool = False) -> None:
        """Put in what was read meanwhile, or wait for all of it; raises what the reading raised."""
        while not self._is_over:
            try:
                read = self._read.get(wait)
            except Empty:
                return
            if isinstance(read, BaseException):
                self._is_over = True
                raise read
            if read is None or not self._cache.load(*read, forgotten=0):
                self.close()
            else:
                self.records += len(read.keys.high)
                self.seconds = time.perf_counter() - self._started

    def close(self) -> None:
        """End the reading."""
        self._is_over = True
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        for number in self._cache.segments():
            try:
                found: _Read | BaseException = _Read(number, *self._read_segment(number))
            except BaseException as error:  # told to the consumer's thread
                found = error
            if not self._put(found) or isinstance(found, BaseException):
                return
        self._put(None)

    def _read_segment(self, number: int) -> tuple[Keys, Records]:
        """Read a segment part by part, as far as nobody stops it, and rest behind each."""
        parts = []
        for part in range(number << self._part_bits, number + 1 << self._part_bits):
            started = time.perf_counter()
            parts.append(self._read_range(part, SEGMENT_BITS + self._part_bits))
            if self._stop.wait(self._rest * (time.perf_counter() - started)):
                break
        keys, records = zip(*parts, strict=True)
        return Keys(*map(np.concatenate, zip(*keys, strict=True))), Records.joined(records)

    def _put(self, read: _Read | BaseException | None) -> bool:
        while not self._stop.is_set():
            try:
                self._read.put(read, timeout=0.1)
            except Full:
                continue
            return True
        return False
