"""The compaction of the sketches' log: it changes nothing that is read, ends anywhere, and finds what cannot be."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import event

from service import feed_wiring
from service.core.sketches.column import ColumnSketch
from service.store import sketch_compaction
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.store.sketch_compaction import PostgresSketchLog
from service.store.sketch_reading import StoredSketches, read_sketches
from service.usecases import compact_sketches, sketched_columns
from service.usecases.compact_sketches import SketchCompactor
from tests import states
from tests.asking import http_client
from tests.events import envelope
from tests.following import COLUMNS, Stream, consume, random_changes
from tests.integration.serving import app_over, serving
from tests.states import Tables
from tests.waiting import wait_for

ALL = 1 << 30


@pytest.fixture
def stream(database_url: str, tmp_path: Path) -> Stream:
    """Give a state with changes applied in several versions, a truncate among them."""
    stream = Stream(tmp_path / "feed", Tables(COLUMNS))
    stream.tables.add("orders", *([str(i), str(i % 7), f"note {i}"] for i in range(30)))
    stream.tables.add("customers", *([str(i), f"name {i}"] for i in range(9)))
    states.store(database_url, stream.tables)
    stream.path.touch()
    rng = random.Random(11)
    for _ in range(4):
        random_changes(stream, rng, 12)
        consume(database_url, stream, records=5)
    stream.write(envelope("t", "s", "customers"))
    stream.tables.rows["customers"].clear()
    random_changes(stream, rng, 12)
    consume(database_url, stream, records=5)
    return stream


@pytest.fixture
def log(database_url: str) -> Iterator[PostgresSketchLog]:
    with closing(PostgresSketchLog(database_url)) as log:
        yield log


def sketches(url: str) -> StoredSketches:
    with states.one_version(url) as connection:
        return read_sketches(connection)


def served(url: str) -> tuple[dict[int, tuple[bool, int]], int]:
    """Give what is said of sketches that need a rescan, (needs_rescan, spares_left) by attribute, and their number."""
    engine = make_engine(url, "test-compaction")
    with PostgresStateReader(engine).snapshot() as snapshot:
        listed, count = sketched_columns.sketches(snapshot).items, snapshot.counts().short_sketches
    engine.dispose()
    return {one.column.attribute_id: (True, one.spares_left) for one in listed if one.needs_rescan}, count


def dense(url: str) -> dict[int, bytes]:
    """Give what is the same for the same values, whatever came and went."""
    return {attribute_id: one.dense().to_bytes() for attribute_id, one in sketches(url).by_id.items()}


@pytest.mark.parametrize("most_bytes", [0, 200, ALL])
def test_compaction_changes_nothing_that_is_read(
    database_url: str, stream: Stream, log: PostgresSketchLog, most_bytes: int
) -> None:
    before, steps = dense(database_url), 0
    while log.backlog()[0]:
        assert log.fold(most_bytes) == []
        assert dense(database_url) == before
        steps += 1
    assert (steps == 1) == (most_bytes == ALL)
    while log.rescan():
        assert dense(database_url) == before
    assert states.query(database_url, "select from sketch where needs_rescan") == []
    assert states.read(database_url) == states.expected(stream.tables)
    random_changes(stream, random.Random(1), 10)
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_column_of_which_most_goes_has_its_smallest_hashes_read_again(
    database_url: str, stream: Stream, log: PostgresSketchLog
) -> None:
    present = sorted((+stream.tables.rows["orders"]).elements(), key=str)
    for row in present[3:]:
        stream.change("orders", row, None)
    consume(database_url, stream)
    log.fold(ALL)
    short = states.query(database_url, "select attribute_id from sketch where needs_rescan")
    assert short
    assert served(database_url) == ({one: (True, 0) for (one,) in short}, len(short))
    assert all(len(sketches(database_url).by_id[i].bottom.hashes) < states.SKETCH_FORM[1] for (i,) in short)
    while log.rescan():
        pass
    assert served(database_url) == ({}, 0)
    assert all(sketches(database_url).by_id[i].hashes is not None for (i,) in short)
    assert states.read(database_url) == states.expected(stream.tables)


OF_SKETCHES = [
    "state",
    "sketches",
    "sketches/s.orders.id",
    "coefficients?method=bottom-k",
    "coefficients?method=bottom-k&top=3",
    "coefficients?method=bottom-k&dependent=s.orders.id&referenced=s.orders.customer",
    "coefficients/matrix?method=bottom-k",
    "coefficients/s.orders.id/s.orders.customer",
]


def test_an_answer_that_a_compaction_changes_is_not_told_to_be_as_it_was(
    database_url: str, stream: Stream, log: PostgresSketchLog
) -> None:
    """No version follows in a quiet feed, so that a client would keep an old answer for ever."""
    present = sorted((+stream.tables.rows["orders"]).elements(), key=str)
    for row in present[5:]:
        stream.change("orders", row, None)
    consume(database_url, stream)
    engine = make_engine(database_url, "test-compaction")
    with serving(app_over(engine)) as address, http_client(base_url=f"{address}/api/v1/", timeout=60) as client:
        known = {path: client.get(path) for path in OF_SKETCHES}
        changed = set()
        for step in (lambda: log.fold(0), lambda: log.fold(ALL), log.rescan, log.rescan):
            assert step() not in (None, False)
            for path, before in known.items():
                now = client.get(path)
                again = client.get(path, headers={"If-None-Match": before.headers["ETag"]})
                assert again.status_code == 200 or now.content == before.content, path
                assert client.get(path, headers={"If-None-Match": now.headers["ETag"]}).status_code == 304
                changed |= {path} if now.content != before.content else set()
                known[path] = now
        assert changed == set(OF_SKETCHES)
        exact = client.get("coefficients?method=exact")
        assert exact.headers["ETag"] == f'"{exact.json()["version"]}"', "it is made of no sketch"
    engine.dispose()


def test_a_compaction_that_a_truncate_overtakes_leaves_the_truncate_as_it_is(
    database_url: str, stream: Stream, log: PostgresSketchLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_changes = sketch_compaction.read_changes

    def overtaken(*arguments: object) -> object:
        stream.write(envelope("t", "s", "orders"))
        stream.tables.rows["orders"].clear()
        consume(database_url, stream)
        return read_changes(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(sketch_compaction, "read_changes", overtaken)
        assert log.fold(ALL) is None
    assert states.read(database_url) == states.expected(stream.tables)
    assert log.fold(ALL) == []
    assert states.read(database_url) == states.expected(stream.tables)


def test_one_compactor_works_at_a_time(database_url: str, stream: Stream, log: PostgresSketchLog) -> None:
    with closing(PostgresSketchLog(database_url)) as other:
        assert log._take(lambda connection, _: (other.fold(ALL), other.rescan())) == (None, False)
    assert log.fold(ALL) == []


class Gone(BaseException):
    """Stand for the process being gone."""


def test_a_compaction_that_ends_at_any_statement_has_changed_nothing_or_all(
    database_url: str, stream: Stream, log: PostgresSketchLog
) -> None:
    before, done = dense(database_url), 0
    steps = 0
    while True:
        left = [steps]

        def count(*_: object, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Gone

        with closing(PostgresSketchLog(database_url)) as dying:
            event.listen(dying._engine, "before_cursor_execute", count)
            event.listen(dying._engine, "commit", count)
            try:
                dying.fold(300)
                while dying.rescan():
                    pass
                ended = True
            except Gone:
                ended = False
        assert dense(database_url) == before
        done += 1
        if ended and not log.backlog()[0]:
            break
        steps += 1
    assert done > 20
    assert states.read(database_url) == states.expected(stream.tables)


def test_what_was_never_there_makes_a_fault_that_names_the_attribute(
    database_url: str, stream: Stream, log: PostgresSketchLog
) -> None:
    empty = ColumnSketch(*states.SKETCH_FORM).to_bytes().hex()
    states.execute(
        database_url,
        f"update sketch set version = (select max(version) from state_version), sketch = '\\x{empty}' "
        "where attribute_id = 2",
    )
    for row in list((+stream.tables.rows["orders"]).elements()):
        stream.change("orders", row, None)
    consume(database_url, stream)
    damaged = states.query(database_url, "select sketch from sketch where attribute_id = 2")
    assert "s.orders.customer: hash " in sketches(database_url).faults[2]
    (told,) = log.fold(ALL) or ()
    assert told.startswith("s.orders.customer: hash ")
    assert told.endswith("bootstrap its source again with --replace, which makes its sketch anew")
    assert states.query(database_url, "select sketch from sketch where attribute_id = 2") == damaged
    assert sketches(database_url).faults == {2: told}
    assert sketches(database_url).by_id.keys() == {1, 3, 4, 5}


def test_the_compactor_waits_until_the_log_is_long_and_tells_what_it_found(
    database_url: str, stream: Stream, log: PostgresSketchLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    compactor = SketchCompactor(log, told.append)
    compactor.look(threading.Event())
    assert log.backlog()[0]
    monkeypatch.setattr(compact_sketches, "MOST_VERSIONS", 2)
    compactor.look(threading.Event())
    assert (log.backlog(), told) == ((0, 0), [])


def test_a_column_that_runs_short_in_a_quiet_feed_is_read_again(
    database_url: str, stream: Stream, log: PostgresSketchLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some versions are no long log, and none may follow for hours."""
    for row in sorted((+stream.tables.rows["orders"]).elements(), key=str)[3:]:
        stream.change("orders", row, None)
    consume(database_url, stream)
    short, _ = served(database_url)
    assert short
    monkeypatch.setattr(compact_sketches, "MOST_LOOKS", 3)
    compactor = SketchCompactor(log, pytest.fail)
    for expected in (short, short, {}):
        compactor.look(threading.Event())
        assert served(database_url)[0] == expected
    assert states.read(database_url) == states.expected(stream.tables)
    random_changes(stream, random.Random(3), 10)
    consume(database_url, stream)
    compactor.look(threading.Event())
    assert log.backlog()[0], "it is counted from the last folding on"


def test_what_keeps_a_compactor_from_its_work_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_sketches, "LOOK_SECONDS", 0.0)
    told: list[str] = []
    stop = threading.Event()
    looks: Callable[[], bool] = iter([False] * 4 + [True]).__next__
    with closing(PostgresSketchLog("postgresql://postgres@127.0.0.1:1/nowhere")) as away:
        monkeypatch.setattr(stop, "wait", lambda _: looks())
        SketchCompactor(away, told.append).run(stop)
    assert len(told) == 1
    assert "Cannot reach database 'nowhere'" in told[0]


def test_a_table_that_others_hold_for_longer_than_a_lock_timeout_is_come_back_to(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout is the role's or the database's; the holders are a bootstrap's last commit, or VACUUM FULL."""
    monkeypatch.setattr(compact_sketches, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(compact_sketches, "MOST_VERSIONS", 0)
    told: list[str] = []
    stop = threading.Event()
    with (
        closing(PostgresSketchLog(f"{database_url}&options=-c%20lock_timeout%3D20ms")) as log,
        psycopg2.connect(database_url) as other,
        other.cursor() as cursor,
    ):
        for table in ("gen_rec", "sketch", "sketch_change", "cluster"):
            states.execute(database_url, "update sketch set needs_rescan = true where attribute_id = 1")
            cursor.execute(f"lock table {table} in access exclusive mode")
            looks: Callable[[], bool] = iter([False, False, True]).__next__
            monkeypatch.setattr(stop, "wait", lambda _, looks=looks: looks())
            SketchCompactor(log, told.append).run(stop)
            other.rollback()
        SketchCompactor(log, pytest.fail).look(threading.Event())
        assert log.backlog() == (0, 0)
    assert len(told) == 2, "of looks; a step that others are in the way of is taken at the next look"
    assert all("Others were in the way of a statement on database" in one for one in told)
    assert served(database_url) == ({}, 0)
    other.close()


def test_a_source_whose_values_go_while_a_sketch_is_to_be_read_again_is_left_as_it_is(
    database_url: str, stream: Stream, log: PostgresSketchLog
) -> None:
    """A bootstrap, sketch-only from now on, waits for the records, and the compactor behind it."""
    states.execute(database_url, "update sketch set needs_rescan = true where attribute_id = 1")
    before = sketches(database_url).by_id[1].to_bytes()
    found: list[bool] = []
    rescanning = threading.Thread(target=lambda: found.append(log.rescan()))
    with closing(psycopg2.connect(database_url)) as other, other.cursor() as cursor:
        cursor.execute("lock table gen_rec in access exclusive mode")
        rescanning.start()
        wait_for(lambda: states.query(database_url, "select from pg_locks where not granted"))
        cursor.execute("update source set sketch_only = true; update attribute set distinct_count = null")
        other.commit()
        rescanning.join()
    assert found == [True]
    assert sketches(database_url).by_id[1].to_bytes() == before
    assert not log.rescan()


def test_the_log_is_folded_beside_a_consumer(
    database_url: str, stream: Stream, log: PostgresSketchLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_sketches, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(compact_sketches, "MOST_BYTES", 0)
    before = dense(database_url)
    with feed_wiring.compacting_sketches(database_url):
        wait_for(lambda: log.backlog() == (0, 0))
        random_changes(stream, random.Random(2), 10)
        consume(database_url, stream)
        wait_for(lambda: log.backlog() == (0, 0))
    assert dense(database_url) != before
    assert states.read(database_url) == states.expected(stream.tables)
