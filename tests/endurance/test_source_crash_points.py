"""A crash at any step of following a Postgres directly, in turn: after the restart the state is the source's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from service.store.embedded import EmbeddedPostgres
from service.stream import postgres_feed
from service.stream.pgoutput import PgoutputDecoder
from service.stream.postgres_address import PostgresAddress, parse_address
from service.stream.postgres_feed import PostgresFeed
from tests import states
from tests.endurance.call_sites import calls_of
from tests.endurance.counting import CountedSource, Steps, points_of
from tests.endurance.crash_points import Run, complete, crash_at, follow
from tests.endurance.following import broken_invariants
from tests.postgres import TEMPLATE, drop_slots, fresh_database
from tests.postgres_following import NAME, begin, require_equal, run

BEFORE = """
create schema s;
create table s.orders (id integer primary key, customer integer, note text);
create table s.customers (id integer primary key, name text);
alter table s.orders replica identity full;
alter table s.orders alter note set storage external;
insert into s.orders values (1, 1, 'first'), (2, 7, repeat('x', 5000));
"""
AFTER = (
    "insert into s.customers select n, 'name ' || n from generate_series(1, 7) n",
    "update s.orders set customer = 3 where id = 2",  # its note is not sent
    "update s.customers set id = 8 where id = 1; delete from s.customers where id = 2",
    "insert into s.orders values (3, 8, null); update s.customers set name = 'Ada' where id in (3, 4)",
    "truncate s.orders",
    "insert into s.orders values (4, 8, 'Ada'), (5, 99, null)",
    "delete from s.orders where id = 5; insert into s.customers values (9, null)",
)

MARK = ("begin", "message", "commit")
"""What the feed itself puts behind all changes: whether it is read before the end is seen depends on the time."""


@contextmanager
def followed(state_server: EmbeddedPostgres, source_server: EmbeddedPostgres) -> Iterator[tuple[str, str]]:
    """Give a state and the source that it was read from, which has changed since."""
    with fresh_database(state_server, TEMPLATE) as state, fresh_database(source_server, "template0") as source:
        run(source, BEFORE)
        begin(state, source)
        run(source, *AFTER)
        try:
            yield state, source
        finally:
            drop_slots(source)


def counted(state: str) -> list[tuple[object, ...]]:
    """Count what was applied, whatever the batches."""
    return states.query(state, "select sum(records), sum(inserted), sum(updated), sum(deleted) from state_version")


def test_a_crash_at_any_step_of_following_a_source_is_as_if_it_had_not_been(
    postgres_server: EmbeddedPostgres, logical_server: EmbeddedPostgres, whole: bool, tell: Callable[..., None]
) -> None:
    def following(source: str) -> Run:
        def open_feed(steps: Steps) -> PostgresFeed:
            return PostgresFeed(cast(PostgresAddress, CountedSource(parse_address(source, NAME), steps)))

        return lambda url, steps: follow(
            url, steps, lambda: open_feed(steps), make_decoder=lambda tables: PgoutputDecoder(tables, NAME)
        )

    steps = Steps()
    with followed(postgres_server, logical_server) as (state, source):
        complete(following(source), state, steps)
        require_equal(state, source)
        wanted = counted(state)
    counts = Counter({kind: n for kind, n in steps.counts.items() if kind.startswith(("source", "stream"))})
    needed = {f"stream.{name}" for name in calls_of(postgres_feed, "_cursor") | calls_of(postgres_feed, "cursor")}
    assert needed <= counts.keys(), "every call is a point: let the feed come to the new one"
    counts["stream.read_message"] -= len(MARK)
    points = points_of(counts, every=True)[:: 1 if whole else 12]
    for point in points:
        with followed(postgres_server, logical_server) as (state, source):
            crash_at(point, state, following(source))
            require_equal(state, source)
            assert (counted(state), broken_invariants(state)) == (wanted, []), point
    tell(kinds_of_calls=len(counts), calls=counts.total(), crashes=len(points))
