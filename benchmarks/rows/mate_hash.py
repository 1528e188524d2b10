"""Own the row `mate-hash`: cells hashed in a second of one core, from Arrow texts to super keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
import pyarrow as pa

from benchmarks.context import Context
from benchmarks.joinable_lakes import lakes
from benchmarks.results_file import Result
from service.core.records import Int64s, UInt64s
from service.core.row_filters import CountedBits
from service.core.xash import Xash, super_keys

SEED = 0
"""Nothing is drawn."""
SECONDS = 1.0
"""Each is repeated for so long, after a first time that compiles it."""


def run(context: Context) -> list[Result]:
    """Hash every cell of web tables, as if no value occurred twice."""
    lake = lakes(context.work)[0]
    index = lake.index
    present = np.flatnonzero(index.cells >= 0)
    texts = lake.values.take(index.cells[present])
    own = np.full(len(index.cells), -1, np.int64)
    own[present] = np.arange(len(present))
    results = []
    for bits in (128, 256, 512):
        took = seconds(context, partial(_xash, Xash(bits), texts, own, index.row_starts))
        results.append(Result(f"XASH, {bits} bits", len(present) / 1e6 / took, "million cells/s", goal="value >= 2"))
    counted = seconds(context, partial(CountedBits.of, index, lake.keys()))
    results.append(Result("counted bits, from value keys", len(present) / 1e6 / counted, "million cells/s"))
    return results


def _xash(xash: Xash, texts: pa.Array, cells: Int64s, starts: Int64s) -> UInt64s:
    return super_keys(xash.hashes(texts), cells, starts)


def seconds(context: Context, work: Callable[[], object]) -> float:
    """Give the CPU seconds of one run."""
    work()
    started, runs = process_time(), 0
    while process_time() - started < SECONDS * context.size:
        work()
        runs += 1
    return (process_time() - started) / max(1, runs)
