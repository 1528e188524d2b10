"""The index over tracked tables: its segments, what a bootstrap makes of it, what cannot be indexed."""

from __future__ import annotations

import random
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from threading import Event
from typing import Any

import psycopg2
import pytest

from service.core import join_layout, join_parts
from service.core.errors import NotFoundError, StateError
from service.join_tracking import compacting_joins, index_tables
from service.store import join_tracked_compaction, publication
from service.store.database import make_engine
from service.store.generation import NewTable
from service.store.join_tracked import COMMAND_NAME, add_tables, remove_tables
from service.store.join_tracked_compaction import COMPACTOR_NAME
from service.store.join_tracked_search import PostgresTrackedTables
from service.store.locks import JOIN_COMPACTION_LOCK, is_held
from service.store.publication import _put_tables
from service.usecases import join_tracked as join_tracking
from service.usecases.join_tracked import JoinCompactor
from service.usecases.joinable import JoinQuery, find_joinable
from tests import kept_rows, states
from tests.following import Stream, consume
from tests.histograms import bootstrap_again
from tests.integration.test_join_tracked import (
    CONTENT,
    ask,
    brute_force,
    change,
    compact,
    content,
    index,
    indexes_of,
    listed,
    require_exact,
    send,
    stream,
    told,
    truncate,
)
from tests.joinable import crowding
from tests.session_ends import held_at_ends
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["stream"]


def test_a_table_of_several_segments_is_one(database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_tracked_compaction, "SEGMENT_CELLS", 30)
    rng = random.Random(17)
    index(database_url, "s.orders", "s.customers")
    assert [one.segments for one in listed(database_url)] == [6, 4]
    for _ in range(3):
        change(stream, rng, 10)
        consume(database_url, stream)
        require_exact(database_url, stream, rng)
        compact(database_url)
        require_exact(database_url, stream, rng)


def test_rows_of_wide_tables_lie_in_small_blocks(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_layout, "BLOCK_CELLS", 7)
    rng = random.Random(23)
    index(database_url, "s.orders", "s.customers")
    of_blocks = "select distinct octet_length(row_keys) from join_row_keys order by 1"
    assert states.query(database_url, of_blocks) == [(16,), (2 * 16,)]
    require_exact(database_url, stream, rng)
    change(stream, rng, 10)
    consume(database_url, stream)
    compact(database_url)
    require_exact(database_url, stream, rng)


def test_a_search_goes_on_with_what_it_began_with(database_url: str, stream: Stream) -> None:
    index(database_url, "s.orders")
    engine = make_engine(database_url, "test", pool_size=1, max_overflow=0)
    before = brute_force(stream.tables, [("1",)], ["orders"])
    with PostgresTrackedTables(engine).snapshot() as snapshot:
        truncate(stream, "orders")
        consume(database_url, stream)
        assert told(find_joinable(snapshot, JoinQuery([["1"]]), 5)) == before
    engine.dispose()
    assert told(ask(database_url, [("1",)])) == []


def test_a_bootstrap_has_the_same_tables_indexed_anew(database_url: str, stream: Stream) -> None:
    index(database_url, "s.orders", "s.customers")
    version = ask(database_url, [("1",)]).version
    assert version is not None
    with closing(psycopg2.connect(database_url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("select source_id from source")
        ((source_id,),) = cursor.fetchall()
        new = [
            NewTable("s", "orders", (None, "s", "orders"), ("id",), None, 700),
            NewTable("s", "customers", (None, "s", "customers"), (), None, None),
        ]
        _put_tables(cursor, source_id, new, version)
        cursor.execute("update row_image set table_id = 700 where cardinality(cells) = 3")
    assert [(one.table, one.built_version, one.segments) for one in listed(database_url)] == [("s.orders", None, 0)]
    left_out = ask(database_url, [("1",)])
    assert (told(left_out), left_out.not_indexed) == ([], ["s.orders"])
    with indexes_of(database_url) as indexes:
        JoinCompactor(indexes).look()
    assert told(ask(database_url, [("1",)])) == brute_force(stream.tables, [("1",)], ["orders"])


def test_a_bootstrap_waits_for_whoever_indexes_rows_of_its_source(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it holds what readers need: what is written of an index holds the tables that the bootstrap replaces."""
    _, orders = add_tables(database_url, ["s.customers", "s.orders"])
    monkeypatch.setattr(publication, "LOCK_TIMEOUT", "1s")
    told: list[str] = []
    is_written, goes_on = Event(), Event()

    def stopping(*arguments: Any) -> None:
        put(*arguments)
        is_written.set()
        assert goes_on.wait(BOUND_SECONDS)

    put = join_tracked_compaction._put
    monkeypatch.setattr(join_tracked_compaction, "_put", stopping)
    with indexes_of(database_url) as indexes, ThreadPoolExecutor() as threads:
        indexing = threads.submit(indexes.compact, orders)
        assert is_written.wait(BOUND_SECONDS)

        def end(what: str) -> None:
            told.append(what)
            states.execute(database_url, "set local lock_timeout = '1s'; lock table gen_rec in access share mode")
            goes_on.set()
            assert indexing.result(BOUND_SECONDS)

        try:
            bootstrap_again(database_url, stream.tables, telling=end)
        finally:
            goes_on.set()
    assert told == ["waiting for the end of the indexing of rows for joins"]
    assert listed(database_url) == [], "no rows are kept any longer"


def test_what_cannot_be_indexed_is_told(database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update tracked_table set row_images = false where table_name = 'customers'")
    with pytest.raises(NotFoundError, match=r"no table 's\.nowhere' that is followed"):
        add_tables(database_url, ["s.orders", "s.nowhere"])
    with pytest.raises(StateError, match=r"s\.customers: the state does not keep its rows.*--row-images always"):
        add_tables(database_url, ["s.orders", "s.customers"])
    assert listed(database_url) == []
    with pytest.raises(NotFoundError, match="join-index track"):
        ask(database_url, [("1",)])
    index(database_url, "s.orders")
    index(database_url, "s.orders")
    assert [one.table for one in listed(database_url)] == ["s.orders"]


def test_the_log_is_folded_when_it_is_long_or_old(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(database_url, "s.orders")
    send(stream, "orders", None, ["1", "ada", "bob"])
    consume(database_url, stream)
    with indexes_of(database_url) as indexes:
        compactor = JoinCompactor(indexes)
        compactor.look()
        assert listed(database_url)[0].changed == 1
        monkeypatch.setattr(join_tracking, "MOST_LOOKS", 2)
        compactor.look()
        assert listed(database_url)[0].changed == 0
        send(stream, "orders", None, ["2", "ada", "bob"])
        consume(database_url, stream)
        compactor.look()
        assert listed(database_url)[0].changed == 1
        monkeypatch.setattr(join_tracking, "MOST_CHANGED", 0)
        compactor.look()
        assert listed(database_url)[0].changed == 0


def test_a_table_whose_values_crowd_a_bucket_is_indexed_and_those_behind_one_that_cannot_be_are(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = crowding(300, 5)
    tables = Tables({"orders": ["id", "note"], "customers": ["id", "note"]})
    tables.add("orders", *([str(number), text] for number, text in enumerate(texts)))
    tables.add("customers", ["1", texts[0]])
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"orders": ["id"], "customers": ["id"]})
    add_tables(database_url, ["s.orders", "s.customers"])
    with indexes_of(database_url) as indexes:
        with monkeypatch.context() as patched:
            patched.setattr(join_parts, "MOST_BITS", 5)
            with pytest.raises(StateError, match=r"s\.orders cannot be indexed for joins: \d+ values in a bucket"):
                JoinCompactor(indexes).look()
        left_out = ask(database_url, [(texts[0],)])
        assert (told(left_out), left_out.not_indexed) == ([("s.customers", ("note",), 1)], ["s.orders"])
        JoinCompactor(indexes).look()
    assert told(ask(database_url, [(texts[0],), (texts[7],)])) == [
        ("s.orders", ("note",), 2), ("s.customers", ("note",), 1)
    ]  # fmt: skip


def test_whoever_has_indexed_a_table_lets_the_next_one_do_so_at_once(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the server has noticed that the session has ended."""
    (table_id,) = add_tables(database_url, ["s.orders"])
    held = held_at_ends(
        monkeypatch, join_tracked_compaction, database_url, is_held(JOIN_COMPACTION_LOCK, str(table_id))
    )
    with indexes_of(database_url) as indexes:
        assert indexes.compact(table_id)
    assert held == [False, False], "at the ends of the lock's session and of the other"


def test_while_a_table_is_indexed_the_log_of_another_is_folded(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes minutes for a large one, in which the log of a busy one would come to be slow to read."""
    index(database_url, "s.customers")
    send(stream, "customers", None, ["1", "ada", "bob", None])
    consume(database_url, stream)
    (table_id,) = add_tables(database_url, ["s.orders"])
    real = join_tracked_compaction._put
    folded: list[bool] = []

    def meddling(*values: Any) -> None:
        real(*values)
        if not folded:
            folded.append(False)
            with indexes_of(database_url) as others:
                (customers,) = (one.table_id for one in others.backlog() if one.changed)
                folded[0] = others.compact(customers)

    monkeypatch.setattr(join_tracked_compaction, "_put", meddling)
    with indexes_of(database_url) as indexes:
        assert indexes.compact(table_id)
    assert folded == [True]
    assert [(one.built_version is None, one.changed) for one in listed(database_url)] == [(False, 0), (False, 0)]


def test_a_table_that_is_being_indexed_is_untracked_when_it_is_and_batches_do_not_wait(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    (table_id,) = add_tables(database_url, ["s.orders"])
    real = join_tracked_compaction._put
    removing: list[Future[None]] = []
    waits = (
        "select from pg_locks join pg_stat_activity using (pid) "
        f"where not granted and datname = current_database() and application_name = '{COMMAND_NAME}'"
    )

    def meddling(*values: Any) -> None:
        real(*values)
        removing.append(other.submit(remove_tables, database_url, ["s.orders"]))
        wait_for(lambda: states.query(database_url, waits) != [])
        states.execute(database_url, "lock table join_tracked in row exclusive mode nowait")  # as each batch does

    monkeypatch.setattr(join_tracked_compaction, "_put", meddling)
    with ThreadPoolExecutor(1) as other, indexes_of(database_url) as indexes:
        assert indexes.compact(table_id)
        removing[0].result(BOUND_SECONDS)
    assert listed(database_url) == []


def test_whoever_stops_to_follow_does_not_wait_until_a_table_is_indexed(database_url: str, stream: Stream) -> None:
    """A large one takes minutes. Here it would take for ever."""
    add_tables(database_url, ["s.orders", "s.customers"])
    waits = (
        "select from pg_locks join pg_stat_activity using (pid) "
        f"where not granted and datname = current_database() and application_name = '{COMPACTOR_NAME}'"
    )

    def follow() -> None:
        with compacting_joins(database_url):
            wait_for(lambda: states.query(database_url, waits) != [])

    with ThreadPoolExecutor(1) as other, psycopg2.connect(database_url) as connection:
        connection.cursor().execute("lock table row_image in access exclusive mode")
        other.submit(follow).result(BOUND_SECONDS)
    assert [one.built_version for one in listed(database_url)] == [None, None]


def test_a_table_that_is_untracked_before_it_is_its_turn_is_told(database_url: str, stream: Stream) -> None:
    built = index_tables(database_url, ["s.orders", "s.customers"])
    assert next(built).table == "s.orders"
    remove_tables(database_url, ["s.customers"])
    with pytest.raises(StateError, match=r"s\.customers was untracked while"):
        next(built)


def test_a_table_that_others_hold_for_longer_than_a_lock_timeout_is_come_back_to(
    database_url: str, stream: Stream
) -> None:
    """The timeout is the role's or the database's; the holders are a bootstrap's last commit, or VACUUM FULL."""
    (table_id,) = add_tables(database_url, ["s.orders"])
    with (
        indexes_of(f"{database_url}&options=-c%20lock_timeout%3D20ms") as indexes,
        closing(psycopg2.connect(database_url)) as other,
    ):
        other.cursor().execute("lock table join_segment in access exclusive mode")
        assert not indexes.compact(table_id)
        with pytest.raises(StateError, match="hold its locks, again and again"):
            join_tracking.build(indexes, table_id)
        other.rollback()
        assert indexes.compact(table_id)


def test_a_table_that_is_no_more_takes_its_index_with_it(database_url: str, stream: Stream) -> None:
    index(database_url, "s.orders")
    states.execute(database_url, "delete from tracked_table where table_name = 'orders'")
    assert content(database_url) == {table: [] for table in CONTENT}
