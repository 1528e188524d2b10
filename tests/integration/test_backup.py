"""A backup is one version with its positions: from it a feed goes on as if nothing had been, or nothing is restored."""

from __future__ import annotations

import random
import stat
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Connection, make_url, text

from service.core.errors import StateError
from service.store import backup, corpus_cleaning, migrate
from service.store.backup import BACKUP_NAME, BackupReport, back_up, restore
from service.store.database import connect
from service.store.generation import clear_remains
from service.store.publication import _take_tables
from service.store.tables import SCHEMA_REVISION, metadata
from service.store.writer_lock import take_writer_lock
from tests import states
from tests.commands import Commands
from tests.following import COLUMNS, Stream, begun, consume, random_changes
from tests.integration.test_migrations import connection_to, description_of
from tests.integration.test_verify import findings
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

HISTORY = (
    "select version, kind, dependent_id, referenced_id, witness_value, position from ind_transition order by 1, 3, 4"
)
INTERVALS = "select * from uind order by 1, 2, 3"
POSITIONS = "select feed, topic, partition, next_offset from feed_position"


def quietly(_: str) -> None:
    pass


@pytest.fixture
def stream(database_url: str, tmp_path: Path) -> Stream:
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"], ["3", "x\ty\\z\n"])
    tables.add("orders", ["10", "1", "first"], ["11", "2", None], ["12", "1", "Bob"])
    stream = begun(database_url, tables, tmp_path)
    return stream


def rows_of(url: str) -> dict[str, list[str]]:
    """Give all rows of all tables, but for when they were written."""
    return {
        name: sorted(row for (row,) in states.query(url, f"select (to_jsonb(t) - 'committed_at')::text from {name} t"))
        for name in metadata.tables
    }


def moved_under_load(url: str, empty_url: str, stream: Stream, folder: Path) -> BackupReport:
    """Back a state up while a consumer commits, and restore it elsewhere."""
    consumer = threading.Thread(target=consume, args=(url, stream), kwargs={"records": 1})
    consumer.start()
    try:
        written = back_up(url, folder / "state.backup")
    finally:
        consumer.join()
    restored = restore(empty_url, folder / "state.backup", replace=False, telling=quietly)
    assert restored == written
    return restored


def test_a_feed_goes_on_from_a_backup_as_if_it_had_never_stopped(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path
) -> None:
    """The backup is taken while a consumer commits: whichever version it caught, the rest of the feed leads home."""
    rng = random.Random(7)
    random_changes(stream, rng, 40)
    consume(database_url, stream, records=1)
    random_changes(stream, rng, 120)
    restored = moved_under_load(database_url, empty_database_url, stream, tmp_path)
    ((head, at),) = states.query(
        empty_database_url, "select (select max(version) from state_version), next_offset from feed_position"
    )
    assert head == restored.version
    assert all(finding.holds for finding in findings(empty_database_url))
    random_changes(stream, rng, 40)
    consume(database_url, stream, records=1)
    consume(empty_database_url, stream, records=1)
    assert states.read(empty_database_url) == states.read(database_url) == states.expected(stream.tables)
    assert all(finding.holds for finding in findings(empty_database_url))
    for question in (HISTORY, INTERVALS, POSITIONS):
        assert states.query(empty_database_url, question) == states.query(database_url, question)
    assert states.query(empty_database_url, POSITIONS)[0][-1] > at


def test_what_is_restored_is_what_was_there_schema_and_rows(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path
) -> None:
    random_changes(stream, random.Random(3), 30)
    consume(database_url, stream)
    states.execute(database_url, "insert into corpus (name, location, kind, settings) values ('c', '/c', 'csv', '{}')")
    states.execute(database_url, "create table of_somebody_else (id integer)")
    back_up(database_url, tmp_path / "state.backup")
    restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    states.execute(database_url, "drop table of_somebody_else")
    with connection_to(database_url) as before, connection_to(empty_database_url) as after:
        assert description_of(after) == description_of(before)
    assert rows_of(empty_database_url) == rows_of(database_url)
    states.execute(
        empty_database_url, "insert into corpus (name, location, kind, settings) values ('d', '', 'csv', '{}')"
    )
    ids = states.query(empty_database_url, "select corpus_id from corpus order by 1")
    assert ids == [(1,), (2,)], "numbers are given on from where they stood"


@pytest.mark.parametrize("without_watches", [False, True])
def test_a_copy_does_not_send_what_the_state_itself_has_to_send(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path, without_watches: bool
) -> None:
    states.execute(
        database_url,
        "insert into watch (name, rule, channel, debounce_seconds, tell_resolved, with_values, created_by, "
        "seen_version, seen_letter) values ('w', '{}', '{}', 0, true, false, 'Ada', 1, 0);"
        "insert into watch_alert (watch_id, watch_name, kind, version, body, state, fault) values "
        "(1, 'w', 'fired', 1, '{}', 'pending', 'the server says 500'), (1, 'w', 'fired', 1, '{}', 'delivered', null);"
        "insert into consumer_lag (reporter, report, records, seconds) values ('consumer', 7, 3, 600)",
    )
    back_up(database_url, tmp_path / "state.backup")
    path = tmp_path / "state.backup"
    restore(empty_database_url, path, replace=False, telling=quietly, without_watches=without_watches)
    alerts = states.query(empty_database_url, "select state, fault from watch_alert order by alert_id")
    assert alerts == [("failed", "the state was restored from a backup"), ("delivered", None)]
    names = states.query(empty_database_url, "select name from watch")
    assert names == ([] if without_watches else [("w",)])
    assert states.query(empty_database_url, "select from consumer_lag") == []
    assert states.query(database_url, "select state from watch_alert order by alert_id") == [
        ("pending",),
        ("delivered",),
    ]


def test_a_state_is_replaced_only_when_that_is_said(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path
) -> None:
    back_up(database_url, tmp_path / "state.backup")
    migrate.upgrade(empty_database_url)
    restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    states.execute(empty_database_url, "create table gen_rec_g9_p000 (like gen_rec)")
    states.execute(empty_database_url, "update gen_rec set value = 'other'")
    with pytest.raises(StateError, match=r"holds a state already \(\w+ has rows\): give --replace"):
        restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    restore(empty_database_url, tmp_path / "state.backup", replace=True, telling=quietly)
    assert states.read(empty_database_url) == states.expected(stream.tables)
    assert states.query(empty_database_url, "select to_regclass('gen_rec_g9_p000')") == [(None,)]


def test_a_state_of_a_newer_release_is_not_replaced(database_url: str, stream: Stream, tmp_path: Path) -> None:
    """What the newer one has added would stay, in the way of the next upgrade."""
    back_up(database_url, tmp_path / "state.backup")
    states.execute(database_url, "create table newer (id integer); update alembic_version set version_num = '9999'")
    with pytest.raises(StateError, match=r"revision 9999, which another release .*: restore into an empty database"):
        restore(database_url, tmp_path / "state.backup", replace=True, telling=quietly)
    assert states.read(database_url) == states.expected(stream.tables)


@pytest.mark.parametrize("revision", ["0001", "0004", "0009"])
def test_a_backup_of_an_older_release_is_migrated(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path, revision: str
) -> None:
    with connection_to(database_url) as never_old:
        expected = description_of(never_old)
    migrate.downgrade(database_url, revision)
    assert back_up(database_url, tmp_path / "state.backup").revision == revision
    restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    assert migrate.found_revision(empty_database_url) == SCHEMA_REVISION
    with connection_to(empty_database_url) as connection:
        assert description_of(connection) == expected
    migrate.upgrade(database_url)
    assert rows_of(empty_database_url) == rows_of(database_url)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def with_a_flipped_byte(path: Path) -> None:
    with zipfile.ZipFile(path) as file:
        member = max(file.infolist(), key=lambda one: one.file_size if one.filename.startswith("tables/") else 0)
    data = bytearray(path.read_bytes())
    data[member.header_offset + 30 + len(member.filename) + member.file_size // 2] ^= 1
    path.write_bytes(data)


def without_a_table(path: Path) -> None:
    with zipfile.ZipFile(path) as file:
        kept = {one.filename: file.read(one) for one in file.infolist() if "uind" not in one.filename}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in kept.items():
            file.writestr(name, data)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "is no backup, or not the whole of one"),
        (with_a_flipped_byte, "is damaged in"),
        (without_a_table, "is damaged in uind"),
        (lambda path: path.write_bytes(b"rows"), "is no backup"),
        (Path.unlink, "cannot be read: No such file"),
    ],
)
def test_a_damaged_backup_is_refused_before_anything_is_dropped(
    database_url: str, stream: Stream, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "state.backup"
    back_up(database_url, path)
    damage(path)
    with pytest.raises(StateError, match=words):
        restore(database_url, path, replace=True, telling=quietly)
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_restore_that_fails_half_way_leaves_what_was_there(
    database_url: str, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(database_url, tmp_path / "state.backup")

    def fails(_: object) -> None:
        raise StateError("The disk is full")

    monkeypatch.setattr("service.store.backup.upgrade", fails)
    with pytest.raises(StateError, match="The disk is full"):
        restore(database_url, tmp_path / "state.backup", replace=True, telling=quietly)
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_command_that_comes_to_migrate_waits_for_the_end_of_a_restore(
    database_url: str, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(database_url, tmp_path / "state.backup")
    # Of two that wait for each other the restore would be ended, which looks for it earlier.
    comer = make_url(database_url).update_query_dict({"options": "-c deadlock_timeout=1min"})

    def upgrades(connection: Connection) -> None:
        come.append(threads.submit(migrate.upgrade, comer))
        wait_for(lambda: states.query(database_url, "select from pg_locks where not granted"))
        migrate.upgrade(connection)

    monkeypatch.setattr(backup, "upgrade", upgrades)
    come: list[Future[str | None]] = []
    with ThreadPoolExecutor(1) as threads:
        restore(database_url, tmp_path / "state.backup", replace=True, telling=quietly)
        assert come[0].result(BOUND_SECONDS) == SCHEMA_REVISION
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_state_in_a_schema_whose_name_has_capitals_is_found(empty_database_url: str, tmp_path: Path) -> None:
    states.execute(empty_database_url, 'create schema "MyState"')
    url = make_url(empty_database_url).update_query_dict({"options": '-c search_path="MyState"'})
    there = url.render_as_string(hide_password=False)
    migrate.upgrade(there)
    with connect(there, "test") as connection:
        clear_remains(connection)
    assert corpus_cleaning.clean(there) == []
    back_up(there, tmp_path / "state.backup")
    assert restore(there, tmp_path / "state.backup", replace=True, telling=quietly).version == 0
    assert states.query(empty_database_url, 'select count(*) from "MyState".state_version') == [(0,)]


def test_what_bounds_the_statements_of_a_role_bounds_no_restore(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(database_url, tmp_path / "state.backup")
    name = make_url(empty_database_url).database
    states.execute(empty_database_url, f"alter database {name} set statement_timeout = '500ms'")

    def upgrades(connection: Connection) -> None:
        connection.execute(text("select pg_sleep(1)"))
        migrate.upgrade(connection)

    monkeypatch.setattr(backup, "upgrade", upgrades)
    restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    assert states.read(empty_database_url) == states.expected(stream.tables)


def test_a_restore_says_that_others_are_in_its_way(
    database_url: str, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(database_url, tmp_path / "state.backup")
    monkeypatch.setattr(backup, "LOCK_TIMEOUT", "50ms")
    with closing(psycopg2.connect(database_url)) as other, other.cursor() as cursor:
        cursor.execute("lock table alembic_version in access exclusive mode")
        with pytest.raises(StateError, match="Others were in the way of a statement"):
            restore(database_url, tmp_path / "state.backup", replace=True, telling=quietly)


def test_nothing_is_restored_under_a_consumer(database_url: str, stream: Stream, tmp_path: Path) -> None:
    back_up(database_url, tmp_path / "state.backup")
    with closing(psycopg2.connect(database_url, application_name="subsetd consumer")) as consumer:
        take_writer_lock(consumer)
        with pytest.raises(StateError, match=r"has another writer: subsetd consumer .*Only one may write"):
            restore(database_url, tmp_path / "state.backup", replace=True, telling=quietly)


def test_a_file_that_is_there_is_not_written_over_and_an_unfinished_one_does_not_stay(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path
) -> None:
    with pytest.raises(StateError, match="holds no state that could be backed up"):
        back_up(empty_database_url, tmp_path / "empty.backup")
    with pytest.raises(StateError, match=r"cannot be written to .*nowhere.*No such file"):
        back_up(database_url, tmp_path / "nowhere" / "state.backup")
    back_up(database_url, tmp_path / "state.backup")
    for there in (tmp_path / "state.backup", Path(), Path("/")):
        with pytest.raises(StateError, match="is there already"):
            back_up(database_url, there)
    assert [path.name for path in tmp_path.glob("*.backup*")] == ["state.backup"]
    assert stat.S_IMODE((tmp_path / "state.backup").stat().st_mode) == 0o600


def test_a_table_that_goes_before_it_is_held_is_not_waited_for(
    database_url: str, empty_database_url: str, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh, or a bootstrap that clears up, drops tables at any moment: the backup looks again."""
    states.execute(database_url, "create table gen_rec_g9_p000 (like gen_rec)")
    looked = []
    look = backup._ours

    def looks(cursor: object) -> list[tuple[str, bool]]:
        found = look(cursor)
        if not looked:
            cursor.connection.rollback()  # type: ignore[attr-defined]
            states.execute(database_url, "drop table gen_rec_g9_p000")
        looked.append(len(found))
        return found

    monkeypatch.setattr(backup, "_ours", looks)
    back_up(database_url, tmp_path / "state.backup")
    monkeypatch.undo()
    assert (len(looked), looked[0]) == (3, looked[1] + 1)
    restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    assert states.read(empty_database_url) == states.expected(stream.tables)


@pytest.mark.parametrize(("publishing_looks", "backup_looks"), [("10ms", "1min"), ("1min", "5s")])
def test_a_backup_and_a_bootstraps_last_commit_that_wait_for_each_other_both_come_through(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch, publishing_looks: str, backup_looks: str
) -> None:
    """They take the tables in orders of their own, and another reader keeps the bootstrap while the backup begins."""
    states.execute(database_url, "create table gen_cluster_g9 (like cluster)")
    look = backup._ours
    waiting = "select from pg_locks where not granted"

    def put_in_place() -> None:
        while _take_tables(publishing.cursor(), 9):
            pass
        publishing.rollback()

    def looks(cursor: Any) -> list[tuple[str, bool]]:
        found = look(cursor)
        if not published:
            published.append(threads.submit(put_in_place))
            wait_for(lambda: states.query(database_url, waiting))
        return found

    def back() -> None:
        backup._hold_tables(backing.cursor(), "state")
        backing.rollback()

    monkeypatch.setattr(backup, "_ours", looks)
    published: list[Future[None]] = []
    with ExitStack() as opened:
        threads = opened.enter_context(ThreadPoolExecutor(2))
        publishing, backing, reading = (
            opened.enter_context(closing(psycopg2.connect(database_url, application_name=name)))
            for name in ("bootstrap", BACKUP_NAME, "reader")
        )
        for connection, after in ((publishing, publishing_looks), (backing, backup_looks)):
            connection.cursor().execute(f"set deadlock_timeout = '{after}'")
            connection.commit()
        reading.cursor().execute("lock table gen_rec in access share mode")
        backed_up = threads.submit(back)
        wait_for(lambda: len(states.query(database_url, waiting)) == 2)
        reading.rollback()
        backed_up.result(BOUND_SECONDS)
        published[0].result(BOUND_SECONDS)


def test_a_table_that_is_replaced_all_the_time_is_given_up_on(
    database_url: str, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "LOCK_TIMEOUT", "50ms")
    with closing(psycopg2.connect(database_url)) as other, other.cursor() as cursor:
        cursor.execute("lock table gen_rec in access exclusive mode")
        with pytest.raises(StateError, match=r"are being replaced by a bootstrap or a refresh; try again"):
            back_up(database_url, tmp_path / "state.backup")


def test_the_commands(subsetd: Commands, database_url: str, stream: Stream, tmp_path: Path) -> None:
    path = str(tmp_path / "state.backup")
    code, said = subsetd.run("backup", path)
    assert code == 0, said
    assert f"version 1, schema revision {SCHEMA_REVISION}, are in {path}" in said
    code, said = subsetd.run("restore", path)
    assert code == 1
    assert "--replace" in said
    code, said = subsetd.run("restore", path, "--replace", "--without-watches")
    assert code == 0, said
    assert states.read(database_url) == states.expected(stream.tables)
