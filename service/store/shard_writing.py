"""Own how one process writes a state whose shards are on servers: it reads there, and writes behind its commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import psycopg2
from sqlalchemy import Engine

from service.core.clustering import ClusterCounts, ClusterSets
from service.core.errors import StateError, first_line
from service.core.records import Int64s, Keys, NewRecords, Records, gather
from service.core.shards import ID_BITS, cuts
from service.store import record_rows, shard_writes
from service.store.bulk import KeyRange, read_records
from service.store.database import make_engine
from service.store.locks import SHARDS_LOCK
from service.store.shard_servers import LOCK_TIMEOUT_MS, ShardServer, reaching, read_servers
from service.store.shard_writes import ShardWrite
from service.store.shards import read_clusters, settle

HOME = -1


@dataclass(slots=True)
class _Link:
    """Hold the writer's connections to a server."""

    server: ShardServer
    engine: Engine
    writing: Any
    reading: Any
    partitions: list[tuple[str, str]]
    warming: Any = None


class ShardsElsewhere:
    """Hold the writer's connections to the servers of shards, and what the version at work changes in them.

    What fails names the server, as StateError.
    """

    def __init__(self, cursor: Any, name: str) -> None:
        """Connect to the servers that the state's map has, as the process of this name; there may be none."""
        self._links: list[_Link] = []
        self._changed: set[int] = set()
        """Shards on servers for which something is kept that was not written there yet."""
        cursor.execute("select count(*) from shard")
        (self._of,) = cursor.fetchone()
        servers = read_servers(cursor)
        self._link_of = np.full(self._of, HOME)
        try:
            for number, server in enumerate(servers):
                self._link_of[list(server.shards)] = number
                with reaching(server):
                    self._links.append(_connect(server, name))
        except BaseException:
            self.close()
            raise

    def __bool__(self) -> bool:
        return bool(self._links)

    def close(self) -> None:
        """Let go of the connections."""
        for link in self._links:
            for connection in (link.writing, link.reading, link.warming):
                if connection is not None:
                    with suppress(psycopg2.Error):
                        connection.invalidate()
        self._links = []

    def look_up(self, cursor: Any, partitions: Sequence[tuple[str, str]], keys: Keys) -> Records:
        """Read the records of ascending keys wherever they are; `cursor` reads the state's own database."""
        parts = []
        for number, places in self._dealt(keys):
            if number == HOME:
                parts.append((places, record_rows.look_up(cursor, partitions, keys.take(places))))
                continue
            link = self._links[number]
            with reaching(link.server), link.reading.cursor() as elsewhere:
                parts.append((places, record_rows.look_up(elsewhere, link.partitions, keys.take(places))))
                link.reading.commit()
        return gather(len(keys.high), parts)

    def read_range(self, found: tuple[Keys, Records], key_range: KeyRange) -> tuple[Keys, Records]:
        """Add to the records of a range that were found in the state's own database those of the servers.

        On connections of its own: another thread than the writer's may ask.
        """
        parts = [found]
        query = record_rows.RANGE.format(condition=key_range.condition())
        for link in self._links:
            with reaching(link.server):
                if link.warming is None:
                    link.warming = link.engine.raw_connection()
                with link.warming.cursor() as cursor:
                    parts.append(read_records(cursor, [query]))
                link.warming.commit()
        keys = Keys(*(np.concatenate(halves) for halves in zip(*(keys for keys, _ in parts), strict=True)))
        order = keys.order()
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        ends = np.cumsum([0, *(len(keys.high) for keys, _ in parts)]).tolist()
        spread = [(places[start:end], part[1]) for part, (start, end) in zip(parts, pairwise(ends), strict=True)]
        return keys.take(order), gather(len(order), spread)

    def connections(self) -> Iterator[tuple[ShardServer, Any]]:
        """Give each server with a connection whose transaction reads what is committed there."""
        for link in self._links:
            yield link.server, link.writing

    def clusters(self) -> Iterator[ClusterSets]:
        """Read the clusters of the shards of each server, by their stored ids."""
        for link in self._links:
            with reaching(link.server), link.reading.cursor() as cursor:
                yield read_clusters(cursor)
                link.reading.commit()

    def keep_records(
        self, cursor: Any, version: int, records: NewRecords, texts: Sequence[str]
    ) -> tuple[NewRecords, list[str]]:
        """Keep in the state's transaction what is written to servers; gives the other records, and their texts."""
        nth = np.cumsum(records.is_new) - 1

        def part(places: Int64s) -> tuple[NewRecords, list[str]]:
            own = records.take(places)
            return own, [texts[place] for place in nth[places[own.is_new]].tolist()]

        at_home = [np.zeros(0, np.int64)]
        for shard, (start, end) in enumerate(pairwise(cuts(records.keys, self._of))):
            places = np.arange(start, end)
            if self._link_of[shard] == HOME:
                at_home.append(places)
            elif start < end:
                self._keep(cursor, shard, version, ShardWrite(*part(places), ClusterCounts.none()))
        return part(np.concatenate(at_home))

    def keep_clusters(self, cursor: Any, version: int, changed: ClusterCounts) -> ClusterCounts:
        """Keep in the state's transaction the clusters that changed on servers; gives the others.

        Nobody begins to read records from here on, until the servers have it (`write_behind`).
        """
        cursor.execute("select pg_advisory_lock(%s)", (SHARDS_LOCK,))
        cursor.execute(shard_writes.FORGET, (version,))
        for shard in np.flatnonzero(self._link_of != HOME).tolist():
            own = changed.only(lambda ids, shard=shard: ids >> ID_BITS == shard)  # type: ignore[misc]
            if len(own.cluster_id) or len(own.gone):
                self._keep(cursor, shard, version, ShardWrite(NewRecords.none(), (), own))
        cursor.execute("update shard set batch = %s where shard = any (%s)", (version, list(self._changed)))
        return changed.only(lambda ids: self._link_of[ids >> ID_BITS] == HOME)

    def note_applied(self, cursor: Any, version: int) -> None:
        """Say that each shard on a server has applied a version by itself, as tasks let it."""
        cursor.execute("update shard set batch = %s where server is not null", (version,))

    def write_behind(self, home: Any, version: int) -> None:
        """Write to the servers what the state has committed as a version, and let records be read again."""
        with home.cursor() as at_home:
            for link in self._links:
                if self._changed.isdisjoint(link.server.shards):
                    continue
                try:
                    with reaching(link.server, at_home):
                        settle(at_home, link.writing, link.server)
                except StateError as error:
                    raise type(error)(
                        f"Version {version} is committed, and nothing of it is to be done again: {link.server} gets it "
                        f"from whoever writes the state next ({first_line(error.__cause__)})."
                    ) from error
                home.commit()
            self._changed.clear()
            at_home.execute("select pg_advisory_unlock(%s)", (SHARDS_LOCK,))
        home.commit()

    def _keep(self, cursor: Any, shard: int, version: int, write: ShardWrite) -> None:
        shard_writes.keep(cursor, shard, version, write)
        self._changed.add(shard)

    def _dealt(self, keys: Keys) -> Iterator[tuple[int, Int64s]]:
        owners = np.repeat(self._link_of, np.diff(cuts(keys, self._of)))
        for number in np.unique(owners).tolist():
            yield number, np.flatnonzero(owners == number)


def _connect(server: ShardServer, name: str) -> _Link:
    engine = make_engine(server.address, name, lock_timeout_ms=LOCK_TIMEOUT_MS, pool_size=3, max_overflow=0)
    writing: Any = engine.raw_connection()
    reading: Any = engine.raw_connection()
    with reading.cursor() as cursor:
        cursor.execute(record_rows.BY_BITMAP)
        partitions = record_rows.read_partitions(cursor)
    reading.commit()
    return _Link(server, engine, writing, reading, partitions)
