"""A consumer that somebody holds up: who looks at its lag, at its readiness, or with the doctor, sees that it waits."""

from __future__ import annotations

import threading
from contextlib import closing

import psycopg2
from prometheus_client import CollectorRegistry

from service.observe import ConsumerObserver
from service.scheduler import next_time
from service.serving_wiring import consumer_check
from service.store.database import connect, make_engine
from service.store.doctor_facts import read_operation
from service.store.writer_lock import take_writer_lock
from tests import states
from tests.following import MakeStream, consume, shop_tables
from tests.waiting import wait_for

BOUND = 0.5
"""In seconds, of readiness."""


def test_records_in_hand_are_behind_until_they_are_committed(database_url: str, make_stream: MakeStream) -> None:
    """Somebody holds gen_rec, as VACUUM FULL does, and changes come to a consumer that was current."""
    tables = shop_tables()
    states.store(database_url, tables)
    stream, observer, stop = make_stream(tables), ConsumerObserver(CollectorRegistry()), threading.Event()
    consumer = threading.Thread(
        target=consume, args=(database_url, stream), kwargs={"watch": observer, "stop": stop, "records": 1}
    )
    consumer.start()
    try:
        wait_for(lambda: observer.lag == 0)
        with closing(psycopg2.connect(database_url, application_name="vacuum")) as other, other.cursor() as cursor:
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
        wait_for(lambda: observer.lag == 0)
        assert consumer_check(observer, BOUND).ok
    finally:
        stop.set()
        consumer.join()
    assert states.read(database_url) == states.expected(tables)


def test_what_waits_is_not_known_while_somebody_else_has_the_state(database_url: str, make_stream: MakeStream) -> None:
    """A bootstrap or the tracking of a key may have it for an hour, and changes come meanwhile."""
    tables = shop_tables()
    states.store(database_url, tables)
    stream, observer, stop = make_stream(tables), ConsumerObserver(CollectorRegistry()), threading.Event()
    consumer = threading.Thread(target=consume, args=(database_url, stream), kwargs={"watch": observer, "stop": stop})
    consumer.start()
    try:
        wait_for(lambda: observer.lag == 0)
        with connect(database_url, "tracking") as other:
            take_writer_lock(other, lambda _: None)
            stream.change("customers", None, ["4", "Dora"])
            wait_for(lambda: observer.lag_seconds() > BOUND)
            told = consumer_check(observer, BOUND)
            assert (observer.lag, told.ok) == (None, False)
        wait_for(lambda: observer.lag == 0)
        assert consumer_check(observer, BOUND).ok
    finally:
        stop.set()
        consumer.join()
    assert states.read(database_url) == states.expected(tables)
