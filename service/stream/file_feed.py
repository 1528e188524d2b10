"""Own the feed from a file of JSON lines: one envelope a line, positions are byte offsets of line starts."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final

import orjson
import structlog

from service.core.errors import FeedError
from service.core.model import FeedDescription, RawRecord, StoredPosition, told_anew

LOOK_AGAIN_SECONDS = 0.02
LONGEST_LINE_BYTES = 256 * 1024 * 1024

log = structlog.get_logger(__name__)


class FileFeed:
    """Follow one file that grows at its end.

    The topic is the absolute path, the partition 0. A record's offset is the byte at which its line starts, and
    the position is the byte after the last line handed over. Blank lines are passed over. The last line needs no
    line end if it is a whole JSON object: no beginning of an object is an object itself, so it cannot be half
    written. Otherwise it waits, and does not count for `at_end`: the position stays in front of it.

    A file that is gone, replaced, or shorter than the position raises FeedError.
    """

    lag_unit: Final = "bytes"

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = f"file:{path}"
        self._file: BinaryIO | None = None
        self._position = 0
        self._end_at_start = 0
        self._unfinished_until = 0
        self._seen_size = -1

    def describe(self) -> FeedDescription:
        """Name the file."""
        return FeedDescription(self.name)

    def start(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Open the file at its stored position, or at its beginning; raise FeedError if it is not the file it was."""
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise FeedError(f"feed {self.name} is not a regular file; give the path of a file of JSON lines")
            self._file = open(self.path, "rb")  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise FeedError(f"feed {self.name} cannot be opened: {error.strerror}; check the path") from error
        self._position = positions.get((self.path, 0), StoredPosition(0)).next_offset
        self._end_at_start = os.fstat(self._file.fileno()).st_size
        self._unfinished_until, self._seen_size = 0, -1
        self._check_position()
        self._file.seek(self._position)

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Sequence[RawRecord]:
        """Return the next whole lines; wait up to `timeout` seconds for the first.

        Ends at `max_records`, or with the record that reaches `max_bytes`.
        """
        deadline = time.monotonic() + timeout
        while True:
            before = self._position
            try:
                records = self._read(max_records, max_bytes)
                if records or self._position > before:
                    return records
                self._check_file()
            except OSError as error:
                raise FeedError(f"feed {self.name} cannot be read at byte {self._position}: {error}") from error
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return records
            time.sleep(min(LOOK_AGAIN_SECONDS, remaining))

    def positions(self) -> dict[tuple[str, int], int]:
        """Give the byte after the last line handed over."""
        return {(self.path, 0): self._position}

    def source_positions(
        self, positions: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], Mapping[str, object]]:
        """Say nothing: a byte's place is all there is to know."""
        return {}

    def rest(self) -> None:
        """Do nothing: a file stays open."""

    def at_end(self) -> bool:
        """Tell whether all whole lines that were there at the start have been handed over."""
        return max(self._position, self._unfinished_until) >= self._end_at_start

    def is_whole(self, positions: Mapping[tuple[str, int], int]) -> bool | None:
        """Say nothing: a line tells not where its transaction ends."""
        return None

    def lag(self) -> dict[tuple[str, int], int] | None:
        """Count the bytes behind the position; None before the start."""
        if self._file is None:
            return None
        return {(self.path, 0): max(0, os.fstat(self._file.fileno()).st_size - self._position)}

    def committed(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Do nothing: no tool asks a file for its readers' positions."""

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise FeedError(f"feed {self.name} is not started")
        return self._file

    def _read(self, max_records: int, max_bytes: int) -> list[RawRecord]:
        file = self._opened()
        records: list[RawRecord] = []
        # An unfinished line can be long: it is read again only when something was written.
        size = os.fstat(file.fileno()).st_size
        if size == self._seen_size:
            return records
        taken = 0
        while len(records) < max_records and taken < max_bytes:
            line = file.readline(LONGEST_LINE_BYTES)
            if not line.endswith(b"\n") and not _is_object(line):
                if len(line) >= LONGEST_LINE_BYTES:
                    raise FeedError(
                        f"feed {self.name}: the line at byte {self._position} is longer than "
                        f"{LONGEST_LINE_BYTES} bytes; is this a file of JSON lines?"
                    )
                self._leave(line)
                self._seen_size = size
                break
            offset = self._position
            self._position += len(line)
            taken += len(line)
            if not line.isspace():
                records.append(RawRecord(self.path, 0, offset, None, line.rstrip(b"\r\n"), 0))
        return records

    def _leave(self, line: bytes) -> None:
        """Leave an unfinished last line (or nothing) for later, and stand in front of it."""
        if line:
            self._opened().seek(self._position)
            until = self._position + len(line)
            if until > self._unfinished_until and not line.isspace():
                log.info("unfinished last line", feed=self.name, offset=self._position, bytes=len(line))
            self._unfinished_until = until

    def _check_position(self) -> None:
        """Raise FeedError unless the stored position is inside the file and between two lines."""
        file, position = self._opened(), self._position
        if self._end_at_start < position:
            self._raise_truncated(self._end_at_start)
        if position > 0:
            file.seek(position - 1)
            around = file.read(2)
            # The last line may have been read before its line end was written.
            if not around.startswith(b"\n") and around[1:2] not in (b"", b"\n", b"\r"):
                raise FeedError(
                    f"feed {self.name}: byte {position}, where the state stands, is inside a line, so the file is not "
                    f"the one that was read before; give that file, or {told_anew(self.name)}"
                )

    def _check_file(self) -> None:
        """Raise FeedError if the file was truncated, replaced or removed since it was opened."""
        opened = os.fstat(self._opened().fileno())
        if opened.st_size < self._position:
            self._raise_truncated(opened.st_size)
        try:
            there = os.stat(self.path)
        except FileNotFoundError as error:
            raise FeedError(
                f"feed {self.name} was removed; all up to byte {self._position} was read: put it back and start again"
            ) from error
        if (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
            raise FeedError(
                f"feed {self.name} was replaced by another file; all up to byte {self._position} of the old one was "
                f"read: put it back, append to a feed instead of replacing it, or {told_anew(self.name)}"
            )

    def _raise_truncated(self, size: int) -> None:
        raise FeedError(
            f"feed {self.name} ends at byte {size}, before byte {self._position} where the state stands: it was "
            f"truncated or replaced; give the whole file, or {told_anew(self.name)}"
        )


def _is_object(line: bytes) -> bool:
    if not line.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False
