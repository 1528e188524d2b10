"""Parquet of a corpus: values of any type have their canonical texts, large files come in portions, bad are told."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.core.canonical import canonical_text
from service.core.cell_decoding import cell_decoder
from service.core.corpus import CorpusKind, CorpusSettings
from service.core.errors import SourceError
from spark_jobs.corpus_index import CorpusIndex
from spark_jobs.kernels import column_texts
from spark_jobs.parquet_source import ParquetSource
from spark_jobs.sources import Options
from tests.corpus_reading import Reading, fault_of, held, keys_of, put

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [1, None, 3, 1]),
    "double": (pa.float64(), [1.0, -0.0, 1e30, None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("2.50"), None, None]),
    "text": (pa.string(), ["", "-", "né", None]),
    "view": (pa.string_view(), ["é", None, "é", None]),
    "small": (pa.decimal32(9, 2), [Decimal("1.00"), Decimal("2.50"), None, None]),
    "flag": (pa.bool_(), [True, False, None, True]),
    "day": (pa.date32(), [date(2020, 2, 29), None, None, None]),
    "moment": (pa.timestamp("us", "UTC"), [datetime(2020, 1, 2, 3, 4, 5, 6, UTC), None, None, None]),
    "bytes": (pa.binary(), [b"\x00\xff", None, b"", None]),
    "list": (pa.list_(pa.int32()), [[1, 2], None, [], [1, 2]]),
    "nothing": (pa.null(), [None] * 4),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a", None]),
}


@pytest.mark.parametrize("batch_bytes", [8 << 20, 0])
def test_values_of_all_types_have_their_canonical_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr("spark_jobs.corpus_arrow.BATCH_BYTES", batch_bytes)
    arrays = [pa.array(values, kind) for kind, values in COLUMNS.values()]
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table(arrays, list(COLUMNS)), tmp_path / "lake" / "types.parquet", row_group_size=2)
    pq.write_table(pa.table([pa.array([], pa.int8())] * 2, ["a", "a"]), tmp_path / "lake" / "rowless.pq")
    reading = Reading(
        tmp_path / "lake", CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")), CorpusSettings(("-",))
    )
    state = reading.refresh()
    expected = {
        ("types.parquet", place): {
            text for value in values if (text := canonical_text(value, None)) is not None and text != "-"
        }
        for place, (_, values) in enumerate(COLUMNS.values())
    }
    assert held(reading.index, state.manifest) == keys_of(
        expected | {("rowless.pq", 0): set(), ("rowless.pq", 1): set()}
    )
    assert not state.faults
    assert dict(zip(*(state.manifest.tables[name].to_pylist() for name in ("path", "rows")), strict=True)) == {
        "types.parquet": 4,
        "rowless.pq": 0,
    }
    assert state.manifest.tables["names"].to_pylist() == [["a", "a"], list(COLUMNS)]


def test_columns_whose_type_means_more_than_what_is_stored(tmp_path: Path) -> None:
    """Parquet's UUID and JSON, of any writer, and Arrow's own flags of a byte."""
    columns = {
        "uuid": (pa.array([UUID(int=10).bytes, None], pa.uuid()), {str(UUID(int=10))}),
        "json": (pa.array(['{"b": 1.0, "a": "x"}', None], pa.json_()), {'{"a":"x","b":1}'}),
        "flag": (pa.array([1, None], pa.bool8()), {"true"}),
    }
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({name: array for name, (array, _) in columns.items()}), tmp_path / "lake" / "t.parquet")
    reading = Reading(tmp_path / "lake", CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")))
    state = reading.refresh()
    assert not state.faults
    expected = {("t.parquet", place): texts for place, (_, texts) in enumerate(columns.values())}
    assert held(reading.index, state.manifest) == keys_of(expected)


def test_moments_of_int96_are_read_in_every_year(tmp_path: Path) -> None:
    moments = pa.array([datetime(1, 1, 1), datetime(9999, 12, 31, 1, 2, 3, 4)], pa.timestamp("us"))
    (tmp_path / "lake").mkdir()
    path = tmp_path / "lake" / "old.parquet"
    pq.write_table(pa.table({"t": moments}), path, use_deprecated_int96_timestamps=True)
    texts = {"0001-01-01T00:00:00.000000", "9999-12-31T01:02:03.000004"}
    reading = Reading(tmp_path / "lake", CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")))
    assert held(reading.index, reading.refresh().manifest) == keys_of({("old.parquet", 0): texts})
    with closing(ParquetSource(Options(str(tmp_path / "lake"), "lake"))) as source:
        assert source.tables()[0].columns == (("t", "timestamp[us]"),)
        (split,) = source.splits(1 << 20, lambda function, items: list(map(function, items)))
        (chunk,) = source.reader().read(split)
    assert set(column_texts(chunk.column(0), (), None).to_pylist()) == texts


def test_a_change_of_a_struct_gives_the_text_that_a_bootstrap_gave_whatever_its_fields_are_called(
    tmp_path: Path,
) -> None:
    (tmp_path / "lake").mkdir()
    whole = pa.array([{"Id": 1, "at": {"City": "x"}}])
    pq.write_table(pa.table({"Place": whole}), tmp_path / "lake" / "t.parquet")
    with closing(ParquetSource(Options(str(tmp_path / "lake"), "lake"))) as source:
        ((name, data_type),) = source.tables()[0].columns
        (split,) = source.splits(1 << 20, lambda function, items: list(map(function, items)))
        (chunk,) = source.reader().read(split)
    texts = column_texts(chunk.column(0), (), None).to_pylist()
    assert (name, [cell_decoder(data_type)(whole[0].as_py())]) == ("Place", texts)


NO_UTF8 = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xdf"))


@pytest.mark.parametrize("values", [NO_UTF8, pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), NO_UTF8), None])
def test_texts_and_names_that_are_no_utf8_are_told_by_their_file(tmp_path: Path, values: pa.Array | None) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"Strasse": ["x"] if values is None else values}), path, store_schema=values is not None)
    if values is None:
        path.write_bytes(path.read_bytes().replace(b"Strasse", b"Stra\xdfe "))

    def read() -> None:
        with closing(ParquetSource(Options(str(tmp_path), "lake"))) as source:
            (split,) = source.splits(1 << 20, lambda function, items: list(map(function, items)))
            list(source.reader().read(split))

    with pytest.raises(SourceError, match=r"t\.parquet.*it cannot be read.*(?:UTF8|'utf-8')"):
        read()


def test_a_large_file_is_read_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.corpus_arrow.BATCH_BYTES", 1000)
    random = np.random.default_rng(5)
    numbers, texts = random.integers(0, 800, 3000), [f"t{n}" for n in random.integers(0, 300, 3000)]
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table([pa.array(numbers), pa.array(texts)], ["n", "t"]), tmp_path / "lake" / "a.parquet")
    reading = Reading(tmp_path / "lake", CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")))
    state = reading.refresh()
    assert held(reading.index, state.manifest) == keys_of(
        {("a.parquet", 0): {str(n) for n in numbers}, ("a.parquet", 1): set(texts)}
    )


def test_bad_files_are_told_and_the_others_are_read(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    put(lake / "none.parquet", b"a,b\n1,2\n")
    put(lake / "empty.parquet", b"")
    pq.write_table(pa.table({"a": ["x" * 50]}), lake / "good.parquet")
    pq.write_table(pa.table({"a": ["x\0y"]}), lake / "nul.parquet")
    pq.write_table(pa.table({"a": ["x" * 500_000]}), lake / "gigantic.parquet", compression="none")
    raw = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    pq.write_table(pa.table({"a": raw}), lake / "bytes.parquet")
    pq.write_table(pa.table({"a": pa.ListArray.from_arrays([0, 1], raw)}), lake / "bytes-in-list.parquet")
    pq.write_table(pa.table({"Strasse": ["x"]}), lake / "name.parquet", store_schema=False)
    put(lake / "name.parquet", (lake / "name.parquet").read_bytes().replace(b"Strasse", b"Stra\xdfe "))
    whole = (lake / "good.parquet").read_bytes()
    put(lake / "torn.parquet", whole[:-9])
    put(lake / "rotten.parquet", whole[:4] + bytes(len(whole) - 30) + whole[-26:])
    state = Reading(
        lake, CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")), CorpusSettings(max_table_bytes=100_000)
    ).refresh()
    assert state.manifest.tables["path"].to_pylist() == ["good.parquet"]
    told = {path: message[: message.index(": ")] for path, message in fault_of(state).items()}
    assert told == {
        "none.parquet": "malformed", "empty.parquet": "empty", "nul.parquet": "binary", "bytes.parquet": "malformed",
        "bytes-in-list.parquet": "malformed", "name.parquet": "malformed",
        "gigantic.parquet": "too large", "torn.parquet": "malformed", "rotten.parquet": told["rotten.parquet"],
    }  # fmt: skip
    assert told["rotten.parquet"] in ("malformed", "unreadable")


@pytest.mark.parametrize("most", [1 << 30, 100_000])
def test_a_value_that_a_file_says_once_counts_in_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("spark_jobs.corpus_arrow.BATCH_BYTES", 10_000)
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"a": ["x" * 100] * 20_000, "b": ["y"] * 20_000}), lake / "same.parquet")
    size = pq.read_metadata(lake / "same.parquet").row_group(0).total_byte_size
    assert size < 10_000, "dictionary and run lengths"
    reading = Reading(
        lake, CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")), CorpusSettings(max_table_bytes=most)
    )
    with monkeypatch.context() as patched:
        patched.setattr("pyarrow.parquet.ParquetFile.read", lambda *_, **__: pytest.fail("read as a whole"))
        state = reading.refresh()
    if most == 100_000:
        told = "too large: it has more than 100,000 bytes, the most that a table may have"
        assert fault_of(state) == {"same.parquet": told}
    else:
        expected = {("same.parquet", 0): {"x" * 100}, ("same.parquet", 1): {"y"}}
        assert held(reading.index, state.manifest) == keys_of(expected)


LONG = pa.array(["x" * 1_000])
ONE = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), LONG)
MANY = pa.DictionaryArray.from_arrays(
    pa.array(np.arange(20_000, dtype=np.int32) % 1_000), pa.array([f"{n:0100}" for n in range(1_000)])
)
"""Two million bytes of a hundred thousand."""
TENS = pa.array(np.arange(0, 20_001, 10, np.int32))


@pytest.mark.parametrize(
    ("column", "is_too_large"),
    [
        (ONE.dictionary_decode(), True),
        (ONE, True),
        (pa.ListArray.from_arrays(TENS, ONE.dictionary_decode()), True),
        (pa.ListArray.from_arrays(pa.array([0, 20_000], pa.int32()), ONE.dictionary_decode()), True),
        (MANY, False),
        (pa.ListArray.from_arrays(TENS, MANY), False),
        (pa.StructArray.from_arrays([MANY], ["of"]), False),
        (pa.array([None] * 20_000, pa.string()), False),
        (pa.nulls(20_000), False),
    ],
)
def test_what_a_small_file_is_unpacked_decides_whether_it_is_too_large(
    tmp_path: Path, column: pa.Array, is_too_large: bool
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"a": column}), lake / "a.parquet")
    assert (lake / "a.parquet").stat().st_size < 200_000
    settings = CorpusSettings(max_table_bytes=3_000_000)
    state = Reading(lake, CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")), settings).refresh()
    told = {"a.parquet": "too large: it has more than 3,000,000 bytes, the most that a table may have"}
    assert fault_of(state) == (told if is_too_large else {})
    assert state.manifest.tables["rows"].to_pylist() == ([] if is_too_large else [len(column)])


def test_a_table_without_columns_stays_when_its_part_is_copied(tmp_path: Path) -> None:
    """As the last of a part it has no column of it to point at."""
    lake = tmp_path / "lake"

    def write(name: str, columns: dict[str, list[str]], change: int = 0) -> None:
        data = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), data)
        put(lake / name, data.getvalue().to_pybytes(), change)

    write("z.parquet", {})
    for name in "abcde":
        write(f"{name}.parquet", {"a": [name]})
    reading = Reading(lake, CorpusKind.PARQUET, CorpusIndex(str(tmp_path / "index")))
    reading.refresh()
    for name in "abcd":
        write(f"{name}.parquet", {"a": [f"new {name}"]}, change=1)
    reading.refresh()
    state = reading.refresh()
    assert reading.results[0].moved, "the part with one live column of five"
    expected = {(f"{name}.parquet", 0): {"e" if name == "e" else f"new {name}"} for name in "abcde"}
    assert held(reading.index, state.manifest) == keys_of(expected)
    assert "z.parquet" in state.manifest.tables["path"].to_pylist()
