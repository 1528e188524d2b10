"""Own a bootstrap's generation in the store: who may build it, its registry of clusters, its remains.

A generation is built beside the one that is served (design note 3): partitions that nobody sees, and a registry
table that gives each attribute set one cluster id. `publication` makes it the served state. What a job that died left
behind, `clear_remains` drops.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import psycopg2
from numpy.typing import NDArray

from service.core.errors import StateError
from service.core.model import AttributeName
from service.core.sketch_upkeep import SketchForm
from service.store import versions
from service.store.catch_up import Place
from service.store.database import told_too_long
from service.store.declared_references import NewReference
from service.store.feed_start import FeedStart
from service.store.keys import NewKey
from service.store.locks import end_sessions
from service.store.row_images import clear_row_images

DRIVER_NAME = "subsetd bootstrap"
TASK_NAME = "subsetd bootstrap task"
NOT_READ = -1
"""Stands for the id of an attribute whose column is not to be read."""

REMAINS = r"""
select relname from pg_class where relkind = 'r' and not relispartition
and relnamespace = quote_ident(current_schema())::regnamespace
and relname ~ '^gen_(rec_g\d+_p\d+|(cluster|sketch)_g\d+)$'
"""
"""The tables of generations that are not served: of one that is being built, or was by a bootstrap that died."""


SURELY_SHORT = 1500
"""Bytes of a column's name that go into an index with those of its table: 2,704 do."""

NAMED = """
CREATE TEMPORARY TABLE named (schema_name text, table_name text, column_name text,
    UNIQUE (schema_name, table_name, column_name)) ON COMMIT DROP
"""


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
        end_sessions(cursor, TASK_NAME)
        cursor.execute(REMAINS)
        names = [name for (name,) in cursor.fetchall()]
        connection.commit()
        for start in range(0, len(names), 50):  # a lock for each table and index: not thousands in one transaction
            cursor.execute("DROP TABLE IF EXISTS " + ", ".join(names[start : start + 50]))
            connection.commit()
    clear_row_images(connection)


def hold_unpublished(connection: Any, generation: int, registry: int) -> None:
    """Let a task write to a generation until its transaction ends; StateError when it is published, or dropped.

    A second attempt of a task may outlive the job that has no need of it: it would replace what is served, or what the
    next bootstrap builds under the same number, whose `registry` is another (`create_registry`).
    """
    name = registry_name(generation)
    with connection.cursor() as cursor, suppress(psycopg2.errors.UndefinedTable):
        cursor.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE")
        cursor.execute("SELECT %s::regclass::oid", (name,))
        if cursor.fetchone() == (registry,):
            return
    connection.rollback()
    raise StateError(f"Generation {generation} is no longer being built by this job; nothing was changed.")


def read_served(connection: Any) -> ServedState:
    """Read the version and generation that are served."""
    with connection.cursor() as cursor:
        version, generation = versions.read_served(cursor)
        cursor.execute("SELECT coalesce(sum(value_count), 0) FROM cluster")
        (record_count,) = cursor.fetchone()
    connection.commit()
    return ServedState(version, generation, int(record_count))


def find_source(connection: Any, name: str) -> tuple[dict[str, Any], bool, bool] | None:
    """Read (settings, is insert-only, is sketch-only) of a source; None for one that is not known."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT settings, insert_only, sketch_only FROM source WHERE name = %s", (name,))
        row: tuple[dict[str, Any], bool, bool] | None = cursor.fetchone()
    connection.commit()
    return row


def read_source(connection: Any, name: str) -> tuple[dict[str, Any], bool, bool]:
    """Read what `find_source` does; raise StateError for a source that is not known."""
    found = find_source(connection, name)
    if found is None:
        raise StateError(f"There is no source {name!r} in the state; `subsetd status` lists those there are.")
    return found


def read_row_keys(connection: Any, name: str) -> dict[str, tuple[str, ...]]:
    """Give, by the names that a source's tables have there, the columns that tell their rows apart, where known."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT source_schema || '.' || source_table, key_columns FROM tracked_table "
            "JOIN source USING (source_id) WHERE name = %s AND key_columns <> '{}'",
            (name,),
        )
        found = {table: tuple(columns) for table, columns in cursor}
    connection.commit()
    return found


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
    Raises StateError for a table that another source has, and for a name that is too long.
    """
    require_names(connection, [name for name, parts in names if parts is None])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.schema_name, a.table_name, a.column_name, a.attribute_id, s.name, a.dropped_version IS NULL, "
            "%s AND a.stale_version IS NOT NULL AND a.dropped_version IS NULL, a.parts IS NOT NULL "
            "FROM attribute a JOIN source s USING (source_id) "
            "WHERE a.dropped_version IS NULL OR s.name = %s ORDER BY a.dropped_version IS NULL, a.attribute_id",
            (leaves_stale, source_name),
        )
        found = cursor.fetchall()
        known = {
            (AttributeName(*row[:3]), row[7]): NOT_READ if row[6] else row[3] for row in found if row[4] == source_name
        }
        owners = {row[:2]: row[4] for row in found if row[4] != source_name}
        cursor.execute(
            "SELECT greatest((SELECT max(attribute_id) FROM attribute), (SELECT max(dependent_id) FROM uind), "
            "(SELECT max(referenced_id) FROM uind), -1)"
        )
        last = cursor.fetchone()[0]
    connection.commit()
    ids = []
    for name, parts in names:
        owner = owners.get((name.schema, name.table))
        if owner is not None:
            table = f"{name.schema}.{name.table}"
            raise StateError(
                f"The table {table} is already followed in the source {owner!r}. "
                f"Give --qualify to call this one {source_name}.{table}, or --exclude it."
            )
        attribute_id = known.get((name, parts is not None))
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


def require_names(connection: Any, names: Sequence[AttributeName]) -> None:
    """Raise StateError for a column whose name does not go into the index of names, as it would at the bootstrap's end.

    How many bytes do depends on how far Postgres can compress them.
    """
    with connection.cursor() as cursor:
        for name in names:
            if len(name.column.encode()) < SURELY_SHORT:
                continue
            try:
                cursor.execute(NAMED)
                cursor.execute("INSERT INTO named VALUES (%s, %s, %s)", name)
            except psycopg2.errors.ProgramLimitExceeded as error:
                raise StateError(
                    f"The column {name.column[:40]!r}... of {name.schema}.{name.table}: {told_too_long(error)}. Rename "
                    "it in the source, or leave the table out with --exclude; CSV files without a header want "
                    "--no-header."
                ) from error
            finally:
                connection.rollback()


def last_attribute_id(connection: Any) -> int:
    """Give the highest id that an attribute has, -1 where there is none."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(attribute_id), -1) FROM attribute")
        (last,) = cursor.fetchone()
    connection.commit()
    return int(last)


def create_registry(connection: Any, generation: int) -> int:
    """Make the table that gives the attribute sets of a generation their cluster ids, and commit.

    Gives its oid: the registry of a bootstrap that died had the same name, as a number is free until it is published.
    """
    name = registry_name(generation)
    with connection.cursor() as cursor:
        cursor.execute(
            # B-tree entries are limited to 2.7 KB and sets are not, so a set is found by a hash of its ids.
            f"CREATE UNLOGGED TABLE {name} "
            "(set_key uuid PRIMARY KEY, cluster_id bigint NOT NULL UNIQUE, attribute_ids integer[] NOT NULL)"
        )
        cursor.execute("SELECT %s::regclass::oid", (name,))
        (registry,) = cursor.fetchone()
    connection.commit()
    return int(registry)


def register_clusters(connection: Any, generation: int, sets: Sequence[NDArray[np.int32]]) -> NDArray[np.int64]:
    """Return the cluster id of each attribute set, giving new ones to sets not seen before; commits.

    Ids of a generation are dense from 1, and the same for every task and every attempt.
    """
    keys = [hashlib.sha256(s.astype("<i4").tobytes()).hexdigest()[:32] for s in sets]
    table = registry_name(generation)
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
        cursor.execute(f"SELECT cluster_id, attribute_ids FROM {registry_name(generation)}")
        clusters = dict(cursor.fetchall())
    connection.commit()
    return clusters


def registry_name(generation: int) -> str:
    """Name the registry of a generation's clusters."""
    return f"gen_cluster_g{generation}"
