"""A consumer that somebody holds up: who looks at its lag, at its readiness, or with the doctor, sees that it waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2
from prometheus_client import CollectorRegistry

from service.observe import ConsumerObserver
from service.scheduler import next_time
from service.serving_wiring import consumer_check
from service.store.database import connect, make_engine
from service.store.doctor_facts import read_operation
from service.store.writer_lock import take_writer_lock
from tests import states
from tests.following import MakeStream, Stream, consume, shop_tables
from tests.waiting import wait_for

BOUND = 0.5
"""In seconds, of readiness."""


@contextmanager
def current_consumer(url: str, make_stream: MakeStream, **options: int) -> Iterator[tuple[Stream, ConsumerObserver]]:
    """Run a consumer that is current; what the test does with it leaves it so, and the state right."""
    tables = shop_tables()
    states.store(url, tables)
    stream, observer, stop = make_stream(tables), ConsumerObserver(CollectorRegistry()), threading.Event()
    told = {"watch": observer, "stop": stop, **options}
    consumer = threading.Thread(target=consume, args=(url, stream), kwargs=told)
    consumer.start()
    try:
        wait_for(lambda: observer.lag == 0)
        yield stream, observer
        wait_for(lambda: observer.lag == 0)
        assert consumer_check(observer, BOUND).ok
    finally:
        stop.set()
        consumer.join()
    assert states.read(url) == states.expected(tables)


def test_records_in_hand_are_behind_until_they_are_committed(database_url: str, make_stream: MakeStream) -> None:
    """Somebody holds gen_rec, as VACUUM FULL does, and changes come to a consumer that was current."""
    with (
        current_consumer(database_url, make_stream, records=1) as (stream, observer),
        closing(psycopg2.connect(database_url, application_name="vacuum")) as other,
        other.cursor() as cursor,
    ):
        cursor.execute("lock table gen_rec")
        stream.change("customers", None, ["4", "Dora"])
        stream.change("customers", None, ["5", "Emil"])
        wait_for(lambda: observer.lag)
        wait_for(lambda: observer.lag_seconds() > BOUND)
        told = consumer_check(observer, BOUND)
        assert (told.ok, "behind the feed's end" in told.detail) == (False, True)
        engine = make_engine(database_url, "test")
        blocked = wait_for(lambda: read_operation(engine, set(), next_time).blocked)
        engine.dispose()
        assert blocked[:2] == (other.info.backend_pid, "vacuum")


def test_what_waits_is_not_known_while_somebody_else_has_the_state(database_url: str, make_stream: MakeStream) -> None:
    """A bootstrap or the tracking of a key may have it for an hour, and changes come meanwhile."""
    with (
        current_consumer(database_url, make_stream) as (stream, observer),
        connect(database_url, "tracking") as other,
    ):
        take_writer_lock(other, lambda _: None)
        stream.change("customers", None, ["4", "Dora"])
        wait_for(lambda: observer.lag_seconds() > BOUND)
        told = consumer_check(observer, BOUND)
        assert (observer.lag, told.ok) == (None, False)
