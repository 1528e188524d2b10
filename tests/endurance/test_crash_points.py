"""A crash at any step of a batch, in turn: after the restart the state is that of a run without it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from service.store.embedded import EmbeddedPostgres
from service.stream.file_feed import FileFeed
from tests import states
from tests.broker import KafkaBroker
from tests.endurance.crash_points import CountedFeed, Point, Steps, crash_at_each, follow, found, points_of
from tests.events import envelope
from tests.following import COLUMNS, Stream, random_changes
from tests.integration.test_kafka_feed import Cluster
from tests.postgres import TEMPLATE, fresh_database
from tests.states import Tables

STATEMENTS = {
    "begin",
    "commit",
    "copy gen_rec",
    "copy out of gen_rec",
    "copy staged_cluster",
    "copy staged_gen_rec",
    "copy staged_row_image",
    "create temporary table staged_gen_rec",
    "delete from cluster",
    "delete from row_image",
    "insert into attribute",
    "insert into batch_position",
    "insert into cluster",
    "insert into dead_letter",
    "insert into feed",
    "insert into feed_position",
    "insert into ind_transition",
    "insert into state_version",
    "insert into uind",
    "merge into gen_rec",
    "merge into row_image",
    "select alembic_version",
    "select attribute",
    "select cluster",
    "select feed",
    "select feed_catch_up",
    "select feed_position",
    "select gen_rec",
    "select pg_advisory_lock",
    "select pg_advisory_unlock_all",
    "select pg_inherits",
    "select pg_notify",
    "select pg_try_advisory_lock",
    "select row_image",
    "select source",
    "select state_version",
    "select tracked_table",
    "set",
    "update attribute",
    "update tracked_table",
    "update uind",
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Give a feed with all that a batch can hold: rows with and without images, a truncate, bad records."""
    columns = {**COLUMNS, "notes": ["id", "body"]}
    stream = Stream(tmp_path_factory.mktemp("crash") / "feed", Tables(dict(columns)), dict(columns))
    stream.tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", "first"], ["11", "2", None])
    stream.path.touch()
    return stream


@pytest.fixture(scope="module")
def template(postgres_server: EmbeddedPostgres, stream: Stream) -> Iterator[str]:
    """Give a database with the state in front of the feed, to be copied."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        states.store(url, stream.tables)
        states.execute(
            url,
            "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table, key_columns, "
            "row_images, begun_version) values (1, 's', 'notes', 's', 'notes', '{id}', true, 1)",
        )
        write_changes(stream)
        yield url.partition("?")[0].rpartition("/")[2]


def write_changes(stream: Stream) -> None:
    rng = random.Random(3)
    random_changes(stream, rng, 10)
    for key in ("1", "2", "3"):
        stream.write(envelope("c", "s", "notes", None, {"id": key, "body": f"note {key}"}))
    stream.write(b"{this is no JSON")
    random_changes(stream, rng, 10)
    stream.write(envelope("u", "s", "notes", None, {"id": "2", "body": "Ada"}))
    stream.write(envelope("d", "s", "notes", {"id": "3", "body": None}))
    stream.write(envelope("t", "s", "orders"))
    stream.tables.rows["orders"].clear()
    random_changes(stream, rng, 8)
    stream.write(envelope("t", "s", "notes"))
    stream.write(envelope("c", "s", "notes", None, {"id": "4", "body": "Bob"}))
    stream.tables.add("notes", ["4", "Bob"])
    stream.append("customers", ["never", "so"], None)
    stream.columns["customers"] = stream.tables.columns["customers"] = [*COLUMNS["customers"], "added"]
    customers = stream.tables.rows["customers"]
    stream.tables.rows["customers"] = Counter({(*row, None): count for row, count in customers.items()})
    stream.change("customers", None, ["7", "Cleo", "Ada"])
    stream.change("orders", None, ["13", "9", "breaks a dependency"])


def test_a_crash_at_any_step_is_as_if_it_had_not_been(
    postgres_server: EmbeddedPostgres, stream: Stream, template: str, whole: bool, tell: Callable[..., None]
) -> None:
    def open_feed(_: Steps) -> FileFeed:
        return FileFeed(str(stream.path))

    steps = Steps()
    with fresh_database(postgres_server, template) as url:
        follow(url, open_feed, steps)
        wanted = found(url)
    assert wanted["state"] == states.expected(stream.tables)
    assert set(steps.counts) == STATEMENTS, "every statement is a point: add the new one's kind to the list"
    points = points_of(steps.counts, every=whole)
    crashed = 0
    for point, came_to_it, holds, broken in crash_at_each(
        points, lambda: fresh_database(postgres_server, template), open_feed
    ):
        assert came_to_it, point
        assert (holds, broken) == (wanted, []), point
        crashed += 1
    tell(kinds_of_statements=len(STATEMENTS), statements=sum(steps.counts.values()), crashes=crashed)
    assert crashed == len(points)


CALLS = {
    "admin.alter_group_offsets",
    "admin.close",
    "admin.describe_cluster",
    "admin.describe_topics",
    "consumer.assign",
    "consumer.assignment",
    "consumer.beginning_offsets",
    "consumer.close",
    "consumer.end_offsets",
    "consumer.highwater",
    "consumer.poll",
    "consumer.position",
    "consumer.seek",
}


def test_a_crash_at_any_call_of_the_broker_is_as_if_it_had_not_been(
    postgres_server: EmbeddedPostgres, stream: Stream, template: str, broker: KafkaBroker, topic: str, whole: bool
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for line in stream.path.read_bytes().splitlines():
        cluster.producer.send(topic, line, partition=0)
    cluster.close()

    def open_feed(steps: Steps) -> CountedFeed:
        return CountedFeed(steps, [broker.bootstrap_servers], [topic])

    steps = Steps()
    with fresh_database(postgres_server, template) as url:
        follow(url, open_feed, steps)
        wanted = found(url)
    assert wanted["state"] == states.expected(stream.tables)
    calls = {kind for kind in steps.counts if "." in kind}
    assert calls == CALLS, "every call is a point: add the new one's kind to the list"
    points = [Point(kind, 1, is_after) for kind in sorted(calls) for is_after in (False, True)]
    runs = crash_at_each(
        points if whole else points[1::6], lambda: fresh_database(postgres_server, template), open_feed
    )
    for point, came_to_it, holds, broken in runs:
        assert came_to_it, point
        assert (holds, broken) == (wanted, []), point
