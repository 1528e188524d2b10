"""The index of tracked tables: whatever the feed brings, a search answers as brute force over the rows as they are."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from service.core.errors import StateError
from service.core.row_key import row_key
from service.store import join_tracked_compaction, join_tracked_log
from service.store.database import make_engine
from service.store.join_tracked import add_tables, list_tables, remove_tables
from service.store.join_tracked_compaction import PostgresTrackedIndexes
from service.store.join_tracked_search import PostgresTrackedTables
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.usecases.join_tracked import TrackedIndex, build
from service.usecases.joinable import JoinAnswer, JoinQuery, cut, find_joinable
from service.usecases.live_state import BatchCommit
from tests import kept_rows, states
from tests.events import envelope, with_schema
from tests.following import Stream, Watch, consume
from tests.states import Tables
from tests.waiting import wait_for

COLUMNS = {"orders": ["id", "customer", "note"], "customers": ["id", "name", "town", "note"]}
CELLS = [*"123456", "ada", "bob", "é" * 200, 'x\ty\\z\n{"a"}', "", None]

OF_TABLE = (
    "join join_segment s using (segment_id) join tracked_table using (table_id) order by table_name, s.segment_id"
)
CONTENT = {
    "join_segment": "select table_name, bucket_bits, layout from join_segment join tracked_table using (table_id) "
    "order by table_name, segment_id",
    "join_bucket": f"select bucket, data from join_bucket {OF_TABLE}, bucket",
    "join_rows": f"select first_row, super_keys, cells from join_rows {OF_TABLE}, first_row",
    "join_row_keys": f"select first_row, row_keys from join_row_keys {OF_TABLE}, first_row",
    "join_cover": f"select row_keys from join_cover {OF_TABLE}",
    "join_change": "select version, row_keys from join_change",
    "join_tracked": "select row_count, functions from join_tracked order by row_count",
}

Found = list[tuple[str, tuple[str, ...], int]]


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    rng = random.Random(3)
    tables = Tables(dict(COLUMNS))
    for table in COLUMNS:
        tables.add(table, *(row_of(table, str(number), rng) for number in range(40)))
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"orders": ["id"], "customers": ["id"]})
    path = tmp_path / "feed.jsonl"
    path.touch()
    return Stream(path, tables, dict(COLUMNS))


def content(url: str) -> dict[str, list[Any]]:
    """Give all that is stored of indexes, whatever the ids of its segments are."""
    return {table: states.query(url, query) for table, query in CONTENT.items()}


def listed(url: str) -> list[TrackedIndex]:
    engine = make_engine(url, "test", pool_size=1, max_overflow=0)
    try:
        return list_tables(engine)
    finally:
        engine.dispose()


class FailingOnce(PostgresWriter):
    """Lose the connection in the middle of the third commit, when the log is written already."""

    commits = 0

    def begin(self) -> PostgresUnitOfWork:
        writer, unit = self, super().begin()
        commit = unit.commit

        def failing(batch: BatchCommit) -> None:
            FailingOnce.commits += 1
            if FailingOnce.commits == 3:
                with writer.writing.cursor() as cursor:
                    join_tracked_log.write_changes(cursor, batch)
                    cursor.execute("delete from join_segment")
                raise StateError("lost")
            commit(batch)

        unit.commit = failing  # type: ignore[method-assign]
        return unit


@contextmanager
def indexes_of(url: str) -> Iterator[PostgresTrackedIndexes]:
    indexes = PostgresTrackedIndexes(url)
    try:
        yield indexes
    finally:
        indexes.close()


def index(url: str, *tables: str) -> None:
    ids = add_tables(url, tables)
    with indexes_of(url) as indexes:
        for table_id in ids:
            build(indexes, table_id)


def compact(url: str) -> None:
    with indexes_of(url) as indexes:
        for table_id, *_ in indexes.backlog():
            assert indexes.compact(table_id, waiting=True)  # the session of the one before may be about to end


def row_of(table: str, key: str, rng: random.Random) -> list[str | None]:
    return [key, *(rng.choice(CELLS) for _ in COLUMNS[table][1:])]


def ask(url: str, rows: Sequence[Sequence[str]], k: int = 10) -> JoinAnswer:
    engine = make_engine(url, "test", pool_size=2, max_overflow=0)
    try:
        with PostgresTrackedTables(engine).snapshot() as snapshot:
            return find_joinable(snapshot, JoinQuery(list(zip(*rows, strict=True))), k, None, preview=2)
    finally:
        engine.dispose()


def told(answer: JoinAnswer) -> Found:
    return [(table.table, table.columns, table.matched_keys) for table in answer.tables]


def brute_force(tables: Tables, rows: Sequence[Sequence[str]], indexed: Sequence[str] = tuple(COLUMNS)) -> Found:
    """Count the keys of each mapping of each table by plain Python."""
    keys = {tuple(row) for row in rows if all(row)}
    found = []
    for table in indexed:
        columns = tables.columns[table]
        present = list(+tables.rows[table])
        best: tuple[int, tuple[int, ...]] = (0, ())
        for mapping in permutations(range(len(columns)), len(rows[0])):
            joined = len(keys & {tuple(row[place] for place in mapping) for row in present})
            if joined > best[0]:
                best = joined, mapping
        if best[0]:
            found.append((f"s.{table}", tuple(columns[place] for place in best[1]), best[0]))
    return sorted(found, key=lambda each: (-each[2], each[0]))


def require_exact(
    url: str, stream: Stream, rng: random.Random, times: int = 6, indexed: Sequence[str] = tuple(COLUMNS)
) -> None:
    """Hold searches with one to three key columns, from present rows and others, against brute force."""
    for _ in range(times):
        table = rng.choice(indexed)
        rows = [tuple(cell or "" for cell in row) for row in +stream.tables.rows[table]] or [("1", "2", "3")]
        places = rng.sample(range(len(rows[0])), rng.randint(1, 3))
        query = [tuple(row[place] for place in places) for row in rng.sample(rows, min(len(rows), 25))]
        query += [tuple(rng.choice(CELLS) or "9" for _ in places) for _ in range(5)]
        answer = ask(url, query)
        assert told(answer) == brute_force(stream.tables, query, indexed)
        require_previews(stream.tables, answer)


def require_previews(tables: Tables, answer: JoinAnswer) -> None:
    """Hold the rows that are shown against those that are there: a row for each key, whole but for long cells."""
    for found in answer.tables:
        new = sorted({*range(len(found.columns + found.new_columns))} - {*found.positions})
        present = {
            (
                tuple(row[place] for place in found.positions),
                tuple(cut(row[place]) for place in new),
            )
            for row in +tables.rows[found.table.removeprefix("s.")]
        }
        assert len(found.preview) == min(2, found.matched_keys)
        assert len({row.key for row in found.preview}) == len(found.preview)
        assert {(row.key, row.values) for row in found.preview} <= present
        assert {row.row for row in found.preview} == {None}


def send(stream: Stream, table: str, before: dict[str, str | None] | None, after: Sequence[str | None] | None) -> None:
    """Append a change that says of the row before its key alone, and make it in the table; a row's key is its first."""
    gone = {None if before is None else before["id"], None if after is None else after[0]}
    present = [row for row in +stream.tables.rows[table] if row[0] not in gone]
    stream.tables.rows[table] = Counter([*present, *([] if after is None else [tuple(after)])])
    sent = None if after is None else dict(zip(stream.columns[table], after, strict=True))
    op = "d" if after is None else "u"
    stream.write(with_schema(stream.columns[table], op, table, before, sent))


def truncate(stream: Stream, table: str) -> None:
    stream.write(envelope("t", "s", table))
    stream.tables.rows[table] = Counter()


def change(stream: Stream, rng: random.Random, number: int) -> None:
    """Append any changes: of cells, rows, their keys, without large cells, and truncates."""
    for _ in range(number):
        table = rng.choice(list(COLUMNS))
        key = str(rng.randrange(60))
        row = row_of(table, key, rng)
        (operation,) = rng.choices(["put", "delete", "move", "part", "truncate"], [50, 15, 15, 15, 2])
        match operation:
            case "truncate":
                truncate(stream, table)
            case "delete":
                send(stream, table, {"id": key}, None)
            case "move":
                send(stream, table, {"id": key}, [str(rng.randrange(60)), *row[1:]])
            case "part" if kept := [present for present in stream.tables.rows[table] if present[0] == key]:
                sent = dict(zip(COLUMNS[table], row, strict=True)) | {"note": "__debezium_unavailable_value"}
                stream.write(envelope("u", "s", table, None, sent))
                stream.tables.rows[table] -= Counter(kept)
                stream.tables.add(table, [*row[:-1], kept[0][-1]])
            case _:
                send(stream, table, None, row)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_a_search_answers_as_brute_force(database_url: str, stream: Stream, seed: int) -> None:
    rng = random.Random(seed)
    index(database_url, "s.orders", "s.customers")
    require_exact(database_url, stream, rng)
    for _ in range(6):
        change(stream, rng, rng.choice([1, 3, 30]))
        consume(database_url, stream, records=rng.choice([1, 7, 100]))
        require_exact(database_url, stream, rng, 3)
        if rng.random() < 0.6:
            compact(database_url)
            require_exact(database_url, stream, rng, 3)


def test_an_index_after_updates_compacted_is_one_built_anew(database_url: str, stream: Stream) -> None:
    rng = random.Random(11)
    index(database_url, "s.orders", "s.customers")
    for _ in range(8):
        change(stream, rng, 12)
        consume(database_url, stream)
        compact(database_url)
    states.execute(database_url, "update join_tracked set built_version = null")
    compact(database_url)
    after_updates = content(database_url)
    remove_tables(database_url, ["s.orders", "s.customers"])
    assert content(database_url) == {table: [] for table in CONTENT}
    index(database_url, "s.orders", "s.customers")
    assert content(database_url) == after_updates
    require_exact(database_url, stream, rng)


def test_few_changes_of_many_rows_are_folded_into_few_segments(database_url: str, stream: Stream) -> None:
    rng = random.Random(12)
    for number in range(100, 900):
        send(stream, "orders", None, row_of("orders", str(number), rng))
    consume(database_url, stream)
    index(database_url, "s.orders")
    most = 0
    for number in range(16):
        send(stream, "orders", None, row_of("orders", str(number), rng))
        consume(database_url, stream)
        compact(database_url)
        (found,) = listed(database_url)
        assert (found.rows, found.changed) == (840, 0)
        most = max(most, found.segments)
    assert 3 <= most <= 1 + 4, "log2 of 16 beside the oldest"
    require_exact(database_url, stream, rng, indexed=["orders"])
    for number in range(900):
        send(stream, "orders", {"id": str(number)}, None)
    consume(database_url, stream)
    compact(database_url)
    assert listed(database_url)[0].segments == 1, "as many have changed as there were: all is indexed anew"
    require_exact(database_url, stream, rng, indexed=["orders"])


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_is_committed_while_a_table_is_indexed_is_not_lost(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """The feed goes on behind the snapshot that the rows are read in."""
    rng = random.Random(13)
    index(database_url, "s.orders")
    send(stream, "orders", {"id": "1"}, None)
    consume(database_url, stream)
    if is_whole:
        states.execute(database_url, "update join_tracked set built_version = null")
    put = join_tracked_compaction._put

    def meanwhile(*arguments: Any) -> None:
        for number in range(20, 40):
            send(stream, "orders", {"id": str(number)}, row_of("orders", str(number), rng) if number % 3 else None)
        consume(database_url, stream)
        put(*arguments)

    monkeypatch.setattr(join_tracked_compaction, "_put", meanwhile)
    compact(database_url)
    monkeypatch.undo()
    assert listed(database_url)[0].changed == 20
    require_exact(database_url, stream, rng, indexed=["orders"])
    compact(database_url)
    require_exact(database_url, stream, rng, indexed=["orders"])


def test_a_table_that_is_emptied_while_it_is_indexed_stays_empty(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(14)
    index(database_url, "s.orders")
    send(stream, "orders", {"id": "1"}, None)
    consume(database_url, stream)
    put = join_tracked_compaction._put

    def meanwhile(*arguments: Any) -> None:
        if stream.tables.rows["orders"]:
            truncate(stream, "orders")
            consume(database_url, stream)
        put(*arguments)

    monkeypatch.setattr(join_tracked_compaction, "_put", meanwhile)
    with indexes_of(database_url) as indexes:
        ((table_id, *_),) = indexes.backlog()
        assert not indexes.compact(table_id)
        assert told(ask(database_url, [("1",)])) == []
        build(indexes, table_id)
    send(stream, "orders", None, ["1", "ada", "bob"])
    consume(database_url, stream)
    require_exact(database_url, stream, rng, indexed=["orders"])


def test_a_batch_that_began_before_a_table_is_indexed_is_waited_for(database_url: str, stream: Stream) -> None:
    with closing(psycopg2.connect(database_url)) as batch, batch.cursor() as cursor:
        cursor.execute(join_tracked_log.INDEXED)
        adding = threading.Thread(target=index, args=(database_url, "s.orders"))
        adding.start()
        wait_for(lambda: states.query(database_url, "select from pg_locks where not granted"))
        cursor.execute("update row_image set cells = array['77', 'of the', 'batch'] where cells[1] = '7'")
        cursor.execute("delete from row_image where cells[1] = '77'")
        batch.commit()
        adding.join()
    assert listed(database_url)[0].rows == 39


def test_a_batch_that_is_not_committed_changes_no_index(database_url: str, stream: Stream) -> None:
    FailingOnce.commits = 0
    rng = random.Random(15)
    index(database_url, "s.orders", "s.customers")
    change(stream, rng, 40)
    watch = Watch()
    consume(database_url, stream, records=5, writer=FailingOnce(database_url), watch=watch, retry_seconds=5.0)
    assert [str(error) for error in watch.errors] == ["lost"]
    require_exact(database_url, stream, rng)


def test_columns_that_come_and_go_are_searched_as_they_are(database_url: str, stream: Stream) -> None:
    rng = random.Random(16)
    index(database_url, "s.orders")
    stream.columns["orders"] = stream.tables.columns["orders"] = ["id", "customer", "note", "more"]
    stream.tables.rows["orders"] = Counter((*row, None) for row in stream.tables.rows["orders"])
    send(stream, "orders", None, ["5", "ada", "bob", "new"])
    consume(database_url, stream)
    query = [("5", "new"), ("5", "x")]
    assert told(ask(database_url, query)) == [("s.orders", ("id", "more"), 1)]
    require_exact(database_url, stream, rng, indexed=["orders"])
    compact(database_url)
    require_exact(database_url, stream, rng, indexed=["orders"])
    stream.columns["orders"] = stream.tables.columns["orders"] = ["id", "note", "more"]
    stream.tables.rows["orders"] = Counter((row[0], *row[2:]) for row in stream.tables.rows["orders"])
    send(stream, "orders", None, ["6", "bob", "newer"])
    consume(database_url, stream)
    require_exact(database_url, stream, rng, indexed=["orders"])
    compact(database_url)
    require_exact(database_url, stream, rng, indexed=["orders"])
    (answer,) = ask(database_url, [("6", "newer")]).tables
    assert (answer.columns, answer.positions) == (("id", "more"), (0, 2))


def test_a_row_between_the_halves_of_a_key_change_is_in_no_search(database_url: str, stream: Stream) -> None:
    (table_id,) = states.query(database_url, "select table_id from tracked_table where table_name = 'orders'")[0]
    lent = row_key(["9", "lent"]).hex()
    states.execute(
        database_url, f"insert into row_image (table_id, row_key, cells) values ({table_id}, '{lent}', '{{9,lent,x}}')"
    )
    index(database_url, "s.orders")
    assert listed(database_url)[0].rows == 40
    assert told(ask(database_url, [("lent", "x")])) == []
    states.execute(database_url, f"insert into join_change values ({table_id}, 1, '\\x{lent}')")
    assert told(ask(database_url, [("lent", "x")])) == []
