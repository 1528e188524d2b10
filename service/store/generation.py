"""Own a bootstrap's generation in the store: who may build it, its registry of clusters, its switch, its remains.

A generation is built beside the one that is served (design note 3): partitions that nobody sees, and a registry
table that gives each attribute set one cluster id. `publish` makes it the served state in one transaction. What a
job that died left behind, `clear_remains` drops.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import psycopg2
from numpy.typing import NDArray
from psycopg2.extras import execute_values

from service.core.errors import StateError
from service.core.model import AttributeName
from service.core.sketch_upkeep import SketchForm
from service.store import contract_upkeep, histograms, join_tracked, versions
from service.store.bulk import KeyRange, partition_name
from service.store.catch_up import Place, put_positions
from service.store.declared_references import NewReference, put_references
from service.store.feed_start import FeedStart, put_feed_start
from service.store.keys import NewKey, put_keys
from service.store.row_images import clear_row_images
from service.store.shard_dealing import deal_again
from service.store.shown_values import refuse_shards
from service.store.sketch_generation import put_sketches
from service.store.stored_texts import forget_texts

DRIVER_NAME = "subsetd bootstrap"
TASK_NAME = "subsetd bootstrap task"
NOT_READ = -1
"""Stands for the id of an attribute whose column is not to be read."""
LOCK_TIMEOUT = "60s"
"""How long the switch waits for readers that hold gen_rec open, but for a backup, which has as long as it takes."""
BACKUP_NAME = "subsetd backup"
BACKUP_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ServedState:
    """Describe what is served when a bootstrap begins; version and generation are 0 before the first one."""

    version: int
    generation: int
    record_count: int


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """Describe the source that is bootstrapped, as `source` keeps it."""

    name: str
    kind: str
    location: str
    settings: Mapping[str, object]
    insert_only: bool
    snapshot: str | None = None
    sketch_only: bool = False


class NewName(NamedTuple):
    """Name an attribute of the bootstrapped source, a derived one by the ordinals of its parts as well."""

    name: AttributeName
    parts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class NewAttribute:
    """Hold one attribute of the bootstrapped source with its counters; see AttributeCounters for None."""

    attribute_id: int
    name: AttributeName
    ordinal: int
    data_type: str
    row_count: int
    null_count: int
    distinct_count: int | None
    repeated_count: int | None
    parts: tuple[int, ...] | None = None
    shown_characters: int | None = None


@dataclass(frozen=True, slots=True)
class NewTable:
    """Hold one table of the bootstrapped source: what changes call it, what tells its rows apart, and its images.

    With `images_id` its row images were written under that table_id (`new_table_ids`).
    """

    schema: str
    name: str
    wire: tuple[str | None, str, str]
    key_columns: Sequence[str] = ()
    replica_identity: str | None = None
    images_id: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """Hold all that the switch writes beside the partitions: clusters as (attribute ids, value count) by id."""

    number: int
    bits: int
    clusters: Mapping[int, tuple[Sequence[int], int]]
    attributes: Sequence[NewAttribute]
    inds: NDArray[np.int32]
    record_count: int
    tables: Sequence[NewTable]
    feed_positions: Sequence[tuple[str, str, int, int]] = field(default=())
    stood: Mapping[Place, int] | None = None
    """Where feeds stood before the source was read; None when its changes cannot be told from its data."""
    is_followed: bool = False
    """Whether a consumer followed a feed while the source was read."""
    feed_start: FeedStart | None = None
    """Where the feed begins that was made for this bootstrap."""
    sketches: SketchForm | None = None
    """Of what form its sketches are, if it has some."""
    keys: Sequence[NewKey] = ()
    references: Sequence[NewReference] = ()


def clear_remains(connection: Any) -> None:
    """Drop what bootstraps that died left behind, and commit; the bootstrap lock must be held.

    Whoever holds the lock knows that sessions of other bootstraps' tasks are orphans: they are ended first,
    because they could still commit a table.
    """
    with connection.cursor() as cursor:
        _end_tasks(cursor)
        cursor.execute(
            r"SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            r"WHERE c.relkind = 'r' AND NOT c.relispartition AND n.nspname = current_schema() "
            r"AND (c.relname ~ '^gen_rec_g\d+_p\d+$' OR c.relname ~ '^gen_(cluster|sketch)_g\d+$')"
        )
        names = [name for (name,) in cursor.fetchall()]
        connection.commit()
        for start in range(0, len(names), 50):  # a lock for each table and index: not thousands in one transaction
            cursor.execute("DROP TABLE IF EXISTS " + ", ".join(names[start : start + 50]))
            connection.commit()
    clear_row_images(connection)


def _end_tasks(cursor: Any) -> None:
    cursor.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = %s AND pid <> pg_backend_pid()",
        (TASK_NAME,),
    )


def hold_unpublished(connection: Any, generation: int) -> None:
    """Let a task write to a generation until its transaction ends; StateError when it is published, or dropped.

    A second attempt of a task may outlive the job that has no need of it: it would replace what is served.
    """
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"LOCK TABLE {_registry(generation)} IN ACCESS SHARE MODE")
        except psycopg2.errors.UndefinedTable as error:
            connection.rollback()
            raise StateError(f"Generation {generation} is no longer being built; nothing was changed.") from error


def read_served(connection: Any) -> ServedState:
    """Read the version and generation that are served."""
    with connection.cursor() as cursor:
        version, generation = versions.read_served(cursor)
        cursor.execute("SELECT coalesce(sum(value_count), 0) FROM cluster")
        (record_count,) = cursor.fetchone()
    connection.commit()
    return ServedState(version, generation, int(record_count))


def read_source(connection: Any, name: str) -> tuple[dict[str, Any], bool, bool]:
    """Read (settings, is insert-only, is sketch-only) of a source; raise StateError for one that is not known."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT settings, insert_only, sketch_only FROM source WHERE name = %s", (name,))
        row = cursor.fetchone()
    connection.commit()
    if row is None:
        raise StateError(f"There is no source {name!r} in the state; `subsetd status` lists those there are.")
    return row[0], row[1], row[2]


def require_replaceable(connection: Any, name: str, replace: bool) -> None:
    """Raise StateError when the source is bootstrapped already and is not to be replaced."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT bootstrapped_version FROM source WHERE name = %s", (name,))
        row = cursor.fetchone()
    connection.commit()
    if row and not replace:
        raise StateError(
            f"The source {name!r} was bootstrapped already, as version {row[0]}. "
            "Give --replace to read it anew, or another --name to add a second source."
        )


def assign_attribute_ids(
    connection: Any, source_name: str, names: Sequence[NewName], *, leaves_stale: bool = False
) -> tuple[list[int], list[int]]:
    """Return (the ids for `names`, the ids of the source in the served state that are to be replaced).

    A name that the source has, or had once, keeps its id; others get new ids, never one that history speaks of. With
    `leaves_stale` attributes that are not kept current stay as they are: NOT_READ stands for their names.
    Raises StateError for a name that another source has.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.schema_name, a.table_name, a.column_name, a.attribute_id, s.name, a.dropped_version IS NULL, "
            "%s AND a.stale_version IS NOT NULL AND a.dropped_version IS NULL, a.parts IS NOT NULL "
            "FROM attribute a JOIN source s USING (source_id) "
            "WHERE a.dropped_version IS NULL OR s.name = %s ORDER BY a.dropped_version IS NULL, a.attribute_id",
            (leaves_stale, source_name),
        )
        found = cursor.fetchall()
        known = {(AttributeName(*row[:3]), row[7]): (NOT_READ if row[6] else row[3], row[4]) for row in found}
        cursor.execute(
            "SELECT greatest((SELECT max(attribute_id) FROM attribute), (SELECT max(dependent_id) FROM uind), "
            "(SELECT max(referenced_id) FROM uind), -1)"
        )
        last = cursor.fetchone()[0]
    connection.commit()
    ids = []
    for name, parts in names:
        attribute_id, owner = known.get((name, parts is not None), (None, source_name))
        if owner != source_name:
            raise StateError(
                f"The column {name} is already followed in the source {owner!r}. "
                f"Give --qualify to call this one {source_name}.{name}, or --exclude its table."
            )
        if attribute_id is None:
            last += 1
            attribute_id = last
        ids.append(attribute_id)
    replaced = [
        attribute_id
        for *_, attribute_id, owner, is_live, is_left, _ in found
        if is_live and not is_left and owner == source_name
    ]
    return ids, replaced


def last_attribute_id(connection: Any) -> int:
    """Give the highest id that an attribute has, -1 where there is none."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(attribute_id), -1) FROM attribute")
        (last,) = cursor.fetchone()
    connection.commit()
    return int(last)


def create_registry(connection: Any, generation: int) -> None:
    """Make the table that gives the attribute sets of a generation their cluster ids, and commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            # B-tree entries are limited to 2.7 KB and sets are not, so a set is found by a hash of its ids.
            f"CREATE UNLOGGED TABLE {_registry(generation)} "
            "(set_key uuid PRIMARY KEY, cluster_id bigint NOT NULL UNIQUE, attribute_ids integer[] NOT NULL)"
        )
    connection.commit()


def register_clusters(connection: Any, generation: int, sets: Sequence[NDArray[np.int32]]) -> NDArray[np.int64]:
    """Return the cluster id of each attribute set, giving new ones to sets not seen before; commits.

    Ids of a generation are dense from 1, and the same for every task and every attempt.
    """
    keys = [hashlib.sha256(s.astype("<i4").tobytes()).hexdigest()[:32] for s in sets]
    table = _registry(generation)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMPORARY TABLE wanted (place integer, set_key uuid, attribute_ids integer[]) ON COMMIT DROP"
        )
        lines = "".join(
            f"{place}\t{key}\t{{{','.join(map(str, s.tolist()))}}}\n"
            for place, (key, s) in enumerate(zip(keys, sets, strict=True))
        )
        cursor.copy_expert("COPY wanted FROM STDIN", io.StringIO(lines))
        # One task at a time, for a moment: so ids have no gaps, which ON CONFLICT and a sequence would leave.
        cursor.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(
            f"INSERT INTO {table} SELECT w.set_key, "
            f"(SELECT count(*) FROM {table}) + row_number() OVER (ORDER BY place), w.attribute_ids "
            f"FROM wanted w WHERE NOT EXISTS (SELECT FROM {table} r WHERE r.set_key = w.set_key)"
        )
        cursor.execute(f"SELECT r.cluster_id FROM wanted w JOIN {table} r USING (set_key) ORDER BY w.place")
        ids = np.array([cluster_id for (cluster_id,) in cursor.fetchall()], np.int64)
    connection.commit()
    return ids


def read_registry(connection: Any, generation: int) -> dict[int, list[int]]:
    """Read all clusters of a generation: attribute ids by cluster id."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT cluster_id, attribute_ids FROM {_registry(generation)}")
        clusters = dict(cursor.fetchall())
    connection.commit()
    return clusters


def publish(
    connection: Any,
    served: ServedState,
    source: SourceDescription,
    generation: Generation,
    telling: Callable[[str], None] = lambda _: None,
) -> int:
    """Make a generation the served state, in one transaction, and return the new version; `tidy_up` is for behind it.

    `served` is the state that the generation was built on. A backup, which `telling` hears of, is waited for. Raises
    StateError when another state is served now, or when other readers hold gen_rec for longer than a minute; then
    nothing has changed.
    """
    version = served.version + 1
    with connection.cursor() as cursor:
        while not _took_tables(cursor, generation.number):
            telling("waiting for the end of a backup")
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
        source_id = _put_source(cursor, source, version)
        _put_attributes(cursor, source_id, generation.attributes, version)
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
        cursor.execute(f"DROP TABLE {_registry(generation.number)}")
        versions.tell_version(cursor, version)
    connection.commit()
    return version


def tidy_up(connection: Any) -> None:
    """Let the planner know what was published, and delete the rows that were kept of what it took the place of."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE cluster; ANALYZE uind; ANALYZE attribute; ANALYZE row_image")
    connection.commit()
    clear_row_images(connection)


def _took_tables(cursor: Any, number: int) -> bool:
    """Lock what a generation is put in place of; False where a backup reads it, which may take as long as it takes."""
    if _is_backed_up(cursor):  # whoever waits for a lock keeps all others waiting behind it
        cursor.connection.rollback()
        time.sleep(BACKUP_LOOK_SECONDS)
        return False
    cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    # All tasks have told what they did: whoever still writes does so a second time (`hold_unpublished`).
    _end_tasks(cursor)
    try:
        cursor.execute(f"LOCK TABLE {_registry(number)} IN ACCESS EXCLUSIVE MODE")
        # Before all that is written: a reader that locks gen_rec, and then takes its snapshot, sees all or nothing.
        cursor.execute("LOCK TABLE gen_rec IN ACCESS EXCLUSIVE MODE")
        cursor.execute("LOCK TABLE row_image IN SHARE MODE")
    except psycopg2.errors.LockNotAvailable as error:
        cursor.connection.rollback()
        if _is_backed_up(cursor):  # it has begun meanwhile
            return False
        raise StateError(
            f"Readers kept the records in use for {LOCK_TIMEOUT}, so the new state could not be put in place. "
            "The old one is still served: end long-running sessions on the database, then bootstrap again."
        ) from error
    return True


def _is_backed_up(cursor: Any) -> bool:
    cursor.execute(
        "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity a USING (pid) WHERE granted "
        "AND relation = 'gen_rec'::regclass AND a.datname = current_database() AND application_name = %s)",
        (BACKUP_NAME,),
    )
    (found,) = cursor.fetchone()
    return bool(found)


def _registry(generation: int) -> str:
    return f"gen_cluster_g{generation}"


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
        "stale_version = NULL, added_version = NULL, renamed_to = NULL, shown_characters = excluded.shown_characters",
        [
            (
                a.attribute_id, source_id, *a.name, a.ordinal, a.data_type, a.row_count, a.null_count,
                a.distinct_count, a.repeated_count, None if a.parts is None else list(a.parts), a.shown_characters,
            )
            for a in attributes
        ],
    )  # fmt: skip
    hidden = [a.attribute_id for a in attributes if a.shown_characters is not None]
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
