"""Own the row `many-records`: up to 100 million generator records on one disk, what they take, and how that grows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.context import Context
from benchmarks.feeds import Change, Row, write_feed
from benchmarks.results_file import Result, exponent
from benchmarks.state import Server, bootstrap, consume, counts, server

SEED = 25
DATABASE = "many_records"
NAME = "big"
SIZES = (6_250_000, 25_000_000, 100_000_000)
CHANGES = 60_000
COLUMNS = {"orders": ("id", "customer", "code"), "customers": ("id", "name")}
NAMES = 1_000
CHUNK = 1_000_000
INDS = 4

DISK_BYTES = 500
"""For each record: its row, two indexes, the log beside them, the source and what Spark puts down between."""

ON_DISK = """
select sum(pg_table_size(c.oid)), sum(pg_relation_size(key.indexrelid)), sum(pg_relation_size(place.indexrelid)),
    count(*)
from pg_inherits join pg_class c on c.oid = inhrelid
join pg_index key on key.indrelid = c.oid and key.indisprimary
join pg_index place on place.indrelid = c.oid and not place.indisprimary
where inhparent = 'gen_rec'::regclass
"""

UPDATES = "select sum(n_tup_upd), sum(n_tup_hot_upd) from pg_stat_user_tables where relname like 'gen_rec_g%'"

GROWING = {"bootstrap": "s", "gen_rec, all of it": "GB"}


def run(context: Context) -> list[Result]:
    """Measure each size once, the largest last, and go on from the two largest by a power of the size."""
    results, taken = [], []
    for size in SIZES:
        records = context.scaled(size)
        free = shutil.disk_usage(context.work).free
        if free < DISK_BYTES * records:
            raise OSError(
                f"{records:,} records need {DISK_BYTES * records / 1e9:.0f} GB of disk, {free / 1e9:.0f} are free"
            )
        with server(context) as postgres:
            try:
                found = _measure(context, postgres, records // 2)
            finally:
                postgres.drop(DATABASE)
        taken.append(found)
        context.say(
            f"{records:,} records: " + ", ".join(f"{one.metric} {one.value:.4g} {one.unit}" for one in found.values())
        )
        results += [
            Result(f"{records:,} records: {one.metric}", one.value, one.unit, goal=one.goal) for one in found.values()
        ]
    sizes = [context.scaled(size) for size in SIZES[-2:]]
    for what, unit in GROWING.items():
        values = [found[what].value for found in taken[-2:]]
        power = exponent(sizes, values)
        results.append(Result(f"{what}: exponent", power, ""))
        results.append(Result(f"{what}: a billion records, by it", values[-1] * (1e9 / sizes[-1]) ** power, unit))
    return results


def _measure(context: Context, postgres: Server, rows: int) -> Mapping[str, Result]:
    folder = context.work / DATABASE
    try:
        loaded = bootstrap(context, postgres, write(folder, rows), NAME, DATABASE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = counts(postgres, DATABASE)
    table, keys, clusters, partitions = _asked(postgres, ON_DISK)
    updated, hot = _asked(postgres, UPDATES)
    feed = write_feed(context.work / f"{DATABASE}.jsonl", changes(context, rows), NAME, COLUMNS)
    consumed = consume(context, postgres, DATABASE, feed, warm_up="off")
    feed.unlink()
    later, hot_later = _asked(postgres, UPDATES)
    grown = sum(_asked(postgres, ON_DISK)[:3]) - table - keys - clusters
    vacuumed = _vacuum(postgres)
    results = [
        Result("values", found["values"], "", goal=f"value = {values_of(rows)}"),
        Result("INDs", found["inds"], "", goal=f"value = {INDS}"),
        Result("bootstrap", loaded.seconds, "s"),
        Result("bootstrap, CPU", loaded.usage.cpu_seconds, "s"),
        Result("bootstrap, memory", loaded.usage.peak_bytes / 1e9, "GB"),
        Result("partitions", partitions, ""),
        Result("gen_rec, all of it", (table + keys + clusters) / 1e9, "GB"),
        Result("a record's row", table / found["values"], "bytes"),
        Result("a record in the index of keys", keys / found["values"], "bytes"),
        Result("a record in the index of clusters", clusters / found["values"], "bytes"),
        Result("the consumer without its cache", 1e6 / consumed.tuples_per_second, "µs/tuple"),
        Result("the consumer's start", consumed.measured.seconds - consumed.seconds, "s"),
        Result("the consumer's memory", consumed.measured.usage.peak_bytes / 1e9, "GB", goal="value <= 4"),
        Result("updates of records that are HOT", (hot_later - hot) / (later - updated), ""),
        Result("growth by a change", grown / context.scaled(CHANGES), "bytes"),
        Result("vacuum of all partitions behind them", vacuumed, "s"),
    ]
    return {result.metric: result for result in results}


def values_of(rows: int) -> int:
    """Give how many distinct values the tables have with so many orders."""
    return 2 * rows + min(NAMES, rows // 4)


def _asked(postgres: Server, query: str) -> list[int]:
    with postgres.connection(DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
        assert row is not None
        return [int(cell) for cell in row]


def _vacuum(postgres: Server) -> float:
    with postgres.connection(DATABASE, autocommit=True) as connection, connection.cursor() as cursor:
        started = perf_counter()
        cursor.execute("vacuum gen_rec")
        return perf_counter() - started


def _customer(number: np.ndarray, rows: int) -> np.ndarray:
    """Give the customers of orders: each has some, in no order."""
    return number * 7_368_787 % (rows // 4)


def _code(number: np.ndarray) -> pa.Array:
    """Give codes that no two orders share, in no order: a product modulo a prime that is larger than any number."""
    digits = pc.utf8_lpad(pc.cast(pa.array(number * 2_654_435_761 % 4_294_967_291), pa.string()), 10, "0")
    return pc.binary_join_element_wise("c", digits, "")


def write(folder: Path, rows: int) -> Path:
    """Write the tables as CSV: orders with numbers, customers and codes of their own; a quarter as many customers."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write_table(folder, "orders", _orders(rows))
    _write_table(folder, "customers", _customers(rows // 4))
    return folder


def _write_table(folder: Path, table: str, chunks: Iterator[list[pa.Array]]) -> None:
    with (folder / f"{table}.csv").open("wb") as file:
        for number, arrays in enumerate(chunks):
            options = csv.WriteOptions(include_header=number == 0)
            csv.write_csv(pa.table(arrays, list(COLUMNS[table])), file, options)


def _orders(rows: int) -> Iterator[list[pa.Array]]:
    for start in range(0, rows, CHUNK):
        number = np.arange(start, min(start + CHUNK, rows))
        yield [pa.array(number), pa.array(_customer(number, rows)), _code(number)]


def _customers(rows: int) -> Iterator[list[pa.Array]]:
    for start in range(0, rows, CHUNK):
        number = np.arange(start, min(start + CHUNK, rows))
        names = pc.binary_join_element_wise("name ", pc.cast(pa.array(number % NAMES), pa.string()), "")
        yield [pa.array(number), names]


def changes(context: Context, rows: int) -> list[Change]:
    """Make a third each of inserts, updates and deletes of orders from all over the keys, none of a row twice."""
    random = context.random("changes of many records")
    count = min(context.scaled(CHANGES) // 3, rows // 4)
    touched = np.array(random.sample(range(rows), 2 * count))
    new = np.arange(rows, rows + 2 * count)
    customers = _customer(np.array(random.choices(range(rows), k=2 * count)), rows)
    before = _rows(touched, _customer(touched, rows), _code(touched))
    after = _rows(np.concatenate((touched[:count], new[count:])), customers, _code(new))
    made = [Change("u", "orders", old, row) for old, row in zip(before[:count], after[:count], strict=True)]
    made += [Change("d", "orders", old, None) for old in before[count:]]
    made += [Change("c", "orders", None, row) for row in after[count:]]
    random.shuffle(made)
    return made


def _rows(number: np.ndarray, customers: np.ndarray, codes: pa.Array) -> list[Row]:
    return list(zip(map(str, number.tolist()), map(str, customers.tolist()), codes.to_pylist(), strict=True))
