"""Folders of files as sources: which files are of a table, and what of them cannot be read as one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.core.errors import SourceError
from spark_jobs.sources import Options, Source, Split, open_source


def splits_of(source: Source, target: int = 1 << 20) -> Sequence[Split]:
    return source.splits(target, lambda function, items: list(map(function, items)))


def rows_of(source: Source, splits: Sequence[Split] | None = None) -> dict[str, int]:
    """Read a source whole; give the rows of each table."""
    rows = {table.name: 0 for table in source.tables()}
    for split in splits or splits_of(source):
        for table in source.reader().read(split):
            rows[source.tables()[split.table].name] += len(table)
    return rows


def test_what_begins_with_a_dot_or_an_underscore_is_left_out_at_any_depth(tmp_path: Path) -> None:
    for name, cells in {
        "t/a.csv": "1",
        "t/2026/b.csv": "2\n3",
        "t/_temporary/0/part-0.csv": "of a job that died",
        "t/2026/.trash/c.csv": "deleted",
        "t/_SUCCESS.csv": "",
        "_old/a.csv": "4",
        ".hidden.csv": "5",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"x\n{cells}\n")
    assert rows_of(open_source(Options(str(tmp_path), "s"))) == {"t": 3}


@pytest.mark.parametrize("link", ["b.csv", "t/y.CSV"])
def test_a_link_that_leads_nowhere_is_refused_if_it_is_named_as_a_table(tmp_path: Path, link: str) -> None:
    (tmp_path / "t").mkdir()
    for name in ("a.csv", "t/x.csv"):
        (tmp_path / name).write_text("a\n1\n")
    (tmp_path / "notes.txt.old").symlink_to("nowhere")
    (tmp_path / "t" / "_SUCCESS.csv").symlink_to("nowhere")
    assert rows_of(open_source(Options(str(tmp_path), "s"))) == {"a": 1, "t": 1}
    (tmp_path / link).symlink_to("nowhere")
    with pytest.raises(SourceError, match=rf"{link}: the link leads nowhere. Mend or remove it."):
        open_source(Options(str(tmp_path), "s"))


@pytest.mark.parametrize("target", [".", ".."])
def test_a_link_that_leads_back_is_refused_and_its_files_are_not_read_again_and_again(
    tmp_path: Path, target: str
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.csv").write_text("x\n1\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.csv").write_text("x\n2\n3\n")
    (tmp_path / "t" / "linked").symlink_to(tmp_path / "elsewhere")
    assert rows_of(open_source(Options(str(tmp_path), "s"))) == {"t": 3, "elsewhere": 2}
    (tmp_path / "t" / "back").symlink_to(target)
    with pytest.raises(SourceError, match=r"t/back.*: the folder is, by a link, one it is in. Remove the link."):
        open_source(Options(str(tmp_path), "s"))


def test_a_name_that_is_no_utf_8_is_refused_by_name(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")).write_text("x\n1\n")
    with pytest.raises(SourceError, match=r"caf�\.csv: its name is no UTF-8"):
        open_source(Options(str(tmp_path), "s"))


@pytest.mark.parametrize("groups", [100, 5])
def test_parquet_that_is_written_anew_while_it_is_read_is_refused(tmp_path: Path, groups: int) -> None:
    file, numbers = tmp_path / "t.parquet", list(range(100))
    pq.write_table(pa.table({"id": numbers, "ref": numbers[::-1]}), file, row_group_size=10)
    source = open_source(Options(str(tmp_path), "s"))
    splits = splits_of(source, 100)
    assert rows_of(source, splits) == {"t": 100}
    source.confirm()
    pq.write_table(pa.table({"ref": numbers[::-1], "id": numbers}), file, row_group_size=groups)
    with pytest.raises(SourceError, match=r"t\.parquet: changed since the files were listed.* at rest"):
        source.confirm()
    if groups == 100:
        with pytest.raises(SourceError, match=r"t\.parquet: it was written anew while it was read\..* at rest"):
            rows_of(source, splits)


def test_csv_that_becomes_shorter_while_it_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a long name,y\n" + 1000 * "1,2\n")
    source = open_source(Options(str(tmp_path), "s"))
    whole, cut = splits_of(source), splits_of(source, 1000)
    (tmp_path / "t.csv").write_text("x,y\n")
    for splits in (whole, *([one] for one in cut)):
        with pytest.raises(SourceError, match=r"t\.csv: the file became shorter while it was read\. .* at rest"):
            rows_of(source, splits)
    with pytest.raises(SourceError, match=r"t\.csv: the file became shorter while it was read\."):
        splits_of(source, 1000)


@pytest.mark.parametrize(
    ("now", "is_anew"),
    [
        ("id,ref\n1,2\n3,4\n", False),
        ("ref,id\n2,1\n3,4\n", True),
        ("identity,ref\n1,2\n", True),
        ("id,ref\n", True),
        ("", True),
    ],
)
def test_csv_that_is_written_anew_while_it_is_read_is_refused_and_may_grow(
    tmp_path: Path, now: str, is_anew: bool
) -> None:
    for name in ("t.csv", "other.csv"):
        (tmp_path / name).write_text("id,ref\n1,2\n")
    source = open_source(Options(str(tmp_path), "s"))
    source.confirm()
    (tmp_path / "t.csv").write_text(now)
    (tmp_path / "other.csv").unlink()
    if is_anew:
        with pytest.raises(SourceError, match=r"^[^,]*/t\.csv: changed since the files were listed.* at rest"):
            source.confirm()
    else:
        source.confirm()


def test_parts_of_parquet_may_differ_in_which_columns_may_be_null(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name, nullable, values in (("1", False, [1]), ("2", True, [None, 2])):
        schema = pa.schema([pa.field("x", pa.int64(), nullable)])
        pq.write_table(pa.table([pa.array(values, pa.int64())], schema), tmp_path / "t" / f"{name}.parquet")
    assert rows_of(open_source(Options(str(tmp_path), "s"))) == {"t": 3}
    pq.write_table(pa.table({"x": ["3"]}), tmp_path / "t" / "3.parquet")
    with pytest.raises(SourceError, match=r"3\.parquet: its columns or their types differ"):
        open_source(Options(str(tmp_path), "s"))


def test_a_column_of_parquet_with_a_nul_in_its_name_is_refused_at_once(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a\0b": [1]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: the name of a column has a NUL character"):
        open_source(Options(str(tmp_path), "s"))
