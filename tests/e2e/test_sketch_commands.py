"""Coefficients and sketches as a user types them: files, uploads and stored columns, held against sets."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.core.estimators import bucket_bits_for
from service.core.sketches.column import ColumnSketch
from service.core.sketches.prefixes import HashPrefixes
from service.usecases.coefficient_table import MethodName
from spark_jobs import sketch_files
from tests import states
from tests.coefficients import hashes_of, sketch_of
from tests.e2e.test_cli import Command, subsetd
from tests.states import Tables

__all__ = ["subsetd"]

HEADER = [f"{side}_{part}" for side in ("dependent", "referenced") for part in ("schema", "table", "column")]
HEADER += ["phi", "low", "high", "method", "exact", "level"]
DEFAULT = (13, 1536, 512)

COLUMNS: dict[str, dict[str, list[str | None]]] = {
    "customers": {"id": [str(n) for n in range(100)], "name": [f"name {n % 40}" for n in range(100)]},
    "orders": {"customer": [str(n % 60) for n in range(80)], "note": [None] * 80},
}
SETS = {
    ("s", table, name): {cell for cell in cells if cell is not None}
    for table, named in COLUMNS.items()
    for name, cells in named.items()
}


@pytest.fixture
def state(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the columns, with sketches of the default size, and stand in an empty folder."""
    monkeypatch.setattr(states, "SKETCH_FORM", DEFAULT)
    tables = Tables({table: list(named) for table, named in COLUMNS.items()})
    for table, named in COLUMNS.items():
        tables.add(table, *map(list, zip(*named.values(), strict=True)))
    states.store(database_url, tables)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    monkeypatch.chdir(tmp_path)


def write_files(folder: Path) -> None:
    for table, named in COLUMNS.items():
        with (folder / f"{table}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([list(named), *zip(*named.values(), strict=True)])


def fixed_size(values: Iterable[str], m: int, most_bytes: int) -> HashPrefixes:
    sketch = HashPrefixes(m, most_bytes)
    sketch.update(hashes_of(values))
    return sketch


def exact(x: tuple[str, str, str], y: tuple[str, str, str]) -> float | None:
    return len(SETS[x] & SETS[y]) / len(SETS[x]) if SETS[x] else None


def rows_of(text: str) -> list[dict[str, str]]:
    header, *rows = csv.reader(io.StringIO(text))
    assert header == HEADER
    return [dict(zip(header, row, strict=True)) for row in rows]


def number(cell: str) -> float | None:
    return float(cell) if cell else None


@pytest.mark.parametrize("method", [None, *MethodName])
def test_coefficients_of_all_pairs_as_csv(state: None, subsetd: Command, method: str | None) -> None:
    rows = rows_of(subsetd("coefficients", "--format", "csv", *(["--method", method] if method else [])))
    found = {(tuple(list(row.values())[:3]), tuple(list(row.values())[3:6])): row for row in rows}
    assert len(found) == len(rows)
    assert found.keys() == set(permutations(SETS, 2)), "every pair, also those of 0, and those that are not defined"
    for pair, row in found.items():
        assert row["method"] == (method or "exact")
        assert row["level"] == ("" if row["method"] == "exact" else "0.95")
        assert number(row["exact"]) == exact(*pair)
        if method in (None, "exact", "estimated", "bottom-k"):
            assert {row["phi"], row["low"], row["high"]} == {row["exact"]}, "small columns are known by their hashes"
        elif row["phi"]:
            assert float(row["low"]) <= float(row["phi"]) <= float(row["high"])


def test_an_undefined_coefficient_has_a_reason(state: None, subsetd: Command) -> None:
    (row,) = json.loads(
        subsetd("coefficients", "--dependent", "s.orders.note", "--referenced", "id:1", "--format", "json")
    )
    assert (row["phi"], row["low"], row["high"], row["exact"]) == (None, None, None, None)
    assert "has no values" in row["reason"]
    (row,) = json.loads(
        subsetd("coefficients", "--top", 1, "--method", "joint-mle", "--level", 0.5, "--format", "json")
    )
    assert row["level"] == 0.5


def test_coefficients_are_chosen(state: None, subsetd: Command) -> None:
    def pairs(*options: object) -> list[tuple[str, str]]:
        rows = rows_of(subsetd("coefficients", "--format", "csv", *options))
        return [(row["dependent_column"], row["referenced_column"]) for row in rows]

    assert pairs("--min-distinct", 60) == [("id", "customer"), ("customer", "id")]
    assert pairs("--min-distinct", 60, "--method", "estimated", "--min-coefficient", 1) == [("customer", "id")]
    assert pairs("--top", 1) == [("customer", "id")]
    assert pairs("--table", "customers", "--referenced-table", "customers") == [("id", "name"), ("name", "id")]
    assert pairs("--contains", "orders.c", "--min-coefficient", 0) == [("customer", "id")]
    assert pairs("--dependent", "s.customers.id", "--referenced", "s.orders.customer") == [("id", "customer")]
    table = subsetd("coefficients", "--top", 2).splitlines()
    assert table[1].split() == ["s.orders.customer", "s.customers.id", *["1.0000"] * 3, "exact", "1.0000"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--level", 1], 2, "between 0 and 1"),
        (["--method", "guessed"], 2, "guessed"),
        (["--dependent", "sketch:none"], 1, "No sketch was uploaded"),
        (["--dependent", "s.nothing.at.all"], 1, "No attribute is named"),
    ],
)
def test_bad_questions_are_one_message(
    state: None, subsetd: Command, arguments: list[object], code: int, words: str
) -> None:
    ended, out, err = subsetd.ended("coefficients", *arguments)
    assert (ended, out) == (code, "")
    assert words in err


def test_a_file_is_sketched_without_a_database_as_the_state_would(
    state: None, tmp_path: Path, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", "postgresql://u@127.0.0.1:1/nothing")
    assert subsetd.ended("sketch", "customers.csv")[0] == 0
    assert subsetd.ended("sketch", "orders.csv", "--column", "customer", "--out", "orders.sketch")[0] == 0
    monkeypatch.undo()
    with zipfile.ZipFile(tmp_path / "customers.sketches.zip") as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert found.keys() == {"customers.id.sketch", "customers.name.sketch"}
    for name in ("id", "name"):
        assert found[f"customers.{name}.sketch"] == sketch_of(SETS["s", "customers", name], DEFAULT).to_bytes()
    assert (tmp_path / "orders.sketch").read_bytes() == sketch_of(SETS["s", "orders", "customer"], DEFAULT).to_bytes()


def test_a_column_elsewhere_is_compared_without_its_data(state: None, tmp_path: Path, subsetd: Command) -> None:
    (tmp_path / "far.csv").write_text("key,odd/name\n" + "".join(f"{n},x{n}\n" for n in range(50, 150)))
    assert subsetd.ended("sketch", "far.csv", "--out", "folder")[0] == 0
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"far.key.sketch", "far.odd%2Fname.sketch"}
    said = subsetd("sketch", "upload", *sorted((tmp_path / "folder").iterdir()), "--prefix", "other.")
    assert said.splitlines() == [
        "sketch:other.far.key: 100 distinct values, new",
        "sketch:other.far.odd/name: 100 distinct values, new",
    ]
    options = ("--min-coefficient", 0.4, "--format", "csv")
    (row,) = rows_of(subsetd("coefficients", "--dependent", "sketch:other.far.key", *options))
    assert [row[name] for name in HEADER[:6]] == ["sketch:", "", "other.far.key", "s", "customers", "id"]
    assert [row[name] for name in HEADER[6:]] == ["0.5", "0.5", "0.5", "estimated", "", "0.95"]
    everything = rows_of(subsetd("coefficients", "--with-uploaded", "--format", "csv"))
    assert len(everything) == 6 * 5
    assert subsetd("sketch", "download", "sketch:other.far.key", "--out", "back.sketch").startswith("back.sketch: ")
    assert (tmp_path / "back.sketch").read_bytes() == (tmp_path / "folder" / "far.key.sketch").read_bytes()
    subsetd("sketch", "download", "s.customers.id")
    assert ColumnSketch.from_bytes((tmp_path / "s.customers.id.sketch").read_bytes()).size == 100
    listed = json.loads(subsetd("sketch", "list", "--format", "json"))
    assert [(one["column"], one["distinct_count"]) for one in listed][-2:] == [
        ("sketch:other.far.key", 100),
        ("sketch:other.far.odd/name", 100),
    ]
    subsetd("sketch", "drop", "sketch:other.far.key")
    assert subsetd.ended("sketch", "drop", "sketch:other.far.key")[0] == 1
    code, _, err = subsetd.ended("sketch", "drop", "s.customers.id")
    assert (code, "is not sketch:NAME" in err) == (1, True)


def test_a_sketch_of_a_fixed_size_is_made_uploaded_and_compared(
    state: None, tmp_path: Path, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far.csv").write_text("key\n" + "".join(f"{n}\n" for n in range(50, 3050)))
    assert subsetd.ended("sketch", "far.csv", "--bytes", 4000, "--out", "far.sketch")[0] == 0
    made = HashPrefixes.from_bytes((tmp_path / "far.sketch").read_bytes())
    assert (made.m, made.budget) == (12, 4000)
    assert made.to_bytes() == fixed_size((str(n) for n in range(50, 3050)), 12, 4000).to_bytes()
    (said,) = subsetd("sketch", "upload", "far.sketch").splitlines()
    assert said.startswith("sketch:far: ")
    asked = ("coefficients", "--dependent", "s.customers.id", "--referenced", "sketch:far", "--format", "csv")
    (row,) = rows_of(subsetd(*asked))
    assert (row["method"], row["exact"]) == ("estimated", "")
    assert float(row["low"]) <= 0.5 <= float(row["high"])
    assert abs(float(row["phi"]) - 0.5) <= 0.02
    listed = json.loads(subsetd("sketch", "list", "--format", "json"))
    (one,) = [one for one in listed if one["column"] == "sketch:far"]
    (shown,) = [line.split() for line in subsetd("sketch", "list").splitlines() if line.startswith("sketch:far ")]
    assert shown[1] == f"{round(one['distinct_count']):,}", "an estimate is no number of values to the last digit"
    assert (one["prefix_bits"], one["k"], one["spares_left"], one["needs_rescan"]) == (made.bits, None, None, None)
    of_state = next(one for one in listed if one["column"] == "s.customers.id")
    assert (of_state["k"], of_state["spares_left"], of_state["needs_rescan"]) == (1536, 512, False)
    code, _, err = subsetd.ended("coefficients", "--method", "bottom-k", "--with-uploaded", "--format", "csv")
    assert (code, "left out: sketch:far: bottom-k needs" in err.replace("\n", " ")) == (0, True)
    subsetd("sketch", "download", "s.customers.id", "--bytes", 300, "--out", "small.sketch")
    own = fixed_size(SETS["s", "customers", "id"], 8, 300)
    assert own.bits < 64
    assert (tmp_path / "small.sketch").read_bytes() == own.to_bytes()
    subsetd("sketch", "download", "sketch:far", "--out", "back.sketch")
    assert (tmp_path / "back.sketch").read_bytes() == made.to_bytes()


def test_as_many_buckets_as_an_error_needs(
    state: None, tmp_path: Path, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far.csv").write_text("key\n" + "".join(f"{n}\n" for n in range(3000)))
    for setting, options, m in (
        (None, ["--error", 0.05], bucket_bits_for(0.05)),
        ("0.03", [], bucket_bits_for(0.03)),
        ("0.03", ["--error", 0.05], bucket_bits_for(0.05)),
    ):
        if setting is not None:
            monkeypatch.setenv("SUBSETD_SKETCH_ERROR", setting)
        assert subsetd.ended("sketch", "far.csv", "--out", "far.sketch", *options)[0] == 0
        assert ColumnSketch.from_bytes((tmp_path / "far.sketch").read_bytes()).m == m
    monkeypatch.setenv("SUBSETD_SKETCH_BUCKET_BITS", "13")
    for arguments, code, words in (
        (["far.csv"], 2, "both say how many buckets"),
        (["far.csv", "--error", 0.1, "--bytes", 400], 2, "not both"),
        (["far.csv", "--bytes", 31], 2, "--bytes"),
    ):
        ended, _, err = subsetd.ended("sketch", *arguments)
        assert (ended, words in " ".join(err.split())) == (code, True), err
    monkeypatch.delenv("SUBSETD_SKETCH_BUCKET_BITS")
    assert subsetd.ended("sketch", "far.csv", "--error", 0.00001)[0] == 1


def test_a_file_that_cannot_be_written_is_one_message(state: None, subsetd: Command) -> None:
    code, out, err = subsetd.ended("sketch", "download", "s.orders.customer", "--out", "/nowhere/at/all")
    assert (code, out) == (1, "")
    assert "/nowhere/at/all: it cannot be written: No such file or directory. Name another file by --out." in err


def test_bytes_that_are_no_sketch_are_refused(state: None, tmp_path: Path, subsetd: Command) -> None:
    (tmp_path / "bad.sketch").write_bytes(b"SDSK\x09 and more")
    (tmp_path / "bad.zip").write_bytes(b"no archive")
    with zipfile.ZipFile(tmp_path / "damaged.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("c.sketch", ColumnSketch().to_bytes())
    packed = (tmp_path / "damaged.zip").read_bytes()
    listed = packed.index(b"PK\x01\x02")
    for name, place, byte in (("damaged", 38, 0xFF), ("encrypted", listed + 8, 1), ("unknown", listed + 10, 97)):
        (tmp_path / f"{name}.zip").write_bytes(packed[:place] + bytes([byte]) + packed[place + 1 :])
    for arguments, words in (
        (["bad.sketch"], "format version 9"),
        (["bad.zip"], "bad.zip: it cannot be read"),
        (["none.sketch"], "none.sketch: it cannot be read"),
        (["damaged.zip"], "damaged.zip: it cannot be read: Error -3 while decompressing"),
        (["encrypted.zip"], "encrypted.zip: it cannot be read: File 'c.sketch' is encrypted"),
        (["unknown.zip"], "unknown.zip: it cannot be read: "),
    ):
        code, _, err = subsetd.ended("sketch", "upload", *arguments)
        assert (code, words in err.replace("\n", " ")) == (1, True), err


def test_files_of_any_type_and_size_are_read_as_the_bootstrap_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small portions: hashes that come again are known again, in whatever chunk they come."""
    monkeypatch.setattr(sketch_files, "SPLIT_BYTES", 1000)
    monkeypatch.setattr(sketch_files, "LEAST_PORTION", 10)
    numbers = [n % 700 for n in range(3000)]
    pq.write_table(pa.table({"n": numbers, "f": [n / 2 for n in numbers]}), tmp_path / "p.parquet", row_group_size=100)
    (tmp_path / "c.csv").write_text('"n"\n' + "".join(f'"{n}"\n' if n else "NA\n" for n in numbers))
    for file, wanted in (
        ("p.parquet", {"p.n": {str(n) for n in range(700)}, "p.f": {f"{n / 2:g}" for n in range(700)}}),
        ("c.csv", {"c.n": {str(n) for n in range(1, 700)}}),
    ):
        out = tmp_path / "out.zip"
        sizes = ["--sketch-bucket-bits=8", "--sketch-k=64", "--null-token=NA"]
        assert sketch_files.main([str(tmp_path / file), f"--out={out}", *sizes]) == 0
        with zipfile.ZipFile(out) as archive:
            found = {name.removesuffix(".sketch"): archive.read(name) for name in archive.namelist()}
        assert found == {name: sketch_of(values, (8, 64, 21)).to_bytes() for name, values in wanted.items()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "no such file"),
        (["ragged.csv"], "ragged.csv, line 3"),
        (["good.csv", "--column", "x"], "there is no such column"),
        (["good.csv", "--out", "one.sketch"], "for one column"),
        (["good.csv", "--sketch-bucket-bits", "19"], "m = 19"),
        (["good.csv", "--bytes", "16"], "a fixed size has from 32"),
        (["good.csv", "--error", "0"], "keeps coefficients within 0"),
    ],
)
def test_files_that_cannot_be_sketched_are_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text("a,b\n1,2\n")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3\n")
    assert sketch_files.main(arguments) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("error:")) == ("", 1)
    assert words in err
    assert not list(tmp_path.glob("*.zip")) + list(tmp_path.glob("*.sketch"))
