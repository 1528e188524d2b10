"""Own the one batch that is being written while the next is applied in memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from service.core.errors import StateError
from service.core.records import NewRecords
from service.usecases.batches import BatchReport, timed
from service.usecases.live_state import BatchCommit
from service.usecases.ports import DeadLetterSink, UnitOfWork
from service.usecases.row_images import Images


class BatchInFlight:
    """Write a batch on a thread of its own.

    `records` and `images` are what it writes: look-ups are answered from them, for the store may not have them yet.
    `stored` hears on that thread of each batch that is durable.
    """

    def __init__(self, stored: Callable[[BatchReport], None]) -> None:
        self._stored = stored
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="subsetd-store")
        self._future: Future[None] | None = None
        self.records = NewRecords.none()
        self.images: Images = {}

    @property
    def is_busy(self) -> bool:
        """Tell whether a batch was given and not settled yet."""
        return self._future is not None

    def write(self, unit: UnitOfWork, commit: BatchCommit, report: BatchReport, sink: DeadLetterSink | None) -> None:
        """Begin to write a batch; the one before must be settled."""
        self.records, self.images = commit.delta.records, commit.images
        self._future = self._pool.submit(self._write, unit, commit, report, sink)

    def settle(self) -> bool:
        """Wait for the batch, and raise what befell it; tells whether there was one."""
        if self._future is None:
            return False
        future, self._future = self._future, None
        future.result()
        self.records, self.images = NewRecords.none(), {}
        return True

    def close(self) -> None:
        """Let a batch that is being written end."""
        self._pool.shutdown(wait=True)

    def _write(self, unit: UnitOfWork, commit: BatchCommit, report: BatchReport, sink: DeadLetterSink | None) -> None:
        try:
            with timed(report.seconds, "store"):
                unit.write_records(commit.delta.records, commit.delta.texts)
                if commit.dead_letters and sink is not None:
                    sink.send(commit.dead_letters)  # twice rather than never
                unit.commit(commit)
        except BaseException:
            with suppress(StateError):
                unit.rollback()
            raise
        self._stored(report)
