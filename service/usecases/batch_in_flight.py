"""Own the one batch that is being written while the next is applied in memory, and the look-ups behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

import numpy as np

from service.core.contracts import BoundContract
from service.core.errors import StateError
from service.core.model import Table
from service.core.records import Keys, NewRecords, Records, find_keys, gather
from service.core.val_cache import ValCache
from service.usecases.batches import BatchReport, timed
from service.usecases.live_state import BatchCommit
from service.usecases.ports import DeadLetterSink, StateWriter, UnitOfWork
from service.usecases.row_images import Image, Images


class BatchInFlight:
    """Write a batch on a thread of its own, and look up what is stored of others.

    What the batch writes is answered from it, for the store may not have it yet. `stored` hears on that thread of each
    batch that is durable.
    """

    def __init__(self, writer: StateWriter, stored: Callable[[BatchReport], None]) -> None:
        self._writer = writer
        self._stored = stored
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="subsetd-store")
        self._future: Future[Sequence[BoundContract] | None] | None = None
        self.contracts: Sequence[BoundContract] | None = None
        """What the batch that was settled last found; None: those that it knew."""
        self._records = NewRecords.none()
        self._images: Images = {}

    @property
    def is_busy(self) -> bool:
        """Tell whether a batch was given and not settled yet."""
        return self._future is not None

    def look_up(self, keys: Keys, cache: ValCache) -> tuple[Records, int]:
        """Find the records of ascending keys: in this batch, in the cache, and the rest in the store; count that."""
        written = find_keys(self._records.keys, keys)
        pending, others = np.flatnonzero(written >= 0), np.flatnonzero(written < 0)
        is_cached, cached = cache.find(keys.take(others))
        misses = others[~is_cached]
        parts = [(others[is_cached], cached), (pending, self._records.take(written[pending]).records)]
        if len(misses):
            parts.append((misses, self._writer.lookup(keys.take(misses))))
        return gather(len(keys.high), parts), len(misses)

    def look_up_images(self, wanted: Mapping[Table, set[bytes]]) -> Images:
        """Find kept rows: in this batch, and the rest in the store."""
        found: dict[Table, dict[bytes, Image]] = {}
        missing: dict[Table, list[bytes]] = {}
        for table, keys in wanted.items():
            pending = self._images.get(table, {})
            found[table] = {key: pending[key] for key in keys if key in pending}
            if others := [key for key in keys if key not in pending]:
                missing[table] = others
        if missing:
            for table, images in self._writer.read_images(missing).items():
                found[table].update(images)
        return found

    def write(self, unit: UnitOfWork, commit: BatchCommit, report: BatchReport, sink: DeadLetterSink | None) -> None:
        """Begin to write a batch; the one before must be settled."""
        self._records, self._images = commit.delta.records, commit.images
        self._future = self._pool.submit(self._write, unit, commit, report, sink)

    def then(self, job: Callable[[], None]) -> None:
        """Do a job behind the batch, on its thread and as a part of it, unless the batch fails; at once if none is."""
        written = self._future
        if written is None:
            return job()

        def follow() -> Sequence[BoundContract] | None:
            contracts = written.result()
            job()
            return contracts

        self._future = self._pool.submit(follow)
        return None

    def ends_within(self, seconds: float) -> bool:
        """Wait for the batch so long at most; tells whether there is none that is still being written."""
        future = self._future
        return future is None or bool(wait([future], seconds).done)

    def settle(self) -> bool:
        """Wait for the batch, and raise what befell it; tells whether there was one."""
        if self._future is None:
            return False
        future, self._future = self._future, None
        self.contracts = future.result()
        self._records, self._images = NewRecords.none(), {}
        return True

    def close(self) -> None:
        """Let a batch that is being written end."""
        self._pool.shutdown(wait=True)

    def _write(
        self, unit: UnitOfWork, commit: BatchCommit, report: BatchReport, sink: DeadLetterSink | None
    ) -> Sequence[BoundContract] | None:
        try:
            with timed(report.seconds, "store"):
                unit.write_records(commit.delta.records, commit.delta.texts, commit.delta.changed_texts)
                if commit.dead_letters and sink is not None:
                    sink.send(commit.dead_letters)  # twice rather than never
                contracts = unit.commit(commit)
        except BaseException:
            with suppress(StateError):
                unit.rollback()
            raise
        self._stored(report)
        return contracts
