"""Estimate inclusion coefficients from sketches, each with an interval."""

from service.core.estimators.all_pairs import Overlaps, Stack, estimate_pairs, pairs_of, stack
from service.core.estimators.estimate import METHODS, estimate, lacks
from service.core.estimators.lookup import bucket_bits_for, choose_bucket_bits, needed_bucket_bits
from service.core.estimators.model import Column, Estimate
from service.core.estimators.prefixes import size_bounds
from service.core.estimators.rows import Wanted, estimate_rows

__all__ = [
    "METHODS",
    "Column",
    "Estimate",
    "Overlaps",
    "Stack",
    "Wanted",
    "bucket_bits_for",
    "choose_bucket_bits",
    "estimate",
    "estimate_pairs",
    "estimate_rows",
    "lacks",
    "needed_bucket_bits",
    "pairs_of",
    "size_bounds",
    "stack",
]
