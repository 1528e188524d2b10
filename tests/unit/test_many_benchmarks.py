"""What the benchmarks of corpora measure is right: made corpora, copies, and runs in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import corpus_statistics, many_process, web_corpus
from benchmarks.corpora import Corpus, copies, read_corpus
from benchmarks.corpus_refreshes import Refreshed, change_tables, write_copies, write_json_lines
from benchmarks.rows import many_refresh
from benchmarks.rows.many_growth import discover
from service.core.column_filters import PAPER, Filters, exclude
from service.core.column_sets import ColumnSets
from tests.lakes import LAKES, unpack


def test_a_made_corpus_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    one, again, other = (web_corpus.make(300, seed) for seed in (4, 4, 5))
    assert one.values.tobytes() == again.values.tobytes() != other.values.tobytes()


def test_a_made_corpus_has_the_proportions_of_web_tables() -> None:
    corpus = web_corpus.make(3_000, 1)
    sets = ColumnSets.of_keys(corpus.starts, corpus.keys())
    assert len(sets.sizes) / 3_000 == pytest.approx(5.34, rel=0.05), "columns of a table, MANY's Table 4"
    assert corpus.rows.mean() == pytest.approx(10.85, rel=0.15), "rows of a table, Table 4"
    left_out = exclude(corpus.facts(sets), PAPER).summary()["referenced"]
    assert {reason.name for reason in left_out} == {"NO_VALUES", "NULL_COLUMN", "INTEGER_COLUMN", "NOT_UNIQUE"}
    texts = corpus.texts()
    assert len(set(texts)) == len(set(corpus.values.tolist())), "different values have different texts"


@pytest.mark.parametrize("filters", [Filters(), PAPER])
def test_both_algorithms_count_the_same_on_a_made_corpus(filters: Filters) -> None:
    corpus = web_corpus.make(2_000, 2)
    index, signatures, choice = (discover(corpus, filters, what) for what in ("rarest-first", "signatures", "choice"))
    assert index["inds"] == signatures["inds"] == choice["inds"] > 1_000


def test_real_tables_are_described_by_what_is_published_of_them(tmp_path: Path) -> None:
    corpus = corpus_statistics.read(unpack("webtables_2k", tmp_path) / "tables")
    told = corpus_statistics.describe(corpus)
    assert [told[name] for name in ("tables", "columns", "distinct values")] == ["2,000", "12,598", "84,914"]
    assert discover(corpus, Filters(), "choice")["inds"] == LAKES["webtables_2k"].inds


def test_parts_of_a_made_corpus_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_corpus, "_PART", 100)
    corpus = web_corpus.make(250, 3)
    assert len(corpus.rows) == len(corpus.starts) - 1
    assert corpus.starts[-1] == len(corpus.values)
    assert (np.diff(corpus.starts) <= corpus.rows).all()


def test_each_copy_has_half_of_the_values_for_itself() -> None:
    corpus = Corpus([("t.csv", 0), ("t.csv", 1)], [{str(n) for n in range(1_000)}, set()], [1_000, 1_000])
    twice = copies(corpus, 2)
    assert twice.names == [("0/t.csv", 0), ("0/t.csv", 1), ("1/t.csv", 0), ("1/t.csv", 1)]
    assert len(twice.values[0] & twice.values[2]) == pytest.approx(500, abs=50)
    assert twice.values[1] == twice.values[3] == set()


@pytest.mark.parametrize("filters", ["none", "paper"])
def test_runs_in_processes_of_their_own_agree_with_the_reference(filters: str, tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    values = [set(map(str, random.zipf(1.4, size).clip(0, 60).tolist())) for size in random.integers(0, 7, 300)]
    values += [{f"name {n % 40}", f"name {n % 7}"} for n in range(300)]
    corpus = Corpus([("t.csv", n) for n in range(600)], values, [len(held) + n % 3 for n, held in enumerate(values)])
    file = many_process.write(corpus, tmp_path / "corpus.arrow")
    runs = {what: many_process.measure(file, what, filters, tmp_path / "log") for what in ("reference", "choice")}
    assert runs["reference"]["inds"] == runs["choice"]["inds"] > 200
    assert all(0 < one["peak"] < 4 for one in runs.values())


def test_a_made_corpus_is_written_as_it_was_counted(tmp_path: Path) -> None:
    corpus = web_corpus.make(200, 6)
    files = sorted(write_json_lines(corpus, tmp_path / "lines", 64).iterdir())
    lines = [line for path in files for line in path.read_text().splitlines()]
    columns = {}
    for line in lines:
        relation = json.loads(line)["relation"]
        assert len({len(column) for column in relation}) == 1
        columns |= {int(column[0][1:]): column[1:] for column in relation}
    texts = corpus.texts()
    for c, rows in enumerate(corpus.rows.tolist()):
        assert len(columns[c]) == rows
        assert [cell for cell in columns[c] if cell] == texts[corpus.starts[c] : corpus.starts[c + 1]]


def test_written_copies_are_those_that_are_made(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "a.csv").write_text("x,y\n" + "".join(f"v{n},\n" for n in range(50)))
    written = read_corpus(write_copies(tables, 3, tmp_path / "copies"))
    assert written == copies(read_corpus(tables), 3)


@pytest.mark.parametrize(("spread", "files"), [(False, 1), (True, 4)])
def test_tables_are_changed_together_or_everywhere(tmp_path: Path, spread: bool, files: int) -> None:
    folder = write_json_lines(web_corpus.make(200, 6), tmp_path / "lines", 64)
    before = [path.read_text().splitlines() for path in sorted(folder.iterdir())]
    changed = change_tables(folder, 0.05, 1, spread)
    after = [path.read_text().splitlines() for path in sorted(folder.iterdir())]
    differ = [sum(a != b for a, b in zip(one, other, strict=True)) for one, other in zip(before, after, strict=True)]
    assert sum(differ) == changed == pytest.approx(0.05 * sum(map(len, before)), abs=3)
    assert np.count_nonzero(differ) == files


def refreshed(seconds: float, spark: bool) -> Refreshed:
    return Refreshed(seconds, 0, 0, 0, 0, 0, {"spark": spark})


def test_sparks_start_is_taken_off_what_started_it_and_nothing_else() -> None:
    full, after = refreshed(21, spark=True), [refreshed(seconds, spark=False) for seconds in (5, 4, 6)]
    *_, apart = many_refresh.beside_full("after changes", after, full, 5, "ratio <= 0.05")
    assert (apart.value, apart.baseline_value, apart.holds) == (5, 16, False)
    *_, apart = many_refresh.beside_full("after changes", [refreshed(7, spark=True), *after[:2]], full, 5, None)
    assert apart.value == 4, "of 2, 5 and 4"
