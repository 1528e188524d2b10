"""Own a made data set of many attributes and clusters, and random changes of it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.context import Context
from benchmarks.feeds import Change, Row

NAME = "wide"


@dataclass(frozen=True, slots=True)
class Shape:
    """Say how large a data set is: tables of as many columns each, clusters, values and INDs, all exactly."""

    tables: int
    columns: int
    clusters: int
    values: int
    inds: int

    @property
    def attributes(self) -> int:
        return self.tables * self.columns


FEW_TABLES = Shape(tables=8, columns=50, clusters=250_000, values=1_000_000, inds=100)
MANY_TABLES = Shape(tables=1_000, columns=5, clusters=1_000_000, values=2_000_000, inds=1_000)


@dataclass(frozen=True, slots=True)
class WideData:
    """Hold the tables of the data set: for each its columns' names and its rows."""

    columns: dict[str, list[str]]
    rows: dict[str, list[Row]]
    clusters: int


def make(context: Context, shape: Shape = FEW_TABLES) -> WideData:
    """Make attributes whose values form so many clusters, with exactly so many INDs.

    A cluster is 1 to 6 of the attributes, the smaller ones of each cluster being as likely as the larger; who of the
    first attributes, two for each IND, has an even number brings its odd neighbour along, and so is included in it.
    Every cluster has at least one value, the other values choose theirs at random.
    """
    random = context.random("wide data")
    attributes = shape.attributes
    clusters: dict[frozenset[int], None] = {frozenset([odd]): None for odd in range(1, attributes, 2)}
    while len(clusters) < context.scaled(shape.clusters):
        drawn = random.sample(range(attributes), random.randint(1, 6))
        clusters[frozenset(drawn) | {a + 1 for a in drawn if a < 2 * shape.inds and a % 2 == 0}] = None
    cells: list[list[str]] = [[] for _ in range(attributes)]
    choices = list(clusters)
    for number in range(context.scaled(shape.values)):
        cluster = choices[number] if number < len(choices) else random.choice(choices)
        for attribute in cluster:
            cells[attribute].append(f"v{number}")
    columns, rows = {}, {}
    for table in range(shape.tables):
        name = f"t{table}"
        columns[name] = [f"c{column}" for column in range(shape.columns)]
        of_table = cells[table * shape.columns : (table + 1) * shape.columns]
        length = max(map(len, of_table))
        for column in of_table:
            column.extend([""] * (length - len(column)))
            random.shuffle(column)
        rows[name] = [tuple(cell or None for cell in row) for row in zip(*of_table, strict=True)]
    return WideData(columns, rows, len(clusters))


def write(data: WideData, folder: Path) -> Path:
    """Write the tables as CSV files."""
    folder.mkdir(parents=True, exist_ok=True)
    for table, rows in data.rows.items():
        with (folder / f"{table}.csv").open("w", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerow(data.columns[table])
            writer.writerows(rows)
    return folder


def changes(data: WideData, count: int, context: Context) -> list[Change]:
    """Return a third each of inserts, updates and deletes; new cells come from other rows of any table, or are new."""
    random = context.random("wide changes")
    live = {table: list(rows) for table, rows in data.rows.items()}
    names = list(live)

    def cells(template: Row, share: float) -> Row:
        return tuple(cell if random.random() > share else new_cell() for cell in template)

    def new_cell() -> str | None:
        if random.random() < 0.2:
            return f"n{random.randrange(10**9)}"
        return random.choice(random.choice(live[random.choice(names)]))

    made = []
    for number in range(count):
        table = random.choice(names)
        place = random.randrange(len(live[table]))
        row = live[table][place]
        operation = "cud"[number % 3]
        after = None if operation == "d" else cells(row, 1.0 if operation == "c" else 0.5)
        made.append(Change(operation, table, None if operation == "c" else row, after))
        _apply(live[table], operation, place, after)
    return made


def _apply(rows: list[Row], operation: str, place: int, after: Row | None) -> None:
    if operation == "c" and after is not None:
        rows.append(after)
    elif operation == "u" and after is not None:
        rows[place] = after
    else:
        rows[place] = rows[-1]
        rows.pop()


def cells_of(changes: Sequence[Change]) -> int:
    """Count the cells that a list of changes carries."""
    return sum(len(change.before or ()) + len(change.after or ()) for change in changes)
