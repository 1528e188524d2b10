"""The command that is killed, and brokers that are: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from service.core.canonical import value_keys
from service.core.errors import FeedError, StateError
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.usecases.batches import BatchLimits
from service.usecases.follow_feed import Consumer
from tests import states
from tests.commands import Commands
from tests.e2e.test_cli import stream, version
from tests.following import Stream, Watch, random_changes
from tests.shop import Shop
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["stream"]

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


def test_consume_killed_again_and_again_loses_nothing(stream: Stream, database_url: str) -> None:
    random_changes(stream, random.Random(7), 300)
    environment = {**os.environ, "SUBSETD_BATCH_RECORDS": "3"}
    command = [sys.executable, "-m", "service.cli", "consume", "--feed", f"file:{stream.path}", "--until-end"]
    for _ in range(4):
        before = version(database_url)
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        wait_for(lambda seen=before, of=process: version(database_url) > seen + 2 or of.poll() is not None)
        process.kill()
        process.wait()
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL, timeout=120)
    assert states.read(database_url) == states.expected(stream.tables)
