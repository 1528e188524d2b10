"""Estimate inclusion coefficients from sketches, each with an interval."""

from service.core.estimators.estimate import METHODS, estimate
from service.core.estimators.model import Column, Estimate

__all__ = ["METHODS", "Column", "Estimate", "estimate"]
