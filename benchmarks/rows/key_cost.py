"""Own the row `key-cost`: what a tracked composite key costs the consumer, beside a column with the same texts."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.feeds import Change, Row, write_feed
from benchmarks.processes import run as run_command
from benchmarks.results_file import Result
from benchmarks.state import Server, consume, environment, one, server
from service.core.tuples import tuple_texts

SEED = 31
TUPLES = 60_000
SHARE = 0.1
"""Of the scale factor: of a small state less of the time is the server's, and a key's share is larger."""
ROUNDS = 8
KEY = ("l_orderkey", "l_extendedprice")
"""Mostly new pairs of mostly known values: each tuple that comes is a record that comes, as with a new column."""
PLAIN, TUPLE, COLUMN = "key_cost_plain", "key_cost_tuple", "key_cost_column"


def run(context: Context) -> list[Result]:
    """Insert the same rows into a table alone, with a tracked key, and with a column that has the key's texts."""
    folder = tpch.tables(context.work, context.scale_factor * SHARE)
    columns = tpch.lineitem_columns(folder)
    changes = tpch.lineitem_changes(folder, context.scaled(TUPLES), context)["insert"]
    places = [columns.index(name) for name in KEY]
    plain, widened = context.work / "key-cost" / "plain", context.work / "key-cost" / "column"
    for target, wide in ((plain, False), (widened, True)):
        _write(folder / "lineitem.csv", target, places if wide else None)
    feeds = {
        PLAIN: _feed(context, "plain", changes, columns),
        COLUMN: _feed(context, "column", [_widened(change, places) for change in changes], (*columns, "key")),
    }
    feeds[TUPLE] = feeds[PLAIN]
    seconds: dict[str, list[float]] = {PLAIN: [], TUPLE: [], COLUMN: []}
    with server(context) as postgres:
        _bootstrap(context, postgres, plain, PLAIN)
        _bootstrap(context, postgres, plain, TUPLE, "--track-key", f"lineitem={','.join(KEY)}")
        _bootstrap(context, postgres, widened, COLUMN)
        for number in range(ROUNDS):
            order = (PLAIN, TUPLE, COLUMN) if number % 2 == 0 else (COLUMN, TUPLE, PLAIN)
            for kind in order:
                seconds[kind].append(_consumed(context, postgres, kind, feeds[kind], len(changes)))
    with_key = statistics.median(seconds[TUPLE]) * 1e6 / len(changes)
    with_column, plain_cost = (with_key / _ratio(seconds[TUPLE], seconds[kind]) for kind in (COLUMN, PLAIN))
    return [
        Result("a tuple with a tracked key: CPU", with_key, "µs", "with a column", with_column, "ratio <= 1.03"),
        Result("a tuple with a tracked key: CPU", with_key, "µs", "with neither", plain_cost),
        Result("of it the key's", with_key - plain_cost, "µs", "the column's", with_column - plain_cost),
    ]


def _ratio(seconds: Sequence[float], others: Sequence[float]) -> float:
    """Compare what was measured in the same round: a machine's speed drifts by more than what is looked for."""
    return statistics.median(one / other for one, other in zip(seconds, others, strict=True))


def _consumed(context: Context, postgres: Server, database: str, feed: Path, count: int) -> float:
    """Apply a feed to a copy of a state; give the CPU seconds of consumer and server."""
    with postgres.clone(database, "key_cost"):
        consumed = consume(context, postgres, "key_cost", feed)
        if consumed.tuples != count:
            raise ValueError(f"{consumed.tuples} tuples were applied, not {count}")
        spent = consumed.measured.usage.cpu_seconds + consumed.measured.beside["postgres"].cpu_seconds
    context.say(f"{database}: {spent:.1f} s of CPU")
    return spent


def _bootstrap(context: Context, postgres: Server, folder: Path, database: str, *more: str) -> None:
    url = postgres.create(database)
    command = [subsetd(), "bootstrap", folder, "--name", tpch.NAME, *more]
    run_command(command, log=context.logs / f"bootstrap-{database}.log", environment=environment(url))
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM attribute")
        found = one(cursor)
    if found != 16 + (database != PLAIN):
        raise ValueError(f"{database} has {found} attributes")


def _feed(context: Context, name: str, changes: Sequence[Change], columns: Sequence[str]) -> Path:
    return write_feed(context.work / f"key-cost-{name}.jsonl", changes, tpch.NAME, {"lineitem": columns})


def _widened(change: Change, places: Sequence[int]) -> Change:
    assert change.after is not None
    return Change(change.operation, change.table, None, (*change.after, _text(change.after, places)))


def _text(row: Row, places: Sequence[int]) -> str:
    return tuple_texts([[str(row[place]) for place in places]])[0]


def _write(source: Path, target: Path, places: Sequence[int] | None) -> None:
    """Copy lineitem, with the key's texts as a last column if `places` are given."""
    target.mkdir(parents=True, exist_ok=True)
    with source.open(newline="") as lines, (target / "lineitem.csv").open("w", newline="") as written:
        rows, writer = csv.reader(lines), csv.writer(written)
        header = next(rows)
        writer.writerow(header if places is None else [*header, "key"])
        writer.writerows(rows if places is None else ([*row, _text(tuple(row), places)] for row in rows))
