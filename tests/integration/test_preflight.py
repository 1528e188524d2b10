"""Preflight says what would go wrong, with the statement or setting that mends it, before anything does."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from service.cli import app
from service.core.errors import FeedError, SourceError
from service.store.database import make_engine
from service.store.preflight_facts import read_source_facts, read_state_facts
from service.stream.connect_rest import read_connectors
from service.stream.topic_facts import read_topics
from service.usecases.preflight import check
from service.usecases.preflight_facts import (
    ConnectorFacts,
    Facts,
    Finding,
    FollowedTable,
    Level,
    PublicationFacts,
    SlotFacts,
    SourceFacts,
    StateFacts,
    TableFacts,
    TopicFacts,
)
from tests import states
from tests.broker import KafkaBroker
from tests.cluster import Cluster
from tests.postgres import fresh_database
from tests.postgres_following import run
from tests.states import Tables
from tests.waiting import wait_for

TABLE = TableFacts("public", "items", "app", "full", True)
SOURCE = SourceFacts(
    "database 'shop' at db:5432", "postgresql://app@db/shop", "app", 170000, False, "logical", True, (0, 10), (0, 10),
    False, [TABLE],
)  # fmt: skip
FOLLOWED = FollowedTable("shop", "shop", "public", "items", False, "full", "shop.public.items")
STATE = StateFacts(
    3, [("shop", "postgresql://app@db/shop", "10:20:")], [FOLLOWED], {("kafka:c", "t.public.items", 0): 5}
)
CONFIG = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "database.dbname": "shop",
    "skipped.operations": "none",
    "provide.transaction.metadata": "true",
    "snapshot.mode": "no_data",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}
TOPIC = TopicFacts("t.public.items", 1, "delete", 7 * 86_400_000, {0: 0}, True)


def wrong(facts: Facts) -> list[Finding]:
    return [finding for finding in check(facts) if finding.level is not Level.OK]


def connector(**changed: str | None) -> Facts:
    config = {**CONFIG, **{name.replace("__", "."): value for name, value in changed.items()}}
    return Facts(
        state=STATE,
        source=SOURCE,
        connectors=[ConnectorFacts("c", {k: v for k, v in config.items() if v is not None}, ["RUNNING", "RUNNING"])],
    )


def test_nothing_is_said_against_what_is_well() -> None:
    facts = replace(connector(), feed="kafka:c", topics=[TOPIC])
    assert wrong(facts) == []
    assert {finding.level for finding in check(facts)} == {Level.OK}


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"version": 120000}, "fail", "upgrade it to 13"),
        ({"is_standby": True}, "fail", "primary"),
        ({"wal_level": "replica"}, "fail", "ALTER SYSTEM SET wal_level = logical; then restart the server"),
        ({"may_replicate": False}, "fail", "ALTER ROLE app REPLICATION"),
        ({"senders": (10, 10)}, "fail", "ALTER SYSTEM SET max_wal_senders = 15"),
        ({"slots_used": (4, 4)}, "fail", "ALTER SYSTEM SET max_replication_slots = 9"),
        ({"keeps_any_wal": True}, "warn", "ALTER SYSTEM SET max_slot_wal_keep_size"),
        ({"waits_for_any_reader": True}, "warn", "ALTER SYSTEM SET synchronous_standby_names"),
    ],
)
def test_settings_of_a_source(changed: Mapping[str, object], level: str, way_out: str) -> None:
    (finding,) = wrong(Facts(source=replace(SOURCE, **changed)))  # type: ignore[arg-type]
    assert (finding.level, way_out in finding.way_out) == (level, True)


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"identity": "default"}, "warn", 'ALTER TABLE public."Items" REPLICA IDENTITY FULL'),
        ({"identity": "default", "has_key": False}, "fail", 'ALTER TABLE public."Items" REPLICA IDENTITY FULL'),
        ({"identity": "nothing"}, "fail", 'ALTER TABLE public."Items" REPLICA IDENTITY FULL'),
        ({"is_unlogged": True}, "fail", 'ALTER TABLE public."Items" SET LOGGED'),
        ({"hides_rows": True}, "fail", "ALTER ROLE app BYPASSRLS"),
        ({"may_read": False}, "fail", 'GRANT USAGE ON SCHEMA public TO app; GRANT SELECT ON public."Items" TO app'),
    ],
)
def test_tables_of_a_source(changed: Mapping[str, object], level: str, way_out: str) -> None:
    table = replace(TABLE, name="Items", **changed)  # type: ignore[arg-type]
    (finding,) = wrong(Facts(source=replace(SOURCE, tables=[table])))
    assert (finding.level, finding.about, way_out) == (level, 'public."Items"', finding.way_out.split(", if")[0])


def test_a_followed_table_is_held_against_what_the_state_knows_of_it() -> None:
    weak = replace(SOURCE, tables=[replace(TABLE, identity="default")])
    (lost,) = wrong(Facts(state=STATE, source=weak))
    assert "had replica identity full when it was read" in lost.found
    kept = replace(STATE, tables=[replace(FOLLOWED, row_images=True, identity="default")])
    assert wrong(Facts(state=kept, source=weak)) == []
    (gone,) = wrong(Facts(state=STATE, source=replace(SOURCE, tables=[])))
    name = "shop.public.items"  # it was bootstrapped with --qualify
    assert gone.way_out == f"subsetd attribute drop {name} --force, or subsetd attribute rename {name} NEW"


@pytest.mark.parametrize(
    ("slot", "level", "words"),
    [
        (SlotFacts("s", "shop", True, "lost", None, 15), "fail", "pg_drop_replication_slot('s')"),
        (SlotFacts("s", "shop", True, "unreserved", 1, 15), "warn", "catch up"),
        (SlotFacts("s", "shop", False, "reserved", 7 << 20, 15), "warn", "start its reader"),
    ],
)
def test_slots_of_a_source(slot: SlotFacts, level: str, words: str) -> None:
    (finding,) = wrong(Facts(source=replace(SOURCE, slots=[slot])))
    assert (finding.level, words in finding.way_out) == (level, True)


def test_a_slot_that_is_younger_than_the_bootstrap_may_have_left_a_gap() -> None:
    slot = SlotFacts("s", "shop", True, "reserved", 0, 25)
    fresh = replace(STATE, positions={})
    (finding,) = wrong(Facts(state=fresh, source=replace(SOURCE, slots=[slot])))
    assert "made after the bootstrap" in finding.found
    assert wrong(Facts(state=fresh, source=replace(SOURCE, slots=[replace(slot, catalog_xmin=15)]))) == []


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"skipped__operations": None}, "fail", "skipped.operations=none"),
        ({"provide__transaction__metadata": None}, "warn", "provide.transaction.metadata=true"),
        ({"snapshot__mode": "initial"}, "warn", "snapshot.mode=no_data"),
        ({"decimal__handling__mode": "double"}, "fail", "decimal.handling.mode=string"),
        ({"value__converter__schemas__enable": "false"}, "warn", "decimal.handling.mode=string"),
        ({"time__precision__mode": "connect"}, "fail", "time.precision.mode=adaptive"),
        ({"binary__handling__mode": "hex"}, "fail", "SUBSETD_BINARY_HANDLING=hex"),
        ({"value__converter": None}, "warn", "value.converter=org.apache.kafka.connect.json.JsonConverter"),
        ({"value__converter": "io.confluent.connect.avro.AvroConverter"}, "fail", "SUBSETD_SCHEMA_REGISTRY"),
        ({"value__converter": "x.ProtobufConverter"}, "fail", "JsonConverter"),
        ({"unavailable__value__placeholder": "?"}, "fail", "remove unavailable.value.placeholder"),
        ({"field__name__adjustment__mode": "avro"}, "fail", "field.name.adjustment.mode=none"),
        ({"column__exclude__list": "public.items.secret"}, "fail", "remove column.exclude.list"),
        ({"column__mask__hash__v2__SHA-256__with__salt__x": "a"}, "fail", "remove column.mask.hash"),
        ({"message__key__columns": "a:b"}, "warn", "remove message.key.columns"),
        ({"plugin__name": "wal2json"}, "fail", "plugin.name=pgoutput"),
        ({"table__include__list": "public.orders,other.*"}, "fail", "add public.items to table.include.list"),
        ({"schema__include__list": "other"}, "fail", "add public.items"),
    ],
)
def test_settings_of_a_connector(changed: Mapping[str, str | None], level: str, way_out: str) -> None:
    (finding,) = wrong(connector(**changed))
    assert (finding.level, way_out in finding.way_out) == (level, True)


@pytest.mark.parametrize(
    ("connector_class", "told", "said"),
    [
        ("postgresql.PostgresConnector", "true", []),
        ("postgresql.PostgresConnector", "false", ["so that none is kept whole, and what it sends again"]),
        (
            "sqlserver.SqlServerConnector",
            "false",
            ["does not say how long columns are", "so that none is kept whole, and what it sends again"],
        ),
        ("mysql.MySqlConnector", "true", []),
        ("mysql.MySqlConnector", "false", ["so that none is kept whole"]),
        ("oracle.OracleConnector", "true", ["so what it sends again after a restart cannot be recognised"]),
    ],
)
def test_connectors_whose_repeats_cannot_be_recognised(connector_class: str, told: str, said: list[str]) -> None:
    changed = {"connector__class": f"io.debezium.connector.{connector_class}", "provide__transaction__metadata": told}
    facts = connector(plugin__name=None, **changed)
    found = wrong(facts)
    assert [words in one.found for words, one in zip(said, found, strict=True)] == [True] * len(said)
    images = replace(STATE, tables=[replace(FOLLOWED, row_images=True)])
    assert not [one for one in wrong(replace(facts, state=images)) if "recognised" in one.found]


@pytest.mark.parametrize("database", [None, "other"])
def test_a_connector_need_not_send_the_tables_of_another_database(database: str | None) -> None:
    assert wrong(connector(database__dbname=database, table__include__list="other.items")) == []


def test_a_connector_of_sql_server_has_to_say_how_long_columns_are() -> None:
    kind = {"connector__class": "io.debezium.connector.sqlserver.SqlServerConnector", "plugin__name": None}
    (finding,) = wrong(connector(**kind))
    assert finding.way_out.startswith("column.propagate.source.type=.*")
    assert wrong(connector(**kind, column__propagate__source__type=".*")) == []
    without = {"value__converter__schemas__enable": "false", "column__propagate__source__type": ".*"}
    assert finding in wrong(connector(**kind, **without))


def test_binaries_in_hexadecimal_are_well_where_the_setting_says_so() -> None:
    said = replace(connector(binary__handling__mode="hex"), binary_handling="hex")
    assert wrong(said) == []
    assert wrong(replace(connector(), binary_handling="hex")) == [], "with a schema they are bytes"
    (finding,) = wrong(replace(connector(binary__handling__mode="base64"), binary_handling="hex"))
    assert finding.way_out == "SUBSETD_BINARY_HANDLING=base64"


def test_a_connector_that_flattens_has_to_say_what_its_events_are() -> None:
    kind = {"transforms": "flat", "transforms__flat__type": "io.debezium.transforms.ExtractNewRecordState"}
    found = {finding.way_out for finding in wrong(connector(**kind))}
    assert "transforms.flat.add.fields=op,source.ts_ms,table" in found
    assert "transforms.flat.delete.tombstone.handling.mode=rewrite" in found
    kind["transforms__flat__type"] = "io.debezium.transforms.Filter"
    (finding,) = wrong(connector(**kind))
    assert finding.level == "fail"


def test_intervals_of_a_source_need_their_own_setting() -> None:
    facts = connector()
    with_interval = replace(SOURCE, tables=[replace(TABLE, types=frozenset({"interval"}))])
    (finding,) = wrong(replace(facts, source=with_interval))
    assert finding.way_out == "interval.handling.mode=string"


def test_a_connector_that_does_not_run_is_told_with_the_way_to_start_it() -> None:
    (finding,) = wrong(Facts(connectors=[ConnectorFacts("c", CONFIG, ["RUNNING", "FAILED"])]))
    assert "is FAILED" in finding.found
    assert "restart?includeTasks=true" in finding.way_out
    (none,) = wrong(Facts(connectors=[]))
    assert none.level == "fail"


def test_a_publication_is_held_against_the_tables() -> None:
    cut = PublicationFacts(
        "dbz_publication", frozenset({"insert"}), frozenset({("public", "items")}), frozenset({("public", "items")})
    )
    facts = replace(connector(), source=replace(SOURCE, publications=[cut]))
    assert [finding.way_out for finding in wrong(facts)] == [
        "ALTER PUBLICATION dbz_publication SET (publish = 'insert, update, delete, truncate')",
        "ALTER PUBLICATION dbz_publication DROP TABLE public.items; "
        "ALTER PUBLICATION dbz_publication ADD TABLE public.items",
    ]


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"partitions": 0}, "fail", "create it"),
        ({"cleanup": "compact"}, "fail", "cleanup.policy=delete"),
        ({"retention_ms": 3_600_000}, "warn", "retention.ms=604800000"),
        ({"begins": {0: 9}}, "fail", "--replace"),
        ({"partitions": 3}, "warn", "one partition"),
    ],
)
def test_topics(changed: Mapping[str, object], level: str, words: str) -> None:
    (finding,) = wrong(Facts(state=STATE, feed="kafka:c", topics=[replace(TOPIC, **changed)]))  # type: ignore[arg-type]
    assert (finding.level, words in finding.way_out) == (level, True)


def test_what_a_state_needs_of_a_person() -> None:
    (empty,) = wrong(Facts(state=StateFacts(0, [], [], {})))
    assert "subsetd bootstrap" in empty.way_out
    letters, stale = wrong(Facts(state=replace(STATE, dead_letters=2, stale=["s.t.c"])))
    assert "subsetd dead-letters" in letters.way_out
    assert "subsetd attribute drop s.t.c" in stale.way_out


# Facts, gathered from real parts


def test_facts_of_a_real_postgres(postgres_server) -> None:
    with fresh_database(postgres_server, "template0") as url:
        states.execute(
            url,
            """
            create table whole (id integer primary key, lasted interval); alter table whole replica identity full;
            create table keyed (id integer primary key); create table bare (id integer);
            create unlogged table gone (id integer primary key);
            create table parts (id integer primary key) partition by range (id);
            create table parts_1 partition of parts for values from (0) to (10);
            alter table parts replica identity full;
            create publication told for table whole (id), keyed with (publish = 'insert, update');
            """,
        )
        facts = read_source_facts(url)
    tables = {table.name: table for table in facts.tables}
    assert {name: (t.identity, t.has_key, t.is_unlogged) for name, t in tables.items()} == {
        "whole": ("full", True, False),
        "keyed": ("default", True, False),
        "bare": ("default", False, False),
        "gone": ("default", True, True),
        "parts": ("default", True, False),
    }, "a partition has a replica identity of its own"
    assert tables["whole"].types == {"integer", "interval"}
    assert (facts.may_replicate, facts.is_standby, facts.keeps_any_wal) == (True, False, True)
    (publication,) = facts.publications
    assert publication == PublicationFacts(
        "told",
        frozenset({"insert", "update"}),
        frozenset({("public", "whole"), ("public", "keyed")}),
        frozenset({("public", "whole")}),
    )


def test_publications_of_schemas_that_the_role_may_not_use_are_looked_at(postgres_server) -> None:
    with fresh_database(postgres_server, "template0") as url:
        states.execute(
            url,
            "create schema secret; create table secret.t (id integer primary key); "
            "create publication of_others for table secret.t; create role onlooker",
        )
        try:
            as_onlooker = make_url(url).update_query_dict({"options": "-c role=onlooker"})
            (publication,) = read_source_facts(as_onlooker.render_as_string(hide_password=False)).publications
            assert publication.tables == {("secret", "t")}
        finally:
            states.execute(url, "drop role onlooker")


def test_names_of_standbys_that_a_feed_has_are_told(postgres_server) -> None:
    """None commits anything meanwhile: it would wait for a standby that is not there."""
    with fresh_database(postgres_server, "template0") as url:
        assert not read_source_facts(url).waits_for_any_reader
        try:
            run(url, "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (\"Subsetd feed shop\")'")
            run(url, "SELECT pg_reload_conf()")
            wait_for(lambda: states.query(url, "SHOW synchronous_standby_names") != [("",)])
            assert read_source_facts(url).waits_for_any_reader
        finally:
            run(url, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
            wait_for(lambda: states.query(url, "SHOW synchronous_standby_names") == [("",)])


def test_generated_columns_that_no_change_tells(postgres_server) -> None:
    with fresh_database(postgres_server, "template0") as url:
        states.execute(
            url,
            """
            create table made (id integer primary key, twice integer generated always as (id * 2) stored);
            create table thought (id integer primary key, twice integer generated always as (id * 2) virtual);
            create publication silent for table made, thought;
            create publication told for table made, thought with (publish_generated_columns = stored);
            """,
        )
        source = read_source_facts(url)

    def untold(publication: str, state: StateFacts | None = None) -> list[tuple[str, str]]:
        facts = replace(connector(publication__name=publication), source=source, state=state)
        return [(one.found, one.way_out) for one in wrong(facts) if "generated columns" in one.found]

    thought = (
        "does not tell the generated columns of public.thought: twice",
        "after the bootstrap: subsetd attribute drop --force public.thought.twice",
    )
    made = (
        "does not tell the generated columns of public.made: twice",
        "ALTER PUBLICATION silent SET (publish_generated_columns = stored)",
    )
    assert untold("silent") == [made, thought]
    assert untold("told") == [thought]
    followed = replace(FOLLOWED, name="thought", known_as="shop.public.thought")
    state = replace(STATE, sources=[("shop", source.location, None)], tables=[followed])
    ways_out = [way_out for _, way_out in untold("told", state)]
    assert ways_out == ["after the bootstrap: subsetd attribute drop --force shop.public.thought.twice"]


def test_partitions_whose_changes_have_names_of_their_own(postgres_server) -> None:
    with fresh_database(postgres_server, "template0") as url:
        states.execute(
            url,
            """
            create table parts (id integer primary key) partition by range (id);
            create table parts_1 partition of parts for values from (0) to (10);
            alter table parts_1 replica identity full;
            create publication leaves for table parts;
            create publication roots for table parts with (publish_via_partition_root);
            """,
        )

        def told(**config: str) -> list[tuple[str, str, str]]:
            facts = replace(connector(**config), source=read_source_facts(url), state=None)
            about = ("connector c", "publication leaves", "publication roots")
            return [(one.level, one.found, one.way_out) for one in wrong(facts) if one.about in about]

        def fails(way_out: str) -> list[tuple[str, str, str]]:
            found = "tells changes of public.parts by the names of its partitions, which are not followed"
            return [("fail", found, way_out)]

        alter, setting = (
            "ALTER PUBLICATION leaves SET (publish_via_partition_root = true)",
            "publish.via.partition.root=true",
        )
        assert told(publication__name="roots") == []
        assert told(publication__name="leaves") == fails(f"{alter}, and {setting}")
        assert told(publication__name="leaves", publish__via__partition__root="true") == fails(alter)
        assert told(publication__name="new") == fails(setting)
        assert told(publication__name="new", publish__via__partition__root="true") == []
        states.execute(url, alter)
        assert told(publication__name="leaves") == []


def test_a_source_that_is_away_is_told() -> None:
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1.*--source"):
        read_source_facts("postgresql://app@127.0.0.1:1/shop")


def test_facts_of_a_real_state(database_url: str) -> None:
    states.store(database_url, Tables({"items": ["id"]}).add("items", ["1"]))
    states.execute(
        database_url,
        "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table, replica_identity) "
        "select source_id, 's', 'items', 'public', 'items', 'full' from source; "
        "update attribute set stale_version = 1",
    )
    engine = make_engine(database_url, "test")
    facts = read_state_facts(engine)
    engine.dispose()
    assert facts == StateFacts(
        1,
        [("s", "-", None)],
        [FollowedTable("s", None, "public", "items", False, "full", "s.items")],
        {},
        0,
        ["s.items.id"],
    )


def test_a_compacted_topic_is_to_be_read_before_it_is_compacted() -> None:
    """With row images the rest of a row's changes makes it right, but for deletes and cells that were not sent."""
    state = replace(STATE, tables=[replace(FOLLOWED, row_images=True)])
    compacted = replace(TOPIC, cleanup="compact", retention_ms=-1)
    for lag, words in ((0, "at once"), (3_600_000, "after 60 minutes")):
        (finding,) = wrong(Facts(state=state, feed="kafka:c", topics=[replace(compacted, compaction_lag_ms=lag)]))
        assert (finding.level, words in finding.found) == ("warn", True)
        assert finding.way_out.endswith("min.compaction.lag.ms=604800000")
    kept = replace(compacted, compaction_lag_ms=2 * 86_400_000)
    elsewhere = replace(compacted, name="t.public.others")
    both = replace(kept, cleanup="compact,delete", retention_ms=3_600_000)
    (finding,) = wrong(Facts(state=state, feed="kafka:c", topics=[kept, elsewhere, both]))
    assert (finding.level, finding.way_out.endswith("retention.ms=604800000")) == ("warn", True)


def test_facts_of_real_topics(cluster: Cluster, broker: KafkaBroker) -> None:
    keyed = cluster.topic(partitions=2, **{"cleanup.policy": "compact", "min.compaction.lag.ms": "120000"})
    cluster.send(keyed, [b"{}"])
    bare = cluster.topic(**{"retention.ms": "60000"})
    cluster.producer.send(bare, b"{}").get(timeout=30)
    empty = cluster.topic()
    name, facts = read_topics(f"kafka://{broker.bootstrap_servers}/{keyed},{bare},{empty},missing")
    assert name.startswith("kafka:")
    found = {topic.name: topic for topic in facts}
    assert (found[keyed].partitions, found[keyed].cleanup, found[keyed].is_keyed) == (2, "compact", True)
    assert (found[keyed].compaction_lag_ms, found[bare].compaction_lag_ms) == (120_000, 0)
    assert (found[bare].retention_ms, found[bare].is_keyed, found[bare].begins) == (60_000, False, {0: 0})
    assert (found[empty].is_keyed, found["missing"].partitions) == (None, 0)


@contextmanager
def connect_stub(answer: bytes) -> Iterator[str]:
    """Answer every request as a Kafka Connect would, on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def listening(banner: bytes) -> Iterator[int]:
    """Greet whoever connects as something that is no HTTP server; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with suppress(OSError):
                found, _ = server.accept()
                with found:
                    found.sendall(banner)
                    found.recv(1 << 16)

        thread = threading.Thread(target=greet)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def answer(**connectors: Mapping[str, str]) -> bytes:
    status = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
    return json.dumps(
        {name: {"info": {"config": config}, "status": status} for name, config in connectors.items()}
    ).encode()


def test_debezium_s_connectors_are_read_over_rest() -> None:
    with connect_stub(answer(shop=CONFIG, sink={"connector.class": "io.example.Sink"})) as url:
        assert read_connectors(url) == [ConnectorFacts("shop", CONFIG, ["RUNNING", "RUNNING"])]
    with pytest.raises(FeedError, match=r"does not answer: .*--connect"):
        read_connectors(url)
    with connect_stub(b"<html>") as url, pytest.raises(FeedError, match="does not answer as Kafka Connect does"):
        read_connectors(url)
    with pytest.raises(FeedError, match="no address of Kafka Connect"):
        read_connectors("file:///etc/passwd")
    for wrong in ("http://127.0.0.1:80x", "http://ada:geh/eim@127.0.0.1:1", "http://ada:geheim@[::1"):
        with pytest.raises(FeedError, match="no address of Kafka Connect") as caught:
            read_connectors(wrong)
        assert "geh" not in str(caught.value)
    with pytest.raises(FeedError, match=r"at http://127\.0\.0\.1:1 does not answer"):
        read_connectors("http://ada:geheim@127.0.0.1:1")
    with listening(b"SSH-2.0-OpenSSH\r\n") as port, pytest.raises(FeedError, match=r"does not answer: .*SSH"):
        read_connectors(f"http://127.0.0.1:{port}")


def test_the_command_prints_findings_and_ends_with_1_when_something_would_fail(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    states.store(database_url, Tables({"items": ["id"]}).add("items", ["1"]))
    with connect_stub(answer(shop={**CONFIG, "skipped.operations": "t"})) as url:
        told = CliRunner().invoke(app, ["preflight", "--connect", url, "--format", "json"])
        assert told.exit_code == 1
        assert {"level": "fail", "about": "connector shop", "found": "leaves out operations (t)",
                "way_out": "skipped.operations=none"} in json.loads(told.stdout)  # fmt: skip
        shown = CliRunner().invoke(app, ["preflight", "--connect", url])
        assert "connector shop: leaves out operations (t)" in shown.stdout
    with connect_stub(answer(shop=CONFIG)) as url:
        assert CliRunner().invoke(app, ["preflight", "--connect", url]).exit_code == 0
    away = CliRunner().invoke(app, ["preflight", "--source", "postgresql://app@127.0.0.1:1/shop"])
    assert (away.exit_code, "Cannot reach" in away.stdout) == (1, True)
