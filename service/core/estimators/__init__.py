"""Estimate inclusion coefficients from sketches, each with an interval."""

from service.core.estimators.all_pairs import Overlaps, Stack, estimate_pairs, pairs_of, stack
from service.core.estimators.estimate import METHODS, estimate, lacks
from service.core.estimators.lookup import choose_bucket_bits, needed_bucket_bits
from service.core.estimators.model import Column, Estimate

__all__ = [
    "METHODS",
    "Column",
    "Estimate",
    "Overlaps",
    "Stack",
    "choose_bucket_bits",
    "estimate",
    "estimate_pairs",
    "lacks",
    "needed_bucket_bits",
    "pairs_of",
    "stack",
]
