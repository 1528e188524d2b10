"""The command against the real broker: kills, absences and bad records lose nothing and double nothing."""

from __future__ import annotations

import json
import random
import signal
import threading
import time

import pytest

from service.core.canonical import value_keys
from service.core.errors import FeedError, StateError
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.usecases.batches import BatchLimits
from service.usecases.follow_feed import Consumer
from tests import states
from tests.asking import http_client
from tests.commands import Commands
from tests.events import envelope
from tests.following import Watch, random_changes
from tests.shop import Shop
from tests.waiting import BOUND_SECONDS, wait_for

AWAY_SECONDS = 10.0


def test_killed_under_load_again_and_again_the_state_is_that_of_every_change_once(
    shop: Shop, subsetd: Commands
) -> None:
    rng = random.Random(11)
    for _ in range(4):
        random_changes(shop, rng, 600)  # type: ignore[arg-type]
        seen = shop.count("records")
        with shop.held_near_the_end():
            process = subsetd.start("consume", "--feed", shop.feed, batch_records=7, log_level="error")
            wait_for(lambda seen=seen, of=process: shop.count("records") > seen + 70 or of.poll() is not None)
            process.kill()
        assert process.wait() == -signal.SIGKILL, subsetd.said(process)
    assert not shop.is_applied(), "it was killed under load"
    shop.flush()
    code, said = subsetd.run("consume", "--feed", shop.feed, "--until-end", log_level="error")
    assert code == 0, said
    shop.check()
    code, said = subsetd.run("verify")
    assert code == 0, said


def test_a_broker_that_is_gone_for_a_while_is_waited_for(shop: Shop, subsetd: Commands) -> None:
    process = subsetd.start("consume", "--feed", shop.feed)
    random_changes(shop, random.Random(1), 100)  # type: ignore[arg-type]
    shop.flush()
    wait_for(shop.is_applied)
    shop.broker.kill()
    gone_at = time.monotonic()
    try:
        has_told = lambda: "feed disconnected" in subsetd.said(process)  # noqa: E731
        has_waited = lambda: time.monotonic() > gone_at + AWAY_SECONDS and has_told()  # noqa: E731
        wait_for(lambda: has_waited() or process.poll() is not None)
        assert process.poll() is None, subsetd.said(process)
        # Before it is back: a broker that starts may close connections once more.
        said = [json.loads(line)["event"] for line in subsetd.said(process).splitlines()]
    finally:
        shop.broker.start()
    assert said.count("feed disconnected") == 1, "said once, with its address, not at every attempt"
    random_changes(shop, random.Random(2), 100)  # type: ignore[arg-type]
    shop.flush()
    wait_for(shop.is_applied)
    subsetd.end(process)
    shop.check()


@pytest.mark.parametrize("command", ["consume", "run"])
def test_a_broker_that_is_not_there_at_the_start_is_named(shop: Shop, subsetd: Commands, command: str) -> None:
    before = states.read(shop.url)
    shop.broker.kill()
    code, said = subsetd.run(command, "--feed", shop.feed, feed_start_seconds=0.5)
    assert code == 1
    address = shop.broker.bootstrap_servers
    assert f"no Kafka broker within 0.5 s ({address}: Connection refused); start the broker" in said
    assert states.read(shop.url) == before


class LonelyWriter(PostgresWriter):
    """Lose broker and database at once, in the first batch."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.url)
        self.shop = shop
        self.is_lonely = False

    def begin(self) -> PostgresUnitOfWork:
        if not self.is_lonely:
            self.is_lonely = True
            self.shop.broker.kill()
            states.query(
                self.shop.url,
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'subsetd consumer'",
            )
        return super().begin()


def test_a_broker_that_is_away_when_the_database_is_back_is_waited_for_as_well(shop: Shop) -> None:
    random_changes(shop, random.Random(4), 60)  # type: ignore[arg-type]
    shop.flush()
    watch, errors = Watch(), []
    consumer = Consumer(
        LonelyWriter(shop),
        lambda: open_feed(shop.feed, start_timeout=0.3),
        Decoder,
        value_keys,
        watch,
        limits=BatchLimits(records=20),
        retry_seconds=BOUND_SECONDS,
    )

    def body() -> None:
        try:
            consumer.run(threading.Event(), until_end=True)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    wait_for(lambda: len(watch.errors) >= 3 or not thread.is_alive())  # it tries on while nobody looks
    shop.broker.start()
    thread.join(BOUND_SECONDS)
    assert errors == []
    assert isinstance(watch.errors[0], StateError)
    assert all(isinstance(error, FeedError) for error in watch.errors[1:3])
    shop.check()


def test_a_second_consumer_is_refused_and_the_first_goes_on(shop: Shop, subsetd: Commands) -> None:
    first = subsetd.start("consume", "--feed", shop.feed)
    wait_for(lambda: '"following"' in subsetd.said(first))
    code, said = subsetd.run("consume", "--feed", "file:/dev/null")
    assert code == 1
    assert "The state has another writer: subsetd consumer (database session" in said
    assert "stop it, or wait until it has ended" in said
    shop.change("customers", None, ["3", "Cleo"])
    shop.flush()
    wait_for(shop.is_applied)
    subsetd.end(first)
    shop.check()


BAD = [b"{", b'{"after": {"id": "3"}}', envelope("c", "s", "refunds", None, {"id": "1"}), envelope("x", "s", "orders")]


def test_bad_records_stop_the_feed_in_front_of_them_or_are_set_aside(shop: Shop, subsetd: Commands) -> None:
    bad = []
    for number, line in enumerate(BAD):
        shop.change("customers", None, [f"{number + 3}", "before"])
        bad.append(shop.write("orders", str(number), line))
    shop.change("customers", ["3", "before"], None)
    bad.append(shop.write("customers", "7", envelope("d", "s", "customers", {"id": "never", "name": "Ada"})))
    shop.flush()
    code, said = subsetd.run("consume", "--feed", shop.feed, "--until-end", unknown_tables="refuse")
    assert code == 1
    places = [f"topic {topic}, partition {partition}, offset {offset}: " for topic, partition, offset in bad]
    assert sum(place in said for place in places) == 1
    assert "All before this record is applied, and nothing behind it. --on-error all sets" in said
    code, said = subsetd.run(
        "consume", "--feed", shop.feed, "--until-end", "--on-error", "all", unknown_tables="refuse"
    )
    assert code == 0, said
    shop.check()
    letters = states.query(shop.url, "select topic, partition, record_offset, record from dead_letter")
    assert sorted(letter[:3] for letter in letters) == sorted(bad)
    assert {letter[3].encode() for letter in letters} > set(BAD)


def test_a_change_sent_to_kafka_is_soon_in_the_answers(shop: Shop, subsetd: Commands) -> None:
    process = subsetd.start("run", "--feed", shop.feed)
    base = wait_for(lambda: next((w for w in subsetd.said(process).split() if w.startswith("http://")), None))
    with http_client(base_url=f"{base}/api/v1/uinds/s.orders.customer", timeout=60) as client:
        assert client.get("s.customers.id").json()["holds"]
        for row in (["12", "9", None], ["13", "8", None]):
            shop.change("orders", None, row)
            shop.flush()
            wait_for(lambda: not client.get("s.customers.id").json()["holds"])
            shop.change("orders", row, None)
            shop.flush()
            wait_for(lambda: client.get("s.customers.id").json()["holds"])
    wait_for(shop.is_applied)
    subsetd.end(process)
    shop.check()
