"""Own what a search for joinable tables is measured against in Postgres: a row for each cell, joins in SQL, and SCR.

A cell is (value, table, row, column), as MATE's own system stores it, with an index by value; joins need one by row
as well. The answers are those of core.joinability.search, ties and mappings included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import product
from time import perf_counter

import psycopg2.extensions

from benchmarks.joinable_web_tables import Table
from service.core.joinability import Joinable

BY_VALUE = "CREATE INDEX ON cell (value) INCLUDE (table_number, row_number, column_number)"
BY_ROW = "CREATE INDEX ON cell (table_number, row_number, value) INCLUDE (column_number)"

POSTINGS = "SELECT value, table_number, row_number FROM cell WHERE value = ANY (%s::text[])"
CELLS = """
SELECT table_number, row_number, value, column_number
FROM unnest(%s::integer[], %s::integer[]) AS asked (table_number, row_number) JOIN cell USING (table_number, row_number)
"""

_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def cell_lines(tables: Iterable[Table]) -> Iterator[str]:
    """Give the cells that are not empty as lines of COPY's text format, tables by their places."""
    for number, table in enumerate(tables):
        for row, cells in enumerate(table.rows):
            for column, value in enumerate(cells):
                if value:
                    yield f"{value.translate(_ESCAPED)}\t{number}\t{row}\t{column}\n"


def copy_cells(connection: psycopg2.extensions.connection, lines: Iterable[str]) -> float:
    """Make the table of cells and its index by value in one transaction; give its seconds, the lines' making apart."""
    stream = BytesIO("".join(lines).encode())
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS cell")
        connection.commit()
        started = perf_counter()
        cursor.execute(
            'CREATE TABLE cell (value text COLLATE "C" NOT NULL, table_number integer NOT NULL, '
            "row_number integer NOT NULL, column_number smallint NOT NULL)"
        )
        cursor.copy_expert("COPY cell FROM STDIN", stream, 1 << 20)
        cursor.execute(BY_VALUE)
        connection.commit()
        return perf_counter() - started


def ready_for_joins(connection: psycopg2.extensions.connection) -> None:
    """Add the index by row, and let the planner and index-only scans know the table."""
    connection.rollback()
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(BY_ROW)
        cursor.execute("VACUUM ANALYZE cell")
    connection.autocommit = False


def top_by_joins(cursor: psycopg2.extensions.cursor, keys: Sequence[Sequence[str]], k: int) -> list[Joinable]:
    """Let Postgres join the keys with the cells of a row for each key column."""
    distinct = _distinct(keys)
    columns = range(len(keys[0]))
    values = ", ".join(f"value_{i}" for i in columns)
    mapping = ", ".join(f"cell_{i}.column_number AS column_{i}" for i in columns)
    mapped = ", ".join(f"column_{i}" for i in columns)
    joins = "".join(
        f" JOIN cell cell_{i} ON cell_{i}.value = value_{i}"
        + "".join(f" AND cell_{i}.{part} = cell_0.{part}" for part in ("table_number", "row_number") if i)
        + "".join(f" AND cell_{i}.column_number <> cell_{j}.column_number" for j in range(i))
        for i in columns
    )
    cursor.execute(
        f"""
        WITH asked AS (SELECT * FROM unnest({", ".join("%s::text[]" for _ in columns)}) WITH ORDINALITY
                       AS asked ({values}, number)),
        found AS (SELECT cell_0.table_number, {mapping}, number FROM asked{joins}),
        counted AS (SELECT table_number, {mapped}, count(DISTINCT number) AS joinability
                    FROM found GROUP BY table_number, {mapped}),
        best AS (SELECT DISTINCT ON (table_number) * FROM counted ORDER BY table_number, joinability DESC, {mapped})
        SELECT table_number, joinability, {mapped} FROM best ORDER BY joinability DESC, table_number LIMIT %s
        """,
        [*([key[i] for key in distinct] for i in columns), k],
    )
    return [Joinable(table, tuple(columns), joinability) for table, joinability, *columns in cursor]


def top_by_scr(cursor: psycopg2.extensions.cursor, keys: Sequence[Sequence[str]], k: int) -> list[Joinable]:
    """Fetch the rows that have a value of one column, that of fewest values, and compare the keys with them (SCR)."""
    distinct = _distinct(keys)
    initial = min(range(len(keys[0])), key=lambda column: len({key[column] for key in distinct}))
    keys_of = defaultdict(list)
    for key in distinct:
        keys_of[key[initial]].append(key)
    cursor.execute(POSTINGS, [list(keys_of)])
    to_compare: dict[tuple[int, int], set[str]] = defaultdict(set)
    for value, table, row in cursor:
        to_compare[table, row].add(value)
    columns_of: dict[tuple[int, int], dict[str, list[int]]] = {place: defaultdict(list) for place in to_compare}
    cursor.execute(CELLS, [[table for table, _ in to_compare], [row for _, row in to_compare]])
    for table, row, value, column in cursor:
        columns_of[table, row][value].append(column)
    found: dict[int, dict[tuple[int, ...], set[tuple[str, ...]]]] = defaultdict(lambda: defaultdict(set))
    for place, values in to_compare.items():
        columns = columns_of[place]
        for key in (key for value in values for key in keys_of[value]):
            if all(value in columns for value in key):
                for mapping in product(*(columns[value] for value in key)):
                    if len(set(mapping)) == len(mapping):
                        found[place[0]][mapping].add(key)
    best = [
        (*min((-len(matched), mapping) for mapping, matched in mappings.items()), table)
        for table, mappings in found.items()
    ]
    best.sort(key=lambda one: (one[0], one[2]))
    return [Joinable(table, mapping, -count) for count, mapping, table in best[:k]]


def _distinct(keys: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return sorted({tuple(key) for key in keys if all(key)})
