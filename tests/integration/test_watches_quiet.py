"""Watches that keep quiet: until a transaction or a load has ended, and while somebody silences them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from service.core.errors import NotFoundError
from service.store.watch_looks import LOADING
from service.usecases.watches import AlertState, Channel, ChannelKind
from tests import states
from tests.following import Stream, consume
from tests.integration.test_watch_delivery import deliver
from tests.integration.test_watches import BROKEN, LATER, MENDED, break_it, engine, mend_it, stream, watching
from tests.waiting import BOUND_SECONDS
from tests.watching import Receiver, Watching, channels_to, new_watch, pair_rule, receiving

__all__ = ["engine", "stream", "watching"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_a_transaction_that_is_only_half_there_is_waited_for_but_not_for_ever(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    halved = "update state_version set transaction_consistent = false where version > 1"
    watching.watches.add(new_watch(pair_rule()))
    watching.look()
    break_it(database_url, stream)
    states.execute(database_url, halved)
    assert watching.look(20) == []
    mend_it(database_url, stream)
    assert watching.look(20) == [], "it ended where it began"
    break_it(database_url, stream)
    states.execute(database_url, halved)
    assert watching.look(20) == []
    assert watching.look(59) == []
    assert watching.look(1) == [BROKEN], "nothing of it has come for a minute"


def test_what_stood_before_a_transaction_does_not_wait_for_it_to_be_whole(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    """A source that commits a large transaction every 25 s would have every wait of 30 s begin anew for ever."""
    watching.watches.add(new_watch(pair_rule(), debounce=30))
    break_it(database_url, stream)
    assert watching.look() == []
    stream.change("customers", None, ["3", "Eve"])
    consume(database_url, stream)
    states.execute(database_url, "update state_version set transaction_consistent = false where version > 2")
    assert watching.look(25) == []
    assert watching.look(5) == [BROKEN]


def test_with_dead_letters_no_version_is_whole_and_watches_tell_all_the_same(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    break_it(database_url, stream)
    states.execute(
        database_url,
        "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version) "
        "select feed, 't', 0, 1, 'RecordError', '', '', 1 from state_version where version = 2;"
        "update state_version set transaction_consistent = false where version = 2",
    )
    assert watching.look() == [BROKEN]


@pytest.mark.parametrize("table", ["orders", None])
def test_an_announced_load_is_waited_for(
    database_url: str, stream: Stream, watching: Watching, table: str | None
) -> None:
    watching.watches.add(new_watch(pair_rule(), debounce=5))
    load = watching.watches.announce("s", table, datetime.now(UTC) + LATER, False, "Ada")
    break_it(database_url, stream)
    assert watching.look() == []
    assert watching.look(500) == []
    watching.watches.end_load(load.load_id)
    assert watching.look() == []
    assert watching.look(5) == [BROKEN]
    assert [one.is_active for one in watching.watches.loads()] == [False]
    with pytest.raises(NotFoundError, match="No load 1 is waited for"):
        watching.watches.end_load(load.load_id)


def test_a_load_of_another_table_is_not_waited_for(database_url: str, stream: Stream, watching: Watching) -> None:
    stream.change("orders", None, ["12", "1", "x"])
    watching.watches.add(new_watch(pair_rule("s.orders.customer", "s.customers.id")))
    with pytest.raises(NotFoundError, match=r"No table s\.nothing is followed"):
        watching.watches.announce("s", "nothing", datetime.now(UTC) + LATER, False, "Ada")
    states.execute(
        database_url,
        "insert into announced_load (schema_name, table_name, until, until_loaded, bootstrapped_version, created_by) "
        "values ('s', 'invoices', now() + interval '1 hour', false, 1, 'Ada'), "
        "('s', 'orders', now() - interval '1 hour', false, 1, 'Ada')",
    )
    break_it(database_url, stream)
    assert watching.look() == [BROKEN]


def test_a_load_until_loaded_ends_with_the_bootstrap_of_its_source(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    watching.watches.announce("s", None, datetime.now(UTC) + LATER, True, "Ada")
    break_it(database_url, stream)
    assert watching.look(60) == []
    states.execute(database_url, "update source set bootstrapped_version = 2")
    assert watching.look() == [BROKEN]


def test_a_load_until_loaded_waits_for_each_source_of_its_schema(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    load = watching.watches.announce("s", None, datetime.now(UTC) + LATER, True, "Ada")
    break_it(database_url, stream)
    states.execute(
        database_url,
        "insert into source (name, kind, location, insert_only, bootstrapped_version) "
        "values ('other', 'csv', '-', false, 2); "
        "update attribute set source_id = currval('source_source_id_seq') where table_name = 'customers'",
    )
    assert watching.look(60) == []
    assert [one.is_active for one in watching.watches.loads()] == [True]
    assert states.query(database_url, LOADING) == [("s", "orders")]
    states.execute(database_url, "update source set bootstrapped_version = 3 where name = 's'")
    assert watching.look() == [BROKEN]
    with pytest.raises(NotFoundError):
        watching.watches.end_load(load.load_id)


def test_a_source_that_catches_up_and_a_connectors_snapshot_are_waited_for(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    states.execute(database_url, "insert into feed_catch_up select 'f', 't', 0, source_id, 9 from source")
    break_it(database_url, stream)
    assert watching.look(60) == []
    states.execute(
        database_url,
        "delete from feed_catch_up; insert into feed_position (feed, topic, partition, next_offset, source_position, "
        "version) values ('f', 'x.s.orders', 0, 1, '{\"snapshot\": \"incremental\"}', 2)",
    )
    assert watching.look() == []
    assert watching.look(59) == []
    assert watching.look(1) == [BROKEN], "a snapshot that stands still for a minute holds nothing back"


def test_a_silence_keeps_an_alert_in_the_history_and_gives_it_back_at_its_end(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    made = watching.watches.add(new_watch(pair_rule()))
    silence = watching.watches.silence(None, "s.orders.*", datetime.now(UTC) + LATER, "a planned load", "Ada")
    watching.watches.silence(made.watch_id, None, datetime.now(UTC) - LATER, "past", "Ada")
    break_it(database_url, stream)
    assert watching.look() == [BROKEN]
    assert watching.alerts()[0].state is AlertState.SILENCED
    assert watching.look(60) == []
    watching.watches.end_silence(silence.silence_id)
    assert watching.look() == [BROKEN]
    assert watching.alerts()[0].state is AlertState.PENDING
    watching.watches.silence(made.watch_id, None, datetime.now(UTC) + LATER, "again", "Ada")
    mend_it(database_url, stream)
    break_it(database_url, stream)
    assert [one.state for one in watching.alerts()] == [AlertState.PENDING, AlertState.SILENCED]
    watching.look()
    assert [one.is_active for one in watching.watches.silences()] == [True, False, False]
    with pytest.raises(NotFoundError, match="No silence 1 is in force"):
        watching.watches.end_silence(silence.silence_id)


@pytest.mark.parametrize("pattern", [None, "w", "s.orders.*"])
def test_a_silence_holds_back_what_was_not_sent_yet_and_gives_back_what_still_stands(
    database_url: str, stream: Stream, watching: Watching, receiver: Receiver, pattern: str | None
) -> None:
    made = watching.watches.add(new_watch(pair_rule(), channel=Channel(ChannelKind.WEBHOOK, receiver.url)))
    watching.watches.silence(None, "s.customers.name", datetime.now(UTC) + LATER, "another column's", "Ada")
    break_it(database_url, stream)
    receiver.answer = lambda: (500, {})
    with closing(watching.sender(channels_to())) as sender:
        deliver(watching, sender)
        receiver.answer = lambda: (204, {})
        of_watch = made.watch_id if pattern is None else None
        silence = watching.watches.silence(of_watch, pattern, datetime.now(UTC) + LATER, "known", "Ada")
        deliver(watching, sender)
        assert [(one.state, one.attempts) for one in watching.alerts()] == [(AlertState.SILENCED, 1)]
        watching.watches.test(made.watch_id)
        deliver(watching, sender)
        watching.watches.end_silence(silence.silence_id)
        deliver(watching, sender)
        mend_it(database_url, stream)
        deliver(watching, sender)
    assert [message["kind"] for _, _, message in receiver.requests] == ["fired", "test", "fired", "resolved"]
    assert [one.state for one in watching.alerts()] == [AlertState.DELIVERED] * 3 + [AlertState.SILENCED]


def test_what_is_on_its_way_when_it_is_silenced_is_told_once(
    database_url: str, stream: Stream, watching: Watching, receiver: Receiver
) -> None:
    made = watching.watches.add(new_watch(pair_rule(), channel=Channel(ChannelKind.WEBHOOK, receiver.url)))
    break_it(database_url, stream)
    watching.look()
    is_silenced = threading.Event()
    receiver.answer = lambda: (204 if is_silenced.wait(BOUND_SECONDS) else 500, {})
    with closing(watching.sender(channels_to())) as sender:
        sender.look()
        silence = watching.watches.silence(made.watch_id, None, datetime.now(UTC) + LATER, "known", "Ada")
        sender.look()
        is_silenced.set()
        deliver(watching, sender)
        assert [one.state for one in watching.alerts()] == [AlertState.DELIVERED]
        watching.watches.end_silence(silence.silence_id)
        deliver(watching, sender)
    assert len(receiver.requests) == 1


def test_that_something_is_over_is_told_when_the_silence_ends(
    database_url: str, stream: Stream, watching: Watching, receiver: Receiver
) -> None:
    made = watching.watches.add(new_watch(pair_rule(), channel=Channel(ChannelKind.WEBHOOK, receiver.url)))
    break_it(database_url, stream)
    with closing(watching.sender(channels_to())) as sender:
        deliver(watching, sender)
        mend_it(database_url, stream)
        assert watching.look() == [MENDED]
        silence = watching.watches.silence(made.watch_id, None, datetime.now(UTC) + LATER, "known", "Ada")
        deliver(watching, sender)
        assert len(receiver.requests) == 1
        watching.watches.end_silence(silence.silence_id)
        deliver(watching, sender)
    assert [message["kind"] for _, _, message in receiver.requests] == ["fired", "resolved"]


def test_what_is_in_force_is_listed_before_all_that_was(database_url: str, watching: Watching) -> None:
    silence = watching.watches.silence(None, "s.*", datetime.now(UTC) + LATER, "in force", "Ada")
    load = watching.watches.announce("s", "orders", datetime.now(UTC) + LATER, False, "Ada")
    states.execute(
        database_url,
        "insert into watch_silence (pattern, until, reason, created_by) "
        "select 's.*', now() - interval '1 day', 'past', 'Ada' from generate_series(1, 300);"
        "insert into announced_load (schema_name, until, until_loaded, bootstrapped_version, created_by) "
        "select 's', now() - interval '1 day', false, 1, 'Ada' from generate_series(1, 300)",
    )
    for found, first in ((watching.watches.silences(), silence), (watching.watches.loads(), load)):
        assert (found[0], len(found), any(one.is_active for one in found[1:])) == (first, 200, False)
    states.execute(database_url, "update watch_silence set until = now() + interval '1 day'")
    assert len(watching.watches.silences()) == 301, "none in force is cut off"
