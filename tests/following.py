"""Own the following of a feed file in tests: the file and the tables it changes, the consumer, what it tells."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from service.core.canonical import value_keys
from service.core.errors import SubsetdError
from service.core.model import FeedDescription, RawRecord, StoredPosition, Table
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.stream.file_feed import FileFeed
from service.usecases import ports
from service.usecases.batches import BatchLimits, BatchReport, ErrorPolicy, Observer, Positions, Totals
from service.usecases.feed_session import Session
from service.usecases.follow_feed import Consumer
from service.usecases.following import Following
from service.usecases.ports import DeadLetterSink
from tests import states
from tests.events import envelope
from tests.states import Tables

COLUMNS = {"orders": ["id", "customer", "note"], "customers": ["id", "name"]}


class Watch:
    """Remember what the consumer tells."""

    def __init__(self) -> None:
        self.reports: list[BatchReport] = []
        self.errors: list[SubsetdError] = []
        self.away: list[list[str]] = []
        self.followed: list[Positions] = []
        self.schema: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []

    def beginning(self, feed: str) -> None:
        pass

    def following(self, version: int, at: datetime | None, tables: int, clusters: int, positions: Positions) -> None:
        self.followed.append(positions)

    def committed(self, report: BatchReport) -> None:
        self.reports.append(report)

    def waiting(self, lag: Positions | None) -> None:
        pass

    def schema_changed(self, table: Table, added: Sequence[tuple[str, str]], left: Sequence[str]) -> None:
        self.schema.append((str(table), tuple(column for column, _ in added), tuple(left)))

    def retrying(self, error: SubsetdError) -> None:
        self.errors.append(error)

    def shards_away(self, told: Sequence[str]) -> None:
        self.away.append(list(told))


def shop_tables() -> Tables:
    """Give the tables of a small shop, with rows that are in each other's columns, a NULL, and some that repeat."""
    tables = Tables(dict(COLUMNS))
    tables.add("customers", ["1", "Ada"], ["2", "Bob"], ["3", None])
    return tables.add("orders", ["10", "1", "first"], ["11", "2", None], ["12", "1", "Bob"])


MakeStream = Callable[[Tables], "Stream"]
"""Makes an empty stream for tables whose state is stored."""


@pytest.fixture
def make_stream(tmp_path: Path) -> MakeStream:
    """Give what makes feed files; tests that run over Spark, too, are given topics there."""
    return partial(Stream.empty, tmp_path)


@dataclass
class Stream:
    """Keep tables in step with a feed file of their changes."""

    path: Path
    tables: Tables
    columns: dict[str, Sequence[str]] = field(default_factory=lambda: COLUMNS)
    key: ClassVar[bytes | None] = None
    """That of each record."""

    @staticmethod
    def empty(folder: Path, tables: Tables) -> Stream:
        """Give one that has no change yet, with its file in a folder."""
        path = folder / "feed.jsonl"
        path.touch()
        return Stream(path, tables, dict(tables.columns))

    def change(self, table: str, before: Sequence[str | None] | None, after: Sequence[str | None] | None) -> None:
        """Append a change to the file, and make it in the tables."""
        if before is not None:
            self.tables.remove(table, before)
        if after is not None:
            self.tables.add(table, after)
        self.append(table, before, after)

    def append(self, table: str, before: Sequence[str | None] | None, after: Sequence[str | None] | None) -> None:
        """Append a change to the file alone."""
        op = "u" if before is not None and after is not None else "c" if before is None else "d"
        named = [None if row is None else dict(zip(self.columns[table], row, strict=True)) for row in (before, after)]
        self.write(envelope(op, "s", table, *named))

    def end(self) -> int:
        """Give the offset of the next record."""
        return self.path.stat().st_size

    def open_feed(self) -> ports.Feed:
        return FileFeed(str(self.path))

    def sessions(self, writer: PostgresWriter, records: int) -> Callable[[Following], Session]:
        """Give what it is followed by, in batches of at most so many records."""
        return Session

    def write(self, line: bytes) -> int:
        """Append a record, and give its offset."""
        with self.path.open("ab") as file:
            at = file.tell()
            file.write(line + b"\n")
        return at


class TwoPartitions:
    """Stand for a topic of two partitions, whose records come in the order in which they are given."""

    name = "two partitions"
    lag_unit = "records"

    def __init__(self, *records: RawRecord) -> None:
        self._records = list(records)
        self._positions: dict[tuple[str, int], int] = {}

    def describe(self) -> FeedDescription:
        return FeedDescription("nowhere")

    def rest(self) -> None:
        pass

    def start(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        stored = {place: position.next_offset for place, position in positions.items()}
        self._positions = {("shop", 0): 0, ("shop", 1): 0, **stored}
        self._records = [r for r in self._records if r.offset >= self._positions[r.topic, r.partition]]

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> list[RawRecord]:
        given, self._records = self._records, []
        self._positions |= {(record.topic, record.partition): record.offset + 1 for record in given}
        return given

    def positions(self) -> dict[tuple[str, int], int]:
        return dict(self._positions)

    def source_positions(self, positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], dict[str, object]]:
        return {}

    def at_end(self) -> bool:
        return not self._records

    def is_whole(self, positions: Mapping[tuple[str, int], int]) -> None:
        return None

    def lag(self) -> dict[tuple[str, int], int]:
        return {("shop", 0): len(self._records)}

    def committed(self, positions: Mapping[tuple[str, int], int]) -> None:
        pass

    def close(self) -> None:
        pass


def begun(url: str, tables: Tables, folder: Path) -> Stream:
    """Store the state of tables that are tracked from here on, with an empty feed of their changes."""
    store_tracked(url, tables)
    return Stream.empty(folder, tables)


def store_tracked(url: str, tables: Tables) -> None:
    """Store the state of tables that are tracked from here on."""
    states.store(url, tables)
    states.execute(
        url,
        "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table) "
        "select distinct source_id, schema_name, table_name, schema_name, table_name from attribute",
    )


def random_changes(stream: Stream, rng: random.Random, number: int) -> None:
    """Append any changes that are possible, with cells that are hard to store among them."""
    for _ in range(number):
        table = rng.choice(list(COLUMNS))
        present = list((+stream.tables.rows[table]).elements())
        row = [rng.choice(["1", "2", "3", "10", "Ada", "x\ty\\z\n", "é" * 200, "", None]) for _ in COLUMNS[table]]
        match rng.choice(["insert", "update", "delete"] if present else ["insert"]):
            case "insert":
                stream.change(table, None, row)
            case "update":
                stream.change(table, rng.choice(present), row)
            case "delete":
                stream.change(table, rng.choice(present), None)


def consume(
    url: str,
    stream: Stream,
    *,
    records: int = 5000,
    on_error: ErrorPolicy = ErrorPolicy.STOP,
    writer: PostgresWriter | None = None,
    watch: Observer | None = None,
    cache_bytes: int = 1 << 20,
    retry_seconds: float = 0.0,
    sink: DeadLetterSink | None = None,
    make_decoder: Callable[[Sequence[Table]], ports.Decoder] = Decoder,
    stop: threading.Event | None = None,
) -> Totals:
    """Follow the stream to its end, or until `stop` is set."""
    writer = writer or PostgresWriter(url)
    consumer = Consumer(
        writer,
        stream.open_feed,
        make_decoder,
        value_keys,
        watch or Watch(),
        limits=BatchLimits(records=records),
        on_error=on_error,
        cache_bytes=cache_bytes,
        retry_seconds=retry_seconds,
        dead_letter_sink=sink,
    )
    consumer.make_session = stream.sessions(writer, records)
    return consumer.run(stop or threading.Event(), until_end=stop is None)
