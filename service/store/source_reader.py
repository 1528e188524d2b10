"""Own the reading of a Postgres that is a source: one exported snapshot, its tables, and page ranges by COPY."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg2
import psycopg2.errors
from psycopg2 import sql

from service.core.errors import SourceError, StateError, first_line
from service.core.exclusion import not_excluded
from service.core.retyping import keeps_texts
from service.core.secret_parameters import SECRET_PARAMETERS
from service.core.sql_names import TYPE_NAME
from service.store.canonical_sql import SESSION_SETTINGS, canonical_expression
from service.store.database import connect, parse_address, place
from service.store.source_constraints import UNCONSTRAINED, Constraints, read_constraints

READER_NAME = "subsetd bootstrap reader"
NOTHING_STORED = "Nothing was stored"

_TABLES = """
SELECT c.oid, n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY n.nspname, c.relname
"""

# A domain is read as its base type: the type's modifier may stand at any level.
_COLUMNS = f"""
WITH RECURSIVE resolved AS (
  SELECT a.attrelid, a.attnum, a.attname, a.attgenerated, a.atttypid AS kind, a.atttypmod AS modifier, 0 AS step
  FROM pg_attribute a WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = ANY (%s)
  UNION ALL
  SELECT r.attrelid, r.attnum, r.attname, r.attgenerated, coalesce(of_array.typarray, t.typbasetype),
    CASE WHEN r.modifier = -1 THEN coalesce(element.typtypmod, t.typtypmod) ELSE r.modifier END, r.step + 1
  FROM resolved r JOIN pg_type t ON t.oid = r.kind
  LEFT JOIN pg_type element ON element.oid = t.typelem AND element.typtype = 'd' AND t.typcategory = 'A'
  LEFT JOIN pg_type of_array ON of_array.oid = element.typbasetype AND of_array.typarray <> 0
  WHERE t.typtype = 'd' OR of_array.oid IS NOT NULL
)
SELECT DISTINCT ON (attrelid, attnum) attrelid, attname, {TYPE_NAME}, attgenerated, attnum
FROM resolved ORDER BY attrelid, attnum, step DESC
"""

# A partition's own replica identity decides what its changes tell; the weakest is that of the whole table.
_IDENTITIES = """
SELECT c.oid,
  (SELECT CASE
     WHEN bool_and(p.relreplident = 'f') THEN 'full'
     WHEN bool_or(p.relreplident = 'n') THEN 'nothing'
     WHEN bool_or(p.relreplident = 'd') THEN 'default'
     ELSE 'index' END
   FROM pg_class p WHERE p.relkind = 'r'
   AND p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf UNION SELECT c.oid)),
  coalesce((SELECT array_agg(a.attname ORDER BY k.place) FROM pg_index i
     CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
     JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
     WHERE i.indrelid = c.oid AND k.place <= i.indnkeyatts
     AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END), '{}')
FROM pg_class c WHERE c.oid = ANY (%s)
"""

# A table that was dropped since the snapshot has no size: that it is gone is told where it is read.
_LEAVES = """
SELECT p.relid, n.nspname, c.relname, c.relkind = 'r',
  coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int, coalesce(pg_table_size(c.oid), 0)
FROM (SELECT relid FROM pg_partition_tree(%(root)s) WHERE isleaf UNION SELECT %(root)s::regclass) p
JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p' ORDER BY 1
"""


_FILES = """
SELECT n.nspname || '.' || c.relname, c.relfilenode, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""


class PageRange(NamedTuple):
    """Name the pages [first, end) of a stored table; `end` None: to its end; `first` None: a table without pages."""

    schema: str
    table: str
    first: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Name a table, its columns with their types, and the tables that store it with (pages or None, bytes).

    `key_columns` are those of its replica identity's index or its primary key; `replica_identity` is full, default,
    index or nothing, None of a partitioned table without partitions. `constraints` may name columns that are not read.
    """

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]
    parts: tuple[tuple[str, str, int | None, int], ...]
    key_columns: tuple[str, ...] = ()
    replica_identity: str | None = None
    constraints: Constraints = UNCONSTRAINED


class SourceSnapshot:
    """Hold one snapshot of a source open, for tasks to join by its name, until it is closed.

    With `exported` it is that of another session (a new replication slot's), which must still be open.
    """

    def __init__(self, url: str, exported: str | None = None) -> None:
        self.url = url
        self.place = place(parse_address(url))
        self._context = _connected(url)
        self._connection = self._context.__enter__()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if exported is not None:
                    cursor.execute("SET TRANSACTION SNAPSHOT %s", (exported,))
                cursor.execute("SELECT pg_export_snapshot(), pg_current_snapshot()::text")
                self.exported, self.visible = cursor.fetchone()
        except psycopg2.Error as error:
            self.close()
            raise SourceError(
                f"The {self.place} gives no snapshot: {first_line(error)}. It must be Postgres 13 or later, and no "
                f"standby."
            ) from error

    def tables(self, *, published: bool = False) -> list[StoredTable]:
        """List all ordinary and partitioned tables outside the system's schemas; partitions belong to their root.

        Tables that inherit in the old way are tables of their own. With `published` generated columns are left out
        that changes do not tell: all of them before Postgres 18, from then on those that are not stored.
        """
        with self._held() as cursor:
            cursor.execute(_TABLES)
            found = cursor.fetchall()
            cursor.execute(_COLUMNS, ([row[0] for row in found],))
            columns: dict[int, list[tuple[str, str]]] = {}
            told = ("", "s") if not published or self._connection.server_version >= 180000 else ("",)
            for oid, name, kind, generated, _ in cursor.fetchall():
                if not published or generated in told:
                    columns.setdefault(oid, []).append((name, kind))
            cursor.execute(_IDENTITIES, ([row[0] for row in found],))
            identities = {oid: (identity, tuple(key)) for oid, identity, key in cursor.fetchall()}
            constraints = read_constraints(cursor, (row[0] for row in found))
            tables = []
            for oid, schema, name in found:
                if oid not in columns:
                    continue  # a table without columns
                cursor.execute(_LEAVES, {"root": oid})
                leaves = cursor.fetchall()
                parts = tuple((row[1], row[2], row[4] if row[3] else None, row[5]) for row in leaves)
                identity, key = identities[oid]
                if not {name for name, _ in columns[oid]}.issuperset(key):
                    key = ()
                declared = constraints.get(oid, UNCONSTRAINED)
                tables.append(StoredTable(schema, name, tuple(columns[oid]), parts, key, identity, declared))
            return tables

    def chosen(self, tables: Sequence[StoredTable], excluded: Sequence[str]) -> list[StoredTable]:
        """Give the tables that are not excluded; raise SourceError where none is left, or an exclusion fits none."""
        names = set(not_excluded(((table.schema, table.name) for table in tables), excluded))
        if not names:
            raise SourceError(f"The {self.place} has no table that the user of the address can see.")
        return [table for table in tables if (table.schema, table.name) in names]

    def require_unbroken(self, tables: Sequence[StoredTable]) -> None:
        """Raise SourceError when a table was truncated or rewritten since the snapshot, or a column of it is another.

        The first two give a table new files, of which a snapshot taken before sees nothing; what was read of it is
        then too little, and not even an error. Columns are read by their present names and types, whatever the snapshot
        says: two that swapped their names, or a type without a rewrite, would give other texts. (A column that is only
        gone is an error where it is read, and a change of its table behind that.)
        """
        read = {(table.schema, table.name) for table in tables}
        named = sorted(read | {(schema, name) for table in tables for schema, name, *_ in table.parts})
        wanted = ([schema for schema, _ in named], [name for _, name in named])
        with self._held() as cursor:
            cursor.execute(_FILES, wanted)
            found = cursor.fetchall()
            before = {name: file for name, file, _ in found}
            names = {oid: name for name, _, oid in found}
            shapes = _shapes(cursor, names)
        with _connected(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(_FILES, wanted)
            after = {name: file for name, file, _ in cursor.fetchall()}
            shapes_now = _shapes(cursor, names)
        broken = {name for name, file in before.items() if after.get(name) != file}
        for column, (number, kind) in shapes.items():
            number_now, kind_now = shapes_now.get(column, (number, kind))
            if number != number_now or not keeps_texts(kind, kind_now):
                broken.add(f"{names[column[0]]}.{column[1]}")
        if broken:
            raise SourceError(
                f"{', '.join(sorted(broken))}: truncated, rewritten, dropped, or of another name or type since the "
                f"{self.place} began to be read, so its snapshot no longer shows what was in it. "
                f"{NOTHING_STORED}: run the same command again."
            )

    @contextmanager
    def _held(self) -> Iterator[Any]:
        """Give a cursor in the snapshot; raise SourceError where its session, hours old perhaps, is no more."""
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except psycopg2.Error as error:
            told = f"The {self.place} lost the snapshot: {first_line(error)}."
            raise SourceError(f"{told} {NOTHING_STORED}: run the same command again.") from error

    def close(self) -> None:
        """Let the snapshot go."""
        self._context.__exit__(None, None, None)


def read_pages(url: str, exported: str, pages: PageRange, columns: Sequence[tuple[str, str]]) -> bytes:
    """Read the canonical texts of a page range under an exported snapshot, as CSV: NULL unquoted, '' quoted.

    Types whose texts are documents still need their walk (`needs_document_walk`). Raises SourceError when the
    table cannot be read, or the snapshot is gone.
    """
    try:
        with _connected(url) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (exported,))
            # Better an error than rows that a policy hides.
            cursor.execute("SET LOCAL row_security = off")
            # Rows come as they lie in the table, and not from where another reader of it is.
            cursor.execute("SET LOCAL synchronize_seqscans = off")
            sink = io.BytesIO()
            try:
                cursor.copy_expert(_copy(pages, columns).as_string(cursor), sink, 1 << 20)
            except psycopg2.errors.InsufficientPrivilege as error:
                raise SourceError(
                    f"{pages.schema}.{pages.table} on {place(parse_address(url))}: it cannot be read: "
                    f"{first_line(error)}. Grant SELECT on it to the user of the address, or leave it out with "
                    "--exclude."
                ) from error
            return sink.getvalue()
    except psycopg2.Error as error:
        # Tables are not locked while they are read: whoever wanted to change one would make all others wait behind it.
        was_changed = (error.pgcode or "").startswith("42")
        raise SourceError(
            f"{pages.schema}.{pages.table} on {place(parse_address(url))}: "
            f"{'it was changed while it was read' if was_changed else 'it cannot be read'}: {first_line(error)}. "
            f"{NOTHING_STORED}: run the same command again."
        ) from error


def page_ranges(part: tuple[str, str, int | None, int], target: int) -> list[tuple[PageRange, int]]:
    """Cut a stored table into page ranges of about `target` bytes, each with its bytes; the last one is open."""
    schema, table, pages, size = part
    if pages is None or pages == 0:
        return [(PageRange(schema, table, 0 if pages == 0 else None, None), size)]
    count = min(max(math.ceil(size / target), 1), pages)
    bounds = [pages * i // count for i in range(count)]
    ends: list[int | None] = [*bounds[1:], None]
    return [(PageRange(schema, table, first, end), size // count) for first, end in zip(bounds, ends, strict=True)]


def without_password(url: str) -> str:
    """Give an address as it may be shown and kept."""
    address = parse_address(url)._replace(password=None).set(drivername="postgresql")
    kept = {key: value for key, value in address.query.items() if key not in SECRET_PARAMETERS}
    return address._replace(query=kept).render_as_string()  # type: ignore[arg-type]


def _shapes(cursor: Any, oids: Iterable[int]) -> dict[tuple[int, str], tuple[int, str]]:
    """Give, by table and name, the number and the type of each column."""
    cursor.execute(_COLUMNS, (list(oids),))
    return {(oid, name): (number, kind) for oid, name, kind, _, number in cursor.fetchall()}


class _connected:
    """Open a connection with the settings that canonical texts need; a source that is away is a SourceError."""

    def __init__(self, url: str) -> None:
        self._context = connect(url, READER_NAME)

    def __enter__(self) -> Any:
        try:
            connection = self._context.__enter__()
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SET client_encoding = 'UTF8'")
                for name, value in SESSION_SETTINGS.items():
                    cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
        except StateError as error:
            message = str(error).replace("correct SUBSETD_DATABASE_URL", "correct the source's address")
            raise SourceError(message) from error
        return connection

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)


def _copy(pages: PageRange, columns: Sequence[tuple[str, str]]) -> sql.Composed:
    expressions = sql.SQL(", ").join(_expression(name, kind) for name, kind in columns)
    condition = sql.SQL("")
    if pages.first is not None:
        condition = sql.SQL(f" WHERE ctid >= '({pages.first},0)'")
        if pages.end is not None:
            condition = sql.SQL(f" WHERE ctid >= '({pages.first},0)' AND ctid < '({pages.end},0)'")
    table = sql.Identifier(pages.schema, pages.table)
    query = sql.SQL("SELECT {} FROM ONLY {}{}").format(expressions, table, condition)
    return sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)


def _expression(name: str, kind: str) -> sql.Composable:
    quoted = '"' + name.replace('"', '""') + '"'
    return _Raw(canonical_expression(kind, quoted))


class _Raw(sql.Composable):
    """SQL text that is taken as it is: braces in a column's name are no placeholders."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def as_string(self, context: Any = None) -> str:
        return str(self._wrapped)
