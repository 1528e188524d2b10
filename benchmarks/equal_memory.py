"""Own what each estimator holds of a column at the paper's memory: 2^14 registers of 6 bits, 12,288 bytes.

The paper's `bml` has the sketches of all m from 0 to 13 there, which fold out of the largest; bottom-k has 1,536 hashes
of 64 bits (section 5.1); the joint likelihood one sketch of m = 14. A column of at most 1,536 values is its hashes.
Beside them stands what a state keeps by default (`KEPT`), which takes more, as it is kept current under deletions.
"""

from __future__ import annotations

import numpy as np

from benchmarks.column_hashes import UInt64s
from service.core.estimators.estimate import estimate
from service.core.estimators.model import Column
from service.core.sketch_upkeep import DEFAULT_FORM, FixedForm
from service.core.sketches.comparable import Comparable
from service.core.sketches.hll import Hll
from service.usecases.sketched_columns import known_column

PAPER_BUCKET_BITS, BUCKET_BITS, K = 13, 14, 1536
MEMORY = 8 * K

METHODS = ("bml", "bml-exact-load", "joint-mle", "bottom-k", "estimated")


KEPT = "estimated, kept"
"""The method `estimated` of the sketches that a state keeps."""


def sketch_of(method: str, hashes: UInt64s) -> Comparable:
    """Sketch a column as `estimated` or `KEPT` have it."""
    sketch = DEFAULT_FORM.empty() if method == KEPT else FixedForm(MEMORY).empty()
    sketch.update(hashes)
    return sketch


def column(method: str, hashes: UInt64s) -> Column:
    """Give what an estimator holds of a column, given its ascending hashes; it reads them once."""
    registers = Hll(PAPER_BUCKET_BITS if method == "bml" else BUCKET_BITS)
    registers.update(hashes)
    fits = len(hashes) <= K
    if method == "bottom-k":
        size = float(len(hashes)) if fits else (K - 1) * 2.0**64 / float(hashes[K - 1])  # KMV, Beyer et al. 2007
        return Column(registers.registers, size, fits, hashes if fits else None, hashes[:K])
    if method in ("estimated", KEPT):
        return known_column(sketch_of(method, hashes))
    return Column(registers.registers, max(registers.estimate(), 1.0), False)


def absolute_errors(method: str, columns: list[Column], x: np.ndarray, y: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Give |estimate - Φ| of pairs: float64[pairs]."""
    name = "estimated" if method == KEPT else method
    estimates = [estimate(columns[a], columns[b], name).phi for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return np.abs(np.array(estimates, np.float64) - phi)
