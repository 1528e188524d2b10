"""The doctor finds what is wrong, provoked for real where that can be, and says how to mend it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from kafka import TopicPartition

from service import doctor
from service.config import load_settings
from service.core.canonical import value_keys
from service.core.errors import NotFoundError, StateError
from service.feed_wiring import forget_feed
from service.store.database import make_engine, parse_address
from service.store.writer import PostgresWriter
from service.store.writer_lock import (
    CONSUMER_NAME,
    release_locks,
    take_bootstrap_lock,
    take_feed_lock,
    take_writer_lock,
)
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.stream.postgres_address import parse_address as parse_source
from service.stream.postgres_slot import new_slot
from service.usecases.access import Scope
from service.usecases.doctor import (
    OperationFacts,
)
from service.usecases.follow_feed import Consumer
from service.usecases.preflight_facts import Finding, Level
from service.wiring import make_access
from tests import states
from tests.broker import KafkaBroker
from tests.cluster import Cluster
from tests.commands import Commands
from tests.events import envelope
from tests.following import COLUMNS, Stream, Watch, begun, consume
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for


@pytest.fixture
def stream(database_url: str, tmp_path: Path) -> Stream:
    tables = Tables(COLUMNS).add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", "first"])
    stream = begun(database_url, tables, tmp_path)
    stream.change("customers", None, ["3", "Cid"])
    consume(database_url, stream)
    return stream


@pytest.fixture
def look(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Finding]]:
    """Give the doctor's looks at the test's state: what is not well, by what it is about."""
    monkeypatch.setattr(doctor, "_java_fault", lambda: None)

    def looking(url: str | None = database_url, **settings: object) -> dict[str, Finding]:
        found = doctor.examine(load_settings(database_url=url, data_dir=tmp_path / "not made yet", **settings))
        # Disks and what the throw-away server of the tests has switched off are this machine's matter.
        kept = [f for f in found if not f.about.startswith("disk of") and " off: a crash" not in f.found]
        return {finding.about: finding for finding in kept if finding.level is not Level.OK}

    return looking


Look = Callable[..., dict[str, Finding]]


def test_a_data_folder_without_a_state_is_told_and_left_as_it_is(look: Look, tmp_path: Path) -> None:
    assert look(url=None)["state"].found.startswith(f"none is in {tmp_path / 'not made yet'}; run subsetd bootstrap")
    assert not (tmp_path / "not made yet").exists()


def test_a_state_that_is_followed_is_well(database_url: str, stream: Stream, look: Look) -> None:
    with closing(psycopg2.connect(database_url, application_name="subsetd consumer")) as consumer:
        take_writer_lock(consumer)
        assert look() == {}


def test_a_consumer_that_has_whole_lines_before_it_and_applies_none(
    database_url: str, stream: Stream, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.execute(database_url, "update state_version set committed_at = now() - interval '2 hours'")
    with closing(psycopg2.connect(database_url, application_name="subsetd consumer")) as consumer:
        take_writer_lock(consumer)
        with stream.path.open("ab") as file:
            file.write(b"\n{")
        assert "nobody follows it" in look()[f"feed file:{stream.path}"].found, "whatever else its writer follows"
        with consumer.cursor() as cursor:
            take_feed_lock(cursor, f"file:{stream.path}")
        assert look() == {}, "a blank line, and one that is not finished"
        stream.change("customers", None, ["4", "Dora"])
        monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.5)
        assert "has committed nothing since" in look()[f"feed file:{stream.path}"].found


def test_a_consumer_that_commits_the_first_of_a_burst_while_the_doctor_looks_does_not_stand_still(
    database_url: str, stream: Stream, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.execute(database_url, "update state_version set committed_at = now() - interval '2 hours'")
    stream.change("customers", None, ["4", "Dora"])
    first = doctor.read_operation

    def read_and_commit(*given: Any) -> OperationFacts:
        operation = first(*given)
        states.execute(database_url, "update state_version set committed_at = now()")
        return operation

    monkeypatch.setattr(doctor, "read_operation", read_and_commit)
    with closing(psycopg2.connect(database_url, application_name="subsetd consumer")) as consumer:
        take_writer_lock(consumer)
        with consumer.cursor() as cursor:
            take_feed_lock(cursor, f"file:{stream.path}")
        assert look() == {}


def test_nobody_follows_a_feed_that_has_more_or_is_paused_or_cut_or_gone(
    database_url: str, stream: Stream, look: Look
) -> None:
    about = f"feed file:{stream.path}"
    assert look() == {}, "nothing waits"
    size = stream.path.stat().st_size
    stream.change("customers", None, ["4", "Dora"])
    waiting = stream.path.stat().st_size - size
    assert look()[about].found == f"nobody follows it; {waiting} bytes wait"
    states.execute(database_url, "update feed set paused_at = now()")
    assert look()[about].way_out == "subsetd resume"
    os.truncate(stream.path, 3)
    assert (look()[about].level, "it was cut" in look()[about].found) == (Level.FAIL, True)
    stream.path.unlink()
    assert (look()[about].level, "is gone" in look()[about].found) == (Level.FAIL, True)
    assert f"`subsetd unfollow file:{stream.path} --gone`" in look()[about].way_out
    with closing(psycopg2.connect(database_url, application_name=CONSUMER_NAME)) as consumer:
        take_writer_lock(consumer)
        with pytest.raises(StateError, match="has another writer"):
            forget_feed(database_url, f"file:{stream.path}")
        release_locks(consumer)
    assert forget_feed(database_url, f"file:{stream.path}") == f"file:{stream.path}"
    assert look() == {}
    with pytest.raises(NotFoundError, match="There is no feed"):
        forget_feed(database_url, f"file:{stream.path}")


def test_a_feed_that_a_bootstrap_has_made_begin_anew_is_no_fault(database_url: str, stream: Stream, look: Look) -> None:
    stream.path.unlink()
    assert look() != {}
    states.execute(database_url, "delete from feed_position")  # as the bootstrap of the one source does
    assert look() == {}


def test_what_is_left_over_and_what_works(database_url: str, stream: Stream, look: Look) -> None:
    states.execute(database_url, "create table gen_rec_g2_p000 (like gen_rec)")
    assert "left 1 tables" in look()["bootstrap"].found
    with closing(psycopg2.connect(database_url, application_name="subsetd bootstrap")) as bootstrap:
        take_bootstrap_lock(bootstrap)
        assert "bootstrap" not in look()


def test_preflights_rules_count_dead_letters_and_stale_columns(database_url: str, stream: Stream, look: Look) -> None:
    states.execute(database_url, "update attribute set stale_version = 1 where attribute_id = 1")
    states.execute(
        database_url,
        "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version) "
        "values ('f', 't', 0, 0, 'E', 'm', 'r', 1)",
    )
    found = look()
    assert "1 records are set aside" in found["state"].found
    assert "is stale" in found["s.orders.id"].found


def test_audits_corpora_sketches_and_what_is_kept_for_nobody(database_url: str, stream: Stream, look: Look) -> None:
    states.execute(
        database_url,
        "insert into audit (version, started_at, attributes, value_count, inds, not_served, not_holding, report) "
        "values (1, now(), 1, 1, 1, 1, 0, '{}'); "
        "insert into corpus (name, location, kind, settings, schedule, created_at) "
        "values ('late', '/c', 'csv', '{}', '0 * * * *', now() - interval '5 hours'), "
        "('failed', '/c', 'csv', '{}', null, now()); "
        "insert into corpus_refresh (corpus_id, state, requested_by, fault) "
        "select corpus_id, 'failed', 'me', 'no such folder' from corpus where name = 'failed'; "
        "update sketch set fault = 'torn' where attribute_id = 2; "
        "insert into outgoing (sink, version) values ('kafka://b:9092/t', 1); "
        "insert into api_key (name, scope, prefix, digest, expires_at) "
        "values ('grafana', 'read', 'p', '\\x00', now() + interval '3 days'), ('me', 'read', 'q', '\\x00', null); "
        "insert into watch_alert (watch_name, kind, version, body, state, fault) "
        "values ('nightly', 'fired', 1, '{}', 'failed', 'the server says 500'), "
        "('new', 'test', 1, '{}', 'failed', 'who tests hears of it')",
    )
    found = look()
    assert found["audit"].level is Level.FAIL
    assert "did not begin" in found["corpus late"].found
    assert "no such folder" in found["corpus failed"].found
    assert found["sketches"].found == "s.orders.customer: torn"
    assert "kafka://b:9092/t" in found["history"].found
    assert "expires on" in found["key grafana"].found
    assert found["watch nightly"].found == "1 alerts did not go out: the server says 500"
    assert {"key me", "watch new"}.isdisjoint(found)


def test_a_database_that_is_away_read_only_or_of_another_revision(
    database_url: str, empty_database_url: str, stream: Stream, look: Look
) -> None:
    (finding,) = look("postgresql://me@127.0.0.1:1/none").values()
    assert (finding.level, "127.0.0.1:1" in finding.found) == (Level.FAIL, True)
    (finding,) = look(empty_database_url).values()
    assert "schema revision none" in finding.found
    name = parse_address(database_url).database
    states.execute(database_url, f"alter database {name} set default_transaction_read_only = on")
    assert any("is read-only" in one.found for one in look().values())
    states.execute(
        database_url, f"set transaction read write; alter database {name} reset default_transaction_read_only"
    )
    states.execute(database_url, "update alembic_version set version_num = '9999'")
    assert any("use the release that made it" in one.way_out for one in look().values())


def test_tables_that_no_vacuum_comes_to_and_a_transaction_that_stays(
    database_url: str, stream: Stream, look: Look
) -> None:
    states.execute(database_url, "alter table uind set (autovacuum_enabled = false)")
    assert look()["table uind"].way_out == "ALTER TABLE uind RESET (autovacuum_enabled)"
    engine = make_engine(database_url, "test")
    with closing(psycopg2.connect(database_url, application_name="sleeper")) as sleeper, sleeper.cursor() as cursor:
        sleeper.set_session(isolation_level="REPEATABLE READ")
        cursor.execute("select 1")
        facts, _ = doctor.read_database(engine)
        assert facts.oldest_transaction is not None
        assert facts.oldest_transaction[1] == "sleeper"
    engine.dispose()


def test_a_role_that_is_no_superuser_is_told_what_is_there(database_url: str, stream: Stream) -> None:
    """Where the server's data are is for superusers alone: their disk is left out, and nothing else."""
    states.execute(database_url, "create role onlooker")
    try:
        states.execute(database_url, "grant select on all tables in schema public to onlooker")
        engine = make_engine(parse_address(database_url).update_query_dict({"options": "-c role=onlooker"}), "test")
        facts, folder = doctor.read_database(engine)
        engine.dispose()
        assert (facts.revision, folder) == (facts.expected, None)
        assert facts.tables
    finally:
        states.execute(database_url, "drop owned by onlooker")
        states.execute(database_url, "drop role onlooker")


def test_a_slot_that_is_gone_and_one_that_nobody_reads(
    database_url: str, followed_url: str, stream: Stream, look: Look
) -> None:
    states.execute(followed_url, "create table t (id integer primary key)")
    address = parse_source(f"{followed_url}&name=shop")
    with new_slot(address, [("public", "t")], replace=False):
        states.execute(
            database_url,
            f"insert into feed (feed, address) values ('postgres:shop', '{address.shown}'); {POSITION}",
        )
        found = look()
        assert "is read by nobody" in found[f"slot {address.slot}"].found
        states.execute(followed_url, f"select pg_drop_replication_slot('{address.slot}')")
        found = look()
        assert (found["feed postgres:shop"].level, "is gone" in found["feed postgres:shop"].found) == (Level.FAIL, True)
        raise_away(database_url)
        assert look()["feed postgres:away"].level is Level.FAIL


def test_a_followed_database_is_asked_by_the_setting_which_may_have_its_password(
    database_url: str, followed_url: str, stream: Stream, look: Look
) -> None:
    address = parse_source(f"{followed_url}&name=away")
    with new_slot(address, [], replace=False):
        raise_away(database_url)
        assert look()["feed postgres:away"].found.endswith("correct SUBSETD_FEED; nothing was lost.")
        for feed in (f"{followed_url}&name=other", "file:/feed"):
            assert look(feed=feed)["feed postgres:away"].found.endswith("correct SUBSETD_FEED; nothing was lost.")
        found = look(feed=f"{followed_url}&name=away")
        assert "feed postgres:away" not in found or found["feed postgres:away"].level is not Level.FAIL
        assert "is read by nobody" in found[f"slot {address.slot}"].found


def follow_to_the_end(database_url: str, address: str) -> None:
    Consumer(
        PostgresWriter(database_url),
        lambda: open_feed(address, start_timeout=BOUND_SECONDS, group_id=None),
        Decoder,
        value_keys,
        Watch(),
    ).run(threading.Event(), until_end=True)


def test_a_topic_whose_records_are_gone_and_one_that_waits(
    database_url: str, cluster: Cluster, broker: KafkaBroker, stream: Stream, look: Look
) -> None:
    topic = cluster.topic()
    cluster.send(topic, [envelope("c", "s", "customers", None, {"id": id, "name": None}) for id in ("4", "5")])
    follow_to_the_end(database_url, f"kafka://{broker.bootstrap_servers}/{topic}")
    cluster.send(topic, [b"{}"] * 3)
    ((name,),) = states.query(database_url, "select feed from feed where feed like 'kafka:%'")
    found = look(feed_start_seconds=BOUND_SECONDS)
    assert found[f"feed {name}"].found == "nobody follows it; 3 records wait"
    cluster.admin.delete_records({TopicPartition(topic, 0): 4})
    found = look(feed_start_seconds=BOUND_SECONDS)
    assert found[f"topic {topic}"].found == "partition 0: the state stands at 2, and what is there begins at 4"
    assert f"`subsetd unfollow {name} --gone`" in found[f"topic {topic}"].way_out
    assert found[f"feed {name}"].found == "nobody follows it; 1 records wait"
    # A broker that is not there is looked for to the end of that time, one that is held up must be found within it.
    away = f"insert into feed (feed, address) values ('kafka:x', 'kafka://127.0.0.1:1'); {POSITION}"
    states.execute(database_url, away)
    found = look(feed_start_seconds=0.1)
    assert (found["feed kafka:x"].level, "127.0.0.1:1:" in found["feed kafka:x"].found) == (Level.FAIL, True)


def test_a_deleted_topic_is_no_fault_of_a_feed_that_goes_on_without_it(
    database_url: str, cluster: Cluster, broker: KafkaBroker, stream: Stream, look: Look
) -> None:
    prefix = f"shop-{uuid4().hex}."
    for topic in (cluster.topic(name=f"{prefix}{table}") for table in ("customers", "gone")):
        cluster.send(topic, [envelope("c", "s", "customers", None, {"id": topic, "name": None})])
    follow_to_the_end(database_url, f"kafka://{broker.bootstrap_servers}/?prefix={prefix}")
    cluster.admin.delete_topics([f"{prefix}gone"])
    wait_for(lambda: f"{prefix}gone" not in cluster.admin.list_topics())
    gone = look(feed_start_seconds=BOUND_SECONDS)[f"topic {prefix}gone"]
    assert (gone.level, "leave it out of --feed" in gone.way_out) == (Level.WARN, True)
    ((name,),) = states.query(database_url, "select feed from feed where feed like 'kafka:%'")
    with closing(psycopg2.connect(database_url, application_name=CONSUMER_NAME)) as consumer:
        take_writer_lock(consumer)
        with consumer.cursor() as cursor:
            take_feed_lock(cursor, name)
        assert look(feed_start_seconds=BOUND_SECONDS) == {}


POSITION = (
    "insert into feed_position (feed, topic, partition, next_offset, version) "
    "select feed, 'of.it', 0, 0, 1 from feed where feed not in (select feed from feed_position)"
)


def raise_away(url: str) -> None:
    states.execute(
        url,
        "insert into feed (feed, address) values ('postgres:away', 'postgresql://me@127.0.0.1:1/x?name=away'); "
        + POSITION,
    )


def test_settings_that_contradict_each_other(stream: Stream, look: Look) -> None:
    found = look(
        dead_letter_topic="kafka://b:9092/dead",
        host="0.0.0.0",
        sketches="off",
        sketch_error=0.1,
        batch_wait_ms=60_000,
        audit_schedule="every day",
        foreign_key_schedule="hourly",
    )
    assert {name.removeprefix("SUBSETD_") for name in found} >= {
        "DEAD_LETTER_TOPIC",
        "HOST",
        "SKETCH_ERROR",
        "READY_LAG_SECONDS",
        "AUDIT_SCHEDULE",
        "FOREIGN_KEY_SCHEDULE",
    }


def test_an_address_that_others_reach_wants_a_key_of_either_kind(database_url: str, stream: Stream, look: Look) -> None:
    assert look(host="0.0.0.0")["SUBSETD_HOST"].way_out.startswith("set SUBSETD_API_KEY, make a key")
    assert look(host="0.0.0.0", api_key="k") == {}
    engine = make_engine(database_url, "test")
    make_access(engine, load_settings()).create("ops", Scope.ADMIN, None)
    engine.dispose()
    assert look(host="0.0.0.0") == {}


def test_a_machine_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = doctor._disk("x", tmp_path / "not" / "there")
    assert (disk.path, 0 < disk.free <= disk.total) == (str(tmp_path), True)
    assert doctor._java_fault() is None, "the tests have one"
    monkeypatch.setattr(doctor, "FIND_JAVA", "raise SystemExit('no Java 17 or 21 was found')")
    assert doctor._java_fault() == "no Java 17 or 21 was found"


def test_the_command_tells_the_worst_by_its_exit_code(subsetd: Commands, database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update feed set paused_at = now()")
    code, said = subsetd.run("doctor", "--json")
    findings = [Finding(**one) for one in json.loads(said)]
    levels = {finding.level for finding in findings}
    assert code == (2 if "fail" in levels else 1), said
    assert any(finding.way_out == "subsetd resume" for finding in findings)
    states.execute(database_url, "update alembic_version set version_num = '0001'")
    code, said = subsetd.run("doctor")
    assert code == 2
    assert "which migrates it" in said
