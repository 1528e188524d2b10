"""A followed Postgres: every committed change is applied once, whatever ends in between; what is lost is told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest

from service.core.errors import FeedError, RecordError, SourceError, StateError
from service.core.model import StoredPosition
from service.store import dead_letters
from service.store.database import make_engine
from service.store.writer import PostgresUnitOfWork
from service.stream import postgres_feed
from service.stream.pgoutput import PgoutputDecoder
from service.stream.postgres_address import parse_address
from service.stream.postgres_feed import PostgresFeed
from service.usecases.batches import ErrorPolicy
from tests import postgres_following as source
from tests import states
from tests.descriptors import high_descriptors
from tests.events import tracked_table
from tests.following import Watch
from tests.postgres_following import SHOP, begin, follow, positions, require_equal, run, shop, stored
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["shop"]


def change_at_random(url: str, rng: random.Random, transactions: int, emptied: float = 0.1) -> None:
    """Make transactions of any size on both tables, some rolled back; keys change, tables are emptied now and then.

    `emptied` is the share of the draws of TRUNCATE that are made.
    """
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        for _ in range(transactions):
            for _ in range(rng.choice([1, 1, 2, 5, 40])):
                table, other = rng.choice([("orders", "customer"), ("customers", "name")])
                key, cell = rng.randint(1, 60), rng.choice(["1", "2", "7", "999", None])
                match rng.choice(["insert", "insert", "update", "delete", "rekey", "truncate"]):
                    case "insert":
                        cursor.execute(
                            f"INSERT INTO s.{table} (id, {other}) VALUES (%s, %s) ON CONFLICT DO NOTHING", (key, cell)
                        )
                    case "update":
                        cursor.execute(f"UPDATE s.{table} SET {other} = %s WHERE id %% 7 = %s", (cell, key % 7))
                    case "delete":
                        cursor.execute(f"DELETE FROM s.{table} WHERE id = %s", (key,))
                    case "rekey":
                        cursor.execute(
                            f"UPDATE s.{table} SET id = %s WHERE id = %s AND NOT EXISTS "
                            f"(SELECT FROM s.{table} WHERE id = %s)",
                            (key, rng.randint(1, 60), key),
                        )
                    case "truncate" if rng.random() < emptied:
                        cursor.execute(f"TRUNCATE {rng.choice(['s.orders', 's.orders, s.customers'])}")
            if rng.random() < 0.1:
                connection.rollback()
            connection.commit()


def test_every_change_is_applied_and_a_second_run_goes_on(shop: str, database_url: str) -> None:
    rng = random.Random(1)
    for _ in range(3):
        change_at_random(shop, rng, 20)
        follow(database_url, shop, records=rng.choice([1000, 17]))
        require_equal(database_url, shop)
    before = states.query(database_url, "select max(version) from state_version")
    assert follow(database_url, shop).records == 0
    assert states.query(database_url, "select max(version) from state_version") == before


def test_a_process_with_many_files_open_follows_as_any_other(shop: str, database_url: str) -> None:
    with high_descriptors():
        run(shop, "INSERT INTO s.orders VALUES (77, 1)")
        follow(database_url, shop)
    require_equal(database_url, shop)


@pytest.mark.parametrize(("records", "transactions"), [(1, 4), (3, 10), (7, 20)])
def test_wherever_a_batch_ends_a_new_feed_goes_on_behind_it(
    shop: str, database_url: str, records: int, transactions: int
) -> None:
    """Batches end in the middle of transactions; the server then repeats the whole transaction."""
    change_at_random(shop, random.Random(3), transactions)
    states_seen = []
    while True:
        consumer = source.consumer(database_url, shop, records=records, transaction_records=0)
        stop = threading.Event()
        consumer.observer.committed = lambda report, stop=stop: stop.set()  # type: ignore[method-assign]
        offset, _ = stored(database_url)
        consumer.run(stop, until_end=True)
        states_seen.append(stored(database_url)[0])
        if states_seen[-1] == offset:
            break
    assert len(states_seen) > 2
    require_equal(database_url, shop)


def test_a_version_holds_the_sources_transactions_whole_unless_one_is_too_large(shop: str, database_url: str) -> None:
    whole = "select records, transaction_consistent from state_version where kind = 'batch' order by version"
    run(shop, *[f"INSERT INTO s.orders SELECT i, 1, NULL FROM generate_series({n}, {n + 4}) i" for n in (100, 200)])
    patient = {"transaction_wait_seconds": BOUND_SECONDS}  # as long as a busy server takes to send the rest of one
    follow(database_url, shop, records=3, **patient)
    assert states.query(database_url, whole) == [(5, True), (5, True)], "a batch goes on to the transaction's end"
    run(shop, "DELETE FROM s.orders WHERE id >= 100")
    follow(database_url, shop, records=3, transaction_records=4, **patient)
    assert states.query(database_url, whole)[2:] == [(4, False), (4, False), (2, True)]
    run(shop, "INSERT INTO s.orders VALUES (90, 1); TRUNCATE s.orders; INSERT INTO s.orders VALUES (91, 1)")
    follow(database_url, shop, **patient)
    assert states.query(database_url, whole)[5:] == [(1, False), (1, False), (1, True)]
    require_equal(database_url, shop)


@contextmanager
def feed_of_5000(shop: str, database_url: str) -> Iterator[PostgresFeed]:
    """Start a feed in front of a transaction of 5,000 rows."""
    run(shop, "INSERT INTO s.orders SELECT i, 1, NULL FROM generate_series(100, 5099) i")
    with closing(source.open_feed(shop, transaction_wait_seconds=BOUND_SECONDS)) as feed:
        feed.start(positions(database_url))
        yield feed


def test_who_has_waited_long_for_a_transaction_waits_for_its_rest_as_well(
    shop: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with feed_of_5000(shop, database_url) as feed:
        cursor: Any = feed._cursor
        read, take, has_come, gap = cursor.read_message, feed._take, threading.Event(), [True]

        def take_late(payload: bytes) -> None:
            """Let the first change come only when the poll began long ago, and the others be on their way."""
            take(payload)
            if feed._handed:
                has_come.set()
                monkeypatch.setattr(postgres_feed, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 1e6))

        monkeypatch.setattr(feed, "_take", take_late)
        monkeypatch.setattr(cursor, "read_message", lambda: None if has_come.is_set() and gap and gap.pop() else read())
        assert len(feed.poll(10_000, 1 << 30, BOUND_SECONDS)) == 5000


def test_a_transaction_that_comes_slowly_is_waited_for_as_long_as_it_comes(
    shop: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with feed_of_5000(shop, database_url) as feed:
        cursor: Any = feed._cursor
        read, late, gaps = cursor.read_message, [], count(1)

        def read_slowly() -> Any:
            """Let each message come a quarter of the longest wait behind the one before."""
            if late:
                return late.pop()
            message = read()
            if message is None:
                return None
            late.append(message)
            now = time.monotonic() + next(gaps) * BOUND_SECONDS / 4
            monkeypatch.setattr(postgres_feed, "time", SimpleNamespace(monotonic=lambda: now))
            return None

        has_come = postgres_feed._has_come
        monkeypatch.setattr(cursor, "read_message", read_slowly)
        monkeypatch.setattr(postgres_feed, "_has_come", lambda *given: bool(late) or has_come(*given))
        records = wait_for(lambda: feed.poll(10_000, 1 << 30, 0))
        assert len(records) == 5000, "nothing came later than the longest wait after what was before"


@pytest.mark.parametrize("seed", range(4))
def test_the_feed_goes_on_when_its_connection_is_cut_in_mid_transaction(
    shop: str, database_url: str, seed: int
) -> None:
    """What the server repeats behind a break is recognised, change by change."""
    rng = random.Random(seed)
    change_at_random(shop, rng, 25)
    feed = source.open_feed(shop, transaction_records=0)
    with closing(feed):
        feed.start(positions(database_url))
        told: list[tuple[int, bytes | None]] = []
        while not feed.at_end():
            told += [(record.offset, record.value) for record in feed.poll(rng.randint(1, 9), 1 << 20, 0.2)]
            if feed._cursor is not None and rng.random() < 0.2:
                run(shop, "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid > 0")
    whole = source.open_feed(shop)
    with closing(whole):
        whole.start(positions(database_url))
        expected: list[tuple[int, bytes | None]] = []
        while not whole.at_end():
            expected += [(record.offset, record.value) for record in whole.poll(1000, 1 << 30, 0.2)]
    assert [number for number, _ in told] == list(range(len(told)))
    assert told == expected


def test_a_batch_that_failed_is_read_again(shop: str, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change_at_random(shop, random.Random(5), 10)
    commit, failures = PostgresUnitOfWork.commit, iter([False, True, False, True])

    def failing(unit: PostgresUnitOfWork, of: Any) -> None:
        if next(failures, False):
            raise StateError("the disk is full")
        commit(unit, of)

    monkeypatch.setattr(PostgresUnitOfWork, "commit", failing)
    watch = Watch()
    follow(database_url, shop, records=20, watch=watch, database_retry=30)
    assert [str(error) for error in watch.errors] == ["the disk is full"] * 2
    require_equal(database_url, shop)


def test_tables_without_full_identity_are_followed_by_their_kept_rows(followed_url: str, database_url: str) -> None:
    run(
        followed_url,
        "CREATE SCHEMA s",
        "CREATE TABLE s.orders (id bigint PRIMARY KEY, customer integer, note text)",
        "CREATE TABLE s.customers (id integer NOT NULL UNIQUE, name text)",
        "ALTER TABLE s.customers REPLICA IDENTITY USING INDEX customers_id_key",
    )
    begin(database_url, followed_url)
    long = "md5(random()::text) || repeat(md5(random()::text), 300)"
    run(
        followed_url,
        "ALTER TABLE s.orders ALTER COLUMN note SET STORAGE EXTERNAL",
        f"INSERT INTO s.orders SELECT i, i, {long} FROM generate_series(1, 9) AS i",
        "INSERT INTO s.customers SELECT i, 'a' FROM generate_series(1, 9) AS i",
        "UPDATE s.orders SET customer = 3 WHERE id < 4",
        "UPDATE s.orders SET id = 100 WHERE id = 1",
        "UPDATE s.customers SET id = 50, name = NULL WHERE id = 2",
        "DELETE FROM s.orders WHERE id = 5",
        "DELETE FROM s.customers WHERE id < 2",
    )
    change_at_random(followed_url, random.Random(3), 20)
    follow(database_url, followed_url, records=30)
    require_equal(database_url, followed_url)


def test_the_lag_is_nothing_once_all_is_read(shop: str, database_url: str) -> None:
    feed = source.open_feed(shop)
    with closing(feed):
        assert feed.lag() is None
        feed.start(positions(database_url))
        change_at_random(shop, random.Random(1), 20)
        assert (feed.lag() or {})[feed.slot, 0] > 0
        wait_for(lambda: not feed.poll(1000, 1 << 30, 0.05) and feed.lag() == {(feed.slot, 0): 0})


def test_bad_changes_are_set_aside_with_the_statement_that_mends_them(shop: str, database_url: str) -> None:
    run(
        shop,
        "ALTER TABLE s.orders REPLICA IDENTITY DEFAULT",
        "UPDATE s.orders SET customer = 5 WHERE id = 1",
        "ALTER TABLE s.orders REPLICA IDENTITY FULL",
        "INSERT INTO s.customers VALUES (100, 'new')",
    )
    with pytest.raises(RecordError, match=r"ALTER TABLE s\.orders REPLICA IDENTITY FULL"):
        follow(database_url, shop)
    totals = follow(database_url, shop, on_error=ErrorPolicy.SET_ASIDE)
    assert (totals.dead, totals.inserted) == (1, 1)
    assert follow(database_url, shop).records == 0


def test_a_bad_change_of_a_table_that_keeps_all_values_is_kept_whole_whatever_another_masks(
    shop: str, database_url: str
) -> None:
    states.execute(database_url, "update attribute set shown_characters = 0 where column_name = 'name'")
    for table, cell in (("orders", "customer = 5"), ("customers", "name = 'hushed'")):
        run(
            shop,
            f"ALTER TABLE s.{table} REPLICA IDENTITY DEFAULT",
            f"UPDATE s.{table} SET {cell} WHERE id = 1",
            f"ALTER TABLE s.{table} REPLICA IDENTITY FULL",
        )
    assert follow(database_url, shop, on_error=ErrorPolicy.SET_ASIDE).dead == 2
    engine = make_engine(database_url, "test")
    (kept,) = dead_letters.read(engine)
    engine.dispose()
    tables = [tracked_table("s", "orders", {"id": "bigint", "customer": "integer", "note": "text"})]
    with pytest.raises(RecordError, match=r"ALTER TABLE s\.orders REPLICA IDENTITY FULL"):
        PgoutputDecoder(tables).decode(kept.record)
    assert "hushed" not in str(states.query(database_url, "select dead_letter::text from dead_letter"))


def test_a_change_that_the_server_cannot_tell_ends_the_feed_with_the_servers_words(
    shop: str, database_url: str
) -> None:
    """It can be connected to each time, and fails each time where it stands; what was before is applied once."""
    filtered = "ALTER PUBLICATION subsetd_s SET TABLE s.orders WHERE (1 / (id - 101) < 2)", "SELECT"
    without = "DROP PUBLICATION subsetd_s", "CREATE PUBLICATION subsetd_s FOR TABLE s.orders"
    has_filters = states.query(shop, "SELECT current_setting('server_version_num')::integer >= 150000")[0][0]
    before, behind = filtered if has_filters else without
    failing = "INSERT INTO s.orders VALUES (101, 1, 'it divides by zero, or is in no publication')"
    run(shop, "INSERT INTO s.orders VALUES (100, 1, 'before')", before, failing, behind)
    polled: list[int] = []
    with closing(source.open_feed(shop, retry_seconds=0.2)) as feed:
        feed.start(positions(database_url))
        with pytest.raises(FeedError, match=r"Cannot follow the .*: (division by zero|publication .* does not exist)"):
            wait_for(lambda: polled.extend(record.offset for record in feed.poll(10, 1 << 20, 0.1)))
    assert polled == [0]


def test_a_feed_that_rests_outlives_any_number_of_outages(shop: str, database_url: str) -> None:
    """It reads nothing, so that it is what it hears of its slot that ends an outage."""
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'subsetd feed s'"
    with closing(source.open_feed(shop)) as feed:
        feed.start(positions(database_url))
        for _ in range(3):
            feed.retry_seconds = 0.0
            run(shop, cut)
            wait_for(lambda: feed.rest() or feed._cursor is None)
            feed.retry_seconds = 60.0
            wait_for(lambda: feed.rest() or feed._cursor is not None)
            feed.rest()


def test_a_source_that_is_away_is_told_without_its_password() -> None:
    feed = PostgresFeed(parse_address("postgresql://me:secret@127.0.0.1:1/shop", "s"), start_timeout=0.1)
    with pytest.raises(FeedError, match=r"Cannot reach the source database 'shop' at 127\.0\.0\.1:1") as told:
        feed.start({("subsetd_s", 0): StoredPosition(0)})
    assert "secret" not in str(told.value)
    assert "secret" not in repr(feed.address)
    assert feed.address.shown == "postgresql://me@127.0.0.1:1/shop?name=s"
    assert parse_address(feed.address.shown).parameters == {
        "user": "me",
        "host": "127.0.0.1",
        "port": "1",
        "dbname": "shop",
    }


def test_a_source_that_nobody_began_to_follow_is_told_how(shop: str) -> None:
    with closing(source.open_feed(shop)) as feed, pytest.raises(FeedError, match=r"subsetd follow .* --name s"):
        feed.start({})


def test_writers_never_pause_while_the_state_is_handed_over(followed_url: str, database_url: str) -> None:
    """The slot's snapshot shows exactly the transactions that the slot does not give."""
    run(followed_url, SHOP)
    stop = threading.Event()

    def write(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            try:
                change_at_random(followed_url, rng, 5, emptied=0.01)
            except (psycopg2.errors.DeadlockDetected, psycopg2.errors.UniqueViolation):
                continue

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        wait_for(lambda: _has_begun(database_url, followed_url))
        watch = Watch()
        consuming = source.consumer(database_url, followed_url, watch=watch)
        consumer = threading.Thread(target=consuming.run, args=(stop,))
        consumer.start()
        wait_for(lambda: sum(report.counts.records for report in watch.reports) > 300)
    finally:
        stop.set()
        for thread in [*writers, consumer]:
            thread.join()
    follow(database_url, followed_url)
    require_equal(database_url, followed_url)


def _has_begun(state_url: str, source_url: str) -> bool:
    """Begin to follow; no when a TRUNCATE came in between: no snapshot survives it."""
    try:
        begin(state_url, source_url)
    except (SourceError, psycopg2.errors.DeadlockDetected):
        return False
    return True
