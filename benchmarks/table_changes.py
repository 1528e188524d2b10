"""Own random changes of CSV tables, and the tables as they are afterwards."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.feeds import Change, Row

STRANGE = ('new, "quoted"', "new\nline", "né\t\\N", " new ", "🙂")


@dataclass(slots=True)
class Tables:
    """Hold the tables of a folder in memory: their columns' names and their rows, None for NULL."""

    columns: dict[str, list[str]]
    rows: dict[str, list[Row]]


def read_tables(folder: Path) -> Tables:
    """Read the CSV tables of a folder; '' is NULL."""
    tables = Tables({}, {})
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows = csv.reader(lines)
            tables.columns[path.stem] = next(rows)
            tables.rows[path.stem] = [tuple(cell or None for cell in row) for row in rows]
    return tables


def write_tables(tables: Tables, folder: Path) -> Path:
    """Write the tables as CSV files that `read_tables` reads back."""
    folder.mkdir(parents=True)
    for name, columns in tables.columns.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerow(columns)
            writer.writerows([cell or "" for cell in row] for row in tables.rows[name])
    return folder


def change_randomly(tables: Tables, count: int, random: Random) -> list[Change]:
    """Change the tables in place and return the changes in their order.

    A table is drawn by its number of rows (an empty one now and then). A new cell is one of the same column, one
    of any other column (this is what makes and breaks INDs), NULL, or a new text that tries the quoting.
    """
    names = list(tables.rows)
    changes: list[Change] = []
    while len(changes) < count:
        name = random.choices(names, [len(tables.rows[name]) + 0.5 for name in names])[0]
        rows = tables.rows[name]
        operation = random.choice("ccuuudd") if rows else "c"
        place = random.randrange(len(rows)) if rows else 0
        before = None if operation == "c" else rows[place]
        after: Row | None = None
        match operation:
            case "c":
                template = random.choice(rows) if rows else (None,) * len(tables.columns[name])
                rows.append(after := _changed(tables, name, template, 0.5, random))
            case "u":
                rows[place] = after = _changed(tables, name, rows[place], 0.3, random)
            case _:
                rows[place] = rows[-1]
                rows.pop()
        changes.append(Change(operation, name, before, after))
    return changes


def _changed(tables: Tables, name: str, row: Sequence[str | None], share: float, random: Random) -> Row:
    return tuple(
        _new_cell(tables, name, place, random) if random.random() < share else cell for place, cell in enumerate(row)
    )


def _new_cell(tables: Tables, name: str, place: int, random: Random) -> str | None:
    kind = random.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return f"{random.choice(STRANGE)}{random.randrange(50)}"
    if kind < 0.6:
        name = random.choice(list(tables.rows))
        place = random.randrange(len(tables.columns[name]))
    rows = tables.rows[name]
    return random.choice(rows)[place] if rows else None
