"""The migrations and the models tell the same story, and the story can be told backwards."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, NullPool, create_engine, make_url, text
from typer.testing import CliRunner

from service import wiring
from service.cli import app
from service.config import load_settings
from service.core.errors import StateError
from service.core.model import FeedDescription
from service.store import migrate
from service.store.database import connect
from service.store.feeds import put_feed
from service.store.locks import MIGRATION_LOCK
from service.store.masking import mask
from service.store.tables import SCHEMA_REVISION, metadata
from service.store.writer_lock import release_locks, take_bootstrap_lock, take_writer_lock
from tests import states
from tests.events import envelope
from tests.following import COLUMNS, begun, consume, random_changes
from tests.waiting import BOUND_SECONDS, wait_for

# What Postgres itself says of a schema; Alembic's comparison leaves checks, partitioning, storage and identities out.
HISTORY = """
select (select array_agg(to_jsonb(t) - 'changed_row' order by version, dependent_id, referenced_id)::text
        from ind_transition t),
       (select array_agg(u.* order by dependent_id, referenced_id, since_version)::text from uind u),
       (select array_agg(p.* order by feed, topic, partition)::text from feed_position p)
"""

DESCRIPTION = """
select 'relation', c.relname, c.relkind::text, c.reloptions::text, pg_get_partkeydef(c.oid), obj_description(c.oid)
  from pg_class c where c.relnamespace = 'public'::regnamespace and c.relname <> 'alembic_version'
   and c.relname <> 'alembic_version_pkc'
union all
select 'column', a.attrelid::regclass || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || row_number() over (partition by a.attrelid order by a.attnum),
       a.attnotnull::text || a.attidentity::text, pg_get_expr(d.adbin, d.adrelid),
       col_description(a.attrelid, a.attnum)
  from pg_attribute a join pg_class c on c.oid = a.attrelid
       left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
 where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
   and c.relname <> 'alembic_version'
union all
select 'constraint', conrelid::regclass || '.' || conname, contype::text, pg_get_constraintdef(oid), null, null
  from pg_constraint where connamespace = 'public'::regnamespace and conrelid <> 'alembic_version'::regclass
union all
select 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid), null, null, null
  from pg_index join pg_class c on c.oid = indrelid
 where c.relnamespace = 'public'::regnamespace and c.relname <> 'alembic_version'
order by 1, 2
"""


@contextmanager
def connection_to(url: str) -> Iterator[Connection]:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg2"), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


def tables_of(url: str) -> set[str]:
    with connection_to(url) as connection:
        found = connection.execute(text("select tablename from pg_tables where schemaname = 'public'"))
        return set(found.scalars()) - {"alembic_version"}


def description_of(connection: Connection) -> list[tuple[str | None, ...]]:
    return [tuple(row) for row in connection.execute(text(DESCRIPTION))]


def test_up_down_and_up_again_leaves_the_same_schema(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url)
    with connection_to(empty_database_url) as connection:
        first = description_of(connection)
    assert tables_of(empty_database_url) == set(metadata.tables)

    migrate.downgrade(empty_database_url)
    assert tables_of(empty_database_url) == set()

    migrate.upgrade(empty_database_url)
    with connection_to(empty_database_url) as connection:
        assert description_of(connection) == first


def test_a_second_upgrade_changes_nothing(database_url: str) -> None:
    migrate.upgrade(database_url)
    assert migrate.found_revision(database_url) == SCHEMA_REVISION


def test_alembic_finds_no_difference_between_models_and_migrations(database_url: str) -> None:
    with connection_to(database_url) as connection:
        # The partitions of gen_rec are the bootstrap's: one set for each generation.
        connection.execute(text("create table gen_rec_1_0 partition of gen_rec default"))
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "include_object": lambda _, name, kind, __, ___: kind != "table" or not name.startswith("gen_rec_"),
            },
        )
        assert compare_metadata(context, metadata) == []


def test_postgres_describes_models_and_migrations_alike(database_url: str, empty_database_url: str) -> None:
    """Checks, comments, fillfactor, partitioning, identities, defaults and the order of columns included."""
    with connection_to(empty_database_url) as connection:
        connection.execute(text("create table alembic_version (version_num varchar(32))"))
        metadata.create_all(connection)
        modelled = description_of(connection)
    with connection_to(database_url) as connection:
        migrated = description_of(connection)
    assert ("relation", "gen_rec", "p", None, "RANGE (value_key)", None) in migrated
    assert ("relation", "cluster", "r", "{fillfactor=70}", None, None) in migrated
    assert migrated == modelled


def test_a_caller_may_migrate_in_a_transaction_of_its_own(empty_database_url: str) -> None:
    with connection_to(empty_database_url) as connection:
        migrate.upgrade(connection)
        connection.rollback()
    assert tables_of(empty_database_url) == set()


def test_a_migration_that_fails_half_way_leaves_nothing(empty_database_url: str) -> None:
    with connection_to(empty_database_url) as connection:
        connection.execute(text("create table dead_letter (of_somebody_else integer)"))
    with pytest.raises(Exception, match='"dead_letter" already exists'):
        migrate.upgrade(empty_database_url)
    assert tables_of(empty_database_url) == {"dead_letter"}


@pytest.mark.parametrize(
    ("found", "way_out"),
    [
        (
            None,
            f"is at schema revision none, expected {SCHEMA_REVISION}; "
            "it holds no state yet: `subsetd bootstrap` or `subsetd run`",
        ),
        (
            "9999",
            f"is at schema revision 9999, expected {SCHEMA_REVISION}; "
            "it was made by another release of subsetd: use that one",
        ),
    ],
)
def test_another_revision_is_refused_with_the_way_out(empty_database_url: str, found: str | None, way_out: str) -> None:
    if found is not None:
        with connection_to(empty_database_url) as connection:
            connection.execute(text("create table alembic_version (version_num varchar(32) primary key)"))
            connection.execute(text("insert into alembic_version values (:found)"), {"found": found})
        with pytest.raises(StateError, match=way_out):
            migrate.upgrade(empty_database_url)
    with pytest.raises(StateError, match=way_out):
        migrate.require_current(empty_database_url)
    assert migrate.found_revision(empty_database_url) == found


def test_tables_that_others_use_are_waited_for_and_then_left_as_they_were(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "50ms")
    with connection_to(database_url) as reader:
        reader.execute(text("select * from dead_letter"))
        with pytest.raises(StateError, match="was in use by others for 50ms; nothing was migrated"):
            migrate.downgrade(database_url)
    assert migrate.found_revision(database_url) == SCHEMA_REVISION
    assert tables_of(database_url) == set(metadata.tables)


def test_who_waits_for_the_migration_that_waits_for_him_is_told_as_others_are(database_url: str) -> None:
    """As a watch of the older release, which reads both tables in the other order."""
    migrate.downgrade(database_url, "0022")
    with connection_to(database_url) as watch, ThreadPoolExecutor(1) as threads:
        watch.execute(text("set deadlock_timeout = '1min'"))
        watch.execute(text("select from contract_transition"))
        migrated = threads.submit(migrate.upgrade, database_url)
        wait_for(lambda: states.query(database_url, "select from pg_locks where not granted"))
        watch.execute(text("select from ind_transition"))
        with pytest.raises(StateError, match="in use by others who waited for the migration; nothing was migrated"):
            migrated.result(BOUND_SECONDS)
    assert migrate.upgrade(database_url) == "0022"


@pytest.mark.parametrize("take", [take_writer_lock, take_bootstrap_lock])
def test_nothing_is_migrated_under_who_writes_by_the_older_schema(
    database_url: str, take: Callable[[Any], None]
) -> None:
    migrate.downgrade(database_url, "0022")
    with closing(psycopg2.connect(database_url, application_name="subsetd consumer")) as older:
        take(older)
        with pytest.raises(StateError, match=r"by subsetd consumer \(database session \d+\)\. Nothing was migrated"):
            migrate.upgrade(database_url)
        assert migrate.found_revision(database_url) == "0022"
        release_locks(older)
        assert migrate.upgrade(database_url) == "0022"
        take(older)
        assert migrate.upgrade(database_url) == SCHEMA_REVISION, "beside one of this release there is nothing to do"


def test_what_bounds_the_statements_of_a_role_bounds_no_migration(database_url: str) -> None:
    migrate.downgrade(database_url, "0022")
    states.execute(database_url, f"alter database {make_url(database_url).database} set statement_timeout = '500ms'")
    with ThreadPoolExecutor(1) as threads, connect(database_url, "restores") as other, other.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        migrated = threads.submit(migrate.upgrade, database_url)
        wait_for(lambda: states.query(database_url, "select from pg_locks where not granted"))
        cursor.execute("select pg_sleep(1)")
        other.rollback()
        assert migrated.result(BOUND_SECONDS) == "0022"


def test_the_revision_of_this_code_is_accepted(database_url: str) -> None:
    migrate.require_current(database_url)


def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StateError, match=r"'nowhere' at 127\.0\.0\.1:1.*SUBSETD_DATABASE_URL") as caught:
        migrate.require_current("postgresql://postgres:secret@127.0.0.1:1/nowhere")
    assert "secret" not in str(caught.value)


def test_a_postgres_that_is_too_old_is_refused_before_anything_is_made(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "OLDEST_POSTGRES", 99)
    with pytest.raises(StateError, match=r"is Postgres \d+.*, and a state needs 99 or later: set SUBSETD_DATABASE_URL"):
        migrate.upgrade(empty_database_url)
    assert migrate.found_revision(empty_database_url) is None


def test_a_database_in_which_not_each_value_can_be_stored_is_refused(empty_database_url: str) -> None:
    url = make_url(empty_database_url)
    name = f"{url.database}_in_ascii"
    with closing(psycopg2.connect(empty_database_url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0")
        try:
            there = url.set(database=name).render_as_string(hide_password=False)
            with pytest.raises(
                StateError, match=r"has the encoding SQL_ASCII, and a state needs UTF8.*: make a database"
            ):
                migrate.upgrade(there)
            assert migrate.found_revision(there) is None
        finally:
            cursor.execute(f"drop database {name} with (force)")


def test_tables_of_others_that_have_names_of_the_states_stay_as_they_are(empty_database_url: str) -> None:
    states.execute(empty_database_url, "create table audit (id integer)")
    with pytest.raises(StateError, match=r"\(relation \"audit\" already exists\); nothing was made: set SUBSETD_"):
        migrate.upgrade(empty_database_url)
    assert migrate.found_revision(empty_database_url) is None
    assert states.query(empty_database_url, "select count(*) from audit") == [(0,)]


def test_without_keys_the_state_is_that_of_the_columns(database_url: str) -> None:
    columns = {"orders": ["id", "customer"], "customers": ["id", "name"]}
    rows = {"orders": Counter([("1", "Ada"), ("2", "Ada")]), "customers": Counter([("1", "Ada"), ("2", "Bob")])}
    tuples = {"orders": [("id", "customer")], "customers": [("id", "name")]}
    states.store(database_url, states.Tables(dict(columns), dict(rows), tuples=tuples))
    assert states.read(database_url) == states.expected(states.Tables(columns, rows, tuples=tuples))
    migrate.downgrade(database_url, "0005")
    migrate.upgrade(database_url)
    assert states.read(database_url) == states.expected(states.Tables(columns, rows))


def test_a_state_of_each_revision_is_carried_to_the_newest_one_and_followed_on(
    database_url: str, tmp_path: Path
) -> None:
    """What an older release stored answers as before, and takes changes; only what it did not know is empty."""
    tables = states.Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", "first"], ["11", "2", None])
    stream = begun(database_url, tables, tmp_path)
    revisions = sorted(path.name[:4] for path in (migrate.MIGRATIONS / "versions").glob("0*.py"))
    assert revisions[-1] == SCHEMA_REVISION
    for number, revision in enumerate(reversed(revisions[:-1])):
        random_changes(stream, random.Random(number), 5)
        consume(database_url, stream, records=2)
        before = states.query(database_url, HISTORY)
        migrate.downgrade(database_url, revision)
        assert migrate.upgrade(database_url) == revision
        assert states.read(database_url) == states.expected(stream.tables), revision
        assert states.query(database_url, HISTORY) == before, revision


def test_rows_of_the_first_release_are_taken_for_what_they_are(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that today's code made and brought back has none such: they lack what came later."""
    begun(database_url, states.Tables(COLUMNS).add("orders", ["10", "1", "hushed"]), tmp_path)
    migrate.downgrade(database_url, "0001")
    record = envelope("d", "s", "orders", {"id": "10", "customer": "1", "note": "hushed"}).decode()
    states.execute(
        database_url,
        "insert into feed_position (feed, topic, partition, next_offset, version) "
        "values ('kafka://there:9092', 't', 0, 8, 1); "
        "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version) "
        f"select 'kafka://there:9092', 't', 0, n, 'RecordError', 'hushed', '{record}', 1 from generate_series(6, 7) n; "
        "insert into state_version (version, generation, kind) values (2, 1, 'bootstrap'); "
        "update source set bootstrapped_version = 2",
    )
    migrate.upgrade(database_url)
    with connect(database_url, "test") as connection, connection.cursor() as cursor:
        with pytest.raises(StateError, match="it was kafka://there:9092 and is kafka:id now"):
            put_feed(cursor, "kafka:id", FeedDescription("kafka://there:9092"))
        put_feed(cursor, "kafka:id", FeedDescription("kafka://elsewhere:9092"))
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    retried = CliRunner().invoke(app, ["dead-letters", "retry", "1"])
    assert "0 applied, 0 skipped, 1 still set aside" in retried.stdout
    mask(database_url, "s.orders.note", "none", print)
    letters = states.query(database_url, "select dead_letter::text from dead_letter")
    assert len(letters) == 2
    assert "hushed" not in str(letters)


def test_a_migration_is_told(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = load_settings(database_url=database_url)
    with wiring.state_database(settings, migrate=True):
        pass
    assert "migrated" not in capsys.readouterr().out
    migrate.downgrade(database_url, "0010")
    with wiring.state_database(settings, migrate=True):
        pass
    said = capsys.readouterr().out
    assert "schema migrated" in said
    assert "0010" in said


@pytest.mark.parametrize("command", [("dead-letters", "list"), ("sketch", "list")])
def test_a_document_has_no_line_of_the_log_before_it(
    database_url: str, command: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.downgrade(database_url, "0010")
    monkeypatch.setattr(wiring, "EmbeddedPostgres", lambda _: nullcontext(SimpleNamespace(url=database_url)))
    monkeypatch.setenv("SUBSETD_DATA_DIR", str(tmp_path))
    told = CliRunner().invoke(app, [*command, "--format", "json"])
    assert (told.exit_code, json.loads(told.stdout)) == (0, [])
    assert "schema migrated" in told.stderr
