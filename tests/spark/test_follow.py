"""Following on Spark: whatever a micro-batch has in it, wherever it dies, the state is that of every change once."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from service.core.canonical import value_keys
from service.core.cell_decoding import WireSettings
from service.core.errors import FeedError, StateError
from service.core.model import RawRecord
from service.store.writer import PostgresWriter
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.usecases.batches import ErrorPolicy, Totals
from service.usecases.follow_feed import Consumer
from service.usecases.live_state import BatchCounts
from service.usecases.netted_ranges import BatchFacts, RangeFacts
from spark_jobs import follow_source
from spark_jobs.checkpoint import require_not_older
from spark_jobs.follow_source import RANGE_BYTES, cut, from_bytes, to_chunks
from spark_jobs.follow_tasks import Decoding
from spark_jobs.stream import Stream
from spark_jobs.streamed_session import StreamedSession
from spark_jobs.telling import told_error
from tests import states
from tests.cluster import Cluster
from tests.events import envelope, with_schema
from tests.following import COLUMNS, Watch
from tests.states import Row, Tables
from tests.waiting import BOUND_SECONDS

PARTITIONS = 3
SHARDS = 3
BATCH_RECORDS = 60
TRANSITIONS = "select dependent_id, referenced_id, kind from ind_transition order by version"
HOLDING = "select dependent_id, referenced_id from uind where until_version is null"
POSITIONS = "select topic, partition, next_offset from feed_position"
AHEAD = "select count(*) from shard where batch > (select max(version) from state_version)"

CELLS = ["1", "2", "3", "10", "Ada", "x\ty\\z\n", "é" * 200, "", None]


class Shop:
    """Keep tables in step with topics of their changes; a row's changes are all in one partition."""

    def __init__(self, url: str, cluster: Cluster) -> None:
        self.url = url
        self.cluster = cluster
        self.tables = Tables(COLUMNS)
        for table in COLUMNS:
            self.tables.add(table)
        self.tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", None])
        states.store(url, self.tables)
        states.execute(
            url,
            "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table) "
            "select distinct source_id, schema_name, table_name, schema_name, table_name from attribute",
        )
        self.topics = {table: cluster.topic(PARTITIONS) for table in COLUMNS}
        self.feed = f"kafka://{cluster.servers}/{','.join(self.topics.values())}"
        self.rows: dict[str, list[tuple[int, Row]]] = {table: [] for table in COLUMNS}
        self.rng = random.Random(7)
        self.sent: Counter[tuple[str, int]] = Counter()
        self.checkpoint: str | None = None
        self.range_bytes = RANGE_BYTES

    def change(self, number: int) -> None:
        """Send any changes that are possible."""
        for _ in range(number):
            table = self.rng.choice(list(COLUMNS))
            row = [self.rng.choice(CELLS) for _ in COLUMNS[table]]
            of_table = self.rows[table]
            kind = self.rng.choice(["insert", "insert", "update", "delete"]) if of_table else "insert"
            partition, before = of_table.pop(self.rng.randrange(len(of_table))) if kind != "insert" else (None, None)
            after = None if kind == "delete" else row
            partition = self.rng.randrange(PARTITIONS) if partition is None else partition
            if before is not None:
                self.tables.remove(table, before)
            if after is not None:
                self.tables.add(table, after)
                of_table.append((partition, after))
            self.send(table, before, after, partition)

    def send(self, table: str, before: Row | None, after: Row | None, partition: int = 0) -> None:
        self.sent[table, partition] += 1
        op = "u" if before and after else "c" if after else "d"
        named = [None if row is None else dict(zip(COLUMNS[table], row, strict=True)) for row in (before, after)]
        self.cluster.producer.send(self.topics[table], envelope(op, "s", table, *named), partition=partition)

    def ends(self, table: str) -> dict[int, int]:
        """Give the offset behind the last record of each partition of a table's topic."""
        return {number: self.sent[table, number] for number in range(PARTITIONS)}

    def consumer(self, spark: SparkSession | None, batch_records: int) -> Consumer:
        writer = PostgresWriter(self.url)
        decoding = Decoding(WireSettings(), None, "refuse")
        stream = Stream(
            spark,  # type: ignore[arg-type]
            *(writer, self.url, self.feed, batch_records, decoding, 1 << 20),
            checkpoint=self.checkpoint,
            range_bytes=self.range_bytes,
        )
        consumer = Consumer(
            writer,
            lambda: open_feed(self.feed, group_id=None),
            Decoder,
            value_keys,
            Watch(),  # type: ignore[arg-type]
            on_error=ErrorPolicy.SET_ASIDE,
            cache_bytes=1 << 20,
            retry_seconds=BOUND_SECONDS if spark else 0,  # Spark waits 10 s for a Python to start, not more
        )
        consumer.make_session = lambda following: StreamedSession(following, stream)
        return consumer

    def follow(self, spark: SparkSession | None) -> Totals:
        self.cluster.producer.flush()
        return self.consumer(spark, BATCH_RECORDS).run(threading.Event(), until_end=True)

    def check(self) -> None:
        assert states.read(self.url) == states.expected(self.tables)
        kinds: dict[tuple[int, int], list[str]] = {}
        for *pair, kind in states.query(self.url, TRANSITIONS):
            kinds.setdefault(tuple(pair), []).append(kind)  # type: ignore[arg-type]
        assert all(one != other for told in kinds.values() for one, other in pairwise(told))
        holding = {pair for pair, told in kinds.items() if told[-1] == "appeared"}
        assert holding <= set(states.query(self.url, HOLDING))


@pytest.fixture
def shop(database_url: str, cluster: Cluster) -> Shop:
    made = Shop(database_url, cluster)
    states.deal(database_url, SHARDS)
    return made


def test_the_state_is_that_of_every_change_once(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies when all shards have committed, and the whole has not: what they did is undone, then done once."""
    shop.change(90)
    with monkeypatch.context() as patching:
        patching.setattr(StreamedSession, "_commit", _die)
        with pytest.raises(_KilledError):
            shop.follow(spark)
    assert states.query(shop.url, AHEAD) == [(SHARDS,)]
    totals = shop.follow(spark)
    assert (totals.records, totals.batches) == (90, 2)
    shop.check()


def test_what_is_rare_is_taken_by_a_session_to_the_end_of_its_micro_batch(shop: Shop) -> None:
    shop.change(20)
    shop.cluster.producer.flush()
    ends = {(shop.topics["orders"], number): end for number, end in shop.ends("orders").items()}
    shop.send("customers", ["never", "inserted"], None)
    consumer = shop.consumer(None, BATCH_RECORDS)
    assert consumer.writer.acquire()
    session = consumer.make_session(consumer)
    assert isinstance(session, StreamedSession)
    session._take_alone(ends, threading.Event())
    session.close()
    consumer.writer.close()
    stored = {(topic, number): at for topic, number, at in states.query(shop.url, POSITIONS) if at}
    assert stored == {place: end for place, end in ends.items() if end}


def test_what_executors_cannot_apply_is_refused(database_url: str, cluster: Cluster) -> None:
    shop = Shop(database_url, cluster)
    with pytest.raises(StateError, match="subsetd shards set"):
        shop.follow(None)
    states.deal(database_url, SHARDS)
    states.execute(database_url, "update attribute set shown_characters = 0 where attribute_id = 1")
    with pytest.raises(StateError, match="subsetd consume"):
        shop.follow(None)
    states.execute(database_url, "update attribute set shown_characters = null")
    shop.feed += "," + cluster.topic(name=shop.topics["orders"] + ".transaction")
    with pytest.raises(FeedError, match=r"\.transaction tells of the source's transactions"):
        shop.follow(None)


def test_a_checkpoint_that_was_put_back_is_refused_and_nothing_is_applied(
    shop: Shop, spark: SparkSession, tmp_path: Path
) -> None:
    """From a backup, say: Spark goes on where its log ends, which the state has passed."""
    log, kept = tmp_path / "log", tmp_path / "kept"
    shop.checkpoint = f"file:{log}"
    shop.change(20)
    shop.follow(spark)
    shutil.copytree(log, kept)
    shop.change(20)
    shop.follow(spark)
    shop.check()
    shutil.rmtree(log)
    kept.rename(log)
    before = states.read(shop.url), states.query(shop.url, POSITIONS)
    shop.change(20)
    with pytest.raises(FeedError, match=r"the checkpoint is older than the state.*remove the checkpoint"):
        shop.follow(spark)
    assert (states.read(shop.url), states.query(shop.url, POSITIONS)) == before
    assert states.query(shop.url, AHEAD) == [(0,)]
    shutil.rmtree(log)
    assert shop.follow(spark).records == 20
    shop.check()


def test_a_checkpoint_that_followings_own_streams_wrote_is_begun_anew(
    shop: Shop, spark: SparkSession, tmp_path: Path
) -> None:
    """A session ends in the middle of the second micro-batch, with a column added; the last is of another process."""
    shop.checkpoint = f"file:{tmp_path}/log"
    shop.change(90)
    shop.cluster.producer.send(
        shop.topics["customers"],
        with_schema(["id", "name", "since"], "c", "customers", None, {"id": "1", "name": "Ada", "since": None}),
        partition=0,
    )
    shop.sent["customers", 0] += 1
    shop.follow(spark)
    assert states.query(shop.url, "select count(*) from attribute where column_name = 'since'") == [(1,)]
    shop.change(20)
    shop.follow(spark)
    assert states.query(shop.url, "select sum(records) from state_version") == [(111,)]


def test_a_checkpoint_that_is_ahead_of_the_state_is_begun_anew(shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    """A server was away, say, and Spark had counted what waited as taken."""
    shop.checkpoint = f"file:{tmp_path}/log"
    shop.change(20)
    shop.follow(spark)
    newest = max((tmp_path / "log/offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    *head, offsets = newest.read_text().splitlines()
    shop.change(20)
    told = {topic: {part: at + 1 for part, at in ends.items()} for topic, ends in json.loads(offsets).items()}
    newest.write_text("\n".join([*head, json.dumps(told)]))
    assert shop.follow(spark).records == 20
    shop.check()


def test_a_checkpoint_is_older_where_it_ends_before_the_state() -> None:
    stands = {("t", 0): 7, ("t", 1): 7, ("other", 0): 3}
    require_not_older({("t", 0): 9, ("t", 1): 7, ("new", 0): 0}, stands, "file:/c")
    with pytest.raises(FeedError, match="partition 1, at offset 6, but the state stands at 7: the checkpoint is older"):
        require_not_older({("t", 0): 9, ("t", 1): 6, ("new", 0): 0}, stands, "file:/c")


def test_what_ended_a_stream_is_told() -> None:
    text = "Query [id = 1] terminated with exception: no worker came\n=== Streaming Query ===\nThread State: RUNNABLE"
    assert "terminated with exception: no worker came" in str(told_error(RuntimeError(text)))


def test_a_micro_batch_is_cut_in_fair_shares() -> None:
    begins = {("t", 0): 0, ("t", 1): 10, ("t", 2): 0}
    assert cut(begins, {("t", 0): 100, ("t", 1): 12, ("t", 2): 100}, 20) == {("t", 0): 9, ("t", 1): 12, ("t", 2): 9}
    assert cut(begins, {("t", 0): 1, ("t", 1): 10}, 20) == {("t", 0): 1, ("t", 1): 10}


def test_ranges_of_many_bytes_end_early_and_the_stream_goes_on_behind_them(shop: Shop, spark: SparkSession) -> None:
    shop.range_bytes = 2_000
    shop.change(150)
    assert shop.follow(spark).records == 150
    shop.check()
    sizes = [size for (size,) in states.query(shop.url, "select records from state_version where kind = 'batch'")]
    assert max(sizes) < BATCH_RECORDS, "a micro-batch was taken whole"


def test_a_stream_learns_how_many_records_fit() -> None:
    def told(end: int, planned: int, size: int = 0) -> BatchFacts:
        counts = BatchCounts(records=end)
        return BatchFacts([RangeFacts(("t", 0), 0, end, counts, planned=planned, bytes=size)])

    stream = Stream(None, None, "", "", 1000, None, 0, range_bytes=100)  # type: ignore[arg-type]
    stream.begin(3)
    assert not stream.fit(told(1000, 1000, 99))
    assert stream.fit(told(10, 1000, 100)), "the next would not begin where this one ended"
    assert stream.most_records == 7
    assert not stream.fit(told(7, 7, 25))
    assert not stream.fit(told(6, 6, 1)), "there were no more"
    stream.begin(3)
    assert stream.fit(told(7, 7, 24))
    assert stream.most_records == 14
    stream.most_records = 600
    assert stream.fit(told(600, 600, 1))
    assert stream.most_records == 1000
    assert not stream.fit(told(1000, 1000, 1))
    assert not stream.fit(BatchFacts([]))


def test_a_micro_batch_has_records_for_each_shard_unless_they_are_told() -> None:
    stream = Stream(None, None, "", "", None, None, 0)  # type: ignore[arg-type]
    stream.begin(2)
    assert stream.most_records == 50_000
    stream.most_records = 700
    stream.begin(2)
    assert stream.most_records == 700, "what was learned is kept"
    stream.begin(16)
    assert stream.most_records == 400_000


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=9)), max_size=9),
    st.integers(1, 60),
)
def test_records_pass_in_chunks_as_they_are(given: list[tuple[bytes | None, bytes | None]], most_bytes: int) -> None:
    records = [RawRecord("t", 1, 7 * at, key, value, 0) for at, (key, value) in enumerate(given)]
    with patch.object(follow_source, "CHUNK_BYTES", 10):
        chunks = list(to_chunks(records, 100, most_bytes))
    found = [record for _, chunk in chunks for record in from_bytes("t", 1, chunk)]
    sizes = [len(key or b"") + len(value or b"") for key, value in given[: len(found)]]
    assert found == records[: len(found)]
    assert sum(sizes[:-1]) < most_bytes
    is_cut = sum(sizes) >= most_bytes
    assert is_cut or len(found) == len(records)
    assert chunks[-1][0] == (found[-1].offset + 1 if is_cut else 100)
    assert len(chunks) > sum(sizes) // 22


class _KilledError(Exception):
    pass


def _die(*_: object) -> None:
    raise _KilledError
