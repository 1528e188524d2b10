"""Own the writers of a source: mixed changes of several tables, in interleaved transactions of random size."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg2
from psycopg2.extras import Json

from service.core.canonical import canonical_json
from service.store.canonical_sql import SESSION_SETTINGS, canonical_expression, needs_document_walk
from tests import states
from tests.states import Tables

SCHEMA = "s"
WORDS = ["Ada", "Bob", "Cleo", "", "x\ty\\z\n", "é" * 200, "10", "1", None]
LARGE = [f"{number} " * 2000 for number in range(20)]
"""Texts that Postgres stores out of line, so that an update of other columns does not send them."""

Cells = dict[str, Callable[[random.Random], Any]]


def _number(rng: random.Random) -> int | None:
    return rng.choice([None, rng.randrange(50), rng.randrange(5000)])


def _word(rng: random.Random) -> str | None:
    return rng.choice(WORDS)


TABLES: dict[str, tuple[str, Cells]] = {
    "customers": (
        "id integer primary key, name text, credit numeric(12, 2), since timestamptz, active boolean",
        {
            "name": _word,
            "credit": lambda rng: rng.choice([None, rng.randrange(20_000) / 100]),
            "since": lambda rng: f"2026-01-{rng.randint(1, 28)} 12:00:00.{rng.randrange(100)}+01",
            "active": lambda rng: rng.choice([True, False, None]),
        },
    ),
    "orders": (
        "id bigint primary key, customer integer, note varchar(300), placed date, weight double precision",
        {
            "customer": _number,
            "note": _word,
            "placed": lambda rng: f"2026-02-{rng.randint(1, 28)}",
            "weight": lambda rng: rng.choice([None, rng.randrange(100) / 8]),
        },
    ),
    "documents": (
        "id integer primary key, title text, body text, tags integer[], data jsonb",
        {
            "title": _word,
            "body": lambda rng: rng.choice(LARGE),
            "tags": lambda rng: [rng.randrange(10) for _ in range(rng.randrange(3))],
            "data": lambda rng: Json({"b": rng.randrange(10), "a": [1.5, None, "é"]}),
        },
    ),
    "accounts": (
        "id integer primary key, owner text, letter text",
        {"owner": _word, "letter": lambda rng: rng.choice(LARGE)},
    ),
    "visits": (
        "id integer, customer integer, at timestamp",
        {"customer": _number, "at": lambda rng: f"2026-03-01 00:00:{rng.randrange(60)}"},
    ),
}

WITHOUT_WHOLE_ROWS = ("accounts",)
"""Tables whose replica identity is DEFAULT: a change brings the key of the row before, and nothing else of it."""

# Statement, table, new columns, columns that are gone.
Alteration = tuple[str, str, Cells, tuple[str, ...]]

ALTERATIONS: tuple[Alteration, ...] = (
    ("alter table s.orders add coupon text", "orders", {"coupon": _word}, ()),
    ("alter table s.customers alter name type varchar(500)", "customers", {}, ()),
    ("alter table s.documents drop title", "documents", {}, ("title",)),
    ("alter table s.orders alter customer type bigint", "orders", {}, ()),
    ("alter table s.accounts add score integer", "accounts", {"score": _number}, ()),
)


@dataclass
class Writer:
    """Hold one connection's open transaction: what it may still do, and the rows it has when it is taken back."""

    connection: Any
    number: int
    rows: dict[str, list[int]]
    kept: dict[str, list[int]] = field(default_factory=dict)
    left: int = 0
    done: int = 0


class Workload:
    """Change the tables of a database by several writers at once; the same seed makes the same changes.

    Each writer has rows of its own, so that none waits for another; TRUNCATE and ALTER TABLE wait until the others
    have committed, and come only while `is_rebuilding`: no snapshot holds out against them. Every tenth transaction
    is rolled back. `changes` counts the rows changed by committed ones.
    """

    def __init__(self, url: str, seed: object, writers: int = 3, alterations: tuple[Alteration, ...] = ()) -> None:
        self.url = url
        self.rng = random.Random(str(seed))
        self.counts: Counter[str] = Counter()
        self._cells = {table: dict(cells) for table, (_, cells) in TABLES.items()}
        self._alterations = list(alterations)
        self.is_rebuilding = False
        self._next_id = 0
        self._writers = [
            Writer(psycopg2.connect(url), number, {table: [] for table in TABLES}) for number in range(writers)
        ]

    @property
    def changes(self) -> int:
        return self.counts["changes"]

    def make(self, rows: int = 50) -> None:
        """Make the tables, with some rows."""
        with closing(psycopg2.connect(self.url)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(f"create schema {SCHEMA}")
            for table, (columns, _) in TABLES.items():
                cursor.execute(f"create table {SCHEMA}.{table} ({columns})")
                if table not in WITHOUT_WHOLE_ROWS:
                    cursor.execute(f"alter table {SCHEMA}.{table} replica identity full")
            cursor.execute(f"alter table {SCHEMA}.documents alter body set storage external")
            cursor.execute(f"alter table {SCHEMA}.accounts alter letter set storage external")
        for writer in self._writers:
            for table in TABLES:
                for _ in range(rows // len(self._writers)):
                    self._insert(writer, table)
            self._commit(writer)
        self.counts.clear()

    def run(self, changes: int, stop: threading.Event | None = None, between: Callable[[], None] | None = None) -> None:
        """Make so many more changes, or fewer when `stop` is set first; call `between` after each transaction."""
        until = self.changes + changes
        while self.changes + sum(writer.done for writer in self._writers) < until:
            if stop is not None and stop.is_set():
                break
            writer = self.rng.choice(self._writers)
            if writer.left == 0:
                writer.left = self.rng.choice([1, 1, 2, 5, 20, 100])
                writer.kept = {table: list(ids) for table, ids in writer.rows.items()}
            self._change(writer)
            writer.left -= 1
            if writer.left == 0:
                self._end(writer)
                if between is not None:
                    between()
        self.rest()

    def rest(self) -> None:
        """Commit what is open."""
        for writer in self._writers:
            self._commit(writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.connection.close()

    def _end(self, writer: Writer) -> None:
        if self.rng.random() < 0.1:
            writer.connection.rollback()
            writer.rows, writer.done = writer.kept, 0
            self.counts["rolled back"] += 1
        else:
            self._commit(writer)
        chance = self.rng.random()
        if not self.is_rebuilding:
            return
        if chance < 0.005:
            self._truncate(self.rng.choice(list(TABLES)))
        elif chance < 0.02 and self._alterations:
            self._alter(*self._alterations.pop(0))

    def _commit(self, writer: Writer) -> None:
        writer.connection.commit()
        if writer.done:
            self.counts["transactions"] += 1
            self.counts["changes"] += writer.done
        writer.left = writer.done = 0

    def _truncate(self, table: str) -> None:
        self.rest()
        writer = self._writers[0]
        with writer.connection.cursor() as cursor:
            cursor.execute(f"truncate {SCHEMA}.{table}")
        for each in self._writers:
            each.rows[table] = []
        self._insert(writer, table)
        self._commit(writer)
        self.counts["truncates"] += 1

    def _alter(self, statement: str, table: str, added: Cells, gone: tuple[str, ...]) -> None:
        self.rest()
        connection = self._writers[0].connection
        with connection.cursor() as cursor:
            cursor.execute(statement)
        connection.commit()
        self._cells[table] |= added
        for column in gone:
            del self._cells[table][column]
        self.counts["alterations"] += 1

    def _change(self, writer: Writer) -> None:
        table = self.rng.choice(list(TABLES))
        ids = writer.rows[table]
        what = self.rng.choices(["insert", "update", "delete", "key"], [45, 30, 20, 5])[0] if ids else "insert"
        if what == "insert":
            self._insert(writer, table)
            return
        place = self.rng.randrange(len(ids))
        row = ids[place]
        with writer.connection.cursor() as cursor:
            if what == "update":
                column = self.rng.choice(list(self._cells[table]))
                value = self._cells[table][column](self.rng)
                cursor.execute(f"update {SCHEMA}.{table} set {column} = %s where id = %s", (value, row))
            elif what == "delete":
                ids[place] = ids[-1]
                ids.pop()
                cursor.execute(f"delete from {SCHEMA}.{table} where id = %s", (row,))
            else:
                self._next_id += 1
                ids[place] = self._next_id
                cursor.execute(f"update {SCHEMA}.{table} set id = %s where id = %s", (self._next_id, row))
            assert cursor.rowcount == 1
        writer.done += 1
        self.counts[what] += 1

    def _insert(self, writer: Writer, table: str) -> None:
        self._next_id += 1
        cells = {"id": self._next_id, **{column: make(self.rng) for column, make in self._cells[table].items()}}
        with writer.connection.cursor() as cursor:
            places = ", ".join(["%s"] * len(cells))
            cursor.execute(f"insert into {SCHEMA}.{table} ({', '.join(cells)}) values ({places})", list(cells.values()))
        writer.rows[table].append(self._next_id)
        writer.done += 1
        self.counts["insert"] += 1


def tables_of(url: str) -> Tables:
    """Read all tables of the source's schema as canonical texts, which the server makes, in one snapshot."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        for name, value in SESSION_SETTINGS.items():
            cursor.execute(f"set {name} = '{value}'")
        connection.commit()
        cursor.execute("set transaction isolation level repeatable read")
        listed = states.rows(
            cursor,
            "select relname, attname, format_type(atttypid, atttypmod) from pg_attribute "
            f"join pg_class on pg_class.oid = attrelid where relnamespace = '{SCHEMA}'::regnamespace "
            "and relkind = 'r' and attnum > 0 and not attisdropped order by relname, attnum",
        )
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in listed:
            columns.setdefault(table, {})[column] = kind
        tables = Tables({table: list(found) for table, found in columns.items()})
        for table, found in columns.items():
            texts = ", ".join(canonical_expression(kind, f'"{column}"') for column, kind in found.items())
            read = states.rows(cursor, f"select {texts} from {SCHEMA}.{table}")
            walks = [canonical_json if needs_document_walk(kind) else str for kind in found.values()]
            for row in read:
                cells = zip(walks, row, strict=True)
                tables.add(table, [None if cell is None else walk(cell) for walk, cell in cells])
    return tables
