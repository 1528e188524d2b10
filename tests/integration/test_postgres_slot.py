"""What a followed Postgres keeps for its feed: it may forget what the state holds; a slot that is lost is told."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from service.core.errors import FeedError
from service.core.model import StoredPosition
from service.observe import ConsumerObserver
from service.store.embedded import EmbeddedPostgres
from service.stream import postgres_feed
from tests import postgres_following as source
from tests import states
from tests.in_memory import IN_MEMORY
from tests.postgres_following import SHOP, begin, follow, positions, require_equal, run, shop, slot, stored
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["shop"]


def test_an_idle_feed_lets_the_server_forget_no_more_than_the_state_holds(
    shop: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is started, and cut off, while the log goes on without it, on a machine that is busy."""
    require_nothing_forgotten(shop, shop, database_url, monkeypatch)


def test_an_idle_feed_of_a_source_with_synchronous_standbys_lets_it_forget_no_more_than_the_state_holds(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a server pings for each transaction that has nothing for the feed, so that nobody waits for it."""
    settings = {
        "wal_level": "logical", "max_wal_senders": "10", "synchronous_commit": "on",
        "synchronous_standby_names": "nobody",
    }  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="subsetd-synchronous-", dir=IN_MEMORY))
    with EmbeddedPostgres(folder, True, settings) as server:
        writing = f"{server.url}&options=-csynchronous_commit%3Dlocal"
        run(writing, SHOP)
        begin(database_url, writing)
        require_nothing_forgotten(server.url, writing, database_url, monkeypatch)


def require_nothing_forgotten(shop: str, writing: str, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a feed idle while other tables are written, at `writing`; fail if its slot comes to be ahead of the state."""
    emit_mark = postgres_feed.emit_mark

    def emit_late(cursor: Any) -> int:
        time.sleep(0.3)
        return emit_mark(cursor)

    monkeypatch.setattr(postgres_feed, "emit_mark", emit_late)
    monkeypatch.setattr(postgres_feed, "FEEDBACK_SECONDS", 1.0)
    elsewhere = "CREATE TABLE elsewhere (id integer)"
    run(writing, elsewhere, "SET synchronous_commit = off; INSERT INTO elsewhere VALUES (1)")
    _, position = stored(database_url)
    for _ in range(2):
        with closing(source.open_feed(shop)) as feed:
            feed.start(positions(database_url))
            for _ in range(2):
                began = time.monotonic()
                while time.monotonic() < began + 2.5:
                    assert not feed.poll(10, 1 << 20, 0.1)
                    run(writing, "INSERT INTO elsewhere VALUES (2)")
                assert slot(shop) <= position["end_lsn"]
                run(shop, "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid > 0")
    run(writing, "INSERT INTO s.orders VALUES (100, 1, 'next')")
    follow(database_url, shop)
    require_equal(database_url, shop)


def test_the_server_is_told_what_the_state_holds_and_no_more(shop: str, database_url: str) -> None:
    run(shop, "INSERT INTO s.orders VALUES (100, 1, 'first')")
    begun = slot(shop)
    feed = source.open_feed(shop, transaction_wait_seconds=BOUND_SECONDS)
    with closing(feed):
        feed.start(positions(database_url))
        records = wait_for(lambda: feed.poll(10, 1 << 20, 0.1))
        assert len(records) == 1
        at = feed.positions()
        kept = feed.source_positions(at)[feed.slot, 0]
        assert slot(shop) == begun
        feed.committed(at)
        wait_for(lambda: slot(shop) > begun)
        assert slot(shop) < kept["end_lsn"]


def test_an_idle_feed_lets_the_server_forget_the_log_of_others(shop: str, database_url: str) -> None:
    run(shop, "CREATE TABLE public.noise (x text)")
    begun, feed = slot(shop), source.open_feed(shop)
    with closing(feed):
        feed.start(positions(database_url))
        for _ in range(3):
            run(shop, "INSERT INTO public.noise SELECT repeat(md5(i::text), 20) FROM generate_series(1, 2000) AS i")
        feed._next_look = 0.0

        def beat() -> list[Any]:
            feed._next_look = 0.0
            return list(feed.poll(10, 1 << 20, 0.05))

        (record,) = wait_for(beat)
        assert (record.value, record.offset) == (None, 0)
        at = feed.positions()
        kept = feed.source_positions(at)[feed.slot, 0]
        assert slot(shop) == begun, "it is stored first"
        feed.committed(at)
        wait_for(lambda: slot(shop) - begun > 1 << 20)
        run(shop, "INSERT INTO s.orders VALUES (100, 1, 'next')")
        (change,) = wait_for(lambda: feed.poll(10, 1 << 20, 0.1))
        assert change.offset == 1
    again = source.open_feed(shop)
    with closing(again):
        again.start({(feed.slot, 0): StoredPosition(1, kept)})
        (repeated,) = wait_for(lambda: again.poll(10, 1 << 20, 0.1))
        assert repeated[:5] == change[:5]


def test_a_slot_that_holds_back_the_log_is_warned_of_and_measured(
    shop: str, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    observer = ConsumerObserver(registry := CollectorRegistry())
    feed = source.open_feed(shop, slot_warning_bytes=1, tell_held_back=observer.slot_holds_back)
    with closing(feed):
        feed.start(positions(database_url))
        feed.rest()
        feed.rest()
        measured = slot(shop, "(pg_current_wal_lsn() - restart_lsn)::bigint")
    assert 0 < (registry.get_sample_value("subsetd_slot_held_back_bytes") or 0) <= measured
    assert capsys.readouterr().out.count("slot holds back log") == 1


@pytest.mark.parametrize(
    ("done", "said"),
    [
        ("select pg_drop_replication_slot('subsetd_s')", "has no slot subsetd_s: it was dropped"),
        (
            "insert into s.orders values (77); select pg_replication_slot_advance('subsetd_s', pg_current_wal_lsn())",
            "it was moved or made anew",
        ),
        (
            "select pg_drop_replication_slot('subsetd_s');"
            "select pg_create_logical_replication_slot('subsetd_s', 'pgoutput')",
            "it was moved or made anew",
        ),
        ("drop publication subsetd_s", "has no publication subsetd_s"),
    ],
    ids=["dropped", "moved", "made anew", "no publication"],
)
def test_a_slot_that_is_not_what_it_was_stops_the_feed(shop: str, database_url: str, done: str, said: str) -> None:
    follow(database_url, shop)
    # The server lets go of a slot a moment after its reader has gone.
    let_go = "select 1 from pg_replication_slots where slot_name = 'subsetd_s' and not active"
    wait_for(lambda: states.query(shop, let_go))
    run(shop, *done.split(";"))
    with pytest.raises(FeedError, match=said) as told:
        follow(database_url, shop)
    assert "--name s --replace" in str(told.value)


def test_a_slot_in_use_names_the_session(shop: str, database_url: str) -> None:
    feed = source.open_feed(shop)
    with closing(feed):
        feed.start(positions(database_url))
        pid = slot(shop, "active_pid")
        with closing(source.open_feed(shop, start_timeout=0.2)) as second, pytest.raises(FeedError, match=f"PID {pid}"):
            second.start(positions(database_url))
