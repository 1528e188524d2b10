"""JSON lines of a corpus: the forms that are published, what a cell's text is, pieces of files, and bad lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from service.core.canonical import canonical_json
from service.core.corpus import CorpusKind, CorpusSettings
from service.core.records import Keys
from spark_jobs.corpus_index import CorpusIndex
from spark_jobs.corpus_json import JsonLines, are_known, read_relation
from spark_jobs.corpus_tables import Piece
from tests.corpus_reading import Reading, fault_of, held, keys_of, put

# As the WDC's page of 2015 shows it, shortened: a horizontal table with a header that its own detection found.
WDC = {
    "relation": [["#", "1.", "2."], ["Club", "Barcelona", "Bayern München"], ["Points", "0", "2"]],
    "pageTitle": "Soccer clubs", "url": "http://example.org/", "hasHeader": True, "headerPosition": "FIRST_ROW",
    "tableType": "RELATION", "tableNum": 5, "tableOrientation": "HORIZONTAL", "headerRowIndex": 0,
}  # fmt: skip
DRESDEN = {"relation": WDC["relation"], "headerPosition": "FIRST_ROW", "tableOrientation": "HORIZONTAL"}
VERTICAL = {
    "relation": [["#", "Club", "Points"], ["1.", "Barcelona", "0"], ["2.", "Bayern München", "2"]],
    "headerPosition": "FIRST_COLUMN", "tableOrientation": "VERTICAL", "hasHeader": True,
}  # fmt: skip
CLUBS = [["1.", "2."], ["Barcelona", "Bayern München"], ["0", "2"]]


def line(table: Any, **more: Any) -> bytes:
    return json.dumps(table | more if isinstance(table, dict) else table, ensure_ascii=False).encode()


@pytest.mark.parametrize("table", [WDC, DRESDEN, VERTICAL])
def test_the_published_forms_give_the_same_table(table: dict[str, Any]) -> None:
    read = read_relation(line(table))
    assert (read.names, read.columns, read.rows) == (["#", "Club", "Points"], CLUBS, 2)


def test_where_the_header_is() -> None:
    relation = [["t", "a", "1"], ["u", "b", "2"]]
    assert read_relation(line({"relation": relation})).names == [None, None]
    assert read_relation(line({"relation": relation, "hasHeader": False, "headerPosition": "FIRST_ROW"})).rows == 3
    second = read_relation(line({"relation": relation, "hasHeader": True, "headerRowIndex": 1}))
    assert (second.names, second.columns) == (["a", "b"], [["t", "1"], ["u", "2"]])
    # WDC writes -1 where it found none.
    assert read_relation(line({"relation": relation, "hasHeader": False, "headerRowIndex": -1})).rows == 3


CELLS = (
    st.none()
    | st.text("ab1-é\t\"'", max_size=3)
    | st.integers()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
)
NESTED = st.recursive(
    CELLS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
NUL = "\0"


def text_of(cell: Any) -> str | None:
    """Give the text of a cell by way of canonical_json, which was there before."""
    if cell is None or isinstance(cell, str):
        return cell
    return canonical_json(json.dumps(cell))


def has_nul(cell: Any) -> bool:
    return "\\u0000" in json.dumps(cell)


@st.composite
def relations(draw: st.DrawFn) -> list[list[Any]]:
    height = draw(st.integers(0, 3))
    cells = NESTED if draw(st.booleans()) else st.none() | st.sampled_from(["", "a", "b"])
    return draw(st.lists(st.lists(cells, min_size=height, max_size=height), min_size=1, max_size=3))


@given(tables=st.lists(relations(), min_size=1, max_size=4))
def test_cells_are_what_brute_force_says(
    tables: list[list[list[Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    put(folder / "lake" / "all.jsonl", b"\n".join(line({"relation": table}) for table in tables))
    reading = Reading(folder / "lake", CorpusKind.JSONL, CorpusIndex(str(folder / "index")), CorpusSettings(("a",)))
    state = reading.refresh()
    bad = {
        n
        for n, table in enumerate(tables, 1)
        if any(NUL in (text_of(cell) or "") for column in table for cell in column)
    }
    assert fault_of(state).keys() == {f"all.jsonl#{n}" for n in bad}
    expected = {
        (f"all.jsonl#{n}", place): {text for cell in column if (text := text_of(cell)) not in (None, "a")}
        for n, table in enumerate(tables, 1)
        if n not in bad
        for place, column in enumerate(table)
    }
    assert held(reading.index, state.manifest) == keys_of(expected)
    for names, rows, path in zip(
        *(state.manifest.tables[name].to_pylist() for name in ("names", "rows", "path")), strict=True
    ):
        table = tables[int(path.partition("#")[2]) - 1]
        assert (names, rows) == ([f"column_{n + 1}" for n in range(len(table))], len(table[0]))


def test_numbers_are_read_as_they_are_written() -> None:
    text = b'{"relation": [[1e400, 12345678901234567890123, 1.00, -0.0, true, null, {"b": 1.0, "a": []}, "1"]]}'
    read = read_relation(text, exact=True)
    assert read.columns == [["1" + 400 * "0", "12345678901234567890123", "1", "0", "true", None, '{"a":[],"b":1}', "1"]]


@given(
    lines=st.lists(st.binary(max_size=9).map(lambda data: data.replace(b"\n", b"")), max_size=30),
    count=st.integers(1, 7),
    has_end=st.booleans(),
)
def test_pieces_of_a_file_have_its_lines_each_once(
    lines: list[bytes], count: int, has_end: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = b"\n".join(lines) + (b"\n" if has_end else b"")
    path = tmp_path_factory.mktemp("pieces") / "lines.jsonl"
    path.write_bytes(data)
    reader = JsonLines(LocalFileSystem(), str(path.parent), CorpusSettings(), CorpusIndex(str(path.parent)), None)
    bounds = [len(data) * i // count for i in range(count)]
    pieces = [Piece(path.name, 0, start, end) for start, end in zip(bounds, [*bounds[1:], None], strict=True)]
    found = [text for piece in pieces for block in reader._blocks(piece) for text in block]
    expected = data.split(b"\n")
    assert found == [text.rstrip(b"\r") for text in (expected if expected[-1] else expected[:-1])]


def test_bad_lines_are_named_by_their_numbers_in_the_file_also_when_tasks_share_it(tmp_path: Path) -> None:
    good = [line({"relation": [[f"v{n}", "w"], ["x" * 50, "y"]]}) for n in range(400)]
    bad = {
        3: (b'{"relation": [["a"', "malformed: the line is no JSON"),
        57: (b"[1]", "malformed: it has no list of columns"),
        58: (b'{"relation": [1]}', "malformed: it has no list of columns"),
        100: (b'{"relation": []}', "empty: its relation has no column"),
        101: (b'{"relation": [["a", "b"], ["c"]]}', "ragged: "),
        102: (
            line({"relation": [["a"]], "hasHeader": True, "headerRowIndex": "9" * 5000}),
            "malformed: its header would",
        ),
        250: (b'{"relation": [["a\\u0000"]]}', "binary: "),
        251: (b'{"relation": [["\xff"]]}', "malformed: the line is no JSON"),
        399: (b'{"relation": [["a"]], "hasHeader": true, "headerRowIndex": 1}', "malformed: its header would be row 1"),
    }
    lines = [bad[number][0] if number in bad else text for number, text in enumerate(good, 1)]
    put(tmp_path / "lake" / "all.jsonl", b"\r\n".join(lines))
    reading = Reading(tmp_path / "lake", CorpusKind.JSONL, CorpusIndex(str(tmp_path / "index")), cores=2)
    reading.task_bytes = 2000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.corpus_sources.LEAST_TASK_BYTES", 1)
        state = reading.refresh()
    assert reading.plan is not None
    assert len(reading.plan.tasks) > 10
    told = fault_of(state)
    assert told.keys() == {f"all.jsonl#{number}" for number in bad}
    for number, (_, message) in bad.items():
        assert told[f"all.jsonl#{number}"].startswith(message)
    expected = {
        (f"all.jsonl#{number}", place): column
        for number in range(1, 401)
        if number not in bad
        for place, column in enumerate(({f"v{number - 1}", "w"}, {"x" * 50, "y"}))
    }
    assert held(reading.index, state.manifest) == keys_of(expected)


def test_a_line_is_known_by_its_whole_digest() -> None:
    digests = [bytes([1] * 16), bytes([1] * 8 + [2] * 8), bytes([2] * 16), bytes([0] * 16), bytes([255] * 16)]
    known = Keys.of(digests[1:3])
    assert are_known(b"".join(digests), known).tolist() == [False, True, True, False, False]
    assert are_known(b"".join(digests), Keys.of(())).tolist() == [False] * 5
    assert are_known(b"", known).tolist() == []


def test_packed_files_also_of_several_members_and_torn_ones(tmp_path: Path) -> None:
    lines = [line(WDC, tableNum=n) for n in range(300)]
    packed = gzip.compress(b"\n".join(lines[:100]) + b"\n") + gzip.compress(b"\n".join(lines[100:]))
    put(tmp_path / "lake" / "whole.json.gz", packed)
    reading = Reading(tmp_path / "lake", CorpusKind.JSONL, CorpusIndex(str(tmp_path / "index")))
    state = reading.refresh()
    assert state.manifest.tables.num_rows == 300
    assert not state.faults
    put(tmp_path / "lake" / "whole.json.gz", packed[:-20], change=1)
    torn = reading.refresh()
    assert fault_of(torn)["whole.json.gz"].startswith("unreadable: it cannot be read: ")
    assert torn.manifest.files.num_rows == 0  # it is tried again
    lost = {
        path for path, message in fault_of(torn).items() if message == "unreadable: whole.json.gz could not be read"
    }
    there = set(torn.manifest.tables["path"].to_pylist())
    assert lost
    assert lost | there == {f"whole.json.gz#{number}" for number in range(1, 301)}
    assert len(torn.faults) == 1 + len(lost) == 301 - len(there)
    put(tmp_path / "lake" / "whole.json.gz", packed, change=2)
    assert reading.refresh().manifest.tables.num_rows == 300


@pytest.mark.parametrize("batch_bytes", [64, 4096, 1 << 20])
@pytest.mark.parametrize("piece_bytes", [700, 1 << 20])
def test_a_line_that_is_too_long_is_a_fault_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int, piece_bytes: int
) -> None:
    monkeypatch.setattr("spark_jobs.corpus_json.BATCH_BYTES", batch_bytes)
    monkeypatch.setattr("spark_jobs.corpus_sources.LEAST_TASK_BYTES", 1)
    one, two = line(WDC), line({**WDC, "relation": [["other", "x"]]})
    long, never_ends = line({**WDC, "relation": [["long", "y" * 5000]]}), b"x" * 5000
    assert max(len(one), len(two)) < 1000
    put(tmp_path / "lake" / "a.jsonl", b"\n".join([one, long, two, never_ends]))
    reading = Reading(
        tmp_path / "lake", CorpusKind.JSONL, CorpusIndex(str(tmp_path / "index")), CorpusSettings(max_table_bytes=1000),
        task_bytes=piece_bytes,
    )  # fmt: skip
    for state in (reading.refresh(), reading.refresh()):
        told = "too large: it has more than 1,000 bytes, the most that a table may have"
        assert fault_of(state) == {"a.jsonl#2": told, "a.jsonl#4": told}
        assert state.manifest.tables["path"].to_pylist() == ["a.jsonl#1", "a.jsonl#3"]
