"""Own the counting of a run's steps: each statement and each call of the broker, any of which may be the run's last.

The steps are counted where they pass, on the run's own connections and clients, so a new one is a point by itself.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions
from kafka.errors import KafkaError
from sqlalchemy import Engine, event

import service
from service.store.writer import PostgresWriter
from service.stream.kafka_feed import KafkaFeed
from service.stream.kafka_producer import TopicProducer
from service.stream.postgres_address import PostgresAddress
from tests.waiting import BOUND_SECONDS

OF_THE_ENGINE = ("select pg_catalog", "select current_schema", "show transaction", "show standard_conforming_strings")
"""What SQLAlchemy asks each new connection; these are no steps of ours."""

EVERY_SECOND = ("select pg_locks", "select paused_at", "source: select pg_publication", "stream.send_feedback")
"""What is done between batches, as often as the time has it: the first is a step, the others change nothing."""

FROM_MEMORY = ("position", "highwater", "assignment")
"""What the reading client answers without a request."""

PARTITION = r"gen_rec_g[0-9]+_p[0-9]+"
SERVICE = str(Path(service.__path__[0]))

Site = tuple[str, int]
"""A place in our source: file and line."""


class Crash(BaseException):
    """Stand for the process being gone: nothing of ours may take it for a failure that it can mend."""


@dataclass(frozen=True, order=True)
class Point:
    """Name a step: the how-manieth of its kind, and whether the end comes before it or after it."""

    kind: str
    number: int
    is_after: bool = True

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} {self.kind} #{self.number}"


class Steps:
    """Count the steps of a run by their kinds, and end the run at one of them: whatever it tries then is not done."""

    def __init__(self, fatal: Point | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.sites: set[Site] = set()
        self.has_crashed = False
        self._fatal = fatal
        self._lock = threading.Lock()
        self._open: list[Callable[[], object]] = []

    def take(self, kind: str, step: Callable[[], Any]) -> Any:
        """Take a step, unless the run ends before it."""
        with self._lock:
            number = 0 if kind in EVERY_SECOND and self.counts[kind] else self.counts[kind] + 1
            self.counts[kind] = max(self.counts[kind], number)
        self.sites.add(_site())
        self.arrive(Point(kind, number, is_after=False))
        result = step()
        self.arrive(Point(kind, number))
        return result

    def take_until(self, kind: str, step: Callable[[], Any]) -> Any:
        """Take a step that may give nothing, and counts when it gives something: the others depend on the time."""
        number = self.counts[kind] + 1
        self.arrive(Point(kind, number, is_after=False))
        result = step()
        if result:
            self.counts[kind] = number
            self.arrive(Point(kind, number))
        return result

    def arrive(self, point: Point) -> None:
        """Raise Crash at the point that the run ends at, and ever after."""
        if point == self._fatal:
            self.has_crashed = True
        if self.has_crashed:
            raise Crash(str(self._fatal))

    def opened(self, close: Callable[[], object]) -> None:
        """Hear of something that the end of the process would close."""
        self._open.append(close)

    def close(self) -> None:
        """Close what the run has opened, as the kernel does when a process is gone."""
        while self._open:
            with suppress(psycopg2.Error, KafkaError):
                self._open.pop()()


def _site() -> Site:
    """Give the innermost place of our own source that the caller was called from."""
    frame = sys._getframe(2)
    while frame.f_back is not None and not frame.f_code.co_filename.startswith(SERVICE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def kind_of(statement: Any) -> str:
    """Name the kind of a statement: what it does to which table."""
    text = statement.decode() if isinstance(statement, bytes) else str(statement)
    text = " ".join(text.lower().split())
    verb = re.match(r"insert into|delete from|merge into|create \w+ table|[a-z]+", text)
    assert verb is not None, f"a statement of no known form: {text[:80]}"
    if text.startswith("copy ("):
        read = re.search(r"\bfrom (\w+)", text)
        assert read is not None, f"a statement of no known form: {text[:80]}"
        return f"copy out of {re.sub(PARTITION, 'gen_rec', read[1])}"
    if "select paused_at" in text:
        return "select paused_at"
    if verb[0] in ("select", "with"):
        found = re.search(r"\bfrom (\w+)", text) or re.search(r"select \(?(\w+)", text)
    elif verb[0] == "set":
        return "set"
    elif verb[0] in ("start", "begin"):
        return "begin"
    else:
        found = re.match(r"\s*(?:only\s+|if not exists\s+)?(\w+)", text[verb.end() :])
    assert found is not None, f"a statement of no known form: {text[:80]}"
    return f"{verb[0]} {re.sub(PARTITION, 'gen_rec', found[1])}"


def count_statements(engine: Engine, steps: Steps, whose: str = "") -> None:
    """Let every statement of an engine be a step, of kinds that begin with `whose` it is."""

    def take(query: Any, step: Callable[[], Any]) -> Any:
        kind = kind_of(query)
        return step() if kind in OF_THE_ENGINE else steps.take(whose + kind, step)

    class CountedCursor(psycopg2.extensions.cursor):
        def execute(self, query: Any, *rest: Any) -> Any:
            return take(query, lambda: super(CountedCursor, self).execute(query, *rest))

        def executemany(self, query: Any, *rest: Any) -> Any:
            return take(query, lambda: super(CountedCursor, self).executemany(query, *rest))

        def copy_expert(self, query: Any, *rest: Any) -> Any:
            return take(query, lambda: super(CountedCursor, self).copy_expert(query, *rest))

        def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
            fetch = super().fetchmany
            return fetch(size) if self.name is None else steps.take(f"{whose}fetch", lambda: fetch(size))

    class CountedConnection(psycopg2.extensions.connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            steps.opened(self.close)

        def cursor(self, *arguments: Any, **options: Any) -> Any:
            return super().cursor(*arguments, **{"cursor_factory": CountedCursor, **options})

        def commit(self) -> None:
            # The reading and the writing session commit side by side: which is first depends on the time.
            is_batch = threading.current_thread().name.startswith("subsetd-store")
            steps.take(f"{whose}commit{' of a batch' if is_batch else ''}", super().commit)

        def rollback(self) -> None:
            if not self.closed:  # the pool of a run that is gone would complain
                super().rollback()

    # The engine connects by a listener of its own, and the first that gives a connection is the last that is asked.
    (connect,) = engine.dialect.dispatch.do_connect
    event.remove(engine, "do_connect", connect)

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, record: Any, arguments: list[Any], parameters: dict[str, Any]) -> Any:
        return connect(dialect, record, arguments, {**parameters, "connection_factory": CountedConnection})


class CountedWriter(PostgresWriter):
    """Write as the consumer does, over connections whose every statement is a step."""

    def __init__(self, url: str, steps: Steps) -> None:
        super().__init__(url)
        count_statements(self._engine, steps)


class CountedClient:
    """Stand before one of the broker's clients: each of its calls is a step."""

    def __init__(self, client: Any, name: str, steps: Steps) -> None:
        self._client, self._name, self._steps = client, name, steps

    def __getattr__(self, called: str) -> Any:
        attribute = getattr(self._client, called)
        if called.startswith("_") or called in FROM_MEMORY or not callable(attribute):
            return attribute
        return lambda *a, **k: self._steps.take(f"{self._name}.{called}", lambda: attribute(*a, **k))


class CountedReader(CountedClient):
    """Stand before a client that reads."""

    def poll(self, **options: Any) -> Any:
        return self._steps.take_until(f"{self._name}.poll", lambda: self._client.poll(**options))


class CountedSender(CountedClient):
    """Stand before a client that sends: what it waits for is a step of its own."""

    def send(self, *arguments: Any, **options: Any) -> CountedClient:
        sent = self._steps.take(f"{self._name}.send", lambda: self._client.send(*arguments, **options))
        return CountedClient(sent, f"{self._name}.send()", self._steps)


class CountedFeed(KafkaFeed):
    """Read as the consumer does, by clients whose every call is a step."""

    def __init__(self, steps: Steps, servers: list[str], topics: list[str]) -> None:
        super().__init__(servers, topics)
        self._steps = steps

    def _connect(self) -> None:
        self._steps.take("clients.connect", super()._connect)
        for client in (self._consumer, self._admin):
            self._steps.opened(client.close)
        self._consumer = CountedReader(self._consumer, "consumer", self._steps)
        self._admin = CountedClient(self._admin, "admin", self._steps)


class CountedProducer(TopicProducer):
    """Send to a topic by a client whose every call is a step."""

    def __init__(self, address: str, name: str, steps: Steps) -> None:
        super().__init__(address, timeout=BOUND_SECONDS)
        self._name, self._steps = name, steps

    def _connect(self) -> Any:
        producer = self._steps.take(f"{self._name}.connect", super()._connect)
        self._steps.opened(lambda: producer.close(timeout=0))
        self._producer = CountedSender(producer, self._name, self._steps)
        return self._producer


class CountedSource:
    """Stand before the address of a followed Postgres: what is asked of its sessions is a step."""

    def __init__(self, address: PostgresAddress, steps: Steps) -> None:
        self._address, self._steps = address, steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._address, name)

    def connect(self) -> CountedSession:
        return CountedSession(self._steps.take("source.connect", self._address.connect), self._steps)

    def connect_for_replication(self) -> CountedSession:
        return CountedSession(self._steps.take("stream.connect", self._address.connect_for_replication), self._steps)


class CountedSession:
    """Stand before a session with a followed Postgres."""

    def __init__(self, connection: Any, steps: Steps) -> None:
        self._connection, self._steps = connection, steps
        steps.opened(connection.close)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cursor(self) -> CountedSourceCursor:
        return CountedSourceCursor(self._connection.cursor(), self._steps)


class CountedSourceCursor:
    """Stand before a cursor at a followed Postgres, or before its stream of changes."""

    def __init__(self, cursor: Any, steps: Steps) -> None:
        self._cursor, self._steps = cursor, steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __enter__(self) -> CountedSourceCursor:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def __iter__(self) -> Any:
        return iter(self._cursor)

    def execute(self, query: Any, *rest: Any) -> Any:
        return self._steps.take(f"source: {kind_of(query)}", lambda: self._cursor.execute(query, *rest))

    def start_replication(self, *arguments: Any, **options: Any) -> None:
        self._steps.take("stream.start_replication", lambda: self._cursor.start_replication(*arguments, **options))

    def send_feedback(self, **options: Any) -> None:
        self._steps.take("stream.send_feedback", lambda: self._cursor.send_feedback(**options))

    def read_message(self) -> Any:
        return self._steps.take_until("stream.read_message", self._cursor.read_message)


def points_of(counts: Counter[str], every: bool) -> list[Point]:
    """List the points of a run: before the first of each kind and after each, or after the last of each that writes.

    Before any other step is after the one before it.
    """
    if every:
        afters = [Point(kind, number) for kind, most in sorted(counts.items()) for number in range(1, most + 1)]
        return [Point(kind, 1, is_after=False) for kind in sorted(counts)] + afters
    read = re.compile("(sender: )?(select|copy out|begin|set|create|fetch)")
    return [Point(kind, most) for kind, most in sorted(counts.items()) if not read.match(kind)]
