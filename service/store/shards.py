"""Own the shards of a state in Postgres: a batch in a shard's own transaction, and its way back.

A state without rows in `shard` is one shard, and its records have the clusters of `cluster`. With more, `cluster` is
still the whole's, and records have the clusters of `shard_cluster`. A shard that is ahead of the state's version, by
one batch or more, is between its own commits and those of the whole: whoever becomes the writer undoes them, and tasks
of the writer before are refused by their epoch from then on.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import psycopg2

from service.core.clustering import ClusterCounts, Clusters, ClusterSets, Underflow, apply_deltas
from service.core.errors import ConflictError, DamagedStateError, StateError
from service.core.records import Int64s, find_keys, gather
from service.core.shards import ID_BITS, clusters_of_shard, local_ids, of_shard, shard_bounds, stored_ids
from service.core.val_cache import LOADED_BYTES, SEGMENT_BITS, ValCache
from service.store import cluster_rows, record_rows
from service.store.bulk import between, read_records, uuid_text
from service.store.database import connect, make_engine, parse_address, state_error
from service.store.shard_servers import (
    LOCK_TIMEOUT_MS,
    ShardServer,
    drop_emptied,
    drop_if_unread,
    other_history,
    reaching,
    read_servers,
    read_stands,
    require_fit,
    require_schema,
)
from service.store.shard_writes import write_again
from service.store.silence import Silence
from service.store.versions import NEWEST
from service.usecases.live_state import accesses_of
from service.usecases.shards import Before, ShardBatch, ShardPlace, ShardSummary
from service.usecases.warm_up import WarmUpPolicy

SHARD_NAME = "subsetd shard"

DROP_SECONDS = 1.0
"""So long a writer waits to drop tables that are of no use any more, where somebody reads."""

# A transaction's number was never used before, by no writer of this server. Of a state that came from another, where
# they were larger, servers know these.
TAKE_OVER = """
update shard set epoch = greatest(pg_current_xact_id()::text::bigint, (select max(epoch) + 1 from shard))
"""

AHEAD = f"""
select shard, batch from shard
where server is null and batch > coalesce({NEWEST}, 0) order by shard
"""
TO_UNDO = "select batch, summary, undo from shard_batch where shard = %s and batch > %s order by batch desc"
CALM = f"""
update shard set batch = coalesce({NEWEST}, 0)
where server is null and exists (select from shard_batch where shard_batch.shard = shard.shard);
delete from shard_batch
"""

STAND = "select epoch, batch from shard where shard = %s for update"
DONE = "select summary from shard_batch where shard = %s and batch = %s"
APPLIED = """
update shard set batch = %(batch)s where shard = %(shard)s;
delete from shard_batch where shard = %(shard)s and batch <= %(concluded)s;
insert into shard_batch (shard, batch, summary, undo) values (%(shard)s, %(batch)s, %(summary)s, %(undo)s)
"""


def read_places(cursor: Any, address: str) -> list[ShardPlace]:
    """Read where each shard is, by its number; nothing where the state is one shard, which is at this address."""
    cursor.execute("select coalesce(address, %s), shard, epoch, batch, server from shard order by shard", (address,))
    found = cursor.fetchall()
    return [ShardPlace(its_address, shard, len(found), *stand) for its_address, shard, *stand in found]


def read_clusters(cursor: Any, shard: int | None = None) -> ClusterSets:
    """Read one shard's clusters, or all, by their stored ids."""
    return cluster_rows.read(cursor, "shard_cluster", "" if shard is None else f"cluster_id >> {ID_BITS} = {shard}")


def take_over_shards(connection: Any) -> None:
    """Refuse what the writer before may still have under way in shards, undo what it did not finish, and commit.

    Waits for transactions of its tasks to end. The connection must hold the writer's lock. Raises StateError where a
    shard's server is away, or does not have what the state says that it has.
    """
    with connection.cursor() as at_home:
        at_home.execute(TAKE_OVER)
        undo_shards(at_home)
        servers = read_servers(at_home)
        connection.commit()
        for server in servers:
            with ExitStack() as closing, reaching(server, at_home):
                other = closing.enter_context(connect(server.address, SHARD_NAME, LOCK_TIMEOUT_MS))
                with other.cursor() as cursor:
                    require_schema(cursor)
                settle(at_home, other, server)
                with other.cursor() as cursor:
                    drop_emptied(cursor, DROP_SECONDS)
                other.commit()
            connection.commit()


class ShardStore:
    """Hold the memory of one shard and apply batches to it, each in a transaction of its own.

    The memory is thrown away when anything fails, and read anew when others wrote to the shard meanwhile. Once it has
    served it is filled beside the batches, by `warm`; or, as `warm_up` says, at once, or by batches alone.
    """

    def __init__(self, place: ShardPlace, cache_bytes: int, warm_up: WarmUpPolicy = WarmUpPolicy.OFF) -> None:
        self.place = place
        self._address = parse_address(place.address)
        self._cache_bytes = cache_bytes
        self._warm_up = warm_up
        is_elsewhere = place.server is not None
        lock_timeout_ms = LOCK_TIMEOUT_MS if is_elsewhere else None  # without the state's own nothing goes on
        self._engine = make_engine(
            place.address, SHARD_NAME, lock_timeout_ms=lock_timeout_ms, pool_size=2, max_overflow=0
        )
        self._silence = Silence(self._connections if is_elsewhere else list)
        self._writing: Any = None
        self._reading: Any = None
        self._staged_at = 0.0
        self._known: tuple[int, int] | None = None
        """Epoch and batch of what is in memory."""
        self._clusters = Clusters()
        self._cache = ValCache(cache_bytes)
        self._unread: list[tuple[int, str]] | None = None
        """Segments of the cache that `warm` is to read, and which keys those are; None: not yet."""
        self._values = 0
        self._partitions: list[tuple[str, str]] = []

    def apply(self, batch: ShardBatch) -> ShardSummary:
        """Apply a batch, or give what it did when it was applied before; with `missing` cells it is not applied.

        A server of the shard's own that says nothing for long, or whose locks somebody has, counts as failed.

        Raises ConflictError when another has become the writer, DamagedStateError for a shard that lacks what it
        applied before, StateError when the database fails.
        """
        try:
            return self._apply(batch)
        except BaseException as error:
            self.close()
            told = state_error(error, self._address)
            if told is None:
                raise
            raise told from error
        finally:
            self._silence.end()

    def warm(self) -> bool:
        """Read some more of the shard's records into memory, where that is wanted; tells whether there are more."""
        if not self._unread:
            return False
        number, condition = self._unread.pop()
        self._silence.heard()
        try:
            with self._reading.cursor() as cursor:
                keys, records = read_records(cursor, [record_rows.RANGE.format(condition=condition)])
            self._reading.commit()
        except psycopg2.Error:
            self.close()  # who applies the next batch will be told
            return False
        finally:
            self._silence.end()
        records = records._replace(cluster_id=local_ids(records.cluster_id))
        if not self._cache.load(number, keys, records, self._cache.forgotten(number)):
            self._unread.clear()
        return bool(self._unread)

    def close(self) -> None:
        """Let go of the connections and of what is in memory."""
        for connection in (self._writing, self._reading):
            if connection is not None:
                with suppress(psycopg2.Error):
                    connection.invalidate()  # not back to the pool: the staging tables are the session's
        self._writing = self._reading = self._known = self._unread = None

    def _apply(self, batch: ShardBatch) -> ShardSummary:
        place = self.place
        self._silence.heard()
        if self._writing is None:
            self._connect()
        with self._writing.cursor() as cursor:
            if time.monotonic() >= self._staged_at + record_rows.RENEWED_SECONDS:
                cursor.execute("truncate staged_gen_rec, staged_cluster")
                self._writing.commit()
                self._staged_at = time.monotonic()
            cursor.execute(STAND, (place.shard,))
            found = cursor.fetchone()
            if found is None or found[0] != place.epoch:
                raise ConflictError(
                    f"Another has become the state's writer: shard {place.shard} takes nothing of this."
                )
            before = found[1]
            if before >= batch.number:
                cursor.execute(DONE, (place.shard, batch.number))  # a new snapshot: the lock may have been waited for
                done = cursor.fetchone()
                if done is None:
                    raise ConflictError(f"Shard {place.shard} holds version {before}: {batch.number} comes too late.")
                self._writing.rollback()
                return ShardSummary.from_bytes(bytes(done[0]))
            if before < batch.behind:
                raise DamagedStateError(f"{_where(place)}{other_history(place.shard, before, batch.behind)}")
            if self._known != (place.epoch, before):
                self._load(place.shard)
                if self._warm_up is WarmUpPolicy.BEFORE:
                    self._unread = self._segments()
                    while self.warm():
                        pass
            elif self._unread is None and self._warm_up is WarmUpPolicy.BESIDE:
                self._unread = self._segments()  # not at once: the shard's next batch may be for another executor
            self._silence.heard()
            try:
                told = self._write(cursor, batch)
            except Underflow as underflow:
                self._writing.rollback()
                self._known = (place.epoch, before)
                return ShardSummary.refused(place.shard, underflow.cells)
            self._writing.commit()
            self._known = (place.epoch, batch.number)
        return told

    def _write(self, cursor: Any, batch: ShardBatch) -> ShardSummary:
        clusters, deltas, shard = self._clusters, batch.deltas, self.place.shard
        is_cached, cached = self._cache.find(deltas.keys)
        places, misses = np.flatnonzero(is_cached), np.flatnonzero(~is_cached)
        parts = [(places, cached)]
        if len(misses):
            with self._reading.cursor() as reading:
                read = record_rows.look_up(reading, self._partitions, deltas.keys.take(misses))
            self._reading.commit()
            self._silence.heard()
            parts.append((misses, read._replace(cluster_id=local_ids(read.cluster_id))))
        present = gather(deltas.size, parts)
        sets = clusters.sets(present.cluster_id)
        applied = apply_deltas(clusters, deltas, present, batch.uncounted)
        self._known = None  # until it is stored
        new = applied.records
        accesses = accesses_of(deltas, applied)
        accesses.read = len(misses)
        came = find_keys(deltas.keys, new.keys.take(new.is_new))
        texts = [batch.texts[place] for place in came.tolist()]
        record_rows.write(cursor, new._replace(cluster_id=stored_ids(new.cluster_id, shard)), texts)
        self._silence.heard()
        _write_clusters(cursor, clusters, shard, applied.clusters, applied.dropped)
        summary = ShardSummary.of(shard, batch, applied, accesses)
        undo = Before.of(batch, present, sets, applied)
        stored = {"summary": summary.to_bytes(), "undo": undo.to_bytes()}
        cursor.execute(APPLIED, {"shard": shard, "batch": batch.number, "concluded": batch.concluded, **stored})
        self._cache.put(new.keys, new.records)
        return summary

    def _connections(self) -> list[Any]:
        return [one.driver_connection for one in (self._writing, self._reading) if one is not None]

    def _connect(self) -> None:
        self._writing, self._reading = self._engine.raw_connection(), self._engine.raw_connection()
        self._staged_at = time.monotonic()
        for connection, settings in (
            (self._writing, record_rows.STAGING + cluster_rows.STAGING + record_rows.BY_INDEX),
            (self._reading, record_rows.BY_BITMAP),
        ):
            with connection.cursor() as cursor:
                cursor.execute(settings)
            connection.commit()

    def _load(self, shard: int) -> None:
        with self._reading.cursor() as cursor:
            own = read_clusters(cursor, shard)
            self._partitions = record_rows.read_partitions(cursor)
        self._reading.commit()
        self._clusters = clusters_of_shard(own)
        self._values = int(own.values.sum())
        self._cache = ValCache(self._cache_bytes)
        self._unread = None

    def _segments(self) -> list[tuple[int, str]]:
        """Give the segments that have a part of the shard's keys, and which; none where the records have no room."""
        if self._values * LOADED_BYTES > self._cache_bytes:
            return []
        shard, of, bits = self.place.shard, self.place.of, 64 - SEGMENT_BITS
        first, end = [0, *shard_bounds(of).tolist(), 1 << 64][shard : shard + 2]
        parts = ((n, max(first, n << bits), min(end, n + 1 << bits)) for n in self._cache.segments())
        return [(n, between(_first_key(low), _first_key(high))) for n, low, high in parts if low < high]


def _where(place: ShardPlace) -> str:
    return "" if place.server is None else f"server {place.server!r}: "


_stores: dict[tuple[str, int], ShardStore] = {}


def apply_to_shard(place: ShardPlace, batch: ShardBatch, cache_bytes: int, warm_up: WarmUpPolicy) -> ShardSummary:
    """Apply a batch to a shard, with the memory that this process keeps of it: see `ShardStore.apply`."""
    store = _stores.get((place.address, place.shard))
    if store is None:
        store = _stores[place.address, place.shard] = ShardStore(place, cache_bytes, warm_up)
    store.place = place
    return store.apply(batch)


def warm_shards() -> bool:
    """Use an idle moment of this process to fill its memory of shards; tells whether there is more to do."""
    return any(store.warm() for store in _stores.values())


def undo_shards(cursor: Any) -> None:
    """Undo the batches that shards hold and the state does not, in the cursor's transaction; commits nothing."""
    version = _version(cursor)
    cursor.execute(AHEAD)
    ahead = cursor.fetchall()
    if ahead:
        cursor.execute(record_rows.STAGING + cluster_rows.STAGING)
    for shard, batch in ahead:
        if not undo_shard(cursor, shard, batch, version):
            raise DamagedStateError(f"Shard {shard} is ahead of the state, and nothing says how it was before.")
    cursor.execute(CALM)


def undo_shard(cursor: Any, shard: int, batch: int, version: int) -> bool:
    """Bring a shard from a batch back to the state's version, the last batch first, by what it keeps of each.

    There must be staging. False, with nothing done, where it does not have all of them.
    """
    cursor.execute(TO_UNDO, (shard, version))
    done = cursor.fetchall()
    if [number for number, _, _ in done] != list(range(batch, version, -1)):
        return False
    clusters = _read_own(cursor, shard)
    for _, summary, undo in done:
        before = Before.from_bytes(bytes(undo))
        records, kept, dropped = before.back(clusters, ShardSummary.from_bytes(bytes(summary)).moves)
        cursor.execute("truncate staged_gen_rec, staged_cluster")
        record_rows.write(cursor, records._replace(cluster_id=stored_ids(records.cluster_id, shard)), before.texts)
        _write_clusters(cursor, clusters, shard, kept, dropped)
    return True


def _version(cursor: Any) -> int:
    cursor.execute(f"select coalesce({NEWEST}, 0)")
    (version,) = cursor.fetchone()
    return int(version)


def settle(at_home: Any, other: Any, server: ShardServer) -> None:
    """Bring a server's shards to where the state says that they are, by what both keep, and commit there.

    `at_home` is a cursor of the writer, whose epoch the shards get. Batches that the state never heard of are undone,
    one that it has committed is written there. Raises StateError where that leads nowhere: the server has something
    else. The state's own transaction, which only reads, is the caller's to end.
    """
    stands = read_stands(at_home, server)
    version = _version(at_home)
    with other.cursor() as cursor:
        found = require_fit(cursor, server, stands)
        cursor.execute(record_rows.STAGING + cluster_rows.STAGING + record_rows.BY_INDEX)
        for shard in sorted(found.keys() - stands.keys()):  # it moved away, and whoever moved it died
            drop_if_unread(cursor, shard, DROP_SECONDS)
        for shard, stand in stands.items():
            batch = found[shard]
            is_undone = batch > version and undo_shard(cursor, shard, batch, version)
            if not is_undone and batch != stand.batch and not write_again(at_home, cursor, shard, batch, stand.batch):
                raise StateError(other_history(shard, batch, stand.batch))
            cursor.execute(
                "update shard set epoch = %s, batch = %s where shard = %s", (stand.epoch, stand.batch, shard)
            )
        cursor.execute("delete from shard_batch")
    other.commit()


def _read_own(cursor: Any, shard: int) -> Clusters:
    return clusters_of_shard(read_clusters(cursor, shard))


def _first_key(half: int) -> str | None:
    """Give the first key with this upper half; None where the key space begins or ends."""
    return uuid_text(half << 64) if 0 < half < 1 << 64 else None


def _write_clusters(cursor: Any, clusters: Clusters, shard: int, kept: Int64s, dropped: Int64s) -> None:
    cluster_rows.write(cursor, of_shard(ClusterCounts.take(clusters, kept, dropped), shard), "shard_cluster")
