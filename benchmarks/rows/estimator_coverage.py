"""Own the row `estimator-coverage`: how often intervals at 95 % hold Φ of random pairs, and how wide they are."""

from __future__ import annotations

import numpy as np

from benchmarks.context import Context
from benchmarks.made_columns import Pair, as_kept, draw_pair, registers_of
from benchmarks.results_file import Result
from service.core.estimators import Column, estimate
from service.core.sketches.column import BUCKET_BITS, SPARES, K

SEED = 12
PAIRS = 10_000
FURTHER_PAIRS = 2_000
"""On so many of them other methods are measured, and what registers alone tell."""
LEVEL = 0.95
LARGEST = 1_000_000
COMPLETE = K + SPARES
"""A column of so many values is its hashes; pairs of such columns are exact, so that one of each pair has more."""

OTHERS = ("joint-mle", "bml-exact-load", "bml", "bottom-k")


def run(context: Context) -> list[Result]:
    """Estimate the same pairs as a state keeps them (exact sizes), and from registers alone (sizes estimated too)."""
    rng = np.random.default_rng(SEED)
    kept, alone = Intervals(), Intervals()
    kinds = {kind: Intervals() for kind in ("registers of both", "hashes of X", "hashes of Y")}
    by_method = {method: Intervals() for method in OTHERS}
    for place in range(context.scaled(PAIRS)):
        pair = _draw(rng)
        x, y = (as_kept(hashes, BUCKET_BITS, COMPLETE, K) for hashes in pair.hashes())
        kind = (
            "registers of both"
            if x.hashes is None and y.hashes is None
            else "hashes of Y"
            if x.hashes is None
            else "hashes of X"
        )
        interval = kept.add(pair, x, y)
        kinds[kind].append(*interval)
        if place >= context.scaled(FURTHER_PAIRS):
            continue
        alone.add(pair, registers_of(x), registers_of(y))
        for method, of_method in by_method.items():
            of_method.add(pair, x, y, method)
    return [
        *kept.results("as kept, `estimated`", goal="value >= 0.94"),
        *(result for kind, of_kind in kinds.items() for result in of_kind.results(f"as kept, {kind}")),
        *alone.results("registers alone, `estimated`", goal="value >= 0.94"),
        *(result for method, of_method in by_method.items() for result in of_method.results(f"as kept, `{method}`")),
    ]


def _draw(rng: np.random.Generator) -> Pair:
    while True:
        pair = draw_pair(rng, 1, LARGEST)
        if max(pair.x, pair.y) > COMPLETE:
            return pair


class Intervals:
    """Collect whether intervals hold the coefficient, and their widths."""

    def __init__(self) -> None:
        self.is_inside: list[bool] = []
        self.widths: list[float] = []

    def add(self, pair: Pair, x: Column, y: Column, method: str = "estimated") -> tuple[bool, float]:
        """Estimate a pair and give what is collected of it. A rounding error is no miss."""
        _, low, high, *_ = estimate(x, y, method, LEVEL)
        interval = low - 1e-9 <= pair.phi <= high + 1e-9, high - low
        self.append(*interval)
        return interval

    def append(self, is_inside: bool, width: float) -> None:
        self.is_inside.append(is_inside)
        self.widths.append(width)

    def results(self, name: str, goal: str | None = None) -> list[Result]:
        """Give coverage and mean and median width."""
        return [
            Result(f"{name}: pairs", len(self.widths), ""),
            Result(f"{name}: covered", float(np.mean(self.is_inside)), "", goal=goal),
            Result(f"{name}: mean width", float(np.mean(self.widths)), "of Φ"),
            Result(f"{name}: median width", float(np.median(self.widths)), "of Φ"),
        ]
