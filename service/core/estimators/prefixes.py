"""Own the likelihood of the overlap of columns of which hash prefixes are held.

Cut to b bits, the fewer that are held of the two, prefixes are 2^b cells, most of which tell only whether a value is
there; 2^m of them have a register. Both are buckets of 2^-b of all values, so the likelihood of `unsized` is that of
all of them together. Where the values of one column are told apart, it is asked of each whether it can be in a cell of
the other (`known`): exact for a few values as well.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from service.core.compiled import kernel
from service.core.estimators import known, unsized
from service.core.estimators.best import count_common, prior_of
from service.core.estimators.curve import cut, posterior_median, probability_beforehand
from service.core.estimators.model import Column, Prefixes
from service.core.estimators.registers import LEVELS
from service.core.estimators.tails import likelihood_drop
from service.core.estimators.unsized import SAME, X_ABOVE, X_BELOW, Y_ABOVE, Y_BELOW, Unsized
from service.core.records import Int64s, UInt64s
from service.core.sketches import prefixes
from service.core.sketches.cardinality import likelihood_bounds_of_cells
from service.core.sketches.hashing import HASH_BITS, rho_of

APART = 128
"""Values are told apart when there are so many cells for each: of 256 values then no more than one shares a cell."""

FEW = 4
"""Where the other column has so many times as many values, the error of its size does not matter."""


def prefixes_of(column: Column) -> Prefixes:
    """Give what is held of the hashes of all values: registers are prefixes as well, of m bits."""
    if column.prefixes is None and column.hashes is not None:
        return Prefixes(column.hashes, HASH_BITS)
    return column.prefixes or Prefixes(prefixes.entries_of(column.registers), column.bucket_bits)


def tell_apart(column: Column) -> Column:
    """Let prefixes stand for the hashes of all values, where they are long enough; whoever has registers takes them."""
    held = column.prefixes
    if column.hashes is not None or held is None or not _are_apart(held):
        return column
    return column._replace(hashes=held.entries, size=float(len(held.entries)), is_size_exact=True)


def _are_apart(held: Prefixes) -> bool:
    return 2.0**held.bits >= APART * len(held.entries)


def estimate(x: Column, y: Column, level: float) -> tuple[float, float, float]:
    """Give Φ(X, Y) and its interval."""
    of_x, of_y = prefixes_of(x), prefixes_of(y)
    m, bits = min(x.bucket_bits, y.bucket_bits), min(of_x.bits, of_y.bits)
    entries_x, entries_y = prefixes.cut(of_x.entries, m, bits), prefixes.cut(of_y.entries, m, bits)
    cells = 2.0**bits
    if len(entries_x) * len(entries_y) / cells < (1 - level) / 2:
        common = count_common(entries_x, entries_y)
        likely = _median_of_matches(common, len(entries_x), len(entries_y), cells)
        return likely / len(of_x.entries), likely / len(of_x.entries), common / len(of_x.entries)
    for one, held, column in ((of_x, entries_y, y), (of_y, entries_x, x)):
        if one.bits > bits and _are_apart(one) and FEW * len(one.entries) < column.size:
            curve = known.trace(column.size, gather(one.entries, held, m, bits), 1 / cells, HASH_BITS + 1 - bits)
            median, (low, high) = posterior_median(curve, prior_of(curve.largest)), cut(curve, likelihood_drop(level))
            scale = (y.size if one is of_y else x.size) / len(one.entries)
            least, most = _size_bounds(x, of_x, level)
            low, high = min(math.floor(low), median), max(math.ceil(high), median)
            return median * scale / x.size, low * scale / most, high * scale / least
    if y.is_size_exact and not x.is_size_exact:
        # The overlap is at most |Y|, which is known.
        share, low, high = _by_likelihood(y, x, observe(entries_y, entries_x, m, bits, y, x), level)
        least, most = _size_bounds(x, of_x, level)
        return share * y.size / x.size, low * y.size / most, high * y.size / least
    return _by_likelihood(x, y, observe(entries_x, entries_y, m, bits, x, y), level)


def _by_likelihood(x: Column, y: Column, pair: Unsized, level: float) -> tuple[float, float, float]:
    curve = unsized.trace(x.size, y.size, pair)
    low, high = cut(curve, likelihood_drop(level))
    possible = curve if y.size >= x.size else unsized.trace(x.size, y.size, pair, y.size / x.size)
    median = posterior_median(possible, prior_of(possible.largest))
    return median / x.size, math.floor(low) / x.size, math.ceil(high) / x.size


def size_bounds(column: Column, level: float) -> tuple[float, float]:
    """Give the interval of a column's number of values."""
    return _size_bounds(column, prefixes_of(column), level)


def _size_bounds(column: Column, held: Prefixes, level: float) -> tuple[float, float]:
    if column.is_size_exact:
        return column.size, column.size
    cells = prefixes.count_cells(held.entries, column.bucket_bits, held.bits)
    low, high = likelihood_bounds_of_cells(*cells, level)
    met = float(len(held.entries))  # so many values are there
    return max(low, met), max(high, met)


def _median_of_matches(common: int, nx: int, ny: int, cells: float) -> int:
    """Give the median of the overlap where it is unlikely that two values share a cell.

    The few common cells of different values are a Poisson number.
    """
    prior = prior_of(min(nx, ny))
    chance_beforehand = partial(probability_beforehand, largest=min(nx, ny), prior=prior)
    mean = (nx - common) * (ny - common) / cells
    chances = [mean**by / math.factorial(by) * chance_beforehand(common - by) for by in range(min(common, 9) + 1)]
    return common - int(np.searchsorted(np.cumsum(chances), sum(chances) / 2))


def observe(entries_x: UInt64s, entries_y: UInt64s, m: int, bits: int, x: Column, y: Column) -> Unsized:
    """Count the cells of two columns by what they hold of each; sizes are known or not as the columns say."""
    counts = _count(entries_x, entries_y, m, bits)
    nx, ny = (float(column.size) if column.is_size_exact else 0.0 for column in (x, y))
    cells = float((1 << bits) - (1 << min(m, bits)))
    return Unsized(counts, nx, ny, 0.5**bits, HASH_BITS + 1 - bits, cells)


@kernel
def _level_of(entry: np.uint64, m: int, bits: int) -> int:
    """Give the register of an entry's cell, which is above all registers where the cell has but one bit."""
    behind = (entry >> np.uint64(HASH_BITS - bits)) & np.uint64((1 << max(bits - m, 0)) - 1)
    return HASH_BITS + 2 - bits if behind else rho_of(entry, bits)


@kernel
def _count(x: UInt64s, y: UInt64s, m: int, bits: int) -> Int64s:
    counts = np.zeros((5, LEVELS), np.int64)
    shift = np.uint64(HASH_BITS - bits)
    i = j = met = 0
    while i < len(x) or j < len(y):
        takes_x = j == len(y) or (i < len(x) and x[i] >> shift <= y[j] >> shift)
        takes_y = i == len(x) or (j < len(y) and y[j] >> shift <= x[i] >> shift)
        u = _level_of(x[i], m, bits) if takes_x else 0
        v = _level_of(y[j], m, bits) if takes_y else 0
        if u == v:
            counts[SAME, u] += 1
        elif u > v:
            counts[X_ABOVE, u] += 1
            counts[Y_BELOW, v] += 1
        else:
            counts[Y_ABOVE, v] += 1
            counts[X_BELOW, u] += 1
        met += 1
        i += takes_x
        j += takes_y
    counts[SAME, 0] = (1 << bits) - met
    return counts


@kernel
def gather(hashes: UInt64s, cells: UInt64s, m: int, bits: int) -> known.Evidence:
    """Hold ascending hashes against the entries of the other column, which are cut to so many bits."""
    n = len(hashes)
    others = np.zeros(HASH_BITS + 3 - bits, np.int64)
    for entry in cells:
        others[_level_of(entry, m, bits)] += 1
    others[0] = (1 << bits) - len(cells)
    shift = np.uint64(HASH_BITS - bits)
    of_hash, own, met = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    j = 0
    for i in range(n):
        cell = hashes[i] >> shift
        while j < len(cells) and cells[j] >> shift < cell:
            j += 1
        of_hash[i], own[i] = cell, _level_of(hashes[i], m, bits)
        if j < len(cells) and cells[j] >> shift == cell:
            met[i] = _level_of(cells[j], m, bits)
    return known.evidence_of(of_hash, own, met, others)
