"""Own how a bootstrap's generation becomes the served state: in one transaction, behind whoever reads the old one."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg2
from numpy.typing import NDArray
from psycopg2.extras import execute_values

from service.core.errors import StateError
from service.store import contract_upkeep, histograms, join_tracked, versions
from service.store.backup import BACKUP_NAME
from service.store.bulk import KeyRange, partition_name
from service.store.catch_up import put_positions
from service.store.declared_references import put_references
from service.store.feed_start import put_feed_start
from service.store.generation import (
    TASK_NAME,
    Generation,
    NewAttribute,
    NewTable,
    ServedState,
    SourceDescription,
    registry_name,
)
from service.store.keys import put_keys
from service.store.locks import FINDING_NAME, JOIN_COMPACTION_LOCK, end_sessions
from service.store.row_images import clear_row_images
from service.store.shard_dealing import deal_again
from service.store.shown_values import refuse_shards, shown_of_source
from service.store.sketch_generation import put_sketches
from service.store.stored_texts import forget_texts

LOCK_TIMEOUT = "60s"
"""How long the switch waits for readers that hold gen_rec open, but for those in WAITED_FOR."""
WAITED_FOR = {BACKUP_NAME: "a backup", FINDING_NAME: "a finding of foreign keys"}
"""What has as long as it takes, by the name of its session."""
READER_LOOK_SECONDS = 1.0
COMPACTOR_LOOK = "1s"
"""How long the switch stands in the line for the compactor's lock before it tells that it waits, and can be ended."""


def publish(
    connection: Any,
    served: ServedState,
    source: SourceDescription,
    generation: Generation,
    telling: Callable[[str], None] = lambda _: None,
) -> int:
    """Make a generation the served state, in one transaction, and return the new version; `tidy_up` is for behind it.

    `served` is the state that the generation was built on. A backup, a finding of foreign keys, and whoever indexes
    rows of the source for joins are waited for, which `telling` hears of. Raises StateError when another state is
    served now, or when other readers hold gen_rec for longer than a minute; then nothing has changed.
    """
    version = served.version + 1
    with connection.cursor() as cursor:
        while at_work := _shut_out_compactor(cursor, source.name) or _take_tables(cursor, generation.number):
            telling(f"waiting for the end of {at_work}")
        found, _ = versions.read_served(cursor)
        if found != served.version:
            connection.rollback()
            raise StateError(
                f"The state moved from version {served.version} to {found} while the bootstrap ran, by a writer "
                "without the writer lock. Nothing was changed: stop that writer and bootstrap again."
            )
        _switch_partitions(cursor, generation)
        _replace_clusters(cursor, generation.clusters)
        deal_again(cursor)
        shown = shown_of_source(cursor, source.name)
        source_id = _put_source(cursor, source, version)
        _put_attributes(cursor, source_id, generation.attributes, version)
        told = _tell_dropped(cursor, source_id, shown, shown_of_source(cursor, source.name))
        _hide(cursor, [*told, *(a.attribute_id for a in generation.attributes if a.shown_characters is not None)])
        histograms.forget_values(cursor, [a.attribute_id for a in generation.attributes], version)
        put_keys(cursor, source_id, generation.keys, version)
        put_references(cursor, source_id, generation.references)
        _put_tables(cursor, source_id, generation.tables, version)
        put_sketches(cursor, generation.number, version, generation.sketches)
        cursor.execute(
            "INSERT INTO state_version (version, generation, kind, source_name, records) VALUES (%s, %s, %s, %s, %s)",
            (version, generation.number, "bootstrap", source.name, generation.record_count),
        )
        _put_inds(cursor, generation.inds, version)
        contract_upkeep.hold(cursor, version)
        put_positions(
            cursor,
            source_id,
            source.name,
            version,
            generation.feed_positions,
            generation.stood,
            is_followed=generation.is_followed,
        )
        if generation.feed_start is not None:
            put_feed_start(cursor, generation.feed_start, version)
        cursor.execute(f"DROP TABLE {registry_name(generation.number)}")
        versions.tell_version(cursor, version)
    connection.commit()
    return version


def tidy_up(connection: Any) -> None:
    """Let the planner know what was published, and delete the rows that were kept of what it took the place of."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE cluster; ANALYZE uind; ANALYZE attribute; ANALYZE row_image")
    connection.commit()
    clear_row_images(connection)


def _shut_out_compactor(cursor: Any, source_name: str) -> str | None:
    """Keep away whoever indexes rows of the source for joins; say so where one is at it, which may take many minutes.

    What it has written refers to tables that go, which cannot until its end: all readers would wait behind that.
    """
    cursor.execute(
        "SELECT table_id FROM join_tracked JOIN tracked_table USING (table_id) JOIN source USING (source_id) "
        "WHERE name = %s ORDER BY 1",
        (source_name,),
    )
    table_ids = [table_id for (table_id,) in cursor]
    cursor.execute(f"SET LOCAL lock_timeout = '{COMPACTOR_LOOK}'")
    try:
        for table_id in table_ids:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", (JOIN_COMPACTION_LOCK, table_id))
    except psycopg2.errors.LockNotAvailable:
        cursor.connection.rollback()
        return "the indexing of rows for joins"
    return None


def _take_tables(cursor: Any, number: int) -> str | None:
    """Lock what a generation is put in place of; say who else reads it, and may take as long as it takes."""
    at_work = _reader_at_work(cursor)
    if at_work is not None:  # whoever waits for a lock keeps all others waiting behind it
        cursor.connection.rollback()
        time.sleep(READER_LOOK_SECONDS)
        return at_work
    cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    # All tasks have told what they did: whoever still writes does so a second time (`hold_unpublished`).
    end_sessions(cursor, TASK_NAME)
    try:
        cursor.execute(f"LOCK TABLE {registry_name(number)} IN ACCESS EXCLUSIVE MODE")
        # Before the records: whoever adds a contract holds it against them, and locks them behind it.
        cursor.execute(contract_upkeep.LOCK)
        # Before all that is written: a reader that locks gen_rec, and then takes its snapshot, sees all or nothing.
        cursor.execute("LOCK TABLE gen_rec IN ACCESS EXCLUSIVE MODE")
        cursor.execute("LOCK TABLE row_image IN SHARE MODE")
    except psycopg2.errors.DeadlockDetected:  # one that began meanwhile, and takes them in another order
        cursor.connection.rollback()
        return "another transaction"
    except psycopg2.errors.LockNotAvailable as error:
        cursor.connection.rollback()
        at_work = _reader_at_work(cursor)
        if at_work is not None:  # it has begun meanwhile
            return at_work
        raise StateError(
            f"Readers kept the records in use for {LOCK_TIMEOUT}, so the new state could not be put in place. "
            "The old one is still served: end long-running sessions on the database, then bootstrap again."
        ) from error
    return None


def _reader_at_work(cursor: Any) -> str | None:
    """Say which of those reads the records that end by themselves, and may take long."""
    cursor.execute(
        "SELECT min(application_name) FROM pg_locks JOIN pg_stat_activity a USING (pid) WHERE granted "
        "AND relation = 'gen_rec'::regclass AND a.datname = current_database() AND application_name = any (%s)",
        (list(WAITED_FOR),),
    )
    (found,) = cursor.fetchone()
    return None if found is None else WAITED_FOR[found]


def _switch_partitions(cursor: Any, generation: Generation) -> None:
    cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'gen_rec'::regclass")
    for (name,) in cursor.fetchall():
        cursor.execute(f"DROP TABLE {name}")
    for number in range(1 << generation.bits):
        key_range = KeyRange(number, generation.bits)
        name = partition_name(generation.number, number)
        cursor.execute(f"ALTER TABLE gen_rec ATTACH PARTITION {name} FOR VALUES {key_range.partition_bound()}")
        cursor.execute(f"ALTER TABLE {name} DROP CONSTRAINT {name}_range")  # the partition's bound says it from now on


def _replace_clusters(cursor: Any, clusters: Mapping[int, tuple[Sequence[int], int]]) -> None:
    cursor.execute("DELETE FROM cluster")
    lines = "".join(
        f"{cluster_id}\t{{{','.join(map(str, ids))}}}\t{count}\n" for cluster_id, (ids, count) in clusters.items()
    )
    cursor.copy_expert("COPY cluster (cluster_id, attribute_ids, value_count) FROM STDIN", io.StringIO(lines))


def _put_source(cursor: Any, source: SourceDescription, version: int) -> int:
    cursor.execute(
        "INSERT INTO source (name, kind, location, settings, insert_only, snapshot, bootstrapped_version, sketch_only) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, "
        "location = excluded.location, settings = excluded.settings, insert_only = excluded.insert_only, "
        "snapshot = excluded.snapshot, bootstrapped_version = excluded.bootstrapped_version, bootstrapped_at = now(), "
        "sketch_only = excluded.sketch_only RETURNING source_id",
        (
            source.name, source.kind, source.location, json.dumps(dict(source.settings)), source.insert_only,
            source.snapshot, version, source.sketch_only,
        ),
    )  # fmt: skip
    return int(cursor.fetchone()[0])


def _put_attributes(cursor: Any, source_id: int, attributes: Sequence[NewAttribute], version: int) -> None:
    """Store the attributes of a source; those that are gone keep a row, for history speaks of them."""
    cursor.execute(
        "UPDATE attribute SET dropped_version = %s, row_count = 0, null_count = 0, distinct_count = 0, "
        "repeated_count = 0 WHERE source_id = %s AND attribute_id <> ALL (%s) AND dropped_version IS NULL",
        (version, source_id, [a.attribute_id for a in attributes]),
    )
    cursor.execute(  # of tuples places may have been exchanged
        "UPDATE attribute SET dropped_version = %s WHERE source_id = %s AND parts IS NOT NULL "
        "AND dropped_version IS NULL",
        (version, source_id),
    )
    execute_values(
        cursor,
        "INSERT INTO attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, data_type, "
        "row_count, null_count, distinct_count, repeated_count, parts, shown_characters) VALUES %s "
        "ON CONFLICT (attribute_id) DO UPDATE SET ordinal = excluded.ordinal, parts = excluded.parts, snapshot = NULL, "
        "data_type = excluded.data_type, row_count = excluded.row_count, null_count = excluded.null_count, "
        "distinct_count = excluded.distinct_count, repeated_count = excluded.repeated_count, dropped_version = NULL, "
        "stale_version = NULL, added_version = NULL, shown_characters = excluded.shown_characters, "
        # What was announced of a column that still has its old name is to come yet.
        "renamed_to = CASE WHEN num_nulls(attribute.dropped_version, attribute.stale_version) = 2 "
        "THEN attribute.renamed_to END",
        [
            (
                a.attribute_id, source_id, *a.name, a.ordinal, a.data_type, a.row_count, a.null_count,
                a.distinct_count, a.repeated_count, None if a.parts is None else list(a.parts), a.shown_characters,
            )
            for a in attributes
        ],
    )  # fmt: skip


def _tell_dropped(cursor: Any, source_id: int, before: int | None, now: int | None) -> list[int]:
    """Say of columns that are gone, and may come back, what is said of their source now; give those that keep less.

    What one was told by itself stays.
    """
    cursor.execute(
        "UPDATE attribute SET shown_characters = %s WHERE source_id = %s AND dropped_version IS NOT NULL "
        "AND parts IS NULL AND shown_characters IS NOT DISTINCT FROM %s AND shown_characters IS DISTINCT FROM %s "
        "RETURNING attribute_id",
        (now, source_id, before, now),
    )
    return [] if now is None else [attribute_id for (attribute_id,) in cursor]


def _hide(cursor: Any, hidden: Sequence[int]) -> None:
    if hidden:
        forget_texts(cursor, hidden)
        refuse_shards(cursor)


def _put_tables(cursor: Any, source_id: int, tables: Sequence[NewTable], version: int) -> None:
    """Store the tables of a source in the place of those it had, whose images are cleared afterwards."""
    indexed = join_tracked.names_of(cursor, source_id)
    cursor.execute("DELETE FROM tracked_table WHERE source_id = %s", (source_id,))
    for table in tables:
        table_id = "DEFAULT" if table.images_id is None else str(table.images_id)
        cursor.execute(
            "INSERT INTO tracked_table (table_id, source_id, schema_name, table_name, source_database, source_schema, "
            "source_table, key_columns, replica_identity, row_images, begun_version) OVERRIDING SYSTEM VALUE "
            f"VALUES ({table_id}, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                source_id, table.schema, table.name, *table.wire, list(table.key_columns), table.replica_identity,
                table.images_id is not None, version,
            ),
        )  # fmt: skip
    join_tracked.index_anew(cursor, source_id, indexed)


def _put_inds(cursor: Any, inds: NDArray[np.int32], version: int) -> None:
    """Close the intervals of INDs that no longer hold, open those of new ones, and record both as transitions."""
    cursor.execute("CREATE TEMPORARY TABLE found (dependent_id integer, referenced_id integer) ON COMMIT DROP")
    lines = "".join(f"{dependent}\t{referenced}\n" for dependent, referenced in inds.tolist())
    cursor.copy_expert("COPY found FROM STDIN", io.StringIO(lines))
    cursor.execute("ANALYZE found")
    cursor.execute(
        "WITH broken AS (UPDATE uind u SET until_version = %(version)s WHERE until_version IS NULL AND NOT EXISTS "
        "(SELECT FROM found f WHERE f.dependent_id = u.dependent_id AND f.referenced_id = u.referenced_id) "
        "RETURNING dependent_id, referenced_id), "
        "appeared AS (INSERT INTO uind (dependent_id, referenced_id, since_version) "
        "SELECT dependent_id, referenced_id, %(version)s FROM found f WHERE NOT EXISTS (SELECT FROM uind u WHERE "
        "u.until_version IS NULL AND u.dependent_id = f.dependent_id AND u.referenced_id = f.referenced_id) "
        "RETURNING dependent_id, referenced_id) "
        "INSERT INTO ind_transition (version, dependent_id, referenced_id, kind) "
        "SELECT %(version)s, dependent_id, referenced_id, 'broke' FROM broken UNION ALL "
        "SELECT %(version)s, dependent_id, referenced_id, 'appeared' FROM appeared",
        {"version": version},
    )
