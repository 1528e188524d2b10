"""Own the choice of an estimator and the checks of what it is given."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from service.core.errors import SketchError
from service.core.estimators import joint, prefixes, unsized
from service.core.estimators.best import Side, estimate_overlap
from service.core.estimators.bottom_k import bottom_of, estimate_from, sample_union
from service.core.estimators.curve import Curve, cut
from service.core.estimators.lookup import average_load, choose_bucket_bits, estimate_by_lookup, exact_load
from service.core.estimators.model import Column, Estimate, held_of
from service.core.estimators.registers import align, count_greater, fold
from service.core.estimators.tails import likelihood_drop
from service.core.sketches.cardinality import flajolet, histogram, likelihood_bounds
from service.core.sketches.hashing import UInt8s, most_rho

METHODS = ("bml", "bml-exact-load", "joint-mle", "bottom-k", "estimated")

ROUNDING = 1e-12
"""A coefficient so near to 1 is 1: ratios of estimated sizes end beside it, on either side."""

NO_HASHES = "bottom-k needs the smallest hashes of both columns, which hash prefixes are not; choose another method"
NO_VALUES = "the dependent column has no values, so that its inclusion coefficient is not defined"


def estimate(x: Column, y: Column, method: str = "estimated", level: float = 0.95) -> Estimate:
    """Estimate Φ(X, Y) = |X ∩ Y| / |X| by one of METHODS.

    The interval holds Φ with probability `level`. Raise SketchError for an unknown method, a level outside (0, 1), or
    a method that needs what a column does not have.
    """
    if method not in METHODS:
        raise SketchError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    if not 0 < level < 1:
        raise SketchError(f"the level of an interval is between 0 and 1, not {level}")
    for column in (x, y):
        _check(column)
    if x.size == 0:
        return Estimate(None, 0.0, 0.0, method, level, NO_VALUES)
    if y.size == 0:
        return Estimate(0.0, 0.0, 0.0, method, level)
    phi, low, high = _ESTIMATORS[method](x, y, level)
    phi = phi if phi < 1 - ROUNDING else 1.0
    return Estimate(phi, min(max(low, 0.0), phi), max(min(high, 1.0), phi), method, level)


def lacks(column: Column, method: str) -> str | None:
    """Say what keeps a method from an answer for pairs of a column; None when nothing does."""
    return NO_HASHES if method == "bottom-k" and bottom_of(column) is None else None


def _check(column: Column) -> None:
    registers = column.registers
    m = column.bucket_bits
    if registers.dtype != np.uint8 or registers.ndim != 1 or len(registers) != 1 << m:
        raise SketchError(f"registers are uint8[2^m], not {registers.dtype}{list(registers.shape)}")
    if int(registers.max()) > most_rho(m):
        raise SketchError(f"a register of 2^{m} buckets is at most {most_rho(m)}, not {registers.max()}")
    if not (math.isfinite(column.size) and column.size >= 0):
        raise SketchError(f"a column has a number of values, not {column.size}")


def _by_bml(x: Column, y: Column, level: float) -> tuple[float, float, float]:
    of_x, of_y = align(x, y)
    m = choose_bucket_bits(_count(of_x), _count(of_y), min(x.bucket_bits, y.bucket_bits))
    of_x, of_y = fold(of_x, m), fold(of_y, m)
    at_most = int((of_x <= of_y).sum())
    return estimate_by_lookup(at_most, 1 << m, _count(of_x), _count(of_y), average_load(m), level)


def _count(registers: UInt8s) -> float:
    """Estimate the number of values as the paper does, from the sketch; a column with values has one at least."""
    return max(flajolet(histogram(registers, len(registers).bit_length() - 1)), 1.0)


def _by_exact_load(x: Column, y: Column, level: float) -> tuple[float, float, float]:
    of_x, of_y = align(x, y)
    m = min(x.bucket_bits, y.bucket_bits)
    law, at_most = exact_load(m), int((of_x <= of_y).sum())
    phi, *ends = estimate_by_lookup(at_most, 1 << m, x.size, y.size, law, level)
    if not (x.is_size_exact and y.is_size_exact):  # what any sizes of their own intervals would give
        for nx, ny in product(_sizes(x, level), _sizes(y, level)):
            ends += estimate_by_lookup(at_most, 1 << m, nx, ny, law, level)[1:]
    return phi, min(ends), max(ends)


def _sizes(column: Column, level: float) -> tuple[float, float]:
    """Give the interval of a column's number of values."""
    if column.is_size_exact:
        return column.size, column.size
    return likelihood_bounds(histogram(column.registers, column.bucket_bits), level)


def _by_joint_likelihood(x: Column, y: Column, level: float) -> tuple[float, float, float]:
    drop = likelihood_drop(level)
    if not (x.is_size_exact and y.is_size_exact):
        return _scale(unsized.trace(x.size, y.size, _observe(x, y)), x.size, drop)
    m = min(x.bucket_bits, y.bucket_bits)
    pair = joint.pair_of(x.size, y.size, count_greater(*align(x, y)), 0.5**m, most_rho(m))
    curve = joint.trace(pair)
    low, high = cut(curve, drop)
    return curve.best / x.size, math.floor(low) / x.size, min(math.ceil(high), curve.largest) / x.size


def _observe(x: Column, y: Column) -> unsized.Unsized:
    return unsized.observe(*align(x, y), x.size if x.is_size_exact else 0, y.size if y.is_size_exact else 0)


def _scale(curve: Curve, size: float, drop: float) -> tuple[float, float, float]:
    """Give the maximum and the ends of its interval as shares of |X|."""
    low, high = cut(curve, drop)
    return curve.best / size, low / size, high / size


def _by_bottom_k(x: Column, y: Column, level: float) -> tuple[float, float, float]:
    sample = sample_union(x, y)
    if sample is None:
        raise SketchError(NO_HASHES)
    return estimate_from(sample, x, y, level)


def _by_best(x: Column, y: Column, level: float) -> tuple[float, float, float]:
    of_x, of_y = prefixes.tell_apart(x), prefixes.tell_apart(y)
    # Prefixes are never held against whole hashes one by one: none would be equal.
    both_are_cells = all(one.prefixes is not None or one.hashes is not None for one in (x, y))
    has_prefixes = x.prefixes is not None or y.prefixes is not None
    if (has_prefixes and both_are_cells) or not (of_x.is_size_exact and of_y.is_size_exact):
        return prefixes.estimate(x, y, level)
    registers_x, registers_y = align(x, y)
    overlap, low, high = estimate_overlap(_side(of_x, registers_x), _side(of_y, registers_y), likelihood_drop(level))
    return overlap / of_x.size, low / of_x.size, high / of_x.size


def _side(column: Column, registers: UInt8s) -> Side:
    counts = histogram(registers, len(registers).bit_length() - 1)
    return Side(registers, counts, float(column.size), held_of(column), column.hashes is not None)


_ESTIMATORS = {
    "bml": _by_bml,
    "bml-exact-load": _by_exact_load,
    "joint-mle": _by_joint_likelihood,
    "bottom-k": _by_bottom_k,
    "estimated": _by_best,
}
