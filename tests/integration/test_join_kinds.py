"""Corpora of every kind are indexed for joins: the same tables give the same answers, whatever they are kept in."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from random import Random

import psycopg2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.core.corpus import CorpusKind
from service.corpus_row_reader import CorpusRowReader
from spark_jobs import corpus_arrow, corpus_sources
from tests import states
from tests.joinable import InMemory, ask, index, no_spark
from tests.refreshing import Lake, Tables, write_tables

CELLS = [None, "x", "y", *range(30)]
FILE = "tables.jsonl"


def typed_tables(random: Random) -> dict[str, list[list[object]]]:
    """Make tables of which some columns are of numbers alone; one is empty, one is large."""
    heights = [0, 2000, *(random.randrange(1, 20) for _ in range(6))]
    tables = {}
    for n, height in enumerate(heights, 1):
        numbers = [[random.choice([None, *range(30)]) for _ in range(height)] for _ in range(1 + n % 2)]
        texts = [[None if cell is None else str(cell) for cell in random.choices(CELLS, k=height)] for _ in range(2)]
        tables[f"t{n}"] = [*texts, *numbers]
    return tables


def as_parquet(folder: Path, tables: dict[str, list[list[object]]], url: str) -> tuple[str, CorpusKind]:
    folder.mkdir()
    for name, columns in tables.items():
        pq.write_table(
            pa.table({f"c{n}": pa.array(cells, _type(cells)) for n, cells in enumerate(columns)}),
            folder / f"{name}.parquet",
        )
    return str(folder), CorpusKind.PARQUET


def as_json_lines(folder: Path, tables: dict[str, list[list[object]]], url: str) -> tuple[str, CorpusKind]:
    folder.mkdir()
    lines = [
        {"relation": [[f"c{n}", *cells] for n, cells in enumerate(columns)], "hasHeader": True}
        for columns in tables.values()
    ]
    (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder), CorpusKind.JSONL


def as_packed_json_lines(folder: Path, tables: dict[str, list[list[object]]], url: str) -> tuple[str, CorpusKind]:
    as_json_lines(folder, tables, url)
    (folder / f"{FILE}.gz").write_bytes(gzip.compress((folder / FILE).read_bytes()))
    (folder / FILE).unlink()
    return str(folder), CorpusKind.JSONL


def as_postgres(folder: Path, tables: dict[str, list[list[object]]], url: str) -> tuple[str, CorpusKind]:
    url = url.replace("+psycopg2", "")
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA lake")
        for name, columns in tables.items():
            kinds = ["bigint" if _type(cells) == pa.int64() else "text" for cells in columns]
            cursor.execute(f"CREATE TABLE lake.{name} ({', '.join(f'c{n} {kind}' for n, kind in enumerate(kinds))})")
            for row in zip(*columns, strict=True):
                cursor.execute(f"INSERT INTO lake.{name} VALUES ({', '.join(['%s'] * len(row))})", row)
    return url, CorpusKind.POSTGRES


def _type(cells: list[object]) -> pa.DataType:
    return pa.string() if any(isinstance(cell, str) for cell in cells) else pa.int64()


@pytest.mark.parametrize("write", [as_parquet, as_json_lines, as_packed_json_lines, as_postgres])
def test_a_corpus_of_any_kind_answers_as_one_of_csv(
    database_url: str, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object
) -> None:
    random = Random(7)
    tables = typed_tables(random)
    in_csv: Tables = {
        f"{name}.csv": [["" if cell is None else str(cell) for cell in cells] for cells in columns]
        for name, columns in tables.items()
    }
    write_tables(tmp_path / "tables", in_csv)
    location, kind = write(tmp_path / "lake", tables, empty_database_url)  # type: ignore[operator]
    # A file of JSON lines is cut into pieces, a table of Parquet is read in portions.
    monkeypatch.setattr(corpus_sources, "LEAST_TASK_BYTES", 300)
    monkeypatch.setattr(corpus_arrow, "BATCH_BYTES", 4000)
    lake = Lake(database_url, tmp_path / "lake", kind, location, db_schema="lake")
    lake.refresh(no_spark)
    assert not lake.report["files"]["faults"]
    report = index(lake)
    assert (report["tables"], report["left_out"], report["faults"]) == (8, 0, [])
    memory = InMemory(tmp_path)
    joined = 0
    for _ in range(15):
        columns = in_csv[random.choice(sorted(in_csv))]
        chosen = random.sample(columns, random.randrange(1, 4))
        rows = [*zip(*chosen, strict=True)][:100] or [("x",) * len(chosen)]
        for k in (1, 3, 30):
            answer = ask(database_url, lake.name, rows, k)
            expected = memory.top(rows, k)
            joined += len(expected)
            assert [(_name(t.table), t.positions, t.matched_keys) for t in answer.tables] == expected
    assert joined > 100
    require_rows(database_url, lake, {name.removesuffix(".csv"): columns for name, columns in in_csv.items()}, random)


def require_rows(url: str, lake: Lake, tables: Tables, random: Random) -> None:
    """Hold rows of all indexed tables, as previews read them, against the cells; of large ones the last rows, too."""
    paths = [path for (path,) in states.query(url, "select path from join_table order by path")]
    wanted = {}
    for path in paths:
        height = len(tables[_name(path)][0])
        wanted[path] = sorted({*random.sample(range(height), min(height, 5)), max(height - 1, 0), height})
    found = CorpusRowReader(lake.corpora)(lake.name, wanted)
    assert {path: told.fault for path, told in found.items()} == dict.fromkeys(paths)
    for path, told in found.items():
        columns = tables[_name(path)]
        expected = {row: [column[row] for column in columns] for row in wanted[path] if row < len(columns[0])}
        assert {row: [cell or "" for cell in cells] for row, cells in told.rows.items()} == expected


def test_lines_and_tables_that_are_gone_show_no_rows_and_say_so(
    database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    tables: dict[str, list[list[object]]] = {"t1": [["a", "b"]], "t2": [["c", "d"]]}
    location, kind = as_json_lines(tmp_path / "lines", tables, "")
    path = tmp_path / "lines" / FILE
    path.write_text(path.read_text() + "no table\n")
    lines = Lake(database_url, tmp_path / "lines", kind, location)
    rows = {f"{FILE}#1": [1], f"{FILE}#3": [0], f"{FILE}#4": [0], "none.jsonl#1": [0]}
    found = CorpusRowReader(lines.corpora)(lines.name, rows)
    assert found[f"{FILE}#1"].rows == {1: ["b"]}
    assert "the line is no JSON" in (found[f"{FILE}#3"].fault or "")
    assert "not so many lines any more" in (found[f"{FILE}#4"].fault or "")
    assert "is gone" in (found["none.jsonl#1"].fault or "")
    location, kind = as_postgres(tmp_path, tables, empty_database_url)
    database = Lake(database_url, tmp_path / "none", kind, location, db_schema="lake")
    found = CorpusRowReader(database.corpora)(database.name, {"t2": [0], "t3": [0]})
    assert (found["t2"].rows, found["t3"].fault) == ({0: ["c"]}, "It cannot be read: there is no such table any more.")
    with psycopg2.connect(location) as connection, connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA lake CASCADE")
    assert "could not be read: " in (CorpusRowReader(database.corpora)(database.name, {"t2": [0]})["t2"].fault or "")


def _name(path: str) -> str:
    return f"t{path.rpartition('#')[2]}" if "#" in path else Path(path).stem


def test_a_file_of_json_lines_is_read_again_when_it_changes_and_no_other(database_url: str, tmp_path: Path) -> None:
    lake = Lake(database_url, tmp_path / "lake", CorpusKind.JSONL)
    lake.folder.mkdir()
    for n in range(3):
        lines = [json.dumps({"relation": [[f"v{n}", "w"], ["a", str(k)]]}) for k in range(4)]
        (lake.folder / f"{n}.jsonl").write_text("\n".join(lines) + "\n")
        os.utime(lake.folder / f"{n}.jsonl", (1e9, 1e9))
    lake.refresh(no_spark)
    assert index(lake).items() >= {"read": 12, "tables": 12}.items()
    text = (lake.folder / "1.jsonl").read_text()
    (lake.folder / "1.jsonl").write_text(json.dumps({"relation": [["new"], ["a"]]}) + "\n" + "no table\n" + text)
    lake.refresh(no_spark)
    assert index(lake).items() >= {"read": 5, "tables": 13, "left_out": 0}.items()
    found = ask(database_url, lake.name, [("v1", "a"), ("w", "2")], 9).tables
    assert [(table.table, table.matched_keys) for table in found][:2] == [("1.jsonl#5", 2), ("0.jsonl#3", 1)]
    assert [table.table for table in ask(database_url, lake.name, [("new", "a")], 9).tables] == ["1.jsonl#1"]


def test_a_file_that_cannot_be_read_is_told_and_its_tables_are_left_out(database_url: str, tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", {"a.csv": [["1"]], "b.csv": [["1"]]})
    lake = Lake(database_url, tmp_path / "tables")
    lake.refresh(no_spark)
    (lake.folder / "b.csv").write_text('c0\n"1\n')
    report = index(lake)
    assert (report["tables"], report["left_out"]) == (1, 1)
    assert report["faults"] == ["b.csv: line 2: broken quoting: a quote is opened and never closed"]


def test_where_no_file_that_has_changed_can_be_read_what_was_indexed_is_served(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    for name, rows in (("a", 100), ("b", 10)):
        pq.write_table(pa.table({"c0": [f"{n}" for n in range(rows)]}), tmp_path / "tables" / f"{name}.parquet")
    lake = Lake(database_url, tmp_path / "tables", CorpusKind.PARQUET)
    lake.refresh(no_spark)
    assert index(lake)["tables"] == 2
    (lake.folder / "b.parquet").write_bytes(b"PAR1 torn")
    report = index(lake)
    assert (report["tables"], report["left_out"], len(report["faults"])) == (1, 1, 1)
    assert [found.table for found in ask(database_url, lake.name, [("99",)], 9).tables] == ["a.parquet"]
