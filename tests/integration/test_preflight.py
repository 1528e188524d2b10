"""Preflight says what would go wrong, with the statement or setting that mends it, before anything does."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from service import feed_wiring, wiring
from service.cli import app
from service.config import load_settings
from service.core.errors import FeedError, SourceError
from service.store import migrate
from service.store.database import make_engine
from service.store.preflight_facts import read_source_facts, read_state_facts
from service.stream.connect_rest import read_connectors
from service.stream.topic_facts import read_topics
from service.usecases.preflight_facts import (
    ConnectorFacts,
    FollowedTable,
    PublicationFacts,
    StateFacts,
)
from tests import states
from tests.broker import KafkaBroker
from tests.cluster import Cluster
from tests.postgres import fresh_database, server_version
from tests.postgres_following import run
from tests.preflight import (
    CONFIG,
    FOLLOWED,
    STATE,
    connector,
    wrong,
)
from tests.states import Tables
from tests.waiting import wait_for

# Facts, gathered from real parts


def test_facts_of_a_real_postgres(logical_server) -> None:
    listed = "(id)" if server_version(logical_server) >= 15_00_00 else ""
    with fresh_database(logical_server, "template0") as url:
        states.execute(
            url,
            f"""
            create table whole (id integer primary key, lasted interval); alter table whole replica identity full;
            create table keyed (id integer primary key); create table bare (id integer);
            create unlogged table gone (id integer primary key);
            create table parts (id integer primary key) partition by range (id);
            create table parts_1 partition of parts for values from (0) to (10);
            alter table parts replica identity full;
            create table late (id integer primary key deferrable);
            create table unnamed (id integer not null unique);
            alter table unnamed replica identity using index unnamed_id_key;
            alter table unnamed drop constraint unnamed_id_key;
            create publication told for table whole {listed}, keyed with (publish = 'insert, update');
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
        "late": ("default", False, False),
        "unnamed": ("index", False, False),
    }, "a partition has a replica identity of its own"
    assert tables["whole"].types == {"integer", "interval"}
    assert (facts.may_replicate, facts.is_standby, facts.keeps_any_wal) == (True, False, True)
    (publication,) = facts.publications
    assert publication == PublicationFacts(
        "told",
        frozenset({"insert", "update"}),
        frozenset({("public", "whole"), ("public", "keyed")}),
        frozenset({("public", "whole")} if listed else ()),
    )


def test_publications_of_schemas_that_the_role_may_not_use_are_looked_at(logical_server) -> None:
    with fresh_database(logical_server, "template0") as url:
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


def test_a_role_of_amazon_s_stands_for_the_right_to_read_changes(logical_server) -> None:
    with fresh_database(logical_server, "template0") as url:
        states.execute(
            url, "create role rds_replication; create role of_amazon in role rds_replication; create role bare"
        )
        try:
            for role, may_replicate in (("of_amazon", True), ("bare", False)):
                address = make_url(url).update_query_dict({"options": f"-c role={role}"})
                facts = read_source_facts(address.render_as_string(hide_password=False))
                assert (facts.user, facts.may_replicate) == (role, may_replicate)
        finally:
            states.execute(url, "drop role of_amazon, bare, rds_replication")


def test_names_of_standbys_that_a_feed_has_are_told(logical_server) -> None:
    """None commits anything meanwhile: it would wait for a standby that is not there."""
    with fresh_database(logical_server, "template0") as url:
        assert not read_source_facts(url).waits_for_any_reader
        try:
            run(url, "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (\"Subsetd feed shop\")'")
            run(url, "SELECT pg_reload_conf()")
            wait_for(lambda: states.query(url, "SHOW synchronous_standby_names") != [("",)])
            assert read_source_facts(url).waits_for_any_reader
        finally:
            run(url, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
            wait_for(lambda: states.query(url, "SHOW synchronous_standby_names") == [("",)])


def test_generated_columns_that_no_change_tells(logical_server) -> None:
    with fresh_database(logical_server, "template0") as url:
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


def test_partitions_whose_changes_have_names_of_their_own(logical_server) -> None:
    with fresh_database(logical_server, "template0") as url:
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
    for address in ("http://127.0.0.1:80x", "http://ada:geh/eim@127.0.0.1:1", "http://ada:geheim@[::1"):
        with pytest.raises(FeedError, match="no address of Kafka Connect") as caught:
            read_connectors(address)
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


@pytest.mark.parametrize("revision", ["0010", None])
def test_an_embedded_state_is_neither_made_nor_brought_up_to_date(
    empty_database_url: str, revision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if revision is not None:
        migrate.upgrade(empty_database_url)
        migrate.downgrade(empty_database_url, revision)
    embedded = nullcontext(SimpleNamespace(url=empty_database_url))
    monkeypatch.setattr(wiring, "EmbeddedPostgres", lambda _: embedded)
    settings = load_settings(data_dir=tmp_path)
    (absent,) = feed_wiring.preflight(settings, None, None, None)
    assert "no source was bootstrapped yet" in absent.found
    (tmp_path / "postgres").mkdir()
    (found,) = feed_wiring.preflight(settings, None, None, None)
    assert ("no source was bootstrapped yet" in found.found) == (revision is None)
    assert migrate.found_revision(empty_database_url) == revision
