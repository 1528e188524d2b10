"""Own the estimator of the smallest hashes (Zhang et al. 2010; section 5.1 of the BML paper)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.core.estimators.model import Column
from service.core.estimators.tails import clopper_pearson, hypergeometric_interval
from service.core.records import UInt64s


class Sample(NamedTuple):
    """Count what is in a sample of the union of two columns: `of_x` values of X, `common` of them also in Y.

    `is_complete`: the sample is the union.
    """

    of_x: int
    of_y: int
    common: int
    is_complete: bool


def bottom_of(column: Column) -> tuple[UInt64s, bool] | None:
    """Give the smallest hashes that are known of a column, and whether they are all it has."""
    if column.hashes is not None:
        return column.hashes, True
    return None if column.bottom is None else (column.bottom, False)


def sample_union(x: Column, y: Column) -> Sample | None:
    """Give the k smallest hashes of the union, k the smaller number that is held of a column that has more.

    None when nothing is known of a column's hashes.
    """
    held_x, held_y = bottom_of(x), bottom_of(y)
    if held_x is None or held_y is None:
        return None
    (hashes_x, all_x), (hashes_y, all_y) = held_x, held_y
    union = np.union1d(hashes_x, hashes_y)
    if not (all_x and all_y):
        k = min(len(hashes) for hashes, is_all in (held_x, held_y) if not is_all)
        union = union[:k]
    is_in_x = np.isin(union, hashes_x, assume_unique=True)
    is_in_y = np.isin(union, hashes_y, assume_unique=True)
    common = int((is_in_x & is_in_y).sum())
    return Sample(int(is_in_x.sum()), int(is_in_y.sum()), common, all_x and all_y)


def estimate_from(sample: Sample, x: Column, y: Column, level: float) -> tuple[float, float, float]:
    """Give Φ(X, Y) = J(X, Y) / J(X u Y, X) and its interval.

    Given how many values of X are in the sample, those in Y are a hypergeometric number; a binomial one, where |X| is
    only estimated, is no narrower. Without one of X the estimate is 0, as the paper's Jaccard coefficient is.
    """
    if sample.is_complete:
        phi = sample.common / sample.of_x
        return phi, phi, phi
    size, most = x.size, min(x.size, y.size)
    phi = min(sample.common / sample.of_x, most / size) if sample.of_x else 0.0
    if not x.is_size_exact:
        return phi, *(clopper_pearson(sample.common, sample.of_x, level) if sample.of_x else (0.0, 1.0))
    low, high = hypergeometric_interval(sample.common, sample.of_x, max(round(size), sample.of_x), level)
    return phi, low / size, min(high, most if y.is_size_exact else size) / size
