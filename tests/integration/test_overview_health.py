"""What goes wrong beside the answers is on the overview until it works again: feeds, alerts, transitions, schedules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from sqlalchemy import Engine

from service import feed_wiring
from service.api.problems import Check
from service.audit_runner import auditing
from service.channels.webhook import WebhookSender
from service.clock_lookout import clock_check
from service.config import Settings
from service.core.errors import SubsetdError
from service.doctor import examine
from service.key_runner import tracking_keys
from service.observe import ConsumerObserver
from service.serving_wiring import make_service, transitions_check
from service.store import feeds
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.masking import mask
from service.store.watches import PostgresWatches
from service.usecases import follow_feed
from service.usecases.batches import ErrorPolicy
from service.usecases.watches import Channel, ChannelKind
from service.watch_runner import watching
from tests import states
from tests.asking import http_client
from tests.broker import KafkaBroker
from tests.following import Stream, consume, shop_tables
from tests.integration.serving import a_place, app_over, searches_over, serving
from tests.integration.test_bad_input import full_disk
from tests.waiting import BOUND_SECONDS, wait_for
from tests.watching import new_watch, pair_rule, receiving

ADD_AUDIT = """
insert into audit (version, started_at, attributes, value_count, inds, not_served, not_holding, report)
values (1, {at}, 3, 9, 2, 0, 0, '{{}}')
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, "test-overview")
    yield made
    made.dispose()


@pytest.fixture
def stream(database_url: str, tmp_path: Path) -> Stream:
    """Store a shop, of which not every order has its customer."""
    tables = shop_tables()
    tables.add("orders", ["13", "9", None])
    states.store(database_url, tables)
    return Stream.empty(tmp_path, tables)


class Seen:
    """Ask for the overview."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def overview(self) -> dict[str, Any]:
        answer = self._client.get("/api/v1/overview")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def check(self, name: str) -> tuple[bool, str] | None:
        """Give whether a part is well, and what is told of it; None where nothing is."""
        told = {one["name"]: (one["ok"], one["detail"]) for one in self.overview()["checks"]}
        return told.get(name)

    def fails(self, name: str) -> str:
        """Give what is told of a part that is not well, or nothing."""
        found = self.check(name)
        return "" if found is None or found[0] else found[1]

    def is_ready(self) -> bool:
        return self._client.get("/readyz").status_code == 200


@contextmanager
def seeing(engine: Engine, checks: Sequence[Callable[[], Check | None]] = ()) -> Iterator[Seen]:
    """Serve the state, with checks of what runs beside."""
    app = app_over(engine)
    app.state.overview_checks = tuple(checks)
    with serving(app) as address, http_client(base_url=address, timeout=60) as client:
        yield Seen(client)


def test_a_feed_that_nobody_follows_is_told_by_whoever_serves(
    database_url: str, engine: Engine, stream: Stream
) -> None:
    stream.change("orders", None, ["20", "1", None])
    consume(database_url, stream)
    stop = threading.Event()
    thread = threading.Thread(target=partial(consume, database_url, stream, stop=stop))
    with seeing(engine) as seen:
        assert [one["is_followed"] for one in seen.overview()["feeds"]] == [False], "its consumer has ended"
        thread.start()
        try:
            wait_for(lambda: [one["is_followed"] for one in seen.overview()["feeds"]] == [True])
        finally:
            stop.set()
            thread.join(BOUND_SECONDS)
        assert [one["is_followed"] for one in seen.overview()["feeds"]] == [False]


def test_an_overview_takes_one_connection_at_a_time(database_url: str, stream: Stream) -> None:
    """As many as there are connections, each of which held one and waited for another, waited for each other."""
    engine = make_engine(database_url, "test-overview", pool_size=1, max_overflow=0, pool_timeout_seconds=0.01)
    with seeing(engine, [partial(clock_check, engine)]) as seen:
        assert seen.check("clock") == (True, "the database's is as this machine's")
    engine.dispose()


@contextmanager
def following_elsewhere(url: str, stream: Stream, **options: Any) -> Iterator[None]:
    """Follow as `subsetd consume` does beside a service; what ends it is told by the state alone."""
    observer, stop = ConsumerObserver(CollectorRegistry(), lag_unit="bytes"), threading.Event()

    def follow() -> None:
        with (
            suppress(SubsetdError),
            watching(url, Settings(), CollectorRegistry(), observer),
        ):
            consume(url, stream, watch=observer, stop=stop, **options)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(BOUND_SECONDS)


def full_in_the_doctors_eyes(url: str) -> list[str]:
    found = examine(Settings(database_url=url))
    return [one.about for one in found if "its consumer said last: The disk of" in one.found]


def faults(seen: Seen) -> list[str | None]:
    return [one["fault"] for one in seen.overview()["feeds"]]


@pytest.mark.parametrize("is_first", [False, True], ids=["later change", "first change"])
def test_a_full_disk_of_a_consumer_elsewhere_is_told_by_whoever_serves_until_there_is_room(
    postgres_server: EmbeddedPostgres,
    database_url: str,
    engine: Engine,
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
    is_first: bool,
) -> None:
    monkeypatch.setattr(follow_feed, "ROOM_SECONDS", 1.5)
    stream.change("orders", None, ["20", "1", None])
    if not is_first:
        consume(database_url, stream)
    stream.change("customers", None, ["9", None])
    with seeing(engine) as seen:
        assert faults(seen) == [None] * (not is_first)
        with (
            ExitStack() as follower,
            full_disk(postgres_server, database_url, "ind_transition"),
        ):
            follower.enter_context(following_elsewhere(database_url, stream, retry_seconds=0.0))
            wait_for(lambda: ["is full; nothing was applied" in (told or "") for told in faults(seen)] == [True])
            (feed,) = seen.overview()["feeds"]
            assert (feed["version"] is None, feed["partitions"]) == (is_first, 0 if is_first else 1)
            wait_for(lambda: [f"feed {feed['feed']}"] == full_in_the_doctors_eyes(database_url))
            going_on = follower.pop_all()
        with going_on:
            wait_for(lambda: faults(seen) == [None])


@pytest.mark.parametrize(("is_first", "offset"), [(False, 133), (True, 0)], ids=["later change", "first change"])
def test_what_ended_a_consumer_elsewhere_is_told_until_one_follows_again(
    database_url: str, engine: Engine, stream: Stream, is_first: bool, offset: int
) -> None:
    if not is_first:
        stream.change("orders", None, ["20", "1", None])
        consume(database_url, stream)
    with seeing(engine) as seen:
        stream.write(b"no change\n")
        with following_elsewhere(database_url, stream):
            wait_for(lambda: any(faults(seen)))
        (feed,) = seen.overview()["feeds"]
        assert (feed["is_followed"], f"offset {offset}:" in feed["fault"]) == (False, True)
        with following_elsewhere(database_url, stream, on_error=ErrorPolicy.SET_ASIDE):
            wait_for(lambda: faults(seen) == [None])


def test_a_feed_that_is_paused_has_no_fault_for_standing_still(
    database_url: str, engine: Engine, stream: Stream
) -> None:
    stream.change("orders", None, ["20", "1", None])
    consume(database_url, stream)
    (name,) = feeds.set_paused(engine, None, True)
    feeds.put_fault(engine, name, "17 bytes behind the feed's end; current 99.0 s ago (bound 60 s).")
    with seeing(engine) as seen:
        assert faults(seen) == [None]
        feeds.set_paused(engine, None, False)
        feeds.put_fault(engine, name, "x" * 2000)
        assert faults(seen) == ["x" * 1000]
        mask(database_url, "s.orders.note", "none", print)
        assert faults(seen) == [None], "it might quote what is not to be kept"


def test_lag_is_told_in_what_the_feed_counts(database_url: str, engine: Engine, stream: Stream) -> None:
    settings, registry = Settings(), CollectorRegistry()
    observer = ConsumerObserver(registry, lag_unit=feed_wiring.lag_unit(f"file:{stream.path}"))
    observer.following(1, None, 2, 3, {("feed", 0): 0})
    observer.waiting({("feed", 0): 17})
    with tracking_keys(database_url, settings) as tracked:
        retry = partial(feed_wiring.retry_dead_letter, database_url, settings)
        app = make_service(engine, settings, tracked, searches_over(engine), retry, registry, observer)
        with serving(app) as address, http_client(base_url=address, timeout=60) as client:
            seen = Seen(client)
            found = seen.overview()
            assert (found["lag_records"], found["lag_unit"]) == (17, "bytes")
            told = seen.check("consumer")
            assert told is not None
            assert told[1].startswith("17 bytes behind the feed's end")
    assert feed_wiring.lag_unit("kafka://broker:9092/shop") == "records"
    with seeing(engine) as elsewhere:
        assert (elsewhere.overview()["lag_records"], elsewhere.overview()["lag_unit"]) == (None, None)


def test_a_webhook_that_hangs_is_on_the_overview_until_it_takes_its_alert(
    database_url: str, engine: Engine, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.watch_wiring.WebhookSender", partial(WebhookSender, seconds=0.5))
    answers = threading.Event()
    with receiving() as receiver:

        def hang() -> tuple[int, dict[str, str]]:
            answers.wait(BOUND_SECONDS)
            return 204, {}

        receiver.answer = hang
        channel = Channel(ChannelKind.WEBHOOK, receiver.url)
        PostgresWatches(engine).add(new_watch(pair_rule(), channel=channel))
        settings = Settings(webhook_allow="127.0.0.0/8")
        try:
            with watching(database_url, settings, CollectorRegistry()) as check, seeing(engine, [check]) as seen:
                wait_for(lambda: "127.0.0.1 did not take it within 0.5 s" in seen.fails("watches"))
                assert seen.is_ready(), "nothing else is the worse for it"
                answers.set()
                wait_for(lambda: seen.check("watches") == (True, "all alerts were delivered"))
        finally:
            answers.set()


def test_a_mail_server_that_is_down_is_on_the_overview(database_url: str, engine: Engine, stream: Stream) -> None:
    with a_place() as place:
        port = place.getsockname()[1]
    PostgresWatches(engine).add(new_watch(pair_rule(), channel=Channel(ChannelKind.EMAIL, to=("ada@example.org",))))
    settings = Settings(smtp=SecretStr(f"smtp+plain://127.0.0.1:{port}"), smtp_from="subsetd@example.org")
    with watching(database_url, settings, CollectorRegistry()) as check, seeing(engine, [check]) as seen:
        told = wait_for(lambda: seen.fails("watches"))
    assert f"The mail server 127.0.0.1:{port} did not take it: Connection refused" in told


def test_a_topic_of_transitions_that_is_away_is_on_the_overview_until_it_is_there(
    database_url: str, engine: Engine, stream: Stream, broker: KafkaBroker
) -> None:
    settings = Settings(transitions_topic=f"kafka://{broker.bootstrap_servers}/{broker.create_topic()}")
    observer = ConsumerObserver(CollectorRegistry())
    stream.change("customers", None, ["9", "Eve"])
    consume(database_url, stream)
    with seeing(engine, [partial(transitions_check, observer)]) as seen:
        broker.kill()
        try:
            with feed_wiring.sending_transitions(database_url, settings, observer):
                wait_for(lambda: "They are kept and sent later" in seen.fails("outgoing transitions"))
                assert seen.is_ready()
                broker.start()
                wait_for(lambda: seen.check("outgoing transitions") is None)
        finally:
            broker.start()


def test_a_scheduled_audit_that_fails_is_on_the_overview_until_one_is_made(
    database_url: str, engine: Engine, stream: Stream
) -> None:
    states.execute(database_url, ADD_AUDIT.format(at="now() - interval '3 days'"))
    settings = Settings(audit_schedule="30 2 * * *", spark_master="no-such-master")
    with auditing(database_url, settings) as check, seeing(engine, [check]) as seen:
        wait_for(lambda: seen.fails("scheduled audits").startswith("The last audit failed: "))
        assert seen.overview()["audit"]["differences"] == 0, "which is the one of before"
        states.execute(database_url, ADD_AUDIT.format(at="now()"))
        assert seen.check("scheduled audits") == (True, "none has failed, none is overdue")
    with auditing(database_url, Settings()) as check, seeing(engine, [check]) as seen:
        assert seen.check("scheduled audits") is None, "there is no schedule"
