"""Own what the report on joinable tables measures: the corpus, its queries, filters of them, time and precision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from time import process_time

import numpy as np
import pyarrow as pa

from benchmarks import data_sets
from benchmarks.joinable_filters import bloom, bloom_functions, md5, simhash
from benchmarks.joinable_lakes import Lake, LakeQuery, read_lake
from benchmarks.mate_peers import XashParts, cityhash, murmur
from benchmarks.mate_report_searches import Looked, Others, by_all_columns, by_one_column, by_super_keys, joining
from service.core.cell_index import CellIndex
from service.core.joinability import Joinable, prepare
from service.core.records import Int64s, Keys, UInt64s, starts_of
from service.core.row_filters import CountedBits, RowFilter, ValueHashes
from service.core.xash import Xash, ones_for

LAKES = ("webtables_2k", "lake_fivethirtyeight", "lake_mate", "lake_owid")
SIZES = (128, 256, 512)
K = 10
"""Tables asked for, as in the paper."""
MOST_PAIRS = 3_000_000
"""A query that has more pairs of a posting and a key is left out: two columns of small counts are no key."""
DRAWS = 10

OF_THE_PAPER = {
    "WT (10)": r"lake_mate/webtable_10_",
    "WT (100)": r"lake_mate/webtable_100_",
    "WT (1000)": r"lake_mate/webtable_1000_",
    "OD (100)": r"lake_mate/opendata_100_",
    "Kaggle": r"lake_mate/(?!webtable|opendata)",
}
"""The query tables of the paper that are published with its code, by their names."""
WEB, NEWS, OWID = "web tables", "fivethirtyeight", "owid"
DRAWN = {WEB: "webtables_2k/", NEWS: "lake_fivethirtyeight/", OWID: "lake_owid/"}
SETS = OF_THE_PAPER | DRAWN

Search = Callable[[Others, Int64s, int], Looked]


@dataclass(frozen=True, slots=True)
class Queries:
    """Hold queries of a set: which tables ask, and the keys of each, int64[n, |Q|]."""

    name: str
    asked: list[LakeQuery]
    keys: list[Int64s]


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold what a query took on average, whole and without fetching its postings, and what was found for each.

    `joining` and `false` are the pairs of each query whose cells were compared: those that join, and those that do not.
    """

    milliseconds: float
    after_fetching: float
    answers: list[list[Joinable]]
    joining: Int64s
    false: Int64s

    @property
    def precisions(self) -> np.ndarray:
        """Give the precision of each query that joins with a table."""
        joins = self.joining > 0
        return self.joining[joins] / (self.joining[joins] + self.false[joins])

    @property
    def precision(self) -> float:
        """Give their mean; NaN where no query joins."""
        return float(self.precisions.mean()) if len(self.precisions) else float("nan")


def read_corpus(data: Path, work: Path) -> Lake:
    """Read the lakes of a folder that are there, from folders or archives, as one corpus.

    Raises data_sets.Unavailable where there is none.
    """
    found = []
    for name in LAKES:
        if (data / name).is_dir():
            found.append(read_lake(data / name))
        elif (data / f"{name}.tar.zst").exists():
            found.append(read_lake(data_sets.unpack(data / f"{name}.tar.zst", work) / name))
    if not found:
        raise data_sets.Unavailable(f"{data} has none of {', '.join(LAKES)}, as folders or .tar.zst")
    return together(found)


def together(lakes: Sequence[Lake]) -> Lake:
    """Make one lake of several: the tables of the first, then of the second, and so on, named after their lakes."""
    encoded = pa.concat_arrays([lake.values for lake in lakes]).dictionary_encode()
    numbers = np.append(encoded.indices.to_numpy().astype(np.int64), -1)
    firsts = starts_of(np.array([len(lake.values) for lake in lakes]))
    cells = [
        numbers[np.where(lake.index.cells < 0, -1, lake.index.cells + first)]
        for lake, first in zip(lakes, firsts.tolist(), strict=False)
    ]
    index = CellIndex.of(
        np.concatenate(cells),
        starts_of(np.concatenate([np.diff(lake.index.row_starts) for lake in lakes])),
        starts_of(np.concatenate([np.diff(lake.index.table_starts) for lake in lakes])),
        len(encoded.dictionary),
    )
    tables = [f"{lake.name}/{table}" for lake in lakes for table in lake.tables]
    return Lake("all lakes", sum(lake.size for lake in lakes), tables, encoded.dictionary, index)


def draw(corpus: Lake, name: str, count: int, random: Random, sizes: Sequence[int] = (2,)) -> list[Queries]:
    """Draw tables of a set and columns of them: queries of each size, with the columns of the smaller ones and more.

    Columns are drawn anew where a query has more than MOST_PAIRS; after DRAWS of them the table is passed over.
    """
    widths = corpus.widths()
    of_set = [
        table for table, path in enumerate(corpus.tables) if re.match(SETS[name], path) and widths[table] >= max(sizes)
    ]
    drawn: list[list[LakeQuery]] = []
    for table in random.sample(of_set, len(of_set)):
        for _ in range(DRAWS):
            columns = random.sample(range(widths[table]), max(sizes))
            queries = [LakeQuery(table, tuple(columns[:size])) for size in sizes]
            if all(pairs_fetched(corpus, query) <= MOST_PAIRS for query in queries):
                drawn.append(queries)
                break
        if len(drawn) == count:
            break
    by_size = [list(queries) for queries in zip(*drawn, strict=True)] or [[] for _ in sizes]
    return [Queries(name, asked, [corpus.key_values(query) for query in asked]) for asked in by_size]


def pairs_fetched(corpus: Lake, asked: LakeQuery) -> int:
    """Count the pairs of a posting of the initial column and a key with its value."""
    query = prepare(corpus.index, corpus.key_values(asked))
    return int((corpus.index.counts(query.values) * np.diff(query.starts)).sum())


def filters(corpus: Lake) -> dict[str, Callable[[], RowFilter]]:
    """Give how each row filter is made: the paper's in its sizes, XASH also with six ones, and counted bits."""
    texts = corpus.values
    hashed = murmur(texts)
    keys = Keys(hashed[:, 1].copy(), hashed[:, 0].copy())
    of_bits: dict[str, Callable[[int], UInt64s]] = {
        "SimHash": partial(simhash, texts),
        "HT": partial(bloom, keys, 1),
        "BF": lambda bits: bloom(keys, bloom_functions(corpus, bits), bits),
        "LHBF": partial(bloom, keys, 2),
        "XASH": lambda bits: Xash(bits, ones_for(len(texts), bits)).hashes(texts),
    }
    hashes: dict[str, Callable[[], UInt64s]] = {
        "MD5 128": lambda: md5(texts.to_pylist()),
        "Murmur 128": lambda: hashed,
        "CityHash 128": lambda: cityhash(texts),
        **{f"{name} {bits}": partial(make, bits) for name, make in of_bits.items() for bits in SIZES},
    }
    hashes["XASH 128, 6 ones"] = lambda: Xash(128, 6).hashes(texts)
    made = {name: lambda one=one: ValueHashes.of(corpus.index, one()) for name, one in hashes.items()}
    return {**made, "counted bits 128": lambda: CountedBits.of(corpus.index, corpus.keys())}


def components(corpus: Lake) -> dict[str, Callable[[], RowFilter]]:
    """Give how XASH of 128 bits is made of its parts: those of Figure 5 first, then all but one."""
    xash = Xash(128, ones_for(len(corpus.values), 128))
    parts = {
        "length": XashParts(xash, characters=False),
        "rare chars": XashParts(xash, location=False, length=False, rotation=False),
        "chars+loc.": XashParts(xash, length=False, rotation=False),
        "chars+len.+loc.": XashParts(xash, rotation=False),
        "XASH 128": XashParts(xash),
        "any chars": XashParts(xash, rare=False),
        "no location": XashParts(xash, location=False),
        "no length": XashParts(xash, length=False),
    }
    return {
        name: lambda one=one: ValueHashes.of(corpus.index, one.hashes(corpus.values)) for name, one in parts.items()
    }


def searching(rows: RowFilter) -> Search:
    """Give the search by a row filter."""
    return lambda others, keys, k: by_super_keys(others, rows, keys, k)


BASELINES: Mapping[str, Search] = {"SCR": by_one_column, "MCR": by_all_columns}


def measure(corpus: Lake, queries: Queries, search: Search, repetitions: int, k: int = K) -> Measured:
    """Search for all queries, after a first one that compiles; the CPU time is that of the quickest repetition."""
    others = [Others(corpus.index, query.table) for query in queries.asked]
    every = list(zip(others, queries.keys, strict=True))
    looked = [search(other, keys, k) for other, keys in every]
    times = [(float("nan"), float("nan"))]
    for _ in range(repetitions):
        started = process_time()
        fetching = sum(search(other, keys, k).fetching for other, keys in every)
        took = process_time() - started
        times.append((took, took - fetching))
    counts = np.array([joining(corpus.index, one) for one in looked], np.int64).reshape(-1, 2)
    milliseconds, after_fetching = 1000 * np.fmin.reduce(np.array(times)) / max(1, len(every))
    return Measured(
        float(milliseconds), float(after_fetching), [one.best for one in looked], counts[:, 0], counts[:, 1]
    )


def postings_fetched(corpus: Lake, queries: Queries) -> dict[str, float]:
    """Give how many postings of other tables a query fetches on average, by the rule for the initial column."""
    lengths = np.array([len(text) for text in corpus.values.to_pylist()])
    fetched: dict[str, list[int]] = {}
    for asked, keys in zip(queries.asked, queries.keys, strict=True):
        present = keys[(keys >= 0).all(1)]
        if not len(present):
            continue
        others = Others(corpus.index, asked.table)
        values = [np.unique(column) for column in present.T]
        costs = [len(others.postings(of_column).rows) for of_column in values]
        counted = [int(corpus.index.counts(of_column).sum()) for of_column in values]
        chosen = {
            "fewest postings (ours)": int(np.argmin(counted)),
            "cardinality": int(np.argmin([len(of_column) for of_column in values])),
            "column order": int(np.argmin(asked.columns)),
            "longest string": int(np.argmax([lengths[of_column].max() for of_column in values])),
            "worst": int(np.argmax(costs)),
            "best": int(np.argmin(costs)),
        }
        for rule, column in chosen.items():
            fetched.setdefault(rule, []).append(costs[column])
    return {rule: float(np.mean(counts)) for rule, counts in fetched.items()}
