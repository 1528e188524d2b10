"""Own `python -m benchmarks.many_process FILE WHAT FILTERS`: one algorithm in a process of its own, its CPU and memory.

FILE is an Arrow stream of columns as `write` makes it; WHAT is `reference`, `rarest-first`, `signatures` or `choice`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import processes
from benchmarks.corpora import Corpus, column_sets
from benchmarks.reference import find_inds as reference_inds
from service.core.column_filters import (
    NULL_TOKENS,
    PAPER,
    ColumnFacts,
    Filters,
    all_of,
    are_integers,
    are_null_tokens,
    exclude,
)
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus_choices import Algorithm
from service.core.corpus_inds import choose, find_inds
from service.core.records import Int64s

FILTERS = {"none": Filters(), "paper": PAPER}


def write(corpus: Corpus, path: Path) -> Path:
    """Write a corpus as one column of lists of texts and one of rows."""
    lists = pa.array([sorted(held) for held in corpus.values], pa.large_list(pa.large_string()))
    table = pa.table({"values": lists, "rows": pa.array(corpus.rows, pa.int64())})
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def measure(path: Path, what: str, filters: str, log: Path) -> dict[str, float]:
    """Run this module on a file; give `inds`, `cpu` and `seconds` of the discovery, `peak` GB of the process."""
    command = [sys.executable, "-m", "benchmarks.many_process", str(path), what, filters]
    return json.loads(processes.run(command, log=log).output)


def main() -> None:
    """Print what one run took; compiling, importing and reading the file is not part of its time."""
    path, what, filters = sys.argv[1:]
    with pa.memory_map(path) as source:
        table = pa.ipc.open_file(source).read_all().combine_chunks()
    lists = table["values"].combine_chunks()
    starts, texts = lists.offsets.to_numpy().astype(np.int64), lists.values
    rows = table["rows"].to_numpy()
    run = _reference if what == "reference" else _kernel
    if what != "reference":
        _kernel(starts[:51], texts.slice(0, int(starts[50])), rows[:50], what, FILTERS[filters])()
    counting = run(starts, texts, rows, what, FILTERS[filters])
    cpu, begun = time.process_time(), time.perf_counter()
    inds = counting()
    print(
        json.dumps(
            {
                "inds": inds,
                "cpu": time.process_time() - cpu,
                "seconds": time.perf_counter() - begun,
                "peak": processes.own_peak_bytes() / 1e9,
            }
        )
    )


def _kernel(starts: Int64s, texts: pa.Array, rows: Int64s, what: str, filters: Filters) -> Callable[[], int]:
    """Do all from texts to blocks of INDs of columns: keys, sets, filters, groups, discovery."""

    def counting() -> int:
        sets = column_sets(starts, texts)
        empty = np.zeros(len(rows), bool)
        null_only = all_of(starts, are_null_tokens(texts)) if filters.null_columns else empty
        integers_only = all_of(starts, are_integers(texts)) if filters.integer_columns else empty
        facts = ColumnFacts(sets.sizes, rows, null_only, integers_only)
        return count(sets, facts, filters, what)

    return counting


def count(sets: ColumnSets, facts: ColumnFacts, filters: Filters, what: str) -> int:
    """Count the INDs that one algorithm, or the chosen one, writes out."""
    excluded = exclude(facts, filters)
    groups = group_columns(sets, excluded.dependent == 0, excluded.referenced == 0, coverage=filters.coverage)
    algorithm = choose(groups).algorithm if what == "choice" else Algorithm(what)
    return sum(len(block.dependent) for block in find_inds(groups, sets.keys, algorithm))


def _reference(starts: Int64s, texts: pa.Array, rows: Int64s, what: str, filters: Filters) -> Callable[[], int]:
    """Do the same in plain Python, from sets of texts that are there before."""
    values = [set(texts[low:high].to_pylist()) for low, high in pairwise(starts)]
    tokens, integer = set(NULL_TOKENS), re.compile("[+-]?[0-9]+")

    def filtered() -> Iterator[object]:
        columns = {
            ("", place): held
            for place, held in enumerate(values)
            if held
            and not (filters.null_columns and held <= tokens)
            and not (filters.integer_columns and all(map(integer.fullmatch, held)))
        }
        for dependent, referenced in reference_inds(columns):
            left, right = len(columns[dependent]), len(columns[referenced])
            if filters.non_unique_referenced and right != rows[referenced[1]]:
                continue
            if left * filters.coverage.denominator >= filters.coverage.numerator * right:
                yield dependent

    return lambda: sum(1 for _ in filtered())


if __name__ == "__main__":
    main()
