"""Own the database that the demonstration follows: a Postgres of its own, with the tables of a folder of CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

from service.store.embedded import EmbeddedPostgres

SETTINGS = {"wal_level": "logical", "max_wal_senders": "4", "shared_buffers": "64MB"}

Row = Mapping[str, str | None]


class DemoSource:
    """Hold the tables of one schema, and count their changes, in the transactions that make them."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema

    def fill(self, folder: Path) -> None:
        """Make the tables, a file each, unless they are there; columns whose names end in Id are integers."""
        with self._transaction() as cursor:
            cursor.execute("SELECT FROM pg_namespace WHERE nspname = %s", (self.schema,))
            if cursor.rowcount:
                return
            cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
            cursor.execute("CREATE SCHEMA demo; CREATE TABLE demo.progress AS SELECT 0 AS changes")
            for path in sorted(folder.glob("*.csv")):
                self._make_table(cursor, path)

    def changes_made(self) -> int:
        """Count the changes that were made since the tables were."""
        with self._transaction() as cursor:
            cursor.execute("SELECT changes FROM demo.progress")
            return int(cursor.fetchone()[0])

    def change(self, table: str, before: Row | None, after: Row | None) -> None:
        """Make one change of one row, as a transaction."""
        name = sql.Identifier(self.schema, table)
        with self._transaction() as cursor:
            if before is None:
                assert after is not None
                columns = sql.SQL(", ").join(map(sql.Identifier, after))
                places = sql.SQL(", ").join([sql.Placeholder()] * len(after))
                statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(name, columns, places)
                cursor.execute(statement, list(after.values()))
            else:
                key = next(iter(before))
                where = sql.SQL("{} = {}").format(sql.Identifier(key), sql.Literal(before[key]))
                if after is None:
                    cursor.execute(sql.SQL("DELETE FROM {} WHERE {}").format(name, where))
                else:
                    pairs = [sql.SQL("{} = {}").format(sql.Identifier(c), sql.Literal(v)) for c, v in after.items()]
                    cursor.execute(sql.SQL("UPDATE {} SET {} WHERE {}").format(name, sql.SQL(", ").join(pairs), where))
            cursor.execute("UPDATE demo.progress SET changes = changes + 1")

    def _make_table(self, cursor: Any, path: Path) -> None:
        name = sql.Identifier(self.schema, path.stem)
        with path.open(newline="", encoding="utf-8") as file:
            header = next(csv.reader(file))
        kinds = [sql.SQL("integer" if column.endswith("Id") else "text") for column in header]
        columns = [sql.SQL("{} {}").format(sql.Identifier(c), kind) for c, kind in zip(header, kinds, strict=True)]
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(", ").join(columns)))
        # Whole rows in every change, so that nothing has to be kept of them.
        cursor.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(name))
        with path.open(encoding="utf-8") as file:
            cursor.copy_expert(sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER)").format(name).as_string(cursor), file)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with closing(psycopg2.connect(self.url)) as connection, connection, connection.cursor() as cursor:
            yield cursor


@contextmanager
def demo_source(data_dir: Path, schema: str, folder: Path) -> Iterator[DemoSource]:
    """Run the demonstration's database for as long as it is needed; its tables are made at the first time."""
    with EmbeddedPostgres(data_dir / "source", extra_settings=SETTINGS) as server:
        source = DemoSource(server.url, schema)
        source.fill(folder)
        yield source
