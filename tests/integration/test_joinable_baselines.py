"""What searches for joinable tables are measured against finds the same tables, or its time says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection

from benchmarks.joinable_sql import cell_lines, copy_cells, ready_for_joins, top_by_joins, top_by_scr
from benchmarks.joinable_web_tables import LONG, MIXED, ROWS, SIZES, Table, draw_queries, read_tables
from service.core.joinability import Joinable
from tests.joinable import InMemory
from tests.refreshing import write_tables

CELLS = ["", "x", "y z", *map(str, range(8))]


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with closing(psycopg2.connect(database_url)) as opened:
        yield opened


def test_joins_and_scr_find_what_the_search_finds(connection: Connection, tmp_path: Path) -> None:
    random = Random(5)
    sizes = [(random.randrange(25), random.randrange(2, 6)) for _ in range(30)]
    made = {
        f"t{n:02}.csv": [random.choices(CELLS, k=height) for _ in range(width)]
        for n, (height, width) in enumerate(sizes)
    }
    write_tables(tmp_path / "tables", made)
    in_memory = InMemory(tmp_path)
    copy_cells(connection, cell_lines(read_tables(tmp_path / "tables")))
    ready_for_joins(connection)
    with connection.cursor() as cursor:
        for size in (1, 2, 3) * 8:
            keys = [random.choices(CELLS, k=size) for _ in range(random.choice([1, 30]))]
            expected = in_memory.top(keys, 4)
            for search in (top_by_joins, top_by_scr):
                found = [(f"t{one.table:02}", *one[1:]) for one in search(cursor, keys, 4)]
                assert found == expected


def test_any_text_is_copied(connection: Connection) -> None:
    row = ["a\tb\\", "\r\n", "\\N", ""]
    copy_cells(connection, cell_lines([Table("t.csv", [row])]))
    with connection.cursor() as cursor:
        assert top_by_scr(cursor, [row[:3]], 1) == [Joinable(0, (0, 1, 2), 1)]
        cursor.execute("SELECT count(*) FROM cell")
        assert cursor.fetchone() == (3,)


def test_queries_are_rows_of_tables_drawn_by_a_seed() -> None:
    long = Table("long.csv", [[str(row), "x", f"{row} y"] for row in range(2 * ROWS)])
    short = Table("short.csv", [["a", "b", "c", "d"]] * 30)
    narrow = Table("narrow.csv", [["n", "m"]] * ROWS)
    queries = draw_queries([long, short, narrow], 8, Random(1))
    assert queries == draw_queries([long, short, narrow], 8, Random(1))
    assert [(query.kind, query.size) for query in queries] == [(kind, n) for kind in (LONG, MIXED) for n in SIZES] * 2
    rows = [(query.kind, row) for query in queries for row in query.rows]
    assert len(rows) == 8 * ROWS
    assert all(any(set(row) <= set(cells) for cells in long.rows) for kind, row in rows if kind == LONG)
    assert not any({"n", "m"} & set(row) for _, row in rows)
