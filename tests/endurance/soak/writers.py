"""Own the writers of a soak: seeded transactions of many rows, and their events where we write the topics."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg2

from tests.endurance.soak.gate import Gate

Make = Callable[[random.Random], object]

WORDS = [f"word {number}" for number in range(400)]
LETTERS = [f"letter {number} " * 400 for number in range(40)]
"""Texts that Postgres stores out of line: an update of other columns does not send them."""

BEAT_SECONDS = 0.5


@dataclass
class SoakTable:
    """Describe a table: SQL of its columns, how their cells are made, how many rows it has when it is full."""

    name: str
    columns: str
    cells: dict[str, tuple[str, Make]]
    target: int
    ids: list[int] = field(default_factory=list)


def tables() -> dict[str, SoakTable]:
    """Give the tables of a source, empty; ids that go and come again make dependencies that break and appear."""

    def below(number: int) -> Make:
        return lambda rng: rng.randint(1, number)

    def word(rng: random.Random) -> object:
        return rng.choice(WORDS) if rng.random() < 0.9 else None

    made = (
        SoakTable(
            "customers",
            "id bigint primary key, name text, region integer, credit numeric(12,2)",
            {
                "name": ("text", word),
                "region": ("integer", below(60)),
                "credit": ("numeric", lambda rng: rng.randrange(2000) / 100),
            },
            4000,
        ),
        SoakTable(
            "products",
            "id bigint primary key, title text, maker integer",
            {"title": ("text", word), "maker": ("integer", below(50))},
            1500,
        ),
        SoakTable(
            "orders",
            "id bigint primary key, customer bigint, product bigint, note text, placed date",
            {
                "customer": ("bigint", below(3950)),
                "product": ("bigint", below(1480)),
                "note": ("text", word),
                "placed": ("date", lambda rng: f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"),
            },
            12_000,
        ),
        SoakTable(
            "accounts",
            "id bigint primary key, owner bigint, letter text",
            {"owner": ("bigint", below(3950)), "letter": ("text", lambda rng: rng.choice(LETTERS))},
            600,
        ),
        SoakTable(
            "visits",
            "id bigint primary key, customer bigint, passed boolean",
            {"customer": ("bigint", below(3990)), "passed": ("boolean", lambda rng: rng.choice([True, False, None]))},
            1500,
        ),
        # So few rows of so few values that each change is likely to make or break one of their dependencies.
        SoakTable(
            "switches",
            "id bigint primary key, one integer, two integer, three integer",
            {name: ("integer", below(5)) for name in ("one", "two", "three")},
            6,
        ),
    )
    return {table.name: table for table in made}


KEYED = ("accounts",)
"""Tables whose replica identity is DEFAULT: of the row before a change brings the key alone."""

BOUNDED = {"customers": 4000, "products": 1500}
"""Tables whose ids come again: what refers to them loses and finds its counterparts."""


class Emitter(Protocol):
    """Take what a committed transaction did: (operation, table, columns, row before, row after)."""

    def __call__(self, changes: Sequence[Change]) -> None: ...


@dataclass(frozen=True)
class Change:
    """Hold a change of one row, or the truncation of a table."""

    op: str
    table: str
    columns: tuple[str, ...] = ()
    before: tuple[object, ...] | None = None
    after: tuple[object, ...] | None = None


class Writer:
    """Write to a source until the gate is closed; the same seed begins with the same changes.

    A transaction whose fate is not known, for the source crashed in its COMMIT, is asked for when the source is back.
    `beats` are the times at which each row of `probe` was committed.
    """

    def __init__(self, name: str, url: str, seed: int, rate: float, gate: Gate, emit: Emitter | None = None) -> None:
        self.name, self.url = name, url
        self.rng = random.Random(f"{name} {seed}")
        self.tables = tables()
        self.counts: Counter[str] = Counter()
        self.beats: list[float] = []
        self.dropped: list[tuple[str, str]] = []
        self._rate, self._gate, self._emit = rate, gate, emit
        self._batch = max(20, int(rate / 3))
        self._next_id = 10_000
        self._connection: Any = None
        self._number = 0
        self._counted = 0
        self._done: list[Change] = []
        self._wanted: queue.Queue[tuple[Callable[[], None], threading.Event]] = queue.Queue()
        self.error: BaseException | None = None

    def make(self) -> None:
        """Make the tables, filled."""
        cursor = self._cursor()
        cursor.execute("create schema s")
        for table in self.tables.values():
            cursor.execute(f"create table s.{table.name} ({table.columns})")
            if table.name not in KEYED:
                cursor.execute(f"alter table s.{table.name} replica identity full")
        cursor.execute("create table s.probe (beat integer)")
        cursor.execute("alter table s.probe replica identity full")
        cursor.execute("alter table s.accounts alter letter set storage external")
        self._connection.commit()
        for table in self.tables.values():
            ids = self._new_ids(table, table.target)
            self._insert(table, ids)
            table.ids += ids
        self._connection.commit()
        self._done.clear()

    def run(self) -> None:
        """Write until the soak ends; what fails stays in `error`."""
        try:
            next_beat = due = time.monotonic()
            while not self._gate.stopped.is_set():
                with self._gate.working() as goes_on:
                    if not goes_on:
                        break
                    self._do_what_is_wanted()
                    if time.monotonic() >= next_beat:
                        self.beat()
                        next_beat = time.monotonic() + BEAT_SECONDS
                    done = self.transaction()
                # Who was held up does not catch up for more than two seconds.
                due = max(due + done / self._rate, time.monotonic() - 2)
                self._gate.stopped.wait(max(0.0, min(due, next_beat) - time.monotonic()))
                while due > time.monotonic() and not self._gate.stopped.is_set():
                    with self._gate.working() as goes_on:
                        if goes_on and time.monotonic() >= next_beat:
                            self.beat()
                            next_beat = time.monotonic() + BEAT_SECONDS
                    self._gate.stopped.wait(max(0.0, min(due, next_beat) - time.monotonic()))
        except BaseException as error:
            self.error = error
            self._gate.stop()

    def beat(self) -> None:
        """Put a row into `probe`, and remember when."""

        def insert(cursor: Any) -> None:
            cursor.execute("insert into s.probe values (1) returning beat")
            self._done.append(Change("c", "probe", ("beat",), None, tuple(cursor.fetchone())))

        self.beats.append(self._gate.seconds)  # before anybody can see it
        if not self._in_transaction(insert):
            self.beats.pop()

    def between(self, do: Callable[[], None]) -> None:
        """Let the writer's thread do something between two transactions, and wait until it is done."""
        done = threading.Event()
        self._wanted.put((do, done))
        while not done.wait(0.2):
            if self._gate.stopped.is_set():
                return

    def alter(self, *statements: str) -> bool:
        """Change a table's columns; to be called by the writer's thread. Tell whether it was committed."""

        def run(cursor: Any) -> None:
            cursor.execute("set local lock_timeout = '20s'")
            for statement in statements:
                cursor.execute(statement)

        return self._in_transaction(run)

    def show(self, table: SoakTable) -> None:
        """Change a row of a table, whose columns then show; to be called by the writer's thread."""

        def insert(cursor: Any) -> None:
            self._insert(table, ids)

        ids = self._new_ids(table, 1)
        if self._in_transaction(insert):
            table.ids += ids

    def mark(self, number: int) -> None:
        """Put a row into each table that shows its columns, and that only one who has seen all before has seen."""

        def insert(cursor: Any) -> None:
            for table in self.tables.values():
                self._insert(table, [-number])

        while not self._in_transaction(insert):
            pass
        for table in self.tables.values():
            table.ids.append(-number)

    def transaction(self) -> int:
        """Make one transaction; give the number of its changes, none if it was rolled back or lost."""
        table = self.rng.choices(list(self.tables.values()), [12, 8, 55, 7, 8, 10])[0]
        if table.name == "visits" and table.ids and self.rng.random() < 0.02:
            return self._truncate(table)
        undone = self.rng.random() < 0.05
        kept = list(table.ids)

        def change(cursor: Any) -> None:
            for _ in range(self.rng.choice([1, 1, 2, 3])):
                self._change(table, self.rng.choice([1, self._batch // 4, self._batch // 2, self._batch]))
            if undone:
                raise _UndoneError

        if self._in_transaction(change):
            return self._counted
        table.ids = kept
        return 0

    def _truncate(self, table: SoakTable) -> int:
        def empty(cursor: Any) -> None:
            cursor.execute(f"truncate s.{table.name}")
            self._done.append(Change("t", table.name))
            ids = self._new_ids(table, table.target // 2, [])
            self._insert(table, ids)
            fresh[:] = ids

        fresh: list[int] = []
        if not self._in_transaction(empty):
            return 0
        table.ids = fresh
        self.counts["truncates"] += 1
        return self._counted

    def _change(self, table: SoakTable, number: int) -> None:
        number = min(number, table.target // 3)
        weights = [20, 45, 20, 5] if len(table.ids) < table.target else [10, 45, 30, 5]
        match self.rng.choices(["insert", "update", "delete", "key"], weights)[0] if table.ids else "insert":
            case "insert":
                ids = self._new_ids(table, number)
                self._insert(table, ids)
                table.ids += ids
            case "update":
                column = self.rng.choice(list(table.cells))
                self._update(table, column, self.rng.sample(table.ids, min(number, len(table.ids))))
            case "delete":
                gone = self.rng.sample(table.ids, min(number, len(table.ids)))
                self._execute("d", table, f"delete from s.{table.name} where id = any(%s)", (gone,))
                left = set(gone)
                table.ids = [one for one in table.ids if one not in left]
            case _:
                old = self.rng.sample(table.ids, min(10, len(table.ids)))
                new = self._new_ids(table, len(old))[: len(old)]
                old = old[: len(new)]
                if old:
                    moved = "update s.{0} set id = u.new from unnest(%s::bigint[], %s::bigint[]) as u(old, new) "
                    self._execute("u", table, moved.format(table.name) + f"where {table.name}.id = u.old", (old, new))
                    table.ids = [*(set(table.ids) - set(old)), *new]

    def _new_ids(self, table: SoakTable, number: int, held: list[int] | None = None) -> list[int]:
        """Give ids that no row of the table has; of some tables they are small ones that come again."""
        bound = BOUNDED.get(table.name)
        if bound is None:
            self._next_id += number
            return list(range(self._next_id - number, self._next_id))
        free = sorted(set(range(1, bound + 1)) - set(table.ids if held is None else held))
        return self.rng.sample(free, min(number, len(free)))

    def _insert(self, table: SoakTable, ids: list[int]) -> None:
        if not ids:
            return
        columns = [column for column in table.cells if not column.startswith("extra")]
        places = ", ".join(["%s::bigint[]", *(f"%s::{table.cells[column][0]}[]" for column in columns)])
        cells = [[table.cells[column][1](self.rng) for _ in ids] for column in columns]
        names = ", ".join(["id", *columns])
        self._execute("c", table, f"insert into s.{table.name} ({names}) select * from unnest({places})", (ids, *cells))

    def _update(self, table: SoakTable, column: str, ids: list[int]) -> None:
        kind, make = table.cells[column]
        cells = [make(self.rng) for _ in ids]
        statement = (
            f"update s.{table.name} set {column} = u.cell from unnest(%s::bigint[], %s::{kind}[]) as u(id, cell) "
            f"where {table.name}.id = u.id"
        )
        self._execute("u", table, statement, (ids, cells))

    def _execute(self, op: str, table: SoakTable, statement: str, arguments: tuple[object, ...]) -> None:
        """Run a statement on rows of a table, and keep what it did for the topics."""
        cursor = self._cursor()
        if self._emit is None:
            cursor.execute(statement, arguments)
            self._done += [Change(op, table.name)] * cursor.rowcount
            return
        cursor.execute(f"{statement} returning old.*, new.*", arguments)
        half = len(cursor.description) // 2
        columns = tuple(column.name for column in cursor.description[:half])
        for row in cursor.fetchall():
            before = None if op == "c" else row[:half]
            after = None if op == "d" else row[half:]
            self._done.append(Change(op, table.name, columns, before, after))

    def _in_transaction(self, do: Callable[[Any], None]) -> bool:
        """Do something in a transaction; tell whether it was committed, also where the source crashed in the middle."""
        self._done.clear()
        self._number += 1
        try:
            cursor = self._cursor()
            # A transaction's id may be another's after a crash; a comment is in no feed.
            cursor.execute("comment on schema s is %s", (str(self._number),))
            do(cursor)
            self._connection.commit()
        except _UndoneError:
            try:
                self._connection.rollback()
            except psycopg2.Error:  # the source crashed, and has rolled it back itself
                self._reconnect()
            self.counts["rolled back"] += 1
            return False
        except psycopg2.Error as error:
            # A connection that was cut has no code, and not always the class that it should have.
            if error.pgcode is not None and not isinstance(error, psycopg2.OperationalError):
                raise
            if not self._was_committed():
                self.counts["lost with the source"] += 1
                return False
        self._counted = len(self._done)
        self.counts["changes"] += self._counted
        self.counts["transactions"] += 1
        if self._emit is not None:
            self._emit(list(self._done))
        return True

    def _was_committed(self) -> bool:
        """Ask a source that is back what became of the transaction."""
        while True:
            self._reconnect()
            with suppress(psycopg2.Error):
                cursor = self._cursor()
                cursor.execute("select obj_description('s'::regnamespace, 'pg_namespace')")
                (number,) = cursor.fetchone()
                self._connection.rollback()
                return bool(number == str(self._number))

    def _cursor(self) -> Any:
        if self._connection is None:
            self._connection = psycopg2.connect(self.url)
        return self._connection.cursor()

    def _reconnect(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            with suppress(psycopg2.Error):
                self._connection.close()
            try:
                self._connection = psycopg2.connect(self.url)
                return
            except psycopg2.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _do_what_is_wanted(self) -> None:
        with suppress(queue.Empty):
            while True:
                do, done = self._wanted.get_nowait()
                try:
                    do()
                finally:
                    done.set()


class _UndoneError(Exception):
    """The transaction is to be rolled back."""
