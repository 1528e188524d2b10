"""Own the crash at every step: each statement and each call of the broker is a point at which the consumer may end.

The statements are counted where they pass, on the consumer's own connections, so that a new one is a new point by
itself; which kinds there are is said by STATEMENTS and CALLS, so that none comes unnoticed.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg2.extensions
from sqlalchemy import event

from service.core.canonical import value_keys
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.stream.kafka_feed import KafkaFeed
from service.usecases.batches import BatchLimits, ErrorPolicy
from service.usecases.follow_feed import Consumer
from service.usecases.ports import Feed
from tests import states
from tests.endurance.following import broken_invariants
from tests.following import Watch

OF_THE_ENGINE = ("select pg_catalog", "select current_schema", "show transaction", "show standard_conforming_strings")
"""What SQLAlchemy asks each new connection; these are no steps of ours."""

PARTITION = r"gen_rec_g[0-9]+_p[0-9]+"

EVERY_SECOND = "every second"
"""The kind of what is asked about once a second: it comes in some runs and not in others, and changes nothing."""


class Crash(Exception):
    """Stand for the process being gone."""


@dataclass(frozen=True, order=True)
class Point:
    """Name a step: the how-manieth of its kind, and whether the end comes before it or after it."""

    kind: str
    number: int
    is_after: bool = True

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} {self.kind} #{self.number}"


class Steps:
    """Count the steps of a run by their kinds, and end the run at one of them."""

    def __init__(self, fatal: Point | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.has_crashed = False
        self._fatal = fatal
        self._lock = threading.Lock()

    def take(self, kind: str, step: Callable[[], Any]) -> Any:
        """Take a step, unless the run ends before it; nothing is counted once it has ended."""
        if self.has_crashed or kind in (*OF_THE_ENGINE, EVERY_SECOND):
            return step()
        with self._lock:
            self.counts[kind] += 1
            number = self.counts[kind]
        self._crash_at(Point(kind, number, is_after=False))
        result = step()
        self._crash_at(Point(kind, number, is_after=True))
        return result

    def _crash_at(self, point: Point) -> None:
        if point == self._fatal:
            self.has_crashed = True
            raise Crash(str(point))


def kind_of(statement: Any) -> str:
    """Name the kind of a statement: what it does to which table."""
    text = statement.decode() if isinstance(statement, bytes) else str(statement)
    text = " ".join(text.lower().split())
    if re.search(r"from pg_locks|select paused_at", text):
        return EVERY_SECOND
    verb = re.match(r"insert into|delete from|merge into|create \w+ table|[a-z]+", text)
    assert verb is not None, f"a statement of no known form: {text[:80]}"
    if text.startswith("copy ("):
        read = re.search(r"\bfrom (\w+)", text)
        assert read is not None, f"a statement of no known form: {text[:80]}"
        return f"copy out of {re.sub(PARTITION, 'gen_rec', read[1])}"
    if verb[0] == "select":
        found = re.search(r"\bfrom (\w+)", text) or re.search(r"select (\w+)", text)
    elif verb[0] == "set":
        return "set"
    elif verb[0] in ("start", "begin"):
        return "begin"
    else:
        found = re.match(r"\s*(?:only\s+|if not exists\s+)?(\w+)", text[verb.end() :])
    assert found is not None, f"a statement of no known form: {text[:80]}"
    return f"{verb[0]} {re.sub(PARTITION, 'gen_rec', found[1])}"


class CountedWriter(PostgresWriter):
    """Write as the consumer does, over connections whose every statement is a step."""

    def __init__(self, url: str, steps: Steps) -> None:
        super().__init__(url)

        class CountedCursor(psycopg2.extensions.cursor):
            def execute(self, query: Any, *rest: Any) -> Any:
                return steps.take(kind_of(query), lambda: super(CountedCursor, self).execute(query, *rest))

            def copy_expert(self, query: Any, *rest: Any) -> Any:
                return steps.take(kind_of(query), lambda: super(CountedCursor, self).copy_expert(query, *rest))

        class CountedConnection(psycopg2.extensions.connection):
            def cursor(self, *arguments: Any, **options: Any) -> Any:
                return super().cursor(*arguments, **{"cursor_factory": CountedCursor, **options})

            def commit(self) -> None:
                steps.take("commit", super().commit)

        # The engine connects by a listener of its own, and the first that gives a connection is the last that is asked.
        (connect,) = self._engine.dialect.dispatch.do_connect
        event.remove(self._engine, "do_connect", connect)

        @event.listens_for(self._engine, "do_connect")
        def _connect(dialect: Any, record: Any, arguments: list[Any], parameters: dict[str, Any]) -> Any:
            return connect(dialect, record, arguments, {**parameters, "connection_factory": CountedConnection})


class CountedClient:
    """Stand before one of the broker's clients: each of its calls is a step."""

    def __init__(self, client: Any, name: str, steps: Steps) -> None:
        self._client, self._name, self._steps = client, name, steps

    def __getattr__(self, called: str) -> Any:
        attribute = getattr(self._client, called)
        if called.startswith("_") or not callable(attribute):
            return attribute
        return lambda *a, **k: self._steps.take(f"{self._name}.{called}", lambda: attribute(*a, **k))


class CountedFeed(KafkaFeed):
    """Read as the consumer does, by clients whose every call is a step."""

    def __init__(self, steps: Steps, servers: list[str], topics: list[str]) -> None:
        super().__init__(servers, topics)
        self._steps = steps

    def _connect(self) -> None:
        super()._connect()
        if not isinstance(self._consumer, CountedClient):
            self._consumer = CountedClient(self._consumer, "consumer", self._steps)
            self._admin = CountedClient(self._admin, "admin", self._steps)


def follow(url: str, open_feed: Callable[[Steps], Feed], steps: Steps, records: int = 12) -> None:
    """Follow a feed to its end, or until the run crashes."""
    writer = CountedWriter(url, steps)
    consumer = Consumer(
        writer,
        lambda: open_feed(steps),
        Decoder,
        value_keys,
        Watch(),
        limits=BatchLimits(records=records),
        on_error=ErrorPolicy.SET_ASIDE,
        cache_bytes=0,
        retry_seconds=0.0,
    )
    try:
        consumer.run(threading.Event(), until_end=True)
    finally:
        writer.close()  # whatever step the run ended at, the sessions of a process that is gone are gone


def found(url: str) -> dict[str, object]:
    """Give everything of a state that must not depend on crashes; versions and cluster ids may."""
    tables = {
        "positions": "select topic, partition, next_offset from feed_position order by 1, 2",
        "dead letters": "select topic, partition, record_offset, message from dead_letter order by 1, 2, 3",
        "rows": "select table_id, row_key, cells from row_image order by 1, 2",
        "counts": "select sum(records), sum(inserted), sum(updated), sum(deleted), sum(skipped), sum(dead) "
        "from state_version",
    }
    return {"state": states.read(url), **{name: states.query(url, query) for name, query in tables.items()}}


def points_of(counts: Counter[str], every: bool) -> list[Point]:
    """List the points of a run: before and after every step, or after the last step of each kind that writes."""
    if every:
        numbered = [(kind, number) for kind, most in sorted(counts.items()) for number in range(1, most + 1)]
        return [Point(*place, is_after) for place in numbered for is_after in (False, True)]
    writes = sorted(kind for kind in counts if not kind.startswith(("select", "copy out", "begin", "set", "create")))
    return [Point(kind, counts[kind]) for kind in writes]


def crash_at_each(
    points: Iterable[Point], copy: Callable[[], AbstractContextManager[str]], open_feed: Callable[[Steps], Feed]
) -> Iterator[tuple[Point, bool, dict[str, object], list[str]]]:
    """Let a run crash at each point in turn, on a copy of the state of its own, and then run to the end.

    Gives each point, whether the run came to it, what the state then holds, and which invariants do not hold.
    """
    for point in points:
        with copy() as url:
            steps = Steps(point)
            with suppress(Crash):
                follow(url, open_feed, steps)
            follow(url, open_feed, Steps())
            yield point, steps.has_crashed, found(url), broken_invariants(url)
