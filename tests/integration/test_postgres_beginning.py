"""What is told before a Postgres is followed: what it lacks, and what changes while it is read."""

from __future__ import annotations

import re
from contextlib import closing
from threading import Event, Timer
from time import sleep

import psycopg2
import pytest
from prometheus_client import CollectorRegistry

from service.config import Settings
from service.core.errors import FeedError, RecordError, SourceError
from service.core.sql_names import KEYWORDS
from service.feed_wiring import (
    drop_attributes,
    feed_address,
    is_followed,
    make_consumer,
    new_postgres_feed,
    rename_attribute,
)
from service.observe import ConsumerObserver
from service.store.embedded import EmbeddedPostgres
from service.store.feed_start import FeedStart, put_feed_start
from service.store.preflight_facts import read_source_facts
from service.store.source_reader import PageRange, SourceSnapshot, read_pages
from service.stream.postgres_address import parse_address
from service.stream.postgres_slot import drop, new_slot
from tests import states
from tests.postgres import fresh_database
from tests.postgres_following import NAME, SHOP, begin, follow, require_equal, run

TWO_TABLES = [("s", "customers"), ("s", "orders")]


@pytest.mark.parametrize(
    ("prepared", "said"),
    [
        (
            "alter table s.orders drop constraint orders_pkey; alter table s.orders replica identity default",
            "ALTER TABLE s.orders REPLICA IDENTITY FULL;",
        ),
        ("alter table s.orders replica identity nothing", "ALTER TABLE s.orders REPLICA IDENTITY FULL;"),
        (
            "alter table s.orders drop constraint orders_pkey; alter table s.orders replica identity default; "
            "alter table s.orders add primary key (id) deferrable",
            "ALTER TABLE s.orders REPLICA IDENTITY FULL;",
        ),
        (
            "create unique index told_by on s.orders (id); alter table s.orders replica identity using index told_by; "
            "drop index s.told_by",
            "ALTER TABLE s.orders REPLICA IDENTITY FULL;",
        ),
        (
            "alter table s.orders add twice integer generated always as (customer * 2) virtual",
            "ALTER TABLE s.orders REPLICA IDENTITY DEFAULT;",
        ),
        (
            "alter table s.orders add twice integer generated always as (customer * 2) virtual; "
            "alter table s.orders replica identity nothing",
            "ALTER TABLE s.orders REPLICA IDENTITY USING INDEX UNIQUE_INDEX;",
        ),
        ("alter table s.orders set unlogged", "ALTER TABLE s.orders SET LOGGED"),
        (
            "drop table s.orders; create table s.orders (id bigint) partition by range (id); "
            "create foreign data wrapper away; create server away foreign data wrapper away; "
            "create foreign table s.far partition of s.orders for values from (0) to (9) server away",
            "foreign tables are not told by Postgres: s.far. Detach them from the tables that they are partitions of, "
            "or leave these out: --exclude s.orders",
        ),
    ],
    ids=["no key", "nothing", "deferrable", "no index", "virtual", "virtual, nothing", "unlogged", "foreign"],
)
def test_a_table_that_cannot_be_followed_is_told_before_anything_is_made(
    followed_url: str, prepared: str, said: str
) -> None:
    if "virtual" in prepared and states.query(followed_url, "show server_version_num")[0][0] < "18":
        pytest.skip("this server does not have them")
    run(followed_url, SHOP, *prepared.split(";"))
    with pytest.raises(FeedError) as told, new_slot(parse_address(followed_url, "s"), TWO_TABLES, replace=False):
        pass
    assert said in str(told.value)
    assert states.query(followed_url, "select count(*) from pg_publication") == [(0,)]


def test_tables_whose_names_are_keywords_are_published(followed_url: str) -> None:
    keywords = states.query(followed_url, "select word from pg_get_keywords() where catcode in ('R', 'T')")
    assert {word for (word,) in keywords} <= KEYWORDS
    run(followed_url, 'CREATE SCHEMA "order"', 'CREATE TABLE "order"."user" (id integer PRIMARY KEY)')
    with new_slot(parse_address(followed_url, "s"), [("order", "user")], replace=False) as start:
        assert start.snapshot


def test_each_missing_privilege_is_named_with_its_grant(followed_url: str) -> None:
    run(followed_url, SHOP, "drop role if exists plain", "create role plain login")
    try:
        database = states.query(followed_url, "select current_database()")[0][0]
        address = parse_address(followed_url.replace("postgres@", "plain@"), "s")
        for missing, granted in [
            (f"GRANT CREATE ON DATABASE {database} TO plain", f"grant create on database {database} to plain"),
            ("GRANT USAGE ON SCHEMA s TO plain", "grant usage on schema s to plain"),
            ("GRANT postgres TO plain", "alter table s.orders owner to plain; alter table s.customers owner to plain"),
            (
                "ALTER ROLE plain WITH REPLICATION (on Amazon RDS: GRANT rds_replication TO plain)",
                "alter role plain with replication",
            ),
        ]:
            with pytest.raises(FeedError) as told, new_slot(address, TWO_TABLES, replace=False):
                pass
            assert missing in str(told.value)
            run(followed_url, *granted.split(";"))
        with new_slot(address, TWO_TABLES, replace=False) as start:
            assert start.snapshot
        assert drop(address)
        assert not drop(address)
    finally:
        run(followed_url, "drop owned by plain cascade", "drop role plain")


def test_a_server_without_logical_decoding_is_told_what_to_set(database_url: str) -> None:
    run(database_url, SHOP)
    making = new_slot(parse_address(database_url, "s"), TWO_TABLES, replace=False)
    with pytest.raises(FeedError, match="ALTER SYSTEM SET wal_level = logical"), making:
        pass


def set_for_all(url: str, setting: str) -> None:
    """Let every session that the database has from now on begin with a setting."""
    run(url, f"ALTER DATABASE {states.query(url, 'select current_database()')[0][0]} SET {setting}")


def test_names_are_read_whatever_sessions_begin_with(followed_url: str) -> None:
    set_for_all(followed_url, "standard_conforming_strings = off")
    set_for_all(followed_url, "quote_all_identifiers = on")
    run(followed_url, "CREATE SCHEMA pgboss", "CREATE TABLE pgboss.jobs (host inet, data jsonb)")
    with closing(SourceSnapshot(followed_url)) as snapshot:
        assert [(table.schema, table.columns) for table in snapshot.tables()] == [
            ("pgboss", (("host", "inet"), ("data", "jsonb")))
        ]
    assert [str(table) for table in read_source_facts(followed_url).tables] == ["pgboss.jobs"]
    with closing(parse_address(followed_url, "s").connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT format_type('inet'::regtype, NULL), 'pgboss' LIKE 'pg\\_%'")
        assert cursor.fetchone() == ("inet", False)


def test_a_slot_waits_for_transactions_and_keeps_its_snapshot_whatever_sessions_begin_with(followed_url: str) -> None:
    run(followed_url, SHOP)
    set_for_all(followed_url, "lock_timeout = '200ms'")
    if states.query(followed_url, "show server_version_num")[0][0] >= "17":
        set_for_all(followed_url, "transaction_timeout = '3s'")
    with closing(psycopg2.connect(followed_url)) as writing, writing.cursor() as cursor:
        cursor.execute("INSERT INTO s.customers VALUES (99, 'new')")
        ended = Timer(2, writing.rollback)
        ended.start()
        with new_slot(parse_address(followed_url, "s"), TWO_TABLES, replace=False) as start:
            ended.join()
            sleep(4)
            with closing(SourceSnapshot(followed_url, start.snapshot)) as snapshot:
                assert snapshot.exported


def test_what_was_made_is_dropped_when_the_bootstrap_fails(followed_url: str) -> None:
    run(followed_url, SHOP)
    with pytest.raises(ZeroDivisionError), new_slot(parse_address(followed_url, "s"), TWO_TABLES, replace=False):
        raise ZeroDivisionError
    for catalog in ("pg_publication", "pg_replication_slots where database = current_database()"):
        assert states.query(followed_url, f"select count(*) from {catalog}") == [(0,)]


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_slot_from_which_the_state_begins_stays_though_what_follows_fails(
    followed_url: str, database_url: str, has_begun: bool
) -> None:
    """Behind a bootstrap's commit it only tidies up; the position that a slot before had is none of this one's."""
    run(followed_url, SHOP)
    begin(database_url, followed_url)

    def fail_behind_the_beginning() -> None:
        with new_postgres_feed(database_url, followed_url, NAME, (), replace=True) as told:
            start = FeedStart.parse(next(one for one in told if "feed-start" in one).partition("=")[2])
            with closing(psycopg2.connect(database_url)) as connection, connection, connection.cursor() as cursor:
                if has_begun:
                    put_feed_start(cursor, start, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_behind_the_beginning()
    slots = "select count(*) from pg_replication_slots where database = current_database()"
    assert states.query(followed_url, slots) == [(int(has_begun),)]
    if has_begun:
        run(followed_url, "INSERT INTO s.customers VALUES (99, 'new')")
        follow(database_url, followed_url)
        require_equal(database_url, followed_url)


def test_a_slot_of_somebody_else_is_not_taken(followed_url: str, database_url: str) -> None:
    run(followed_url, SHOP)
    begin(database_url, followed_url)
    making = new_slot(parse_address(followed_url, "s"), TWO_TABLES, replace=False)
    with pytest.raises(FeedError, match="has a slot subsetd_s already"), making:
        pass


@pytest.mark.parametrize("replace", [False, True])
def test_a_slot_of_another_database_of_the_cluster_stays(
    followed_url: str, logical_server: EmbeddedPostgres, replace: bool
) -> None:
    run(followed_url, SHOP)
    with fresh_database(logical_server, "template0") as other_url:
        run(other_url, SHOP)
        other = parse_address(other_url, "s")
        with new_slot(parse_address(followed_url, "s"), TWO_TABLES, replace=False):
            with pytest.raises(FeedError, match="another --name"), new_slot(other, TWO_TABLES, replace=replace):
                pass
            assert not drop(other), "not even the publication was left"
    slots = "select slot_name from pg_replication_slots where database = current_database()"
    assert states.query(followed_url, slots) == [("subsetd_s",)]


def test_a_table_that_is_gone_is_told_with_what_lets_the_feed_begin(followed_url: str, database_url: str) -> None:
    run(followed_url, SHOP, "CREATE TABLE s.notes (id integer PRIMARY KEY)")
    begin(database_url, followed_url)
    run(followed_url, "DROP TABLE s.notes", "ALTER TABLE s.orders RENAME TO purchases")
    with pytest.raises(FeedError, match="tables no longer that are followed") as refused:
        is_followed(database_url, followed_url, NAME)
    drop, *_, rename = [command.split() for command in re.findall("`subsetd attribute (.*?)`", str(refused.value))]
    assert (drop, rename) == (["drop", "s.notes", "--force"], ["rename", "s.orders", "NEW"])
    drop_attributes(database_url, "s.notes", force=True, telling=print)
    rename_attribute(database_url, "s.orders", "s.purchases", print)
    assert is_followed(database_url, followed_url, NAME)
    run(followed_url, "INSERT INTO s.purchases VALUES (31, 1, NULL)")
    follow(database_url, followed_url)
    counted = "select distinct row_count from attribute where table_name = 'purchases'"
    assert states.query(database_url, counted) == [(31,)]
    run(followed_url, "ALTER PUBLICATION subsetd_s DROP TABLE s.purchases")
    with pytest.raises(FeedError, match=r"ALTER PUBLICATION subsetd_s ADD TABLE s\.purchases"):
        is_followed(database_url, followed_url, NAME)


def test_a_renamed_table_is_waited_for_where_unknown_tables_are_refused(followed_url: str, database_url: str) -> None:
    run(followed_url, SHOP)
    begin(database_url, followed_url)
    run(followed_url, "ALTER TABLE s.orders RENAME TO sales", "INSERT INTO s.sales VALUES (31, 1, NULL)")
    settings, observer = Settings(unknown_tables="refuse"), ConsumerObserver(CollectorRegistry())
    consumer = make_consumer(database_url, feed_address(followed_url, NAME), settings, observer)
    with pytest.raises(RecordError, match=r"`subsetd attribute rename OLD s\.sales`"):
        consumer.run(Event(), until_end=True)
    rename_attribute(database_url, "s.orders", "s.sales", print)
    follow(database_url, followed_url)
    require_equal(database_url, followed_url)


def test_a_table_that_is_emptied_while_it_is_read_is_noticed(followed_url: str) -> None:
    run(followed_url, SHOP)
    with closing(SourceSnapshot(followed_url)) as snapshot:
        tables = snapshot.tables()
        snapshot.require_unbroken(tables)
        run(followed_url, "TRUNCATE s.orders")
        with pytest.raises(SourceError, match=r"s\.orders: truncated"):
            snapshot.require_unbroken(tables)


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("ALTER TABLE s.kept ALTER a TYPE timestamptz", "a"),
        ("ALTER TABLE s.kept RENAME a TO z; ALTER TABLE s.kept RENAME b TO a; ALTER TABLE s.kept RENAME z TO b", "a"),
        ("ALTER TABLE s.kept DROP a, ADD a timestamp", "a"),
        ("ALTER TABLE s.kept ALTER c TYPE text, ADD d text, DROP b", None),
    ],
)
def test_a_column_that_is_another_while_it_is_read_is_noticed(
    followed_url: str, statement: str, changed: str | None
) -> None:
    """None of these gives the table new files."""
    run(followed_url, "CREATE SCHEMA s", "CREATE TABLE s.kept (a timestamp, b timestamp, c varchar(5))")
    with closing(SourceSnapshot(followed_url)) as snapshot:
        tables = snapshot.tables()
        run(followed_url, "SET timezone = 'UTC'; " + statement)
        if changed is None:
            snapshot.require_unbroken(tables)
            return
        with pytest.raises(SourceError, match=rf"s\.kept\.{changed}.*another name or type.*run the same command again"):
            snapshot.require_unbroken(tables)


@pytest.mark.parametrize("statement", ["DROP TABLE s.orders", "ALTER TABLE s.orders DROP note"])
def test_a_table_that_is_changed_before_it_is_read_is_told(followed_url: str, statement: str) -> None:
    run(followed_url, SHOP)
    with closing(SourceSnapshot(followed_url)) as snapshot:
        (orders,) = [table for table in snapshot.tables() if table.name == "orders"]
        run(followed_url, statement)
        pages = PageRange("s", "orders", 0, None)
        with pytest.raises(SourceError, match=r"s\.orders on .*was changed while it was read.*run the same command"):
            read_pages(followed_url, snapshot.exported, pages, orders.columns)
