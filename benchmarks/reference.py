"""Own baseline C: unary INDs by an inverted index, rarest value first, and the hash that the data sets publish."""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

csv.field_size_limit(sys.maxsize)

Column = tuple[str, int]
"""A column by its file, relative to the data set's folder, and its 0-based place."""


def read_columns(folder: Path) -> dict[Column, set[str]]:
    """Return the distinct values of every column of every CSV file that has any; '' is NULL."""
    columns: dict[Column, set[str]] = {}
    for path in sorted(folder.rglob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows = csv.reader(lines)
            values: list[set[str]] = [set() for _ in next(rows)]
            for row in rows:
                for held, cell in zip(values, row, strict=True):
                    held.add(cell)
        name = path.relative_to(folder).as_posix()
        columns |= {(name, place): held - {""} for place, held in enumerate(values) if held - {""}}
    return columns


def find_inds(columns: dict[Column, set[str]]) -> Iterator[tuple[Column, Column]]:
    """Yield (dependent, referenced): intersect the columns of a column's values, rarest value first."""
    holders: dict[str, list[Column]] = defaultdict(list)
    for column, values in columns.items():
        for value in values:
            holders[value].append(column)
    for column, values in columns.items():
        by_rarity = iter(sorted(values, key=lambda value: len(holders[value])))
        candidates = holders[next(by_rarity)]
        for value in by_rarity:
            if len(candidates) == 1:
                break
            candidates = [other for other in candidates if value in columns[other]]
        yield from ((column, other) for other in candidates if other != column)


def ind_hash(inds: Iterable[tuple[Column, Column]]) -> tuple[int, str]:
    """Return the number of INDs and the SHA-256 of their sorted lines, as the data sets' README defines it."""
    lines = sorted("\t".join(map(str, (*dependent, *referenced))) for dependent, referenced in inds)
    return len(lines), hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


if __name__ == "__main__":
    count, digest = ind_hash(find_inds(read_columns(Path(sys.argv[1]))))
    print(json.dumps({"inds": count, "sha256": digest}))
