"""Own the proof that a partitioned table of a followed Postgres is one table, whatever becomes of its partitions."""

from __future__ import annotations

from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from service.config import Settings
from service.core.errors import RecordError
from service.core.model import Attribute, AttributeName, RawRecord, StoredPosition, Table
from service.feed_wiring import feed_address, make_consumer, running_consumer
from service.observe import ConsumerObserver
from service.stream.pgoutput import PgoutputDecoder
from tests import postgres_following as source
from tests import states
from tests.decoding import decode_all
from tests.postgres_following import begin, follow, positions, require_equal, run
from tests.waiting import wait_for


def test_a_partitioned_table_is_followed_as_one(followed_url: str, database_url: str) -> None:
    run(
        followed_url,
        "CREATE SCHEMA s",
        "CREATE TABLE s.measured (day date, value integer) PARTITION BY RANGE (day)",
        "CREATE TABLE s.m1 PARTITION OF s.measured FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
        "CREATE TABLE s.m2 (value integer, gone text, day date)",
        "ALTER TABLE s.m2 DROP COLUMN gone",
        "ALTER TABLE s.measured ATTACH PARTITION s.m2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        "ALTER TABLE s.m1 REPLICA IDENTITY FULL",
        "ALTER TABLE s.m2 REPLICA IDENTITY FULL",
        "INSERT INTO s.measured SELECT '2026-01-01'::date + i, i FROM generate_series(0, 50) AS i",
    )
    begin(database_url, followed_url)
    run(
        followed_url,
        "UPDATE s.measured SET day = day + 31 WHERE day < '2026-01-15'",
        "DELETE FROM s.m2 WHERE value % 2 = 0",
        "CREATE TABLE s.m3 PARTITION OF s.measured FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')",
        "INSERT INTO s.measured VALUES ('2026-03-05', 7)",
    )
    follow(database_url, followed_url)
    require_equal(database_url, followed_url)
    run(followed_url, "TRUNCATE s.measured", "INSERT INTO s.measured VALUES ('2026-01-05', 7)")
    follow(database_url, followed_url)
    require_equal(database_url, followed_url)
    run(followed_url, "INSERT INTO s.measured VALUES ('2026-01-06', 8)", "TRUNCATE s.m1")
    with pytest.raises(RecordError, match=r"empties the partition s\.m1 of s\.measured"):
        follow(database_url, followed_url)


@pytest.fixture
def measured(followed_url: str, database_url: str) -> str:
    """Give a source with a partitioned table that the state of `database_url` is about to follow."""
    run(
        followed_url,
        "CREATE SCHEMA s",
        "CREATE TABLE s.measured (day date, value integer) PARTITION BY RANGE (day)",
        "CREATE TABLE s.m1 PARTITION OF s.measured FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
        "CREATE TABLE s.m2 PARTITION OF s.measured FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        "ALTER TABLE s.m1 REPLICA IDENTITY FULL",
        "ALTER TABLE s.m2 REPLICA IDENTITY FULL",
        "INSERT INTO s.measured SELECT '2026-01-01'::date + i, i FROM generate_series(0, 50) AS i",
    )
    begin(database_url, followed_url)
    return followed_url


@pytest.mark.parametrize("gone", ["DROP TABLE s.m1", "ALTER TABLE s.measured DETACH PARTITION s.m1"])
def test_changes_of_a_partition_that_is_gone_are_its_roots(measured: str, database_url: str, gone: str) -> None:
    names = [AttributeName("s", "measured", column) for column in ("day", "value")]
    attributes = tuple(Attribute(place, name, place) for place, name in enumerate(names))
    decoder = PgoutputDecoder([Table("s", "measured", attributes, source="s", wire=(None, "s", "measured"))], "s")
    feed = source.open_feed(measured)
    with closing(feed):
        feed.start(positions(database_url))
        run(measured, "DELETE FROM s.m1", gone)
        records: list[RawRecord] = []
        while len(records) < 31:
            records += wait_for(lambda: feed.poll(100, 1 << 20, 0.1))
    changes, skipped, bad = decode_all(decoder, records)
    assert not skipped
    assert not bad
    assert {change.before for change in changes} == {(f"2026-01-{i + 1:02}", str(i)) for i in range(31)}


@pytest.mark.parametrize("gone", ["DROP TABLE s.m1", "ALTER TABLE s.measured DETACH PARTITION s.m1"])
def test_a_partition_that_was_seen_is_remembered_across_a_change_of_columns(
    measured: str, database_url: str, gone: str
) -> None:
    consumer = make_consumer(
        database_url, feed_address(measured, source.NAME), Settings(), ConsumerObserver(CollectorRegistry())
    )

    def counts(rows: int) -> bool:
        found = states.query(database_url, "select row_count from attribute where column_name = 'value'")
        return failed.is_set() or found == [(rows,)]

    with running_consumer(consumer) as failed:
        run(measured, "INSERT INTO s.measured VALUES ('2026-01-05', 7)")
        wait_for(lambda: counts(52))
        run(
            measured,
            "INSERT INTO s.measured VALUES ('2026-01-06', 8); ALTER TABLE s.measured ADD note text; "
            f"INSERT INTO s.measured VALUES ('2026-01-07', 9, 'x'); {gone}",
        )
        wait_for(lambda: counts(54))


@pytest.mark.parametrize("gone", ["DROP TABLE s.m1", "ALTER TABLE s.measured DETACH PARTITION s.m1"])
def test_a_table_that_may_have_been_a_partition_is_never_passed_over(
    measured: str, database_url: str, gone: str
) -> None:
    run(measured, "DELETE FROM s.m1", gone)
    with pytest.raises(RecordError, match=r"s\.m1, .* may have been a partition of s\.measured .* --on-error all"):
        follow(database_url, measured)


def test_a_table_that_is_gone_and_was_no_partition_is_passed_over(measured: str, database_url: str) -> None:
    run(
        measured,
        "CREATE TABLE s.other (day date, note text)",
        "ALTER PUBLICATION subsetd_s ADD TABLE s.other",
        "INSERT INTO s.other VALUES ('2026-01-01', 'x')",
        "DROP TABLE s.other",
        "CREATE TABLE s.alike (day date, value integer)",
        "ALTER PUBLICATION subsetd_s ADD TABLE s.alike",
        "INSERT INTO s.alike VALUES ('2026-01-01', 1)",
        "DELETE FROM s.m2",
    )
    assert follow(database_url, measured).skipped == 2
    run(measured, "DROP TABLE s.alike")
    require_equal(database_url, measured)


@pytest.mark.parametrize("gone", ["DROP TABLE s.m2", "ALTER TABLE s.measured DETACH PARTITION s.m2"])
def test_what_is_behind_a_truncate_keeps_its_number_when_a_partition_goes(
    measured: str, database_url: str, gone: str
) -> None:
    rows = ", ".join(f"('2026-01-05', {number})" for number in range(10))
    stored, records = positions(database_url), list[RawRecord]()
    run(measured, f"TRUNCATE s.measured; INSERT INTO s.measured VALUES {rows}")
    with closing(source.open_feed(measured, transaction_records=0)) as feed:
        feed.start(stored)
        while len(records) < 4:
            records += feed.poll(1, 1 << 20, 0.1)
        at = feed.positions()
        told = feed.source_positions(at)
        stored = {place: StoredPosition(at[place], told[place]) for place in at}
    run(measured, gone)
    with closing(source.open_feed(measured)) as feed:
        feed.start(stored)
        while not feed.at_end():
            records += feed.poll(100, 1 << 20, 0.1)
    assert [record.value[:1] for record in records if record.value] == [b"T", *[b"I"] * 10]


@pytest.mark.parametrize("statements", [1, 2])
def test_a_partition_that_is_younger_than_a_truncate_does_not_hinder_it(
    measured: str, database_url: str, statements: int
) -> None:
    made = "CREATE TABLE s.m3 PARTITION OF s.measured FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')"
    done = ["TRUNCATE s.measured", made, "INSERT INTO s.measured VALUES ('2026-03-05', 7), ('2026-01-05', 8)"]
    run(measured, *(done if statements > 1 else ["; ".join(done)]))
    follow(database_url, measured)
    require_equal(database_url, measured)
    run(measured, "TRUNCATE s.m1, s.m2")
    with pytest.raises(RecordError, match=r"empties the partition s\.m1 of s\.measured"):
        follow(database_url, measured)
