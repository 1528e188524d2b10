"""Own the stream of a binary COPY: blocks of rows that are built while Postgres takes them."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Generator, Iterable
from itertools import chain
from typing import Any

import numpy as np
import psycopg2
from numpy.typing import NDArray

SPOOLED_BYTES = 64 << 20
"""What is copied from one server to another is held in memory up to here, and on disk beyond."""

BLOCK_BYTES = 8 << 20
"""What is read is decoded so many bytes at a time."""

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"


def copy_blocks(cursor: Any, target: str, blocks: Iterable[Any], options: str = "") -> None:
    """Write blocks of rows (bytes-like) to a table, or some of its columns; what they raise is raised as it is."""
    copy_stream(cursor, f"{target} FROM STDIN (FORMAT binary{options})", _Blocks(blocks), 1 << 20)


def copy_stream(cursor: Any, target: str, stream: Any, size: int) -> None:
    """Write what a stream gives, `size` bytes at a time, by a COPY; what reading it raises is raised as it is."""
    watched = _Watched(stream.read)
    try:
        cursor.copy_expert(f"COPY {target}", watched, size)
    except psycopg2.Error as error:
        raise next(iter(watched.raised), error) from None


def read_whole(cursor: Any, query: str) -> NDArray[np.uint8]:
    """Give the rows of a query as a binary COPY has them, with what ends it."""
    sink = io.BytesIO()
    cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT binary)", sink)
    return np.frombuffer(sink.getbuffer(), np.uint8)[len(HEADER) :]


def for_each_block(cursor: Any, query: str, take: Callable[[NDArray[np.uint8]], None]) -> None:
    """Hand the rows of a query on as they come, some MB of whole rows at a time; the last are followed by 0xFF."""
    sink = _Sink(take)
    cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT binary)", sink)
    sink.hand_on()


class _Sink:
    """Be the file that psycopg2 writes each row to, the first one behind the header."""

    def __init__(self, take: Callable[[NDArray[np.uint8]], None]) -> None:
        self._take = take
        self._rows = bytearray()
        self._begun = len(HEADER)

    def write(self, row: bytes) -> None:
        self._rows += row
        if len(self._rows) > BLOCK_BYTES:
            self.hand_on()

    def hand_on(self) -> None:
        rows, self._rows = self._rows, bytearray()
        self._take(np.frombuffer(rows, np.uint8)[self._begun :])
        self._begun = 0


def copy_between(source: Any, query: str, target: Any, table: str) -> None:
    """Copy what a query gives at one cursor's server to a table at another's."""
    with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as spooled:
        source.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT binary)", spooled)
        spooled.seek(0)
        copy_stream(target, f"{table} FROM STDIN (FORMAT binary)", spooled, 1 << 20)


class _Watched:
    """Be the file that psycopg2 reads, and keep what reading raises: psycopg2 has the server make an error of that.

    An interrupt, too, would be told as a statement that was cancelled. It may come as soon as a Python function is
    entered, before any `try` of it: a generator is gone on with inside of its own. The generator holds neither this nor
    its own end, which would be cycles: what is copied would stay until the next search for garbage.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.raised: list[BaseException] = []
        reading = _reading(read, self.raised)
        next(reading)
        self.read = reading.send


def _reading(read: Callable[[int], bytes], raised: list[BaseException]) -> Generator[bytes, int, None]:
    given = b""
    try:
        while True:
            given = read((yield given))
    except GeneratorExit:
        raise
    except BaseException as error:
        raised.append(error)
        raise


class _Blocks:
    """Give blocks as a file, in pieces of the size that is asked for."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        self._pieces = chain([HEADER], blocks, [TRAILER])
        self._piece = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._piece = memoryview(piece).cast("B")
        taken = self._piece[:size]
        self._piece = self._piece[size:]
        return bytes(taken)
