"""Own a batch that shards apply in transactions of their own: nobody reads records between.

The writer is the coordinator. It begins a batch, lets every shard apply its part, anywhere, and commits what they did
together; or undoes what some of them did. When it dies in between, the next writer undoes it (`take_over_shards`).
"""

from __future__ import annotations

from service.store.locks import SHARDS_LOCK
from service.store.shards import read_places, take_over_shards
from service.store.writer import PostgresWriter
from service.usecases.shards import ShardPlace


class ShardCoordinator:
    """Lead the shards of a state whose writer's lock is held. Every method may raise `StateError`."""

    def __init__(self, writer: PostgresWriter, address: str) -> None:
        """Lead the shards of the state at this address, as which tasks reach it."""
        self._writer = writer
        self._address = address
        self.places = self._read_places()
        """Where each shard is, by its number; none where the state is one shard. Read it anew behind `undo`."""

    def begin(self) -> None:
        """Wait until nobody begins to read records, and let nobody until `end` or `undo`."""
        with self._writer.translated(), self._writer.writing.cursor() as cursor:
            cursor.execute("select pg_advisory_lock(%s)", (SHARDS_LOCK,))
            self._writer.writing.commit()

    def end(self) -> None:
        """Let records be read again: what shards applied is committed as a version of the whole."""
        with self._writer.translated(), self._writer.writing.cursor() as cursor:
            cursor.execute("select pg_advisory_unlock(%s)", (SHARDS_LOCK,))
            self._writer.writing.commit()

    def undo(self) -> None:
        """Take back what some shards applied; what tasks still have under way is refused from now on."""
        with self._writer.translated():
            take_over_shards(self._writer.writing)
        self.places = self._read_places()
        self.end()

    def _read_places(self) -> list[ShardPlace]:
        with self._writer.translated(), self._writer.writing.cursor() as cursor:
            places = read_places(cursor, self._address)
            self._writer.writing.commit()
        return places
