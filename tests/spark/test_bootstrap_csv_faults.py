"""What is wrong with CSV is told with file, line, column and the way out, and the served state stays."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.core.errors import SourceError
from spark_jobs import csv_source
from spark_jobs.bootstrap import run_bootstrap, told_warnings
from spark_jobs.csv_source import CsvReader
from spark_jobs.sources import Options, open_source
from tests.spark.oracle import query, read_state, write_csv

GOOD = b"id,name\r\n" + b"".join(b"%d,n%d\r\n" % (i, i) for i in range(1000))

BAD_ROWS = {
    "ragged": (b"7,a,b\r\n", "line 1002: the row has 3 cells, its table has 2 columns", "--delimiter"),
    "short": (b"7\r\n", "line 1002: the row has 1 cells, its table has 2 columns", "--delimiter"),
    "quote inside": (b'7,5" pipe\r\n', "line 1002, column 'name': broken quoting: a quote stands inside", "--quote"),
    "text behind": (b'7,"a"b\r\n', "line 1002, column 'name': broken quoting: there is text after", "--quote"),
    "not closed": (b'7,"a\r\n', "line 1002, column 'name': broken quoting: a quote is opened and never", "--quote"),
    "encoding": (b"7,M\xfcnchen\r\n", "line 1002, column 'name': byte 0xfc is not utf-8 text", "--encoding"),
    "nul": (b"7,a\0b\r\n", "line 1002, column 'name': there is a NUL byte", "Remove it"),
}


@pytest.mark.parametrize("task_bytes", [None, 2000])
@pytest.mark.parametrize("fault", BAD_ROWS)
def test_a_bad_row_is_named_with_its_line_wherever_the_file_is_cut(
    tmp_path: Path, fault: str, task_bytes: int | None
) -> None:
    """The reader is used as tasks use it, without Spark."""
    row, place, way_out = BAD_ROWS[fault]
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD + row + b"1,x\r\n" * 300)
    source = open_source(Options(str(tmp_path), "s"))
    splits = source.splits(task_bytes or 1 << 20, lambda function, items: [function(item) for item in items])
    assert len(splits) == 1 if task_bytes is None else len(splits) > 3
    faults = sorted(fault for split in splits if (fault := source.reader().check(split)))
    assert faults, "the fault is found"
    said = source.reader().told(faults[0])
    assert f"{path}, {place}" in said
    assert way_out in said


@pytest.mark.parametrize("task_bytes", [2000, 1 << 20])
def test_a_byte_that_is_none_of_an_encoding_of_single_bytes_is_told_with_its_line(
    tmp_path: Path, task_bytes: int
) -> None:
    (tmp_path / "t.csv").write_bytes(GOOD + b"7,M\x81nchen\r\n" + b"1,x\r\n" * 300)
    source = open_source(Options(str(tmp_path), "s", encoding="cp1252"))
    splits = source.splits(task_bytes, lambda function, items: [function(item) for item in items])
    (fault,) = (fault for split in splits if (fault := source.reader().check(split)))
    assert "t.csv, line 1002, column 'name': byte 0x81 is not cp1252 text" in source.reader().told(fault)


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        *((name, f"--encoding {name}: there is no such encoding") for name in ("hex", "rot13", "undefined", "klingon")),
        ("utf-16", r"t\.csv, byte 0: this is not utf-16 text"),
    ],
)
def test_an_encoding_that_cannot_be_is_told(tmp_path: Path, encoding: str, told: str) -> None:
    """Some that Python knows are of no texts; UTF-16 begins with a mark, from which its order of bytes is known."""
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(SourceError, match=told):
        open_source(Options(str(tmp_path), "s", encoding=encoding))


def sizes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list that fills with the sizes of what is read at once, where lines are counted by 50,000 bytes."""
    read: list[int] = []
    whole = CsvReader._slice

    def sliced(*given: Any) -> Any:
        found = whole(*given)
        read.append(len(found))
        return found

    monkeypatch.setattr(csv_source, "COUNTED_BYTES", 50_000)
    monkeypatch.setattr(CsvReader, "_slice", sliced)
    return read


def test_a_stray_quote_lets_no_range_read_the_rest_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD + BAD_ROWS["quote inside"][0] + b"1,x\r\n" * 200_000)
    source = open_source(Options(str(tmp_path), "s"))
    splits = source.splits(100_000, lambda function, items: [function(item) for item in items])
    read = sizes_read(monkeypatch)
    (fault,) = (fault for split in splits if (fault := source.reader().check(split)))
    assert "line 1002, column 'name': broken quoting: a quote stands inside" in source.reader().told(fault)
    assert max(read) < 200_000


def test_a_header_without_an_end_is_told_before_all_of_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = sizes_read(monkeypatch)
    (tmp_path / "t.csv").write_bytes(b'id,na"me\r\n' + b"1,x\r\n" * 200_000)
    with pytest.raises(SourceError, match=r"t\.csv, line 1: broken quoting: a quote stands inside"):
        open_source(Options(str(tmp_path), "s"))
    assert max(read) < 100_000
    monkeypatch.setattr(csv_source, "RECORD_BYTES", 500_000)
    (tmp_path / "t.csv").write_bytes(b'id,"name\r\n' + b"1,x\r\n" * 1_000_000)
    with pytest.raises(SourceError, match=r"t\.csv, line 1: the record has no end within .*--quote"):
        open_source(Options(str(tmp_path), "s"))
    assert max(read) < 2_000_000


def test_a_record_without_an_end_is_told_before_all_of_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = sizes_read(monkeypatch)
    monkeypatch.setattr(csv_source, "RECORD_BYTES", 500_000)
    (tmp_path / "t.csv").write_bytes(GOOD + b'7,"a\r\n' + b"1,x\r\n" * 200_000)
    source = open_source(Options(str(tmp_path), "s"))
    splits = source.splits(100_000, lambda function, items: [function(item) for item in items])
    (fault,) = (fault for split in splits if (fault := source.reader().check(split)))
    assert "the record has no end within 1 GiB. Close its quote" in source.reader().told(fault)
    assert max(read) < 700_000


def test_a_header_of_megabytes_is_one(tmp_path: Path) -> None:
    names = [f"a column that has the number {i}" for i in range(50_000)]
    (tmp_path / "t.csv").write_text(f"{','.join(names)}\n")
    (table,) = open_source(Options(str(tmp_path), "s")).tables()
    assert [name for name, _ in table.columns] == names


def test_a_fault_far_into_a_file_is_named_without_reading_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD + b"1,x\r\n" * 200_000 + BAD_ROWS["nul"][0])
    source = open_source(Options(str(tmp_path), "s"))
    splits = source.splits(100_000, lambda function, items: [function(item) for item in items])
    read = sizes_read(monkeypatch)
    fault = source.reader().check(splits[-1])
    assert fault is not None
    assert "line 201002, column 'name': there is a NUL byte" in source.reader().told(fault)
    assert max(read) < 300_000 < path.stat().st_size


def test_lines_are_not_counted_for_each_part_of_a_file_that_has_a_fault_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a hundred gigabytes with another delimiter would be read a thousand times."""
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD + BAD_ROWS["ragged"][0] * 50_000)
    source = open_source(Options(str(tmp_path), "s"))
    splits = source.splits(20_000, lambda function, items: [function(item) for item in items])
    monkeypatch.setattr(csv_source, "LOOK_AHEAD_BYTES", 100)
    read: list[int] = []
    whole = CsvReader._slice

    def sliced(*given: Any) -> Any:
        found = whole(*given)
        read.append(len(found))
        return found

    monkeypatch.setattr(CsvReader, "_slice", sliced)
    faults = [fault for split in splits if (fault := source.reader().check(split))]
    assert len(faults) > 15
    assert source.reader().told(min(faults)).startswith(f"{path}, line 1002: the row has 3 cells")
    assert sum(read) < 1.1 * path.stat().st_size


def test_all_bad_files_are_told_at_once_and_the_served_state_stays(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    write_csv(tmp_path / "good.csv", ["id"], [["1"]])
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url))
    before = read_state(database_url)
    for name, fault in (("one", "ragged"), ("two", "encoding")):
        (tmp_path / f"{name}.csv").write_bytes(GOOD + BAD_ROWS[fault][0])
    with pytest.raises(SourceError) as caught:
        run_bootstrap(spark, Options(str(tmp_path), "s", database_url, replace=True))
    lines = str(caught.value).splitlines()
    assert len(lines) == 2, "one clean line for each bad file, and no stack trace"
    assert f"{tmp_path}/one.csv, line 1002" in lines[0]
    assert f"{tmp_path}/two.csv, line 1002" in lines[1]
    assert read_state(database_url) == before
    assert query(database_url, "SELECT max(version) FROM state_version") == [(1,)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there is no table in it"),
        ({"notes.md": b"x"}, "there is no table in it"),
        ({"t.csv": b""}, "t.csv, line 1: the file has no header: it is empty"),
        ({"t.csv": b"\xef\xbb\xbf\r\n\r\n"}, "t.csv, line 1: the file has no header: it is empty"),
        ({"t.csv": b'a,"b\r\n1,2\r\n'}, "t.csv, line 1: broken quoting: a quote is opened and never closed"),
        ({"t.csv": b"a,b\0\r\n1,2\r\n"}, "t.csv, line 1: there is a NUL byte"),
        ({"t.csv": b"a,\xff\r\n1,2\r\n"}, "t.csv, line 1: the first record cannot be read as utf-8"),
        ({"t.csv": b"a\r\n1\r\n", "t.tsv": b"a\r\n1\r\n"}, "its table would be named 't'"),
        ({"t/1.csv": b"a\r\n1\r\n", "t/2.csv": b"b\r\n1\r\n"}, "2.csv: its header differs from that of"),
        ({"t.csv": b"a\r\n1\r\n", "u.parquet": b"PAR1"}, "--format csv or parquet"),
        ({"u.parquet": b"PAR1 no, not really"}, "u.parquet: it cannot be read as Parquet"),
    ],
)
def test_a_folder_that_cannot_be_planned_is_refused_before_spark_starts(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError) as caught:
        open_source(Options(str(tmp_path), "s"))
    assert message in str(caught.value)


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(SourceError, match=r"/nowhere/at/all: there is no such file or folder\. Check the path"):
        open_source(Options("/nowhere/at/all", "s"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ";;"}, "--delimiter ';;': it must be one ASCII character"),
        ({"delimiter": '"'}, "they must differ"),
        ({"encoding": "klingon"}, "--encoding klingon: there is no such encoding"),
        ({"exclude": ("u",)}, "--exclude u: the source has no such table. It has: t."),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    write_csv(tmp_path / "t.csv", ["id"], [["1"]])
    with pytest.raises(SourceError) as caught:
        open_source(Options(str(tmp_path), "s", **options))  # type: ignore[arg-type]
    assert message in str(caught.value)


def read(folder: Path, target: int = 1 << 20, **options: object) -> tuple[list[str], list[list[str | None]]]:
    """Read a folder's one table as tasks do, in splits of `target` bytes."""
    source = open_source(Options(str(folder), "s", **options))  # type: ignore[arg-type]
    (table,) = source.tables()
    rows: list[list[str | None]] = []
    for split in source.splits(target, lambda function, items: [function(item) for item in items]):
        for part in source.reader().read(split):
            rows += [list(row) for row in zip(*(column.to_pylist() for column in part.columns), strict=True)]
    return [name for name, _ in table.columns], rows


def test_cells_of_ten_megabytes_are_read(tmp_path: Path) -> None:
    large = "ä\n" * 3_500_000
    write_csv(tmp_path / "t.csv", ["id", "text"], [["1", large], ["2", "small"], ["3", large]])
    for target in (1 << 20, 1 << 28):
        assert read(tmp_path, target)[1] == [["1", large], ["2", "small"], ["3", large]]


def test_a_line_end_in_a_text_stays_where_a_block_of_four_mebibytes_ends_in_it(tmp_path: Path) -> None:
    rows = [["1", "x" * ((4 << 20) - 4) + "\r\nend"], ["2", "a\r\nb"]]
    write_csv(tmp_path / "t.csv", ["id", "text"], rows)
    found = read(tmp_path, 1 << 28)[1]
    assert [(text[-5:], len(text)) for _, text in found if text] == [(text[-5:], len(text)) for _, text in rows]


def test_null_is_the_unquoted_empty_cell_and_blank_lines_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbfid,text\n\n1,\n2,""\n\n3,"a ""b"""')
    assert read(tmp_path) == (["id", "text"], [["1", None], ["2", ""], ["3", 'a "b"']])


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_the_last_cell_of_a_file_without_a_last_line_end_is_null_behind_a_quoted_one(
    tmp_path: Path, encoding: str, newline: str
) -> None:
    lines = ["id,name,sold", '1,"Smith, J",', '2,"Müßig, K",']
    (tmp_path / "t.csv").write_bytes(newline.join(lines).encode(encoding))
    for target in (1, 20, 1 << 20):
        assert read(tmp_path, target, encoding=encoding)[1] == [["1", "Smith, J", None], ["2", "Müßig, K", None]]
    (tmp_path / "t.csv").write_bytes(newline.join([*lines, '3,"Doe, J,']).encode(encoding))
    with pytest.raises(SourceError, match="broken quoting: a quote is opened and never closed"):
        read(tmp_path, encoding=encoding)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"a,b\r1,2\r3,4\r", [["1", "2"], ["3", "4"]]),
        (b'"a","b"\r1,2\r\n3,4\n', [["1", "2"], ["3", "4"]]),
        (b"a,b\r", []),
        (b"\r\ra,b\r\r\n1,2", [["1", "2"]]),
    ],
)
def test_a_carriage_return_ends_a_line(tmp_path: Path, text: bytes, rows: list[list[str | None]]) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    for target in (1, 4, 1 << 20):
        assert read(tmp_path, target) == (["a", "b"], rows)


@pytest.mark.parametrize("encoding", ["gbk", "shift_jis", "euc_kr", "big5", "gb18030", "utf-16"])
@pytest.mark.parametrize("shift", ["", "x"])
def test_a_character_that_the_beginning_of_a_large_file_tears_is_read(
    tmp_path: Path, encoding: str, shift: str
) -> None:
    word = "\U0001f600" if encoding == "utf-16" else "中文" if encoding != "euc_kr" else "한글"
    (tmp_path / "t.csv").write_bytes(f"{shift}id\n{word * 17_000}\n".encode(encoding))
    assert read(tmp_path, encoding=encoding) == ([f"{shift}id"], [[word * 17_000]])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("target", [64, 1 << 20])
def test_other_encodings_give_the_same_texts(tmp_path: Path, encoding: str, target: int) -> None:
    rows = [[str(i), f"Müßig {i}"] for i in range(100)]
    text = "id,name\r\n" + "".join(f"{a},{b}\r\n" for a, b in rows)
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    assert read(tmp_path, target, encoding=encoding) == (["id", "name"], rows)


def test_a_wrong_byte_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id\r\n1\r\n\x81\r\n")
    with pytest.raises(SourceError, match=r"t\.csv, line 3, column 'id': byte 0x81 is not cp1252 text"):
        read(tmp_path, encoding="cp1252")


@pytest.mark.parametrize("header", [True, False])
def test_a_first_row_may_have_a_cell_of_any_length(tmp_path: Path, header: bool) -> None:
    csv.field_size_limit(131_072)  # Python's own, which lasts until it is told another one
    long = "x" * 200_000
    rows = [[long, "a"], ["1", "2"]]
    write_csv(tmp_path / "t.csv", rows[0], rows[1:])
    names, found = read(tmp_path, header=header)
    assert [names, *found] == (rows if header else [["column_1", "column_2"], *rows])


@pytest.mark.parametrize("name", ["T.TSV", "t.tsv", "T.Tsv"])
def test_a_file_of_tabs_is_one_however_its_ending_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"a,b\tc\n1,2\t3\n")
    assert read(tmp_path) == (["a,b", "c"], [["1,2", "3"]])


def test_a_dialect_without_quotes_and_header(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_bytes(b'1\t5" pipe\n2\t"\n' * 500)
    for target in (100, 1 << 20):
        names, rows = read(tmp_path, target, quote="", header=False)
        assert names == ["column_1", "column_2"]
        assert rows == [["1", '5" pipe'], ["2", '"']] * 500


def test_every_cut_of_a_file_gives_its_records(tmp_path: Path) -> None:
    """Whatever byte a range begins at: inside quotes, between quotes, at a newline, before it."""
    rows = [["1", 'a,"b"\n"c"'], ["2", '"'], ["", "\r\n\n"], [None, "x"], ["3", '""\n']]
    write_csv(tmp_path / "t.csv", ["id", "text"], rows)
    for target in range(1, 80):
        assert read(tmp_path, target)[1] == rows, f"target {target}"


def test_a_header_that_may_be_data_is_taken_with_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    """Whether `2019,2020` are names cannot be known, and lakes have such headers: the job goes on."""
    write_csv(tmp_path / "named.csv", ["1", "id", "2024-01-31"], [["1", "2", "3"]])
    write_csv(tmp_path / "empty.csv", ["", ""], [["1", "2"]])
    for i in range(7):
        write_csv(tmp_path / f"t{i}.csv", [str(i), "-2.5e3", "", "2024-01-31", "2024-01-31T10:00:00.5Z"], [["1"] * 5])
    options = Options(str(tmp_path), "s", clusters_only=True)
    summary = run_bootstrap(spark, options)
    assert (summary.tables, summary.rows) == (9, 9)
    assert [warning.partition(":")[0] for warning in summary.warnings] == [f"{tmp_path}/t{i}.csv" for i in range(7)]
    told = told_warnings(summary)
    assert len(told) == 6
    assert told[0].startswith(f"warning: {tmp_path}/t0.csv: its first row was taken as the header")
    assert "0, -2.5e3, , 2024-01-31, 2024-01-31T10:00:00.5Z. If it is data" in told[0]
    assert "--no-header" in told[0]
    assert told[5] == "... and 2 more"
    assert not open_source(replace(options, header=False)).warnings
