"""What a review of the live core found, each kept as a lesson: wrong answers that the other tests let through."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from service.core.canonical import value_keys
from service.core.errors import DamagedStateError, RecordError, StateError
from service.core.model import RawRecord
from service.core.records import Keys, NewRecords
from service.observe import ConsumerObserver
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.stream.envelope import Decoder
from service.usecases import feed_session, queries
from service.usecases.batches import ErrorPolicy, Positions
from service.usecases.follow_feed import Consumer
from tests import states
from tests.events import envelope
from tests.following import COLUMNS, Stream, TwoPartitions, Watch, consume, shop_tables
from tests.states import Tables


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = shop_tables()
    states.store(database_url, tables)
    return Stream.empty(tmp_path, tables)


def test_a_null_that_was_never_inserted_cannot_be_taken_away(database_url: str, stream: Stream) -> None:
    """NULL is no value and has no record, so its count alone can tell that a change is poisoned."""
    stream.change("customers", ["3", None], ["3", "Cleo"])
    bad = stream.path.stat().st_size
    stream.append("customers", ["2", None], ["2", "Bob"])
    with pytest.raises(RecordError, match=rf"offset {bad}: .*a NULL out of s.customers.name.*never inserted"):
        consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert totals.dead == 1
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_batch_may_hold_more_truncates_than_python_has_stack_frames(database_url: str, stream: Stream) -> None:
    for _ in range(1_100):
        stream.write(envelope("t", "s", "orders", None, None))
    stream.tables.rows["orders"] = Counter()
    totals = consume(database_url, stream)
    assert (totals.batches, totals.version) == (1_100, 1_101)
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_truncate_in_portions_tells_of_the_whole_table(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What turned and turned back from portion to portion is no transition, and a cause counts every value."""
    monkeypatch.setattr(feed_session, "TRUNCATE_PORTION", 1)
    for number in range(10):
        stream.change("customers", None, [str(100 + number), "x"])
        stream.change("orders", None, [str(200 + number), str(100 + number), "x"])
    stream.write(envelope("t", "s", "customers", None, None))
    stream.tables.rows["customers"] = Counter()
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    assert states.query(
        database_url,
        "select d.column_name, r.column_name, kind, cause_count from ind_transition "
        "join attribute d on d.attribute_id = dependent_id join attribute r on r.attribute_id = referenced_id "
        "where version = 3",
    ) == [("customer", "id", "broke", 12)]


def test_what_a_batch_took_is_told_once_when_it_is_cut(database_url: str, stream: Stream) -> None:
    for number in range(50):
        stream.change("customers", None, [str(100 + number), "x"])
    stream.write(envelope("t", "s", "orders", None, None))
    stream.change("orders", None, ["1", "1", "x"])
    watch = Watch()
    totals = consume(database_url, stream, watch=watch)
    assert [report.counts.records for report in watch.reports] == [50, 1, 1]
    assert sum("collect" in report.seconds for report in watch.reports) == 1
    for step in totals.seconds:
        assert totals.seconds[step] == pytest.approx(sum(report.seconds.get(step, 0) for report in watch.reports))
    assert totals.seconds["collect"] + totals.seconds["net"] <= totals.elapsed


def test_lag_is_known_of_the_feed_and_not_of_the_last_commit(database_url: str, stream: Stream) -> None:
    """What follows the last change without being one (blank lines, a broker's markers) would wait for ever."""
    stream.change("orders", None, ["1", "1", "x"])
    stream.write(b"\n\n")
    observer = ConsumerObserver(CollectorRegistry())
    consume(database_url, stream, records=1, watch=observer)
    assert (observer.lag, observer.lag_seconds()) == (0, 0)
    observer.waiting(None)
    assert observer.lag_seconds() > 0, "a feed that is away may have more"


def test_what_is_in_hand_of_a_file_counts_in_bytes(database_url: str, stream: Stream) -> None:
    for number in range(20, 26):
        stream.change("orders", None, [str(number), "1", "x"])
    told: list[int] = []

    class Lag(Watch):
        def waiting(self, lag: Positions | None) -> None:
            told.extend((lag or {}).values())

    consume(database_url, stream, records=2, watch=Lag())
    size = stream.path.stat().st_size
    assert sorted(set(told), reverse=True) == [size, size * 2 // 3, size // 3, 0]


def test_each_partition_has_the_source_position_of_its_own_last_change(database_url: str, stream: Stream) -> None:
    def change(partition: int, offset: int, number: int) -> RawRecord:
        after = {"id": str(number), "name": "x"}
        value = envelope("c", "s", "customers", None, after, lsn=number)
        return RawRecord("shop", partition, offset, None, value, 0)

    def follow(*records: RawRecord) -> list[tuple[object, ...]]:
        consumer = Consumer(PostgresWriter(database_url), lambda: TwoPartitions(*records), Decoder, value_keys, Watch())
        consumer.run(threading.Event(), until_end=True)
        return states.query(
            database_url, "select partition, next_offset, source_position -> 'lsn' from feed_position order by 1"
        )

    assert follow(change(0, 0, 70), change(1, 0, 80)) == [(0, 1, 70), (1, 1, 80)]
    tombstone = RawRecord("shop", 1, 1, b"{}", None, 0)
    assert follow(change(0, 1, 71), tombstone) == [(0, 2, 71), (1, 2, 80)], "a tombstone says nothing of the source"


def test_a_pair_can_be_explained_without_its_missing_values(database_url: str, stream: Stream) -> None:
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        pair = queries.resolve(snapshot, "s.customers.id"), queries.resolve(snapshot, "s.orders.customer")
        answer = queries.explain(snapshot, *pair, missing_limit=0)
    engine.dispose()
    assert (answer.missing_values.items, answer.missing_count) == ([], 1)


def test_a_new_record_that_another_hand_wrote_first_is_told_as_such(database_url: str, stream: Stream) -> None:
    before = states.read(database_url)
    writer = PostgresWriter(database_url)
    writer.acquire()
    unit = writer.begin()
    one = np.ones(1, np.int64)
    there_already = NewRecords(Keys.of([states.key_of("Ada")]), one > 0, one, np.arange(2), one, one)
    with pytest.raises(StateError, match=r"changed by another hand: .*to be new is there already .*`subsetd verify`"):
        unit.write_records(there_already, ["Ada"])
    unit.rollback()
    writer.close()
    assert states.read(database_url) == before


def test_a_partition_whose_first_records_are_gone_begins_where_its_records_do(database_url: str) -> None:
    tables = Tables(COLUMNS)
    states.store(database_url, tables)
    value = envelope("c", "s", "customers", None, {"id": "1", "name": "x"})
    records = [RawRecord("shop", 0, offset, None, value, 0) for offset in (500, 501)]
    consumer = Consumer(PostgresWriter(database_url), lambda: TwoPartitions(*records), Decoder, value_keys, Watch())
    consumer.run(threading.Event(), until_end=True)
    assert states.query(database_url, "select partition, first_offset, next_offset from batch_position order by 1") == [
        (0, 500, 502),
        (1, 0, 0),
    ]


def test_what_a_bootstrap_broke_is_so_since_the_bootstrap(database_url: str, stream: Stream) -> None:
    stream.change("orders", None, ["13", "9", "breaks a dependency"])
    consume(database_url, stream)

    def reason() -> str:
        engine = make_engine(database_url, "test")
        with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
            pair = queries.resolve(snapshot, "s.orders.customer"), queries.resolve(snapshot, "s.customers.id")
            answer = queries.explain(snapshot, *pair)
        engine.dispose()
        return answer.since_reason

    assert reason() == "broke"
    # A bootstrap that replaces a source records its transitions without a position.
    states.execute(database_url, "update ind_transition set position = null")
    assert reason() == "bootstrap"


class RobbedUnit(PostgresUnitOfWork):
    """Let another hand change the state between look-up and merge."""

    robbery = ""

    def write_records(self, records, texts, changed_texts=()) -> None:  # type: ignore[no-untyped-def]
        address = self._writer._address.render_as_string(hide_password=False)
        states.execute(address.replace("+psycopg2", ""), self.robbery)
        super().write_records(records, texts, changed_texts)


def robbed(writer: PostgresWriter) -> RobbedUnit:
    return RobbedUnit(writer)


@pytest.mark.parametrize(
    ("robbery", "row"),
    [
        ("delete from gen_rec where value = 'Ada'", ["9", "Ada"]),
        ("delete from cluster where cluster_id in (select cluster_id from gen_rec where value = 'Ada')", ["9", "x"]),
        ("insert into cluster select max(cluster_id) + 1, '{77}', 1 from cluster", ["Ada", "x"]),
    ],
)
def test_what_another_hand_took_or_put_ends_the_consumer_at_once(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch, robbery: str, row: list[str]
) -> None:
    """A retry would load the wrong state and build on it."""
    monkeypatch.setattr(PostgresWriter, "begin", robbed)
    monkeypatch.setattr(RobbedUnit, "robbery", robbery)
    stream.change("customers", None, row)
    with pytest.raises(DamagedStateError, match=r"changed by another hand: .*`subsetd verify`"):
        consume(database_url, stream, retry_seconds=30)
    assert states.query(database_url, "select max(version) from state_version") == [(1,)]
