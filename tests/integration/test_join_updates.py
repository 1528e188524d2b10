"""The index of joinable tables after updates: it answers as one that is built anew, and merged it is equal to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core import join_layout, posting_buckets
from service.core.errors import StateError
from service.core.join_layout import Layout
from service.store import join_merge
from service.store.database import connect
from service.store.join_loads import BUILD_NAME, NewIndex, building, stored_segments
from service.store.join_merge import merge_segments
from spark_jobs import join_build
from tests import states
from tests.joinable import Build, InMemory, ask, crowding, index, no_spark, told
from tests.refreshing import Lake, Tables, write_tables

CELLS = ["", "x", "y", "1", "2", "3"]
SECONDS = count(1_000_000_000)
KINDS = ["table in", "table out", "row in", "row out", "column in", "column out", "cell"]
CHANGES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 20)), min_size=1, max_size=3)


def changed(tables: Tables, kind: str, seed: int) -> Tables:
    """Make one of the updates of the paper's section 5.4 to a table that the seed says."""
    random = Random(seed)
    path = random.choice(sorted(tables))
    columns = [list(column) for column in tables[path]]
    height = len(columns[0])
    match kind:
        case "table in":
            made = [[random.choice(CELLS) for _ in range(random.randrange(4))] for _ in range(1)] * 2
            return tables | {f"t{random.randrange(40):02}.csv": made}
        case "table out":
            return {name: each for name, each in tables.items() if name != path or len(tables) == 1}
        case "row in":
            at = random.randrange(height + 1)
            for column in columns:
                column.insert(at, random.choice(CELLS))
        case "row out" if height:
            at = random.randrange(height)
            for column in columns:
                del column[at]
        case "column in":
            columns.insert(random.randrange(len(columns) + 1), [random.choice(CELLS) for _ in range(height)])
        case "column out" if len(columns) > 1:
            del columns[random.randrange(len(columns))]
        case "cell" if height:
            random.choice(columns)[random.randrange(height)] = random.choice(CELLS)
    return tables | {path: columns}


def write(lake: Lake, tables: Tables) -> None:
    """Write tables; each file that changes has a time of change of its own, which is long ago."""
    before = {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*.csv")}
    write_tables(lake.folder, tables)
    for path in lake.folder.rglob("*.csv"):
        if path.stat().st_mtime_ns != before.get(path):
            second = next(SECONDS)
            os.utime(path, ns=(second * 10**9, second * 10**9 + 500_000_000))


def stored(lake: Lake) -> Any:
    """Give all that is stored of the index, without the ids of segments."""
    segments = states.query(
        lake.url,
        "select bucket_bits, layout, dead, segment_id from join_segment "
        f"where corpus_id = {lake.corpora.named(lake.name).corpus_id}",
    )
    (*described, segment_id), *others = segments
    assert not others
    contents = {
        table: states.query(
            lake.url, f"select {columns} from {table} where segment_id = {segment_id} order by {columns.split(',')[0]}"
        )
        for table, columns in {
            "join_table": "place, table_number, path, column_names, file_size, file_modified",
            "join_bucket": "bucket, data",
            "join_rows": "first_row, super_keys, cells",
        }.items()
    }
    return _plain([described, contents])


def _plain(value: Any) -> Any:
    match value:
        case memoryview():
            return bytes(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def merge(lake: Lake) -> None:
    """Merge the segments of an index, whether it wants it or not."""
    corpus = lake.corpora.named(lake.name)
    assert corpus.generation is not None
    ((reading,),) = states.query(lake.url, f"select reading from join_index where corpus_id = {corpus.corpus_id}")
    with building(lake.url, corpus.corpus_id), connect(lake.url, BUILD_NAME) as connection:
        segment, tasks = merge_segments(
            lake.url, corpus.corpus_id, stored_segments(lake.url, corpus.corpus_id, reading)
        )
        written = {segment.segment_id: tasks}
        with connection.cursor() as cursor:
            NewIndex(corpus.corpus_id, corpus.generation, reading, [segment], written, {}).land(cursor)
        connection.commit()


def answers_as_in_memory(lake: Lake, tables: Tables, random: Random) -> None:
    memory = InMemory(lake.folder.parent)
    for _ in range(4):
        columns = tables[random.choice(sorted(tables))]
        chosen = random.sample(columns, random.randrange(1, min(3, len(columns)) + 1))
        rows = [*zip(*chosen, strict=True), tuple(random.choice(CELLS) for _ in chosen)]
        for k in (1, 2, 40):
            assert told(ask(lake.url, lake.name, rows, k)) == memory.top(rows, k)


def merged_equals_one_built_anew(lake: Lake, tables: Tables, random: Random) -> None:
    """Merge, and hold what it answers and all that is stored against an index built of the same tables."""
    merge(lake)
    answers_as_in_memory(lake, tables, random)
    after = stored(lake)
    anew = Build(lake)
    anew.run()
    anew.land()
    assert after == stored(lake)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(updates=st.lists(CHANGES, min_size=2, max_size=5), seed=st.integers(0, 1 << 20), merges=st.booleans())
def test_an_index_after_updates_answers_as_one_built_anew_and_merged_equals_it(
    database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    updates: list[list[tuple[str, int]]],
    seed: int,
    merges: bool,
) -> None:
    random = Random(seed)
    tables = {
        f"t{n:02}.csv": [[random.choice(CELLS) for _ in range(n % 5)] for _ in range(2 + n % 3)] for n in range(6)
    }
    lake = Lake(database_url, tmp_path_factory.mktemp("lakes") / "tables")
    wants = join_build.wants_merging if merges else lambda segments: False
    with mock.patch.object(join_build, "wants_merging", wants):
        for changes in [[], *updates]:
            for kind, where in changes:
                tables = changed(tables, kind, where)
            write(lake, tables)
            lake.refresh(no_spark)
            report = index(lake)
            assert (report["tables"], report["left_out"]) == (len(tables), 0)
            answers_as_in_memory(lake, tables, random)
    merged_equals_one_built_anew(lake, tables, random)
    lake.corpora.remove(lake.name)


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Lake:
    return Lake(database_url, tmp_path / "tables")


def many_values(seed: int, names: range) -> Tables:
    """Make tables of many values, some of blocks of rows."""
    random = Random(seed)
    return {
        f"t{n:02}.csv": [
            [str(random.randrange(10 ** random.randrange(1, 6))) for _ in range(240 * n)] for _ in range(3)
        ]
        for n in names
    }


def test_a_merge_of_many_values_in_several_ranges_equals_an_index_built_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_merge, "RANGE_CELLS", 2000)
    monkeypatch.setattr(join_merge, "BLOCKS_AT_ONCE", 3)
    monkeypatch.setattr(join_build, "RANGE_CELLS", 5000)
    tables = many_values(1, range(6))
    write(lake, tables)
    lake.refresh(no_spark)
    index(lake)
    tables |= many_values(2, range(5, 8))
    del tables["t01.csv"]
    write(lake, tables)
    lake.refresh(no_spark)
    assert index(lake).items() >= {"read": 3, "segments": 2, "merged": False}.items()
    answers_as_in_memory(lake, tables, Random(1))
    merged_equals_one_built_anew(lake, tables, Random(2))


def test_a_merge_that_leaves_few_of_many_values_has_no_more_ranges_than_buckets(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_merge, "RANGE_CELLS", 10)
    tables: Tables = {"few.csv": [[str(n % 10) for n in range(100)]], "many.csv": [[str(n) for n in range(1000)]]}
    write(lake, tables)
    lake.refresh(no_spark)
    index(lake)
    del tables["many.csv"]
    write(lake, tables)
    lake.refresh(no_spark)
    assert index(lake).items() >= {"merged": True, "tables": 1}.items()
    assert told(ask(lake.url, lake.name, [("7",), ("700",)], 9)) == [("few", (0,), 1)]


def test_wide_tables_are_indexed_in_small_blocks_and_merged_to_these(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_layout, "BLOCK_CELLS", 100)
    tables = many_values(1, range(3))
    write(lake, tables)
    lake.refresh(no_spark)
    index(lake)
    tables |= many_values(2, range(2, 4))
    write(lake, tables)
    lake.refresh(no_spark)
    index(lake)
    assert states.query(lake.url, "select max(octet_length(cells)) from join_rows") == [(33 * 3 * 4,)]
    answers_as_in_memory(lake, tables, Random(1))
    merged_equals_one_built_anew(lake, tables, Random(2))


def test_values_that_crowd_a_bucket_are_numbered_by_more_bits_in_a_merge_as_well(lake: Lake) -> None:
    texts = crowding(500, 3)
    tables: Tables = {"a.csv": [texts[:300]]}
    write(lake, tables)
    lake.refresh(no_spark)
    assert index(lake).items() >= {"tables": 1, "left_out": 0}.items()
    assert states.query(lake.url, "select bucket_bits from join_segment") == [(4,)], "64 a bucket would be 3"
    tables["b.csv"] = [texts[300:]]
    write(lake, tables)
    lake.refresh(no_spark)
    assert index(lake)["segments"] == 2
    merge(lake)
    after = stored(lake)
    assert after[0][0] == 5
    assert told(ask(lake.url, lake.name, [(texts[0],), (texts[-1],), (texts[-2],)], 9)) == [
        ("b", (0,), 2),
        ("a", (0,), 1),
    ]
    states.execute(lake.url, "delete from join_index")
    index(lake)
    assert after == stored(lake)


def test_a_table_whose_values_cannot_be_numbered_is_left_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (join_build, join_merge):
        monkeypatch.setattr(module, "MOST_BITS", 3)
    texts = crowding(500, 3)
    tables: Tables = {"a.csv": [texts[:200]], "b.csv": [[*texts[200:], "x"]], "c.csv": [texts[:100], ["y"] * 100]}
    write(lake, tables)
    lake.refresh(no_spark)
    report = index(lake)
    assert report.items() >= {"tables": 2, "left_out": 1}.items()
    (fault,) = report["faults"]
    assert fault.startswith("b.csv: too many of its values")
    assert told(ask(lake.url, lake.name, [(texts[0],), ("x",)], 9)) == [("a", (0,), 1), ("c", (0,), 1)]
    tables |= {"b.csv": [texts[200:300]], "d.csv": [["z"]]}
    write(lake, tables)
    lake.refresh(no_spark)
    monkeypatch.setattr(join_build, "wants_merging", bool)
    assert index(lake).items() >= {"tables": 4, "left_out": 0, "segments": 2, "merged": False}.items()
    assert told(ask(lake.url, lake.name, [(texts[0],), (texts[200],)], 9)) == [
        ("a", (0,), 1), ("b", (0,), 1), ("c", (0,), 1)
    ]  # fmt: skip


def test_segments_whose_values_cannot_be_numbered_together_stay_apart(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting_buckets, "MOST_BITS", 3)
    monkeypatch.setattr(join_build, "wants_merging", bool)
    tables: Tables = {"a.csv": [[str(number) for number in range(300)]]}
    for first in (300, 600):
        write(lake, tables)
        lake.refresh(no_spark)
        report = index(lake)
        tables[f"from{first}.csv"] = [[str(number) for number in range(first, first + 300)]]
    assert report.items() >= {"tables": 2, "left_out": 0, "segments": 2, "merged": False}.items()
    assert told(ask(lake.url, lake.name, [("7",), ("307",)], 9)) == [("a", (0,), 1), ("from300", (0,), 1)]


@pytest.mark.parametrize(("rows", "width", "blocks"), [(20, 5, 1000), (5000, 16, 250), (5000, 1000, 15), (0, 1, 1000)])
def test_of_large_blocks_a_merge_fetches_few_at_a_time(rows: int, width: int, blocks: int) -> None:
    layout = Layout.of(*(np.array([20, number], np.int64) for number in (rows, width, 1)))
    assert join_merge.blocks_at_once(layout) == blocks


def test_only_changed_files_are_read_and_many_segments_become_one(lake: Lake) -> None:
    tables = {f"t{n:02}.csv": [["a", "b", str(n)], ["1", "2", "3"]] for n in range(60)}
    write(lake, tables)
    lake.refresh(no_spark)
    reports = [index(lake)]
    for n in range(9):
        tables[f"t{n:02}.csv"] = [["a", f"new{n}"], ["1", "2"]]
        write(lake, tables)
        lake.refresh(no_spark)
        reports.append(index(lake))
    assert [report["read"] for report in reports] == [60] + [1] * 9
    assert [report["segments"] for report in reports] == [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    assert [report["merged"] for report in reports].index(True) == 8
    lake.refresh(no_spark)
    assert index(lake).items() >= {"read": 0, "segments": 2, "tables": 60, "generation": 11}.items()
    assert told(ask(lake.url, lake.name, [("new8", "2"), ("a", "1")], 2)) == [("t08", (0, 1), 2), ("t00", (0, 1), 1)]


def test_dead_rows_are_merged_away(lake: Lake) -> None:
    tables = {f"t{n}.csv": [["a"] * 10, ["b"] * 10] for n in range(8)}
    write(lake, tables)
    lake.refresh(no_spark)
    index(lake)
    for gone in (0, 1):
        del tables[f"t{gone}.csv"]
    write(lake, tables)
    lake.refresh(no_spark)
    assert index(lake).items() >= {"read": 0, "segments": 1, "merged": False, "tables": 6}.items()
    answers_as_in_memory(lake, tables, Random(1))
    del tables["t2.csv"]
    write(lake, tables)
    lake.refresh(no_spark)
    assert index(lake).items() >= {"read": 0, "segments": 1, "merged": True, "tables": 5}.items()
    answers_as_in_memory(lake, tables, Random(1))


def test_other_settings_of_reading_read_all_anew(lake: Lake) -> None:
    write(lake, {"a.csv": [["1", "-"]], "b.csv": [["-", "2"]]})
    lake.refresh(no_spark)
    index(lake)
    lake.change({"null_tokens": ["-"]})
    lake.refresh(no_spark)
    assert index(lake).items() >= {"read": 2, "segments": 1}.items()
    assert told(ask(lake.url, lake.name, [("-",), ("2",)], 5)) == [("b", (0,), 1)]


def test_a_refresh_brings_the_index_along(lake: Lake) -> None:
    tables: Tables = {f"t{n}.csv": [["a", str(n)], ["b", "c"]] for n in range(8)}
    write(lake, tables)
    lake.change({"joinable": True})
    lake.refresh(no_spark)
    assert lake.report["joinable"].items() >= {"tables": 8, "read": 8}.items()
    answers_as_in_memory(lake, tables, Random(1))
    tables["t3.csv"] = [["new"], ["b"]]
    write(lake, tables)
    (lake.folder / "bad.csv").write_text('c0\n"1\n')
    lake.change({"max_failed": 1})
    lake.refresh(no_spark)
    assert lake.report["joinable"].items() >= {"tables": 8, "read": 1, "segments": 2}.items()
    assert ask(lake.url, lake.name, [("new", "b")], 9).generation == 2
    answers_as_in_memory(lake, tables, Random(2))
    lake.change({"joinable": False})
    lake.refresh(no_spark)
    assert lake.report["joinable"] is None
    assert ask(lake.url, lake.name, [("new", "b")], 9).generation == 2


def test_a_refresh_whose_index_fails_leaves_what_is_served(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, {"a.csv": [["1", "2"]]})
    lake.change({"joinable": True})
    lake.refresh(no_spark)
    write(lake, {"a.csv": [["1", "3"]]})
    with building(lake.url, lake.corpora.named(lake.name).corpus_id), pytest.raises(StateError, match="is being built"):
        lake.refresh(no_spark)
    states.execute(lake.url, "update corpus_refresh set state = 'failed' where state = 'running'")
    with mock.patch.object(NewIndex, "put", dying(NewIndex.put, after=True)), pytest.raises(StateError, match="died"):
        lake.refresh(no_spark)
    assert lake.corpora.named(lake.name).generation == 1
    assert told(ask(lake.url, lake.name, [("2",)], 9)) == [("a", (0,), 1)]
    states.execute(lake.url, "update corpus_refresh set state = 'failed' where state = 'running'")
    lake.refresh(no_spark)
    assert told(ask(lake.url, lake.name, [("3",)], 9)) == [("a", (0,), 1)]


def dying(real: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    def died(*arguments: Any, **named: Any) -> Any:
        if after:
            real(*arguments, **named)
        raise StateError("died")

    return died
