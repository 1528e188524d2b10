"""Own bodies of small tables: reading a folder of them, copying them as for the peers, making arrays of them."""

from __future__ import annotations

import csv
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.reference import Column
from service.core.canonical_arrow import key_array
from service.core.column_filters import ColumnFacts, all_of, are_integers, are_null_tokens
from service.core.column_sets import ColumnSets
from service.core.records import Int64s, Keys, starts_of


@dataclass(frozen=True, slots=True)
class Corpus:
    """Hold the columns of many tables: names, distinct values (without ''), rows of each column's table."""

    names: list[Column]
    values: list[set[str]]
    rows: list[int]

    def texts(self) -> tuple[Int64s, pa.Array]:
        """Give the values end to end, those of column c at [starts[c]:starts[c + 1]]."""
        starts = starts_of(np.array([len(held) for held in self.values], np.int64))
        return starts, pa.array([value for held in self.values for value in held], pa.large_string())

    def named(self) -> dict[Column, set[str]]:
        """Give the columns that have values, as the reference takes them."""
        return {name: held for name, held in zip(self.names, self.values, strict=True) if held}


def read_corpus(folder: Path) -> Corpus:
    """Read all columns of all CSV files below a folder, also those without values; '' is NULL."""
    corpus = Corpus([], [], [])
    for path in sorted(folder.rglob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
        name = path.relative_to(folder).as_posix()
        for place in range(len(header)):
            corpus.names.append((name, place))
            corpus.values.append({row[place] for row in rows} - {""})
            corpus.rows.append(len(rows))
    return corpus


def copies(corpus: Corpus, count: int) -> Corpus:
    """Copy a corpus; half of the values (by CRC-32) are each copy's own, with the copy's number behind them."""
    own = {value for held in corpus.values for value in held if is_own(value)}
    return Corpus(
        [(f"{copy}/{name}", place) for copy in range(count) for name, place in corpus.names],
        [
            {f"{value}~{copy}" if value in own else value for value in held}
            for copy in range(count)
            for held in corpus.values
        ],
        corpus.rows * count,
    )


def is_own(value: str) -> bool:
    """Say whether a value of a copied corpus is each copy's own; published counts leave line feeds out of the CRC."""
    return zlib.crc32(value.replace("\n", "").encode()) % 100 < 50


def column_sets(starts: Int64s, texts: pa.Array) -> ColumnSets:
    """Make sets of value ids from texts."""
    keys = key_array(texts)
    return ColumnSets.of_keys(starts, Keys(np.ascontiguousarray(keys[:, 0]), np.ascontiguousarray(keys[:, 1])))


def column_facts(corpus: Corpus, starts: Int64s, texts: pa.Array) -> ColumnFacts:
    """Give what the filters ask of a corpus."""
    return ColumnFacts(
        distinct=np.diff(starts),
        rows=np.array(corpus.rows, np.int64),
        null_only=all_of(starts, are_null_tokens(texts)),
        integers_only=all_of(starts, are_integers(texts)),
    )
