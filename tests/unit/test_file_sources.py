"""Folders of files as sources: which files are of a table, and what of them cannot be read as one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.core.errors import SourceError
from spark_jobs.sources import Options, Source, open_source


def rows_of(source: Source) -> dict[str, int]:
    """Read a source whole; give the rows of each table."""
    rows = {table.name: 0 for table in source.tables()}
    for split in source.splits(1 << 20, lambda function, items: list(map(function, items))):
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
