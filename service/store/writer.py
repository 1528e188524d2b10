"""Own the writing side of the state: load it, look records up, store a batch in one transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg2

from service.core.clustering import ClusterSets
from service.core.contracts import BoundContract
from service.core.errors import NoStateError, RecordError
from service.core.model import (
    Attribute,
    AttributeCounters,
    AttributeName,
    DerivedAttribute,
    FeedDescription,
    SchemaDrift,
    StoredPosition,
    Table,
)
from service.core.records import Keys, NewRecords, Records
from service.core.shards import local_ids
from service.store import (
    batch_rows,
    cluster_rows,
    contract_upkeep,
    dead_letters,
    histograms,
    join_tracked_log,
    key_changes,
    record_rows,
    row_images,
    schema_changes,
    shard_dealing,
    shards,
    sketches,
)
from service.store.bulk import KeyRange, read_records
from service.store.catch_up import forget_passed, read_catch_up
from service.store.database import make_engine, parse_address, state_error
from service.store.feeds import is_paused, put_feed
from service.store.migrate import require_current
from service.store.shard_servers import reaching
from service.store.shard_writing import ShardsElsewhere
from service.store.versions import read_served, tell_version
from service.store.writer_lock import (
    CONSUMER_NAME,
    is_wanted,
    release_locks,
    take_back_writer_lock,
    take_feed_lock,
    take_writer_lock,
)
from service.usecases.key_values import KeyKind
from service.usecases.live_state import BatchCommit, StoredState
from service.usecases.row_images import Images
from service.usecases.schema_changes import KnownColumn

RECORDS_OF = """
select value_key::text, value, cluster_id,
       coalesce(frequencies, array_fill(0::bigint, array[cardinality(attribute_ids)]))
from gen_rec where cluster_id = any (%s)
"""

ATTRIBUTES = """
select schema_name, table_name, attribute_id, column_name, ordinal, data_type, insert_only, sketch_only,
       row_count, null_count, distinct_count, repeated_count, stale_version is not null, added_version is not null,
       parts, attribute.snapshot, shown_characters
from attribute join source using (source_id) where dropped_version is null
order by schema_name, table_name, ordinal, attribute_id
"""

RENEW_STAGING = "truncate staged_gen_rec, staged_cluster, staged_row_image"

SNAPSHOTS = "select name, snapshot from source where snapshot is not null"

# Of tables that the first schema revision followed their bootstrap alone is known.
BEGUN = """
select table_id, coalesce(begun_version, bootstrapped_version) from tracked_table join source using (source_id)
"""

TABLES = """
select schema_name, table_name, table_id, name, source_database, source_schema, source_table, key_columns,
       row_images, replica_identity = 'full', settings -> 'null_tokens', settings -> 'since'
from tracked_table join source using (source_id)
"""


class PostgresWriter:
    """Implement ports.StateWriter: one connection holds the lock and writes, another reads committed records."""

    def __init__(self, url: str, name: str = CONSUMER_NAME, asking: Callable[[str], None] | None = None) -> None:
        """Write as the process of this name; with `asking`, which hears of it, a consumer is made to hand over."""
        self._address = parse_address(url)
        self._asking = asking
        self._name = name
        self._is_catching_up = False
        self._engine = make_engine(url, name, pool_size=3, max_overflow=0)
        self.writing: Any = None
        self._reading: Any = None
        self._warming: Any = None
        self._partitions: list[tuple[str, str]] = []
        self.elsewhere: ShardsElsewhere | None = None
        self._staged_at = 0.0
        self._has_unit = False
        """Whether a batch is written on the connection, perhaps by another thread."""

    def acquire(self, behind_others: threading.Event | None = None) -> bool:
        self.close()
        require_current(self._engine)
        with self.translated():
            self.writing = self._engine.raw_connection()
            self._reading = self._engine.raw_connection()
            if behind_others is None:
                take_writer_lock(self.writing, self._asking)
            elif not take_back_writer_lock(self.writing, behind_others):
                return False
            with self.writing.cursor() as cursor:
                cursor.execute(record_rows.STAGING + cluster_rows.STAGING + row_images.STAGING + record_rows.BY_INDEX)
            self.writing.commit()
            self._staged_at, self._has_unit = time.monotonic(), False
            with self._reading.cursor() as cursor:
                cursor.execute(record_rows.BY_BITMAP)
                elsewhere = ShardsElsewhere(cursor, self._name)
            self._reading.commit()
            self.elsewhere = elsewhere or None
        return True

    def is_wanted(self) -> bool:
        with self.translated():
            self._renew_staging()
            return is_wanted(self._reading)

    def load(self) -> StoredState:
        with self.translated(), self._reading.cursor() as cursor:
            cursor.execute("start transaction isolation level repeatable read read only")
            version, generation = read_served(cursor)
            if not version:
                raise NoStateError
            cursor.execute("select committed_at from state_version where version = %s", (version,))
            (committed_at,) = cursor.fetchone()
            cursor.execute(ATTRIBUTES)
            attributes: dict[tuple[str, str], list[Attribute]] = {}
            derived: dict[tuple[str, str], list[tuple[Attribute, list[int], str | None]]] = {}
            counters = {}
            stale: list[Attribute] = []
            late = set()
            for (
                schema,
                table,
                attribute_id,
                column,
                ordinal,
                data_type,
                insert_only,
                sketch_only,
                *counts,
                is_stale,
                is_late,
                parts,
                snapshot,
                shown,
            ) in cursor:
                name = AttributeName(schema, table, column)
                attribute = Attribute(attribute_id, name, ordinal, data_type, insert_only, sketch_only, shown)
                of_table = attributes.setdefault(name[:2], [])
                counters[attribute_id] = AttributeCounters(*counts)
                if parts is None:
                    (stale if is_stale else of_table).append(attribute)
                elif is_stale:
                    stale.append(attribute)
                else:
                    derived.setdefault(name[:2], []).append((attribute, parts, snapshot))
                if is_late:
                    late.add(attribute_id)
            cursor.execute(TABLES)
            told = {(schema, table): described for schema, table, *described in cursor}
            left: dict[tuple[str, str], list[str]] = {}
            for attribute in stale:
                left.setdefault(attribute.name[:2], []).append(attribute.name.column)
            tables = tuple(
                replace(
                    _table(named, own, told.get(named)),
                    stale=tuple(left.get(named, ())),
                    derived=_derived(own, derived.get(named, ())),
                )
                for named, own in attributes.items()
            )
            self._partitions = record_rows.read_partitions(cursor)
            clusters = cluster_rows.read(cursor, "cluster")
            cursor.execute(SNAPSHOTS)
            snapshots = dict(cursor)
            cursor.execute(BEGUN)
            begun = dict(cursor)
            form = sketches.read_form(cursor)
            contracts = contract_upkeep.read_bound(cursor)
            of = shard_dealing.read_number(cursor)
            self._reading.commit()
        return StoredState(
            version,
            generation,
            tables,
            counters,
            clusters,
            tuple(stale),
            snapshots,
            frozenset(late),
            begun,
            form,
            contracts,
            of,
            self._read_shard_clusters,
            committed_at,
        )

    def _read_shard_clusters(self) -> ClusterSets:
        with self.translated(), self._reading.cursor() as cursor:
            clusters = shards.read_clusters(cursor)
            self._reading.commit()
        return clusters if self.elsewhere is None else ClusterSets.joined([clusters, *self.elsewhere.clusters()])

    def positions(self, feed: str) -> dict[tuple[str, int], StoredPosition]:
        with self.translated(), self._reading.cursor() as cursor:
            cursor.execute(
                "select topic, partition, next_offset, source_position, topic_id from feed_position where feed = %s",
                (feed,),
            )
            found = {(topic, partition): StoredPosition(*stored) for topic, partition, *stored in cursor}
            self._reading.commit()
        return found

    def catch_up(self, feed: str) -> dict[tuple[str, int], dict[str, int]]:
        with self.translated(), self._reading.cursor() as cursor:
            found = read_catch_up(cursor, feed)
            self._reading.commit()
        self._is_catching_up = bool(found)
        return found

    def change_schema(self, drift: SchemaDrift, feed: str) -> Sequence[str]:
        with self.translated(), self.writing.cursor() as cursor:
            try:
                stale = schema_changes.write_drift(cursor, drift, feed)
            except RecordError:
                self.writing.rollback()
                raise
            self.writing.commit()
        return stale

    def make_stale(self, attribute_ids: Sequence[int], feed: str) -> None:
        with self.translated(), self.writing.cursor() as cursor:
            schema_changes.write_stale(cursor, attribute_ids, feed)
            self.writing.commit()

    def known_columns(self) -> Sequence[KnownColumn]:
        with self.translated(), self._reading.cursor() as cursor:
            found = schema_changes.read_known(cursor)
            self._reading.commit()
        return found

    def pin(self, attribute_id: int, kind: KeyKind | None) -> int:
        """Track an attribute as a key of a kind, or (None) no longer; return the version."""
        with self.translated(), self.writing.cursor() as cursor:
            version = schema_changes.write_version(cursor, None)
            if kind is not None:
                key_changes.pin(cursor, version, attribute_id, kind)
            else:
                key_changes.unpin(cursor, attribute_id)
            self.writing.commit()
        return version

    def register(self, feed: str, description: FeedDescription) -> None:
        with self.translated(), self.writing.cursor() as cursor:
            put_feed(cursor, feed, description)
            take_feed_lock(cursor, feed)
            self.writing.commit()

    def is_paused(self, feed: str) -> bool:
        with self.translated(), self._reading.cursor() as cursor:
            found = is_paused(cursor, feed)
            self._reading.commit()
        return found

    def lookup(self, keys: Keys) -> Records:
        with self.translated(), self._reading.cursor() as cursor:
            if self.elsewhere is None:
                records = record_rows.look_up(cursor, self._partitions, keys)
            else:
                records = self.elsewhere.look_up(cursor, self._partitions, keys)
            self._reading.commit()
        return records

    def read_range(self, number: int, bits: int) -> tuple[Keys, Records]:
        with self.translated():
            if self._warming is None:
                self._warming = self._engine.raw_connection()
            with self._warming.cursor() as cursor:
                condition = KeyRange(number, bits).condition()
                keys, records = read_records(cursor, [record_rows.RANGE.format(condition=condition)])
            self._warming.commit()
            if self.elsewhere is not None:
                keys, records = self.elsewhere.read_range((keys, records), KeyRange(number, bits))
        return keys, records._replace(cluster_id=local_ids(records.cluster_id))

    def read_images(self, wanted: Mapping[Table, Iterable[bytes]]) -> Images:
        with self.translated(), self._reading.cursor() as cursor:
            found = row_images.read_images(cursor, wanted)
            self._reading.commit()
        return found

    def begin(self) -> PostgresUnitOfWork:
        with self.translated():
            self._renew_staging()
        self._has_unit = True
        return PostgresUnitOfWork(self)

    def end(self) -> None:
        """Hear that the unit of work is over."""
        self._has_unit = False

    def _renew_staging(self) -> None:
        """Let the staging tables begin anew now and then, between two batches."""
        if self._has_unit or time.monotonic() < self._staged_at + record_rows.RENEWED_SECONDS:
            return
        with self.writing.cursor() as cursor:
            cursor.execute(RENEW_STAGING)
        self.writing.commit()
        self._staged_at = time.monotonic()

    def close(self) -> None:
        if self.writing is not None:
            release_locks(self.writing)
        for connection in (self.writing, self._reading, self._warming):
            if connection is not None:
                connection.invalidate()  # not back to the pool: the staging tables are the session's
        self.writing = self._reading = self._warming = None
        if self.elsewhere is not None:
            self.elsewhere.close()
        self.elsewhere = None

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what befalls a raw cursor into StateError."""
        try:
            yield
        except psycopg2.Error as error:
            raise state_error(error, self._address) or error from error


class PostgresUnitOfWork:
    """Implement ports.UnitOfWork on the writer's connection."""

    def __init__(self, writer: PostgresWriter) -> None:
        self._writer = writer
        self._connection = writer.writing
        self._has_staged = False

    def write_records(self, records: NewRecords, texts: Sequence[str], changed_texts: Sequence[str] = ()) -> None:
        """Write new records by COPY, changed and gone ones by COPY into staging and one merge, all in key order."""
        with self._writer.translated(), self._connection.cursor() as cursor:
            if self._writer.elsewhere is not None:
                version = read_served(cursor)[0] + 1
                records, texts = self._writer.elsewhere.keep_records(cursor, version, records, texts)
            self._has_staged |= record_rows.write(cursor, records, texts, changed_texts, has_staged=self._has_staged)

    def records_of(self, cluster_ids: Sequence[int], portion: int) -> Iterator[tuple[Keys, Records, list[str]]]:
        with self._writer.translated():
            yield from _records_of(self._connection, cluster_ids, portion)
        if self._writer.elsewhere is not None:
            for server, connection in self._writer.elsewhere.connections():
                with reaching(server):
                    yield from _records_of(connection, cluster_ids, portion)
                    connection.rollback()

    def commit(self, commit: BatchCommit) -> Sequence[BoundContract] | None:
        delta = commit.delta
        with self._writer.translated(), self._connection.cursor() as cursor:
            batch_rows.write_version(cursor, commit)
            if commit.new_tuples is not None:
                key_changes.add_tuples(cursor, commit.version, commit.new_tuples, delta.sketches)
            cluster_rows.write(cursor, delta.clusters)
            elsewhere = self._writer.elsewhere
            if delta.shard_clusters is not None:
                changed = delta.shard_clusters
                if elsewhere is not None:
                    changed = elsewhere.keep_clusters(cursor, commit.version, changed)
                cursor.execute("truncate staged_cluster")
                cluster_rows.write(cursor, changed, "shard_cluster")
            elif elsewhere is not None:
                elsewhere.note_applied(cursor, commit.version)
            batch_rows.write_counters(cursor, delta)
            batch_rows.write_transitions(cursor, commit)
            batch_rows.write_positions(cursor, commit)
            dead_letters.write(cursor, commit, goes_back=self._writer._is_catching_up)
            row_images.write_images(cursor, commit.images)
            sketches.write_changes(cursor, commit.version, delta.switches)
            sketches.write_empty(cursor, commit.version, delta.emptied)
            if self._writer._is_catching_up:
                forget_passed(cursor, str(commit.feed))
            if commit.dropped_attributes:
                schema_changes.write_dropped(cursor, commit.dropped_attributes, commit.version)
            if commit.emptied is not None:
                row_images.empty_table(cursor, commit.version, commit.emptied)
            if commit.retried is not None:
                cursor.execute(row_images.FORGET_GONE)
            histograms.write_changes(cursor, commit)
            join_tracked_log.write_changes(cursor, commit)
            knows_contracts = contract_upkeep.write_turned(cursor, commit)
            contracts = None if knows_contracts else contract_upkeep.read_bound(cursor)
            tell_version(cursor, commit.version)
            self._connection.commit()
            if elsewhere is not None and delta.shard_clusters is not None:
                elsewhere.write_behind(self._connection, commit.version)
        self._writer.end()
        return contracts

    def rollback(self) -> None:
        with self._writer.translated():
            self._connection.rollback()
        self._writer.end()


def _records_of(connection: Any, cluster_ids: Sequence[int], portion: int) -> Iterator[tuple[Keys, Records, list[str]]]:
    with connection.cursor("records_of") as cursor:
        cursor.itersize = portion
        cursor.execute(RECORDS_OF, (list(cluster_ids),))
        while rows := cursor.fetchmany(portion):
            rows.sort()
            keys = Keys.of(bytes.fromhex(key.replace("-", "")) for key, *_ in rows)
            found = Records.of([(cluster_id, counted) for *_, cluster_id, counted in rows])
            yield keys, found, [r[1] for r in rows]


def _table(name: tuple[str, str], attributes: list[Attribute], described: Sequence[Any] | None) -> Table:
    insert_only = any(attribute.insert_only for attribute in attributes)
    if described is None:
        return Table(*name, tuple(attributes), insert_only)
    table_id, source, database, schema, table, key_columns, keeps_rows, is_full, tokens, told = described
    by_id = schema_changes.read_since(told)
    places = {attribute.name.column: place for place, attribute in enumerate(attributes)}
    key = tuple(places[column] for column in key_columns) if places.keys() >= set(key_columns) else ()
    wire, keeps_rows = (database, schema, table), keeps_rows and bool(key)
    return Table(
        *name, tuple(attributes), insert_only, table_id, source, wire, key, keeps_rows, bool(is_full),
        null_tokens=frozenset(tokens or ()),
        since={a.name.column: by_id[a.attribute_id] for a in attributes if a.attribute_id in by_id},
    )  # fmt: skip


def _derived(
    columns: Sequence[Attribute], found: Sequence[tuple[Attribute, Sequence[int], str | None]]
) -> tuple[DerivedAttribute, ...]:
    """Give a table's derived attributes, whose parts are ordinals, as those of its rows."""
    places = {column.ordinal: place for place, column in enumerate(columns)}
    return tuple(
        DerivedAttribute(attribute, tuple(places[part] for part in parts), snapshot)
        for attribute, parts, snapshot in found
    )
