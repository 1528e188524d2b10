"""CSV of a corpus: many files in one pass say what Python's csv module says of each, and what Arrow takes for NULL."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.core.corpus import CorpusKind, CorpusSettings
from spark_jobs.corpus_csv import AFTER_QUOTE, EMPTY, FINE, OPEN_QUOTE, RAGGED, STRAY_QUOTE, tokenise
from spark_jobs.corpus_index import CorpusIndex
from spark_jobs.csv_text import Dialect
from tests.corpus_reading import Reading, fault_of, held, keys_of, put

RAW = st.text('ab,"\n\ré', max_size=40)
"""Texts that are mostly about quotes and ends of records."""

CELLS = st.text('a,"\n\r é', max_size=5)


def rows_of(found: object, names: bool = False) -> list[list[list[str | None]]]:
    """Give the rows of each fine file."""
    cells = found.cells  # type: ignore[attr-defined]
    texts = [
        None if start < 0 else bytes(cells.data[start:end]).decode()
        for start, end in zip(cells.starts.tolist(), cells.ends.tolist(), strict=True)
    ]
    files, at = [], 0
    fine = found.status == FINE  # type: ignore[attr-defined]
    for rows, columns in zip(found.rows[fine].tolist(), found.columns[fine].tolist(), strict=True):  # type: ignore[attr-defined]
        by_column = [texts[at + c * rows : at + (c + 1) * rows] for c in range(columns)]
        files.append([list(row) for row in zip(*by_column, strict=True)])
        at += rows * columns
    assert at == len(texts)
    return files


def by_python(text: str) -> list[list[str]] | None:
    """Read a text strictly; None where it breaks the rules, but for a quote inside a cell, which Python lets pass."""
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        return None


@given(st.lists(RAW, max_size=6))
@example(['"a"b', 'a"b', '"a', '"', '""', "a,", ",", "\n\n", "\r", 'a\n"b""c",', '"a\r\nb"\r\nc'])
def test_files_of_a_batch_are_read_as_python_reads_each_alone(texts: list[str]) -> None:
    found = tokenise([text.encode() for text in texts], Dialect(), has_header=False)
    read = iter(rows_of(found))
    for place, text in enumerate(texts):
        status = found.status[place]
        expected = by_python(text)
        if status == FINE:
            assert expected == [[cell or "" for cell in row] for row in next(read)]
        elif status in (AFTER_QUOTE, OPEN_QUOTE):
            assert expected is None
            assert text.encode()[found.places[place]] == ord('"') or status == AFTER_QUOTE
        elif status == STRAY_QUOTE:
            assert text.encode()[found.places[place] - 1] not in b',"\r\n'
            assert text.encode()[found.places[place]] == ord('"')
        elif status == EMPTY:
            assert expected == []
        else:
            assert status == RAGGED
            # What comes behind the ragged record may be anything.
            ahead = by_python(text.encode()[: found.places[place]].decode())
            assert ahead is not None
            assert {len(row) for row in ahead} == {found.columns[place]} != {found.rows[place]}


@given(
    st.lists(st.lists(CELLS | st.none(), min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n"]),
)
def test_an_empty_cell_is_null_unless_it_is_quoted(table: list[list[str | None]], end: str) -> None:
    quoted = lambda cell: "" if cell is None else '"' + cell.replace('"', '""') + '"'  # noqa: E731
    text = "".join(",".join(map(quoted, row)) + end for row in table).encode()
    assert rows_of(tokenise([text, text], Dialect(), has_header=False)) == [table, table]
    arrow = pacsv.read_csv(
        pa.BufferReader(text),
        pacsv.ReadOptions(column_names=["0", "1", "2"]),
        pacsv.ParseOptions(newlines_in_values=True),
        pacsv.ConvertOptions(
            column_types=dict.fromkeys("012", pa.string()), null_values=[""], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    assert [list(row.values()) for row in arrow.to_pylist()] == table


def test_names_are_those_of_the_header_in_any_script_and_repeated_ones_stay() -> None:
    found = tokenise(["a,a,,città\n1,2,3,4\n".encode(), "名\n".encode()], Dialect(), has_header=True)
    assert found.names.to_pylist() == ["a", "a", "column_3", "città", "名"]
    assert (found.rows.tolist(), found.columns.tolist()) == ([1, 0], [4, 1])


def test_other_delimiters_quotes_and_none() -> None:
    assert rows_of(tokenise([b"'a;b';c\n"], Dialect(";", "'"), has_header=False)) == [[["a;b", "c"]]]
    assert rows_of(tokenise([b'"a",b"\n'], Dialect(",", None), has_header=False)) == [[['"a"', 'b"']]]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_that_is_read_in_portions_is_read_like_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newline: str
) -> None:
    random = np.random.default_rng(3)
    columns = [[f"{kind} {n}{newline}x" for n in random.integers(0, 40, 500)] for kind in ("a", "b")]
    numbers = [str(n) for n in random.integers(0, 90, 500)]
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=newline)
    writer.writerows([("a", "b", "number"), *zip(*columns, numbers, strict=True)])
    put(tmp_path / "lake" / "big.csv", ("\ufeff" + out.getvalue()).encode())
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    whole = reading.refresh()
    monkeypatch.setattr("spark_jobs.corpus_csv_files.BATCH_BYTES", 256)
    portions = reading.refresh(full=True)
    expected = {("big.csv", place): set(column) for place, column in enumerate([*columns, numbers])}
    assert held(reading.index, portions.manifest) == keys_of(expected)
    assert portions.facts.rows.tolist() == [500] * 3
    assert portions.facts.integers_only.tolist() == [False, False, True]
    assert portions.manifest.tables.drop(["part"]) == whole.manifest.tables.drop(["part"])


GOOD = b"a,b\n1,2\n"
BAD = {
    "unclosed.csv": (b'a,b\n1,"2\n3,4\n', "quoting: line 2: broken quoting: a quote is opened and never closed"),
    "stray.csv": (b'a,b\n1,2"\n', "quoting: line 2: broken quoting: a quote stands inside a cell that is not quoted"),
    "behind.csv": (
        b'a,b\n1,2\n"1"x,2\n',
        "quoting: line 3: broken quoting: there is text after a cell's closing quote",
    ),
    "ragged.csv": (b"a,b\n1,2\n\n1,2,3\n", "ragged: line 4: the row has 3 cells, the first one has 2"),
    "empty.csv": (b"", "empty: there is no line in it, not even a header"),
    "blank.csv": (b"\r\n\n", "empty: there is no line in it, not even a header"),
    "binary.csv": (b"a,b\n1,\0\n", "binary: line 2: there is a NUL byte; is it text at all?"),
    "latin.csv": ("a,b\né,2\n".encode("latin-1"), "encoding: it is not utf-8 text: "),
    "gigantic.csv": (b"a\n" + b"12345678\n" * 40, "too large: it has more than 300 bytes"),
}


@pytest.mark.parametrize("portion", [8 << 20, 4])
def test_bad_files_are_named_with_what_is_wrong_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr("spark_jobs.corpus_csv_files.BATCH_BYTES", portion)
    for name, (data, _) in BAD.items():
        put(tmp_path / "lake" / "bad" / name, data)
    put(tmp_path / "lake" / "good.csv", GOOD)
    reading = Reading(
        tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")), CorpusSettings(max_table_bytes=300)
    )
    for _ in range(2):  # a bad file is tried again, and told again, each time
        state = reading.refresh()
        told = fault_of(state)
        assert told.keys() == {f"bad/{name}" for name in BAD}
        for name, (_, message) in BAD.items():
            assert told[f"bad/{name}"].startswith(message)
        assert held(reading.index, state.manifest) == keys_of({("good.csv", 0): {"1"}, ("good.csv", 1): {"2"}})
    put(tmp_path / "lake" / "bad" / "ragged.csv", GOOD)
    assert "bad/ragged.csv" not in fault_of(reading.refresh())


PACK = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True)}


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("portion", [8 << 20, 64])
def test_packed_files_are_read_as_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, portion: int
) -> None:
    monkeypatch.setattr("spark_jobs.corpus_csv_files.BATCH_BYTES", portion)
    pack = PACK[ending]
    numbers = b"".join(b"%d,x\n" % n for n in range(100))
    for name, data in {
        f"commas.csv.{ending}": pack(b"n,m\n" + numbers),
        f"TABS.TSV.{ending.upper()}": pack(b"n\tm\n1,2\t\n"),
        f"torn.csv.{ending}": pack(b"n,m\n" + numbers)[:-12],
        f"huge.csv.{ending}": pack(b"n\n" + b"1\n" * 10_000),
    }.items():
        put(tmp_path / "lake" / name, data)
    settings = CorpusSettings(max_table_bytes=2000)
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")), settings)
    state = reading.refresh()
    assert held(reading.index, state.manifest) == keys_of(
        {
            (f"commas.csv.{ending}", 0): set(map(str, range(100))),
            (f"commas.csv.{ending}", 1): {"x"},
            (f"TABS.TSV.{ending.upper()}", 0): {"1,2"},
            (f"TABS.TSV.{ending.upper()}", 1): set(),
        }
    )
    assert {path: message.partition(":")[0] for path, message in fault_of(state).items()} == {
        f"torn.csv.{ending}": "unreadable",
        f"huge.csv.{ending}": "too large",
    }


def test_a_file_that_vanishes_or_grows_after_the_listing_is_a_fault_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone.csv", "good.csv", "grown.csv"):
        put(tmp_path / "lake" / name, GOOD)
    reading = Reading(
        tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")), CorpusSettings(max_table_bytes=1000)
    )
    from spark_jobs import corpus_csv_files

    real = corpus_csv_files.read_small

    def meddling(filesystem: object, path: str, limit: int) -> bytes | None:
        (tmp_path / "lake" / "gone.csv").unlink(missing_ok=True)
        (tmp_path / "lake" / "grown.csv").write_bytes(GOOD * 500)
        return real(filesystem, path, limit)

    monkeypatch.setattr(corpus_csv_files, "read_small", meddling)
    state = reading.refresh()
    assert {path: message.partition(":")[0] for path, message in fault_of(state).items()} == {
        "gone.csv": "vanished",
        "grown.csv": "too large",
    }
    assert state.manifest.tables["path"].to_pylist() == ["good.csv"]


def test_encodings_tabs_and_byte_order_marks(tmp_path: Path) -> None:
    index = CorpusIndex(str(tmp_path / "index"))
    put(tmp_path / "latin" / "a.tsv", "né\tb\nà\t2\n".encode("latin-1"))
    state = Reading(tmp_path / "latin", CorpusKind.CSV, index, CorpusSettings(encoding="latin-1")).refresh()
    assert state.manifest.tables["names"].to_pylist() == [["né", "b"]]
    assert held(index, state.manifest) == keys_of({("a.tsv", 0): {"à"}, ("a.tsv", 1): {"2"}})
    put(tmp_path / "wide" / "a.csv", "\ufeffa,b\nà,2\n".encode("utf-16"))
    state = Reading(tmp_path / "wide", CorpusKind.CSV, index, CorpusSettings(encoding="utf-16", header=False)).refresh()
    assert held(index, state.manifest) == keys_of({("a.csv", 0): {"a", "à"}, ("a.csv", 1): {"b", "2"}})


@pytest.mark.parametrize("portion", [8 << 20, 64])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_text_without_a_byte_order_mark_is_read_alike_at_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion: int, encoding: str
) -> None:
    monkeypatch.setattr("spark_jobs.corpus_csv_files.BATCH_BYTES", portion)
    native = f"{encoding}-{'le' if sys.byteorder == 'little' else 'be'}"
    text = "a,b\n" + "à,2\n" * 40
    put(tmp_path / "lake" / "marked.csv", text.encode(encoding))
    put(tmp_path / "lake" / "plain.csv", text.encode(native))
    put(tmp_path / "lake" / "torn.csv", text.encode(native)[:-1])
    index = CorpusIndex(str(tmp_path / "index"))
    state = Reading(tmp_path / "lake", CorpusKind.CSV, index, CorpusSettings(encoding=encoding)).refresh()
    read = {(f"{name}.csv", place): {value} for name in ("marked", "plain") for place, value in enumerate("à2")}
    assert held(index, state.manifest) == keys_of(read)
    assert fault_of(state)["torn.csv"].startswith(f"encoding: it is not {encoding} text: ")


def test_a_million_columns_in_one_table_and_a_column_of_one_value_a_million_times(tmp_path: Path) -> None:
    width = 1_000_000
    names, row = (",".join(f"{kind}{n}" for n in range(width)).encode() for kind in ("c", ""))
    put(tmp_path / "lake" / "wide.csv", names + b"\n" + row + b"\n")
    put(tmp_path / "lake" / "long.csv", b"x\n" + b"same\n" * width)
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    state = reading.refresh()
    assert state.facts.distinct.tolist() == [1] * (width + 1)
    assert sorted(set(state.facts.rows.tolist())) == [1, width]
    assert int(state.facts.integers_only.sum()) == width
    assert [len(names) for names in state.manifest.tables["names"].to_pylist()] in ([1, width], [width, 1])
