"""Own the outside peers of the report on sketches: Theta sketches and HLL unions of Apache DataSketches.

`datasketches` is no dependency: `pip install datasketches` by hand.
"""

from __future__ import annotations

import datasketches

from benchmarks.column_hashes import UInt64s
from benchmarks.equal_memory import BUCKET_BITS

THETA, UNION = "Theta (datasketches)", "HLL union (datasketches)"
PEERS = (THETA, UNION)

THETA_BITS = 10
"""A Theta sketch keeps 2^10 to 1,920 hashes of 8 bytes, about 12,288 bytes as the others have."""


class PeerColumn:
    """Hold the two sketches of a column; they hash again what they are given."""

    def __init__(self, hashes: UInt64s) -> None:
        self.theta = datasketches.update_theta_sketch(lg_k=THETA_BITS)
        self.hll = datasketches.hll_sketch(BUCKET_BITS, datasketches.tgt_hll_type.HLL_6)
        for value in hashes.view("int64").tolist():
            self.theta.update(value)
            self.hll.update(value)


def estimate_by_peer(method: str, x: PeerColumn, y: PeerColumn) -> float:
    """Estimate Φ(X, Y) by |X ∩ Y| / |X| of Theta sketches, or by |X| + |Y| - |X ∪ Y| of HLL sketches."""
    if method == THETA:
        intersection = datasketches.theta_intersection()
        intersection.update(x.theta)
        intersection.update(y.theta)
        common, size, other = intersection.get_result().get_estimate(), x.theta.get_estimate(), y.theta.get_estimate()
    else:
        union = datasketches.hll_union(BUCKET_BITS)
        union.update(x.hll)
        union.update(y.hll)
        size, other = x.hll.get_estimate(), y.hll.get_estimate()
        common = size + other - union.get_estimate()
    return float(min(max(common, 0.0), size, other) / size)
