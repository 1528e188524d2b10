"""Own the row `many-growth-whole`: as many made tables as the paper's WikiTables have, beside a fifth of them."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.results_file import Result
from benchmarks.rows import many_growth

SEED = many_growth.SEED
SIZES = (262_144, 1_398_105)


def run(context: Context) -> list[Result]:
    """Measure whole refreshes with the paper's filters; it takes ten minutes and 20 GB of disk."""
    return many_growth.measure_refreshes(context, SIZES)
