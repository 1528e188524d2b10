"""Own `python -m benchmarks.corpus_statistics [TABLES ...]`: how made corpora compare with real web tables.

It prints the two tables of docs/benchmarks.md: statistics of the web tables of tests/data, of made corpora, and of
WikiTables as the paper tells them (MANY, Tables 1, 2 and 4, section 3.1); and INDs by size (Table 3, Table 5, section
5.5). Sizes above the largest that is asked for are left out.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import web_corpus
from benchmarks.data_sets import unpack
from benchmarks.rows.many_growth import SEED, discover
from benchmarks.web_corpus import WebCorpus
from service.core.column_filters import PAPER, Filters, are_integers, are_null_tokens
from service.core.column_sets import ColumnSets
from service.core.records import starts_of

WEB_TABLES = Path(__file__).parents[1] / "tests" / "data" / "webtables_2k" / "webtables_2k.tar.zst"

SIZES = (2_000, 16_384, 65_536, 262_144, 1_398_105)
SAMPLED = 500
"""Columns whose overlaps with all others are counted."""

WIKI_TABLES = {
    "tables": "1,398,105",
    "columns": "7,470,443",
    "columns of a table: mean, most": "5.34, 2,349",
    "rows of a table: mean, most": "10.85, 4,670",
    "cells": "88,808,438",
    "NULL, that is the empty text": "12.7 %",
    "distinct values": "13,742,963",
    "the 25 most frequent texts, NULL among them": "27 %",
    "the 5th most frequent value": "0.82 %",
    "the 18th": "0.28 %",
    "the 145th": "0.037 %",
    "the 914th": "0.0048 %",
}
"""Ranks are those of Table 2 without the empty text, which is the most frequent one."""

PAPERS_INDS = {1_000: 122e3, 2_500: 774e3, 5_000: 2.5e6, 10_000: 10e6, 25_000: 63e6, 50_000: 259e6}
PAPERS_FILTERED_INDS = {409_600: 1.3e6, 1_398_105: 5_056_820}


def main() -> None:
    """Print both tables."""
    sizes = [int(size) for size in sys.argv[1:]] or SIZES
    with tempfile.TemporaryDirectory() as folder:
        found = {"`webtables_2k`": describe(read(unpack(WEB_TABLES, Path(folder)) / "webtables_2k" / "tables"))}
    found |= {f"made, {size:,}": describe(web_corpus.make(size, SEED)) for size in sizes}
    found["WikiTables"] = WIKI_TABLES
    names = dict.fromkeys(name for one in found.values() for name in one)
    _print(["", *found], ([name, *(one.get(name, "") for one in found.values())] for name in names))
    print()
    _print(["tables", "filters", "INDs, made", "INDs, WikiTables"], _inds(max(sizes)))


def read(folder: Path) -> WebCorpus:
    """Read CSV tables as a made corpus has them: values are numbers that tell integers and null tokens."""
    rows, columns, cells, lengths = [], [], [], []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            header, *body = csv.reader(lines)
        columns.append(len(header))
        rows += [len(body)] * len(header)
        for place in range(len(header)):
            held = [row[place] for row in body if row[place]]
            cells += held
            lengths.append(len(held))
    coded = pa.array(cells, pa.large_string()).dictionary_encode()
    kind = np.where(are_integers(coded.dictionary), web_corpus.INTEGERS, 0)
    kind[are_null_tokens(coded.dictionary)] = web_corpus.NULLS
    numbers = (kind + np.arange(len(kind)))[coded.indices.to_numpy()]
    return WebCorpus(len(columns), starts_of(np.array(lengths)), numbers, np.array(rows), starts_of(np.array(columns)))


def describe(corpus: WebCorpus) -> dict[str, str]:
    """Give the statistics of a corpus, as they are printed."""
    sets = ColumnSets.of_keys(corpus.starts, corpus.keys())
    facts = corpus.facts(sets)
    table_rows = np.maximum.reduceat(corpus.rows, corpus.first_columns[:-1])
    table_columns = np.diff(corpus.first_columns)
    cells, columns = int(corpus.rows.sum()), len(corpus.rows)
    frequency = np.sort(np.unique(corpus.values, return_counts=True)[1])[::-1]
    nulls = cells - len(corpus.values)
    holders = np.bincount(sets.values)
    held = sets.sizes[sets.sizes > 0]
    contained, half, others = _overlaps(sets)
    unique = (facts.distinct == facts.rows) & (facts.distinct > 0)
    return {
        "tables": f"{corpus.tables:,}",
        "columns": f"{columns:,}",
        "columns of a table: mean, most": f"{table_columns.mean():.2f}, {table_columns.max():,}",
        "rows of a table: mean, most": f"{table_rows.mean():.2f}, {table_rows.max():,}",
        "cells": f"{cells:,}",
        "NULL, that is the empty text": _share(nulls, cells),
        "distinct values": f"{len(frequency):,}",
        "the 25 most frequent texts, NULL among them": _share(nulls + frequency[:24].sum(), cells),
        "the 5th most frequent value": _share(frequency[4], cells),
        "the 18th": _share(frequency[17], cells),
        "the 145th": _share(frequency[144], cells),
        "the 914th": _share(frequency[913], cells),
        "columns that hold a value: 50, 90, 99, 99.9 %": _quantiles(holders, 50, 90, 99, 99.9),
        "columns that hold the most frequent one": _share(holders.max(), columns),
        "distinct values of a column: 50, 90, 99 %, most": _quantiles(held, 50, 90, 99, 100),
        "columns without values": _share(np.count_nonzero(facts.distinct == 0), columns),
        "columns of null tokens": _share(np.count_nonzero(facts.null_only & (facts.distinct > 0)), columns),
        "columns of integers": _share(np.count_nonzero(facts.integers_only), columns),
        "columns without repetition and NULL": _share(np.count_nonzero(unique), columns),
        "columns that another one contains": _share(contained, 1),
        "columns of which another one has half": _share(half, 1),
        "pairs of columns with a value in common": _share(others, 1),
    }


def _overlaps(sets: ColumnSets) -> tuple[float, float, float]:
    """Give, of sampled columns, the share contained in another, half in another, and of others with a common value."""
    owners = np.repeat(np.arange(len(sets.sizes)), sets.sizes)
    order = np.argsort(sets.values, kind="stable")
    bounds = starts_of(np.bincount(sets.values))
    having = np.flatnonzero(sets.sizes)
    best, common = [], []
    for column in np.random.default_rng(SEED).choice(having, min(SAMPLED, len(having)), replace=False).tolist():
        values = sets.values[sets.starts[column] : sets.starts[column + 1]]
        hits = np.bincount(np.concatenate([owners[order[bounds[value] : bounds[value + 1]]] for value in values]))
        hits[column] = 0
        best.append(hits.max() / len(values))
        common.append(np.count_nonzero(hits) / (len(having) - 1))
    return float(np.mean(np.array(best) == 1)), float(np.mean(np.array(best) >= 0.5)), float(np.mean(common))


def _inds(most: int) -> Iterator[list[str]]:
    """Count the INDs of made corpora of the sizes that the paper tells of, and that are not above `most`."""
    for name, filters, sizes in (("none", Filters(), PAPERS_INDS), ("all four", PAPER, PAPERS_FILTERED_INDS)):
        for tables, papers in sizes.items():
            if tables > most:
                continue
            made = discover(web_corpus.make(tables, SEED), filters, "choice")["inds"]
            yield [f"{tables:,}", name, f"{made:,}", f"{papers:,.0f}"]


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g} %"


def _quantiles(numbers: np.ndarray, *percentages: float) -> str:
    return ", ".join(f"{number:,.0f}" for number in np.percentile(numbers, percentages, method="lower"))


def _print(head: Sequence[str], lines: Iterator[Sequence[str]]) -> None:
    for line in (head, ["---", *["---:"] * (len(head) - 1)], *lines):
        print("| " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
