"""Own the row `mate-filter`: rows that a filter of 128 bits lets through although they do not join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.context import Context
from benchmarks.joinable_filters import (
    BLOOM,
    BLOOM_6,
    COUNTED,
    MEASURED,
    XASH,
    XASH_6,
    Passed,
    bloom_functions,
    filters,
    let_through,
)
from benchmarks.joinable_lakes import Lake, LakeQuery, draw_queries, lakes, published_queries
from benchmarks.results_file import Result
from service.core.joinability import Initial

SEED = 23
TABLES, KEYS = 600, 5
"""Tables that are asked for, drawn at random, and keys of two columns of each: a wide table has very different ones."""

PUBLISHED = "lake_mate"
"""The lake that has the paper's query tables."""


class Asked(NamedTuple):
    """Hold queries, what to call them, and how their initial column is chosen."""

    name: str
    queries: list[LakeQuery]
    initial: Initial


def run(context: Context) -> list[Result]:
    """Measure every filter on the lakes that are kept with the tests."""
    return measure(context, lakes(context.work))


def measure(context: Context, measured: Sequence[Lake]) -> list[Result]:
    """Measure every filter on some lakes, by the same queries."""
    return [result for lake in measured for result in _of_lake(context, lake)]


def _of_lake(context: Context, lake: Lake) -> Iterator[Result]:
    context.say(f"{lake.name}: the Bloom filter has {bloom_functions(lake)} functions")
    all_asked = _asked(context, lake)
    passed: dict[str, dict[str, Passed]] = {asked.name: {} for asked in all_asked}
    for name, rows in filters(lake):
        for asked in all_asked:
            one = passed[asked.name][name] = let_through(lake, rows, asked.queries, asked.initial)
            context.say(
                f"  {asked.name} ({len(asked.queries)}), {name:<25} {one.false_positives:>11,}"
                f" of {one.false_positives + one.filtered:,} = {one.rate:.3f} %,"
                f" mean of the queries {one.mean_rate:.3f} %, precision {one.precision:.3f}"
            )
    for called, of in passed.items():
        yield from _results(called, of, "value <= 0.34" if lake.name == PUBLISHED else None)


def _asked(context: Context, lake: Lake) -> list[Asked]:
    """Give the drawn queries and, where they are, the paper's, these by its guess of the initial column, too."""
    drawn = draw_queries(lake, context.scaled(TABLES), context.random(lake.name), keys=KEYS)
    asked = [Asked(lake.name, drawn, Initial.POSTINGS)]
    if lake.name == PUBLISHED:
        published = published_queries(lake)
        asked.append(Asked("the paper's queries", published, Initial.CARDINALITY))
        asked.append(Asked("the paper's queries, fewest postings", published, Initial.POSTINGS))
    return asked


def _results(asked: str, passed: dict[str, Passed], rate: str | None) -> Iterator[Result]:
    for name, beside, goal in (
        (XASH, BLOOM, "ratio <= 0.6"),
        (XASH_6, BLOOM_6, None),
        (MEASURED, XASH, None),
        (COUNTED, XASH, "ratio <= 0.7"),
        (COUNTED, BLOOM, "ratio <= 0.42"),
    ):
        yield Result(
            f"{asked}: false positives, {name}", passed[name].false_positives, "",
            beside, passed[beside].false_positives, goal,
        )  # fmt: skip
    for name in (XASH, COUNTED):
        yield Result(f"{asked}: of pairs that do not join, {name}", passed[name].rate, "%", goal=rate)
        yield Result(f"{asked}: the same, mean of the queries, {name}", passed[name].mean_rate, "%", goal=rate)
    yield Result(f"{asked}: precision, {COUNTED}", passed[COUNTED].precision, "", XASH, passed[XASH].precision)
