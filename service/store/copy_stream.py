"""Own the stream of a binary COPY: blocks of rows that are built while Postgres takes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
READ_BYTES = 1 << 20
"""How much psycopg2 should ask of a stream at once."""


class CopyStream:
    """Give blocks of rows (bytes-like) as a file whose bytes COPY ... FROM STDIN (FORMAT binary) takes."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self._pieces = chain([HEADER], blocks, [TRAILER])
        self._piece = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._piece = memoryview(piece).cast("B")
        taken = self._piece if size < 0 else self._piece[:size]
        self._piece = self._piece[len(taken) :]
        return bytes(taken)
