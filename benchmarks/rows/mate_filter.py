"""Own the row `mate-filter`: rows that a filter of 128 bits lets through although they do not join."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.context import Context
from benchmarks.joinable_filters import BLOOM, COUNTED, MEASURED, XASH, bloom_functions, filters, let_through
from benchmarks.joinable_lakes import Lake, draw_queries, lakes
from benchmarks.results_file import Result

SEED = 23
TABLES, KEYS = 600, 5
"""Tables that are asked for, drawn at random, and keys of two columns of each: a wide table has very different ones."""


def run(context: Context) -> list[Result]:
    """Measure every filter on the lakes that are kept with the tests."""
    return measure(context, lakes(context.work))


def measure(context: Context, measured: Sequence[Lake]) -> list[Result]:
    """Measure every filter on some lakes, by the same queries."""
    results = []
    for lake in measured:
        queries = draw_queries(lake, context.scaled(TABLES), context.random(lake.name), keys=KEYS)
        context.say(f"{lake.name}: {len(queries)} queries; the Bloom filter has {bloom_functions(lake)} functions")
        passed = {}
        for name, rows in filters(lake):
            one = passed[name] = let_through(lake, rows, queries)
            context.say(
                f"  {name:<22} {one.false_positives:>11,} of {one.false_positives + one.filtered:,}"
                f" = {one.rate:.3f} %, mean of the queries {one.mean_rate:.3f} %, precision {one.precision:.3f}"
            )
        for name, beside, goal in (
            (XASH, BLOOM, "ratio <= 0.6"),
            (MEASURED, XASH, None),
            (COUNTED, XASH, "ratio <= 0.7"),
            (COUNTED, BLOOM, "ratio <= 0.42"),
        ):
            results.append(
                Result(
                    f"{lake.name}: false positives, {name}", passed[name].false_positives, "",
                    beside, passed[beside].false_positives, goal,
                )
            )  # fmt: skip
        rate = "value <= 0.34" if lake.name == "lake_mate" else None
        for name in (XASH, COUNTED):
            results += [
                Result(f"{lake.name}: of pairs that do not join, {name}", passed[name].rate, "%", goal=rate),
                Result(f"{lake.name}: the same, mean of the queries, {name}", passed[name].mean_rate, "%", goal=rate),
            ]
        results.append(
            Result(
                f"{lake.name}: precision, {COUNTED}", passed[COUNTED].precision, "", XASH, passed[XASH].precision,
            )
        )  # fmt: skip
    return results
