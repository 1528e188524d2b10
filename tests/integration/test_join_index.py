"""The index of joinable tables in Postgres: it answers as the search in memory, lands whole, and once."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random
from unittest import mock

import psycopg2
import pytest

from service.core.canonical import value_keys
from service.core.corpus import CorpusKind
from service.core.errors import ConflictError, NotFoundError, SourceError, StateError
from service.store import join_index, join_loads
from service.store.join_loads import building
from service.store.locks import JOIN_INDEX_LOCK, is_held
from service.usecases.corpora import NewCorpus
from service.usecases.joinable import JoinQuery
from spark_jobs import corpus_csv_files
from tests import states
from tests.joinable import Build, InMemory, ask, build, find_in, indexes_of, no_spark, told
from tests.lakes import DATA, unpack
from tests.refreshing import Lake, write_tables
from tests.session_ends import held_at_ends

TABLES = ("join_segment", "join_index", "join_table", "join_bucket", "join_rows", "join_task")


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Lake:
    """Give a corpus of two tables, the second with the first's rows in other columns."""
    folder = tmp_path / "tables"
    write_tables(folder, {
        "a.csv": [["berlin", "rome", "rome", "oslo"], ["1", "2", "rome", ""]],
        "b.csv": [["1", "2", "3"], ["rome", "berlin", "paris"], ["2", "1", "9"], ["", "", ""]],
    })  # fmt: skip
    return Lake(database_url, folder)


def counts(url: str) -> dict[str, int]:
    return {table: states.query(url, f"select count(*) from {table}")[0][0] for table in TABLES}


def made_tables(random: Random) -> dict[str, list[list[str]]]:
    """Make tables of few values: 3,000 rows in one, so that it has several blocks; none in another."""
    cells = ["", "x", "y", *map(str, range(random.choice([4, 40])))]
    heights = [0, 3000, *(random.randrange(1, 30) for _ in range(20))]
    return {
        f"t{n:02}.csv": [[random.choice(cells) for _ in range(height)] for _ in range(random.randrange(2, 7))]
        for n, height in enumerate(heights)
    }


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_the_search_in_memory(database_url: str, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    tables = made_tables(random)
    write_tables(tmp_path / "tables", tables)
    lake = Lake(database_url, tmp_path / "tables")
    # Of some the table of 3,000 rows is read in portions.
    with mock.patch.object(corpus_csv_files, "BATCH_BYTES", random.choice([1 << 23, 4000])):
        build(lake)
    memory = InMemory(tmp_path)
    for _ in range(15):
        columns = random.choice([table for table in tables.values() if len(table[0]) > 1])
        chosen = random.sample(columns, random.randrange(1, min(4, len(columns)) + 1))
        rows = [*islice(zip(*chosen, strict=True), 200), tuple("?" * len(chosen))]
        for k in (1, 3, 30):
            assert told(ask(database_url, lake.name, rows, k)) == memory.top(rows, k)


def test_a_lake_with_published_joins(database_url: str, tmp_path: Path) -> None:
    tables = unpack("lake_owid", tmp_path) / "tables"
    lake = Lake(database_url, tables)
    build(lake)
    for line in (DATA / "lakes" / "lake_owid_joins.jsonl").read_text("utf-8").splitlines():
        published = json.loads(line)
        with (tables / f"{published['table']}.csv").open(encoding="utf-8", newline="") as file:
            rows = [[row[column] for column in published["columns"]] for row in [*csv.reader(file)][1:]]
        answer = ask(database_url, lake.name, rows, 1000)
        assert answer.keys == published["keys"]
        others = [[name, list(columns), n] for name, columns, n in told(answer) if name != published["table"]]
        assert others[: len(published["top"])] == published["top"]
        assert len(others) == published["joinable_tables"]


def test_an_answer_tells_keys_columns_and_what_an_empty_cell_leaves_out(lake: Lake, database_url: str) -> None:
    build(lake)
    rows = [("berlin", "1"), ("rome", "2"), ("rome", "2"), ("oslo", ""), ("nowhere", "7")]
    answer = ask(database_url, lake.name, rows, 5)
    assert (answer.rows, answer.keys, answer.empty, answer.generation) == (5, 3, 1, 1)
    first, second = answer.tables
    assert (first.table, first.columns, first.matched_keys, first.share) == ("a.csv", ("c0", "c1"), 2, 2 / 3)
    assert (second.table, second.columns, second.matched_keys) == ("b.csv", ("c1", "c2"), 2)
    assert told(answer) == InMemory(lake.folder.parent).top(rows, 5)


def test_a_mapping_that_is_not_searched_to_its_end_is_named(lake: Lake, database_url: str) -> None:
    build(lake)
    answer = ask(database_url, lake.name, [("berlin", "1")], 5, most=0)
    assert (answer.tables, answer.unfinished) == ([], ["a.csv", "b.csv"])


def test_a_task_that_runs_again_writes_nothing(lake: Lake, database_url: str) -> None:
    lake.refresh(no_spark)
    twice = Build(lake)
    twice.run()
    once = counts(database_url)
    twice.run()
    assert counts(database_url) == once
    twice.land()
    assert counts(database_url) == {**once, "join_index": 1, "join_task": 0}


def test_what_died_is_removed_and_its_tasks_write_nothing(lake: Lake, database_url: str) -> None:
    lake.refresh(no_spark)
    died = Build(lake)
    died.run()
    build(lake)
    there = counts(database_url)
    assert (there["join_segment"], there["join_task"]) == (1, 0)
    died.run()
    assert counts(database_url) == there
    with pytest.raises(StateError, match="is of generation 1, and 2 is served"):
        died.land()
    assert counts(database_url) == there


def test_what_died_is_removed_by_the_hourly_cleaning_but_not_what_is_at_work(lake: Lake, database_url: str) -> None:
    build(lake)
    there = counts(database_url)
    Build(lake).run()
    with building(database_url, lake.corpora.named(lake.name).corpus_id):
        at_work = Build(lake)
        at_work.run()
        lake.corpora.clean()
        at_work.land()
    Build(lake).run()
    lake.corpora.clean()
    assert counts(database_url) == there


def test_an_index_of_which_a_task_is_missing_does_not_land(lake: Lake, database_url: str) -> None:
    lake.refresh(no_spark)
    partly = Build(lake)
    partly.run()
    states.execute(database_url, "delete from join_task where task = 1")
    with pytest.raises(StateError, match=f"Of {partly.tasks} tasks of the index of joinable tables {partly.tasks - 1}"):
        partly.land()
    with pytest.raises(NotFoundError, match="has no index of joinable tables"):
        ask(database_url, lake.name, [("1",)], 1)


def test_an_index_of_a_generation_that_is_past_does_not_land(lake: Lake, database_url: str) -> None:
    lake.refresh(no_spark)
    late = Build(lake)
    late.run()
    lake.refresh(no_spark)
    with pytest.raises(StateError, match="is of generation 1, and 2 is served"):
        late.land()


def test_one_builds_at_a_time(lake: Lake, database_url: str) -> None:
    corpus_id = lake.corpora.named(lake.name).corpus_id
    with (
        building(database_url, corpus_id),
        pytest.raises(StateError, match="is being built"),
        building(database_url, corpus_id),
    ):
        pass
    with building(database_url, corpus_id):
        pass


def test_whoever_has_built_lets_the_next_one_build_at_once(
    lake: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the server has noticed that the session has ended."""
    corpus_id = lake.corpora.named(lake.name).corpus_id
    held = held_at_ends(monkeypatch, join_loads, database_url, is_held(JOIN_INDEX_LOCK, str(corpus_id)))
    with building(database_url, corpus_id):
        pass
    assert held == [False]


def test_who_searches_sees_what_there_was_when_it_began(lake: Lake, database_url: str) -> None:
    build(lake)
    query = JoinQuery([["oslo2"], ["1"]])
    with indexes_of(database_url) as indexes, indexes.snapshot(lake.name) as before:
        write_tables(lake.folder, {"a.csv": [["oslo2"], ["1"]]})
        build(lake)
        (segment,) = before.segments
        assert [table.path for table in segment.tables([0, 1]).values()] == ["a.csv", "b.csv"]
        berlin = segment.numbers(value_keys(["berlin"]))
        assert len(segment.rows(segment.postings(berlin).rows).cells)
        assert [table.table for table in find_in(indexes, lake.name, query, 1).tables] == ["a.csv"]


def test_of_the_blocks_that_rows_are_in_the_rows_alone_are_kept(
    lake: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are fetched at a time: a search for rows here and there would hold whole tables."""
    write_tables(lake.folder, {"a.csv": [[str(number) for number in range(3000)], ["x"] * 3000], "b.csv": [["7"]]})
    build(lake)
    for at_once in (join_index.BLOCKS_AT_ONCE, 2):
        monkeypatch.setattr(join_index, "BLOCKS_AT_ONCE", at_once)
        with indexes_of(database_url) as indexes, indexes.snapshot(lake.name) as snapshot:
            (segment,) = snapshot.segments
            x, seven, *others = (int(segment.numbers(value_keys([text]))[0]) for text in ("x", "7", "1007", "2007"))
            keys = value_keys(["7", "1007", "2007"])
            found = segment.rows(segment.postings(segment.numbers(keys.take(keys.order()))).rows)
        assert (len(found.super_keys), len(found.cells)) == (4, 3 * 2 + 1)
        cells = [found.cells[found.starts[row] : found.starts[row + 1]].tolist() for row in found.places]
        assert sorted(cells) == sorted([[seven], *([number, x] for number in (seven, *others))])


def test_tables_that_are_not_as_they_were_are_left_out(lake: Lake, database_url: str) -> None:
    lake.refresh(no_spark)
    write_tables(lake.folder, {"a.csv": [["1", "2"]], "b.csv": [["1", "2", "3"], ["x"] * 3, ["y"] * 3, ["z"] * 3]})
    (lake.folder / "new.csv").write_text("c0\n1\n")
    (lake.folder / "bad.csv").write_text('c0\n"1\n')
    changed = Build(lake)
    changed.run()
    changed.land()
    assert changed.left_out == 1
    assert [table.table for table in ask(database_url, lake.name, [("1",)], 9).tables] == ["b.csv"]


def test_a_removed_corpus_takes_its_index_with_it(lake: Lake, database_url: str) -> None:
    build(lake)
    lake.corpora.remove(lake.name)
    assert set(counts(database_url).values()) == {0}


def test_corpora_of_one_name_or_one_place_answer_each_from_their_own_index(
    lake: Lake, database_url: str, tmp_path: Path
) -> None:
    """One service goes on over all of it: what it keeps of segments is of no other corpus."""
    write_tables(tmp_path / "other", {"a.csv": [["berlin", "x", "rome"], ["9", "9", "9"]], "c.csv": [["berlin"]]})
    other, same_place = Lake(database_url, tmp_path / "other"), Lake(database_url, lake.folder)
    for each in (lake, other, same_place):
        build(each)
    with indexes_of(database_url) as indexes:

        def found(name: str) -> list[tuple[str, tuple[str, ...]]]:
            query = JoinQuery([["berlin", "rome", "oslo"]])
            return [(table.table, table.new_columns) for table in find_in(indexes, name, query, 9).tables]

        of_lake, of_other = found(lake.name), found(other.name)
        assert of_lake == found(same_place.name) == [("a.csv", ("c1",)), ("b.csv", ("c0", "c2", "c3"))]
        assert of_other == [("a.csv", ("c1",)), ("c.csv", ())]
        twin = NewCorpus(lake.name, str(tmp_path / "other"), CorpusKind.CSV)
        with pytest.raises(ConflictError, match="already"):
            lake.corpora.add(twin)
        lake.corpora.remove(lake.name)
        assert (found(same_place.name), found(other.name)) == (of_lake, of_other)
        lake.corpora.add(twin)
        with pytest.raises(NotFoundError, match="has no index of joinable tables"):
            found(lake.name)
        build(lake)
        assert found(lake.name) == of_other
        other.corpora.remove(other.name)
        assert (found(lake.name), found(same_place.name)) == (of_other, of_lake)


@pytest.mark.parametrize("query", [[], [["a"], ["b"]]])
def test_no_table_and_no_key_column_cannot_be_asked(lake: Lake, database_url: str, query: list[list[str]]) -> None:
    build(lake)
    with indexes_of(database_url) as indexes, pytest.raises(SourceError, match="at least one"):
        find_in(indexes, lake.name, JoinQuery(query), 0 if query else 1)


def test_a_query_without_a_row_joins_nothing(lake: Lake, database_url: str) -> None:
    build(lake)
    with indexes_of(database_url) as indexes:
        assert find_in(indexes, lake.name, JoinQuery([[], []]), 3).tables == []


def test_a_block_that_is_missing_is_told(lake: Lake, database_url: str) -> None:
    build(lake)
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("delete from join_rows")
        connection.commit()
    with pytest.raises(StateError, match="blocks of rows"):
        ask(database_url, lake.name, [("berlin", "1")], 1)
