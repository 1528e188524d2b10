"""Own the row `estimator-speed`: what an estimated pair costs, at the paper's m and for a body of 10,000 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from time import perf_counter, process_time
from typing import cast

import numpy as np

from benchmarks.context import Context
from benchmarks.made_columns import as_kept, draw_size, hash_range
from benchmarks.results_file import Result
from service.core.estimators import METHODS, Column, Stack, estimate, estimate_pairs, pairs_of, stack
from service.core.records import Flags, Int64s
from service.core.sketches.column import BUCKET_BITS, SPARES, ColumnSketch, K
from service.usecases.answers import UploadedSketch
from service.usecases.coefficient_table import Coefficients, Question
from service.usecases.ports import StateSnapshot

SEED = 13
COLUMNS, DOMAINS = 500, 20
BODY_COLUMNS, BODY_DOMAINS, BODY_BUCKET_BITS = 10_000, 400, 10
BODY_SHARE = 20
"""One of so many pairs of the body is estimated; the time of all is so many times that."""
SERVED_COLUMNS, SERVED_LEAST = 2_000, 0.5
"""So many columns go through what `subsetd coefficients --min-coefficient 0.5` does."""
SINGLE_PAIRS = 200
LEAST, MOST = 10, 300_000
HASH_BYTES = 8


def run(context: Context) -> list[Result]:
    """Time one thread over all pairs of some columns, and two over a share of the pairs of many."""
    rng = np.random.default_rng(SEED)
    paper = _columns(rng, context.scaled(COLUMNS), DOMAINS, BUCKET_BITS, K + SPARES)
    results = list(_by_kind(stack(paper)))
    results += [_single(paper, method, rng) for method in METHODS]
    # With 2^10 registers a column has room for 96 hashes.
    few = (1 << BODY_BUCKET_BITS) * 6 // 8 // HASH_BYTES
    body = stack(_columns(rng, context.scaled(BODY_COLUMNS), BODY_DOMAINS, BODY_BUCKET_BITS, few))
    x, y = pairs_of(body)
    some_x, some_y = x[::BODY_SHARE].copy(), y[::BODY_SHARE].copy()
    started, cpu_started = perf_counter(), process_time()
    estimate_pairs(body, some_x, some_y, threads=2)
    seconds = (perf_counter() - started) * len(x) / len(some_x)
    milliseconds = (process_time() - cpu_started) * 1e3 / len(some_x)
    name = f"{len(body.sizes):,} columns, m = {BODY_BUCKET_BITS}"
    return [
        *results,
        Result(f"{name}: pairs", len(x), ""),
        Result(f"{name}: CPU of a pair", milliseconds, "ms"),
        Result(f"{name}: all pairs on 2 cores, by 1 of {BODY_SHARE}", seconds, "s", goal="value <= 300"),
        *_served(rng, context.scaled(SERVED_COLUMNS), few),
    ]


class MadeUploads:
    """Give uploaded sketches, as a snapshot of a state does that has nothing else."""

    def __init__(self, data: Mapping[str, bytes]) -> None:
        self._data = data

    def uploads(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        return ((name, self._data[name]) for name in names)


def _served(rng: np.random.Generator, count: int, few: int) -> list[Result]:
    """Time both coefficients of all pairs from stored bytes to answers, and say what 10,000 columns would take."""
    data = {}
    for number, (domain, first, last) in enumerate(_ranges(rng, count, BODY_DOMAINS * count // BODY_COLUMNS + 1)):
        sketch = ColumnSketch(BODY_BUCKET_BITS, few, 0)
        sketch.update(hash_range(domain, first, last))
        data[f"c{number}"] = sketch.to_bytes()
    columns = [UploadedSketch(name, datetime.now(UTC)) for name in data]
    snapshot = cast(StateSnapshot, MadeUploads(data))
    started = perf_counter()
    found = sum(1 for _ in Coefficients(snapshot, columns, columns, Question(threshold=SERVED_LEAST)).all())
    seconds = perf_counter() - started
    name = f"served, {count:,} columns, m = {BODY_BUCKET_BITS}, Φ ≥ {SERVED_LEAST}"
    scaled = seconds * (BODY_COLUMNS / count) ** 2
    return [
        Result(f"{name}: answers", found, ""),
        Result(f"{name}: pairs a second", count * (count - 1) / 2 / seconds, "pairs/s"),
        Result(f"{name}: 10,000 columns on 2 cores, scaled", scaled, "s", goal="value <= 300"),
    ]


def _columns(rng: np.random.Generator, count: int, domains: int, m: int, most: int) -> list[Column]:
    """Make columns of all sizes as a state keeps them; each has a place at random in one of the domains."""
    return [
        as_kept(hash_range(domain, first, last), m, most, min(K, most))
        for domain, first, last in _ranges(rng, count, domains)
    ]


def _ranges(rng: np.random.Generator, count: int, domains: int) -> Iterator[tuple[int, int, int]]:
    of_domain = rng.integers(1 << 63, size=domains)
    for domain in rng.choice(of_domain, count).tolist():
        size = draw_size(rng, LEAST, MOST)
        first = int(rng.integers(0, MOST))
        yield domain, first, first + size


def _by_kind(columns: Stack) -> list[Result]:
    """Give CPU milliseconds a pair in one thread: one estimate gives both coefficients of a pair."""
    x, y = pairs_of(columns)
    estimate_pairs(columns, x[:100], y[:100], threads=1)  # compiled or loaded before it is timed
    known = columns.is_complete[x].astype(int) + columns.is_complete[y]
    results = [_timed(columns, x, y, np.ones(len(x), np.bool_), "all pairs", "value <= 0.03")]
    for number, kind in enumerate(("registers of both", "hashes of one", "hashes of both")):
        results.append(_timed(columns, x, y, known == number, kind))
    return results


def _timed(columns: Stack, x: Int64s, y: Int64s, chosen: Flags, kind: str, goal: str | None = None) -> Result:
    started = process_time()
    estimate_pairs(columns, x[chosen], y[chosen], threads=1)
    milliseconds = (process_time() - started) * 1e3 / chosen.sum()
    return Result(f"m = {BUCKET_BITS}, {kind}: a pair", float(milliseconds), "ms", goal=goal)


def _single(columns: list[Column], method: str, rng: np.random.Generator) -> Result:
    """Time pairs one by one, as a question for one pair is answered."""
    pairs = rng.integers(len(columns), size=(SINGLE_PAIRS, 2)).tolist()
    estimate(columns[0], columns[1], method)
    started = process_time()
    for x, y in pairs:
        estimate(columns[x], columns[y], method)
    return Result(f"m = {BUCKET_BITS}, one pair by `{method}`", (process_time() - started) * 1e3 / len(pairs), "ms")
