"""A crash at any step of a batch, in turn: after the restart the state is that of a run without it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import orjson
import pytest
from kafka import KafkaConsumer, TopicPartition

from service.store import histograms, writer
from service.store.embedded import EmbeddedPostgres
from service.stream import kafka_feed, kafka_producer
from service.stream.file_feed import FileFeed
from service.stream.kafka_dead_letters import DeadLetterTopic
from service.stream.kafka_sockets import CLOSING
from service.stream.kafka_transitions import TransitionTopic
from service.usecases import feed_session, send_transitions
from tests import states
from tests.cluster import Cluster
from tests.endurance.call_sites import calls_of, statements_not_given, with_imported
from tests.endurance.counting import FROM_MEMORY, CountedFeed, CountedProducer, Point, Site, Steps, points_of
from tests.endurance.crash_points import Copy, Run, complete, crash_at_each, follow, found, retry, send
from tests.events import envelope
from tests.following import COLUMNS, Stream, random_changes
from tests.postgres import TEMPLATE, fresh_database, name_of
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

OF_A_BOOTSTRAP = {
    *("write_partition", "read_range", "read_positions", "put_positions", "_positions", "_begun"),
    *("new_table_ids", "write_row_images", "count_row_images", "clear_row_images"),
}
OF_A_COMMAND = {
    *("is_followed", "begins_at", "tables_of", "address_of", "forget", "set_paused", "read", "drop"),
    *(
        "add_tuples",
        "pin",
        "read_facts",
        "read_known",
        "unpin",
        "write_dropped",
        "write_filled",
        "_rename_column",
        "_rename_table",
        "drop_sketches",
        "forget_cells",
        "forget_if_had",
        "_migrate",
        "_require_postgres",
        "_require_no_key",
        "_require_same_texts",
        "is_known",
        "keep_writers_away",
        "connect",
        "follow_all",
        "follow_kept",
        "keep_histograms",
        "read_histograms",
        "read_kept_statistics",
        "read_value_changes",
    ),
}
OF_A_COMPACTION = {"read_keys"}
OF_SHARDS_ALONE = {
    *(
        "deal",
        "deal_again",
        "find_shards",
        "read_places",
        "move_shards",
        "set_shards",
        "undo_shard",
        "undo_shards",
        "_readdress",
    ),
    *("_apply", "_write", "_connect"),
}
OF_SERVERS = {
    *(
        "attach_shard",
        "drop_emptied",
        "drop_if_unread",
        "drop_shard",
        "keep_clusters",
        "make_shard",
        "read_stands",
        "require_applying",
        "require_fit",
        "require_no_state",
        "require_schema",
        "servers_reached",
    ),
    *("_drop_tables", "_forget_shard", "_missing_on", "note_applied", "settle", "write_behind"),
}
"""See `test_shard_servers.py`, which dies at each statement that a server is given."""
OF_A_WAIT = {"_holder", "put_fault", "_renew_staging"}
"""Functions of the store that give the database statements when no feed is followed, none is at hand, or each hour."""

NOT_OF_A_FEED = {"describe_configs", "list_topics"}
"""Calls of the broker that following does not come to: a bootstrap from topics, and a topic that is missing."""


CLIENTS = ("clients.", "consumer.", "admin.", "letters.", "transitions.")

BAD = (
    b"{this is no JSON",
    envelope("d", "s", "orders", {"id": "77", "customer": "7", "note": "too early"}),  # can be applied later on
    envelope("d", "s", "customers", {"id": "never", "name": "so"}),
)
"""Records that are set aside."""

CONTRACTS = [
    (("orders", "customer"), ("customers", "id")),
    (("orders", "note"), ("customers", "name")),  # violated before it was said, so that no batch knows it at first
    (("notes", "body"), ("customers", "name")),
    (("notes", "gone"), ("customers", "name")),
]


@pytest.fixture(autouse=True)
def _steps_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what comes every second come every time or never, so that each run takes the same steps."""
    monkeypatch.setattr(feed_session, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(feed_session, "TRUNCATE_PORTION", 3)
    monkeypatch.setattr(kafka_feed, "HINT_SECONDS", 0.0)
    monkeypatch.setattr(kafka_feed, "SILENT_CHECK_SECONDS", float("inf"))
    monkeypatch.setattr(kafka_feed, "BUSY_CHECK_SECONDS", float("inf"))
    monkeypatch.setattr(send_transitions, "PAGE", 10)


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
        notes = "update attribute set {} where table_name = 'notes' and column_name = '{}'"
        states.execute(url, notes.format("data_type = 'smallint'", "id"))
        states.execute(url, notes.format("renamed_to = 'text'", "body"))
        for dependent, referenced in CONTRACTS:
            sides = "'s', '{}', '{{{}}}', 's', '{}', '{{{}}}'".format(*dependent, *referenced)
            states.execute(
                url,
                "insert into contract (dependent_schema, dependent_table, dependent_columns, referenced_schema, "
                f"referenced_table, referenced_columns, least_coefficient, created_by) values ({sides}, 0.6, 'Ada')",
            )
        states.execute(url, "insert into followed_attribute select attribute_id, 1 from attribute")
        states.execute(url, "insert into join_tracked select table_id, 1 from tracked_table where row_images")
        states.execute(url, "insert into key_histogram select attribute_id, 1, array[attribute_id], '' from attribute")
        stream.append("orders", None, ["11", "2", None])  # the source was read behind it
        states.execute(
            url,
            f"insert into feed_catch_up select 'file:{stream.path}', '{stream.path}', 0, source_id, "
            f"{stream.path.stat().st_size} from source",
        )
        write_changes(stream)
        yield name_of(url)


def write_changes(stream: Stream) -> None:
    rng = random.Random(3)
    random_changes(stream, rng, 10)
    for key in (1, 2, 3):
        stream.write(envelope("c", "s", "notes", None, {"id": key, "body": f"note {key}"}))
    stream.write(BAD[0])
    stream.write(BAD[1])
    random_changes(stream, rng, 10)
    stream.write(envelope("u", "s", "notes", None, {"id": 2, "body": "Ada"}))
    stream.write(envelope("d", "s", "notes", {"id": 3, "body": None}))
    stream.write(envelope("t", "s", "orders"))
    stream.tables.rows["orders"].clear()
    random_changes(stream, rng, 8)
    stream.write(envelope("t", "s", "notes"))
    stream.write(envelope("c", "s", "notes", None, {"id": 4, "body": "Bob"}))
    fields = [{"field": "id", "type": "int32"}, {"field": "text", "type": "string"}]  # another type, another name
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    payload = orjson.loads(envelope("c", "s", "notes", None, {"id": 5, "text": "Ada"}))
    payload["source"]["ts_ms"] = 1000  # which is kept with the columns that changed
    stream.write(orjson.dumps({"schema": schema, "payload": payload}))
    stream.tables.columns["notes"] = ["id", "text"]
    stream.tables.add("notes", ["4", "Bob"], ["5", "Ada"])
    stream.write(BAD[2])
    stream.append("orders", None, ["77", "7", "too early"])
    stream.columns["customers"] = stream.tables.columns["customers"] = [*COLUMNS["customers"], "added"]
    customers = stream.tables.rows["customers"]
    stream.tables.rows["customers"] = Counter({(*row, None): count for row, count in customers.items()})
    stream.change("customers", None, ["7", "Cleo", "Ada"])
    stream.change("orders", None, ["13", "9", "breaks a dependency"])


def test_a_crash_at_any_statement_is_as_if_it_had_not_been(
    postgres_server: EmbeddedPostgres, stream: Stream, template: str, whole: bool, tell: Callable[..., None]
) -> None:
    late = stream.path.with_name("late")
    # A column that came with a default has cells that no change brought: it is no longer kept current.
    late.write_bytes(envelope("d", "s", "customers", {"id": "7", "name": "Cleo", "added": "default"}) + b"\n")

    def follow_late(url: str, steps: Steps) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(histograms, "MOST_BYTES", 0)  # nobody has asked for histograms for long
            follow(url, steps, lambda: FileFeed(str(late)))

    runs: list[Run] = [
        lambda url, steps: follow(url, steps, lambda: FileFeed(str(stream.path))),
        lambda url, steps: retry(url, steps, BAD[1]),
        follow_late,
    ]
    counts, sites = Counter[str](), set[Site]()
    planned: list[tuple[Run, list[Point], Copy, dict[str, object]]] = []
    with ExitStack() as databases:
        for run in runs:  # each begins where the one before has ended
            steps, copy = Steps(), partial(fresh_database, postgres_server, template)
            url = databases.enter_context(copy())
            complete(run, url, steps)
            planned.append((run, points_of(steps.counts, every=whole), copy, found(url)))
            if len(planned) == 1:
                states.deal(url, 3)  # from here on in shards
            template = name_of(url)
            counts, sites = counts + steps.counts, sites | steps.sites
        assert planned[1][-1]["state"] == states.expected(stream.tables)
        elsewhere = OF_A_BOOTSTRAP | OF_A_COMMAND | OF_A_COMPACTION | OF_A_WAIT | OF_SHARDS_ALONE | OF_SERVERS
        missing = statements_not_given(with_imported(writer), elsewhere, sites)
        assert missing == [], "every statement is a point: let the feed come to these, or say that no batch does"
        for run, points, copy, wanted in planned:
            for point, holds, broken in crash_at_each(points, copy, run):
                assert (holds, broken) == (wanted, []), point
    crashes = sum(len(points) for _, points, _, _ in planned)
    tell(kinds_of_statements=len(counts), statements=counts.total(), crashes=crashes)


TRANSITIONS = """
select version, dependent_id, referenced_id, kind from (
    select version, false as is_contract, dependent_id, referenced_id, kind from ind_transition
    union all select version, true, contract_id, null, kind from contract_transition
) both_kinds order by version, is_contract, dependent_id, referenced_id
"""


def _sides(message: dict[str, Any]) -> tuple[int | None, int | None]:
    if "contract_id" in message:
        return message["contract_id"], None
    return message["dependent"]["attribute_id"], message["referenced"]["attribute_id"]


class Topics:
    """Hold the topics that a run sends to, new ones for each, and read what is in them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.reader = KafkaConsumer(bootstrap_servers=cluster.servers, proxy_url=CLOSING)
        self.letters = self.transitions = ""

    def renew(self) -> None:
        if self.letters:
            self.cluster.admin.delete_topics([self.letters, self.transitions])
        self.letters, self.transitions = self.cluster.topic(), self.cluster.topic()

    def address(self, topic: str) -> str:
        return f"kafka://{self.cluster.servers}/{topic}"

    def read_letters(self) -> list[tuple[str, int]]:
        """Give topic and offset of each letter; one that was sent twice comes once."""
        told = [dict(record.headers) for record in self._read(self.letters)]
        name = "__connect.errors."
        return list(dict.fromkeys((one[f"{name}topic"].decode(), int(one[f"{name}offset"])) for one in told))

    def read_transitions(self) -> list[tuple[Any, ...]]:
        """Give version, contract or attributes, and kind of each transition; one that was sent twice comes once."""
        told = [orjson.loads(record.value) for record in self._read(self.transitions)]
        return list(dict.fromkeys((m["version"], *_sides(m), m["kind"]) for m in told))

    def _read(self, topic: str) -> list[Any]:
        partition, records = TopicPartition(topic, 0), list[Any]()
        self.reader.assign([partition])
        end = self.reader.end_offsets([partition], timeout_ms=int(BOUND_SECONDS * 1000))[partition]
        self.reader.seek(partition, 0)
        wait_for(lambda: records.extend(self.reader.poll(timeout_ms=500).get(partition, [])) or len(records) >= end)
        return records


def calls_needed() -> set[str]:
    """Name every call of the broker that the feed and what sends to topics have in their source."""
    of_feed = {
        f"{client}.{name}"
        for client in ("consumer", "admin")
        for name in calls_of(kafka_feed, f"_{client}") - NOT_OF_A_FEED - set(FROM_MEMORY)
    }
    sent = calls_of(kafka_producer, "producer") | {f"send().{name}" for name in calls_of(kafka_producer, "future")}
    return of_feed | {f"{topic}.{name}" for topic in ("letters", "transitions") for name in sent}


def test_a_crash_at_any_call_of_the_broker_is_as_if_it_had_not_been(
    postgres_server: EmbeddedPostgres,
    stream: Stream,
    template: str,
    cluster: Cluster,
    whole: bool,
    tell: Callable[..., None],
) -> None:
    topic, topics = cluster.topic(), Topics(cluster)
    lines = stream.path.read_bytes().splitlines()[1:]
    cluster.send(topic, lines)
    bad = [(topic, offset) for offset, line in enumerate(lines) if line in BAD]

    def run(url: str, steps: Steps) -> None:
        letters = DeadLetterTopic(topics.address(topics.letters))
        letters._producer = CountedProducer(topics.address(topics.letters), "letters", steps)
        follow(url, steps, lambda: CountedFeed(steps, [cluster.servers], [topic]), letters)
        letters.close()
        transitions = TransitionTopic(topics.address(topics.transitions))
        transitions._producer = CountedProducer(topics.address(topics.transitions), "transitions", steps)
        send(url, steps, transitions)
        transitions.close()

    @contextmanager
    def copy() -> Iterator[str]:
        topics.renew()
        with fresh_database(postgres_server, template) as url:
            yield url
            assert topics.read_letters() == bad
            assert topics.read_transitions() == states.query(url, TRANSITIONS)

    with copy() as url:  # the first of all hints lets the broker elect who takes them, and comes again until then
        complete(run, url, Steps())
    steps = Steps()
    with copy() as url:
        complete(run, url, steps)
        wanted = found(url)
    untried = ["77", "7", "too early"]
    stream.tables.add("orders", untried)
    assert wanted["state"] == states.expected(stream.tables)
    stream.tables.remove("orders", untried)
    counts = Counter({kind: count for kind, count in steps.counts.items() if kind.startswith(("sender: ", *CLIENTS))})
    assert calls_needed() <= counts.keys(), "every call is a point: let the feed come to the new one"
    points = points_of(counts, every=whole)[:: 1 if whole else 5]
    for point, holds, broken in crash_at_each(points, copy, run):
        assert (holds, broken) == (wanted, []), point
    tell(kinds_of_calls=len(counts), calls=counts.total(), crashes=len(points))
    topics.reader.close()
