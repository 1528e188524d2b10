"""What is told of joinable tables: least shares, new columns, previews of rows, and the tables that they lead to."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import corpus_wiring
from service.core.corpus import CorpusKind
from service.core.errors import NotFoundError, SourceError
from service.core.joinability import Progress, Telling, untold
from service.core.near_matches import Near
from service.corpus_row_reader import CorpusRowReader
from service.store.database import make_engine
from service.usecases.corpora import NewCorpus
from service.usecases.joinable import CELL_CHARACTERS, JoinableTable, JoinAnswer, JoinQuery, JoinQuestion
from service.usecases.joinable_details import TooLongError
from tests.joinable import build, find_in, indexes_of, no_spark
from tests.refreshing import Lake, write_tables

LONG = "z" * 1_000_000
TABLES = {
    "a.csv": [["berlin", "rome", "rome", "oslo"], ["1", "2", "2", ""], ["x", "", "y", "z"]],
    "b.csv": [["1", "2", "3"], ["rome", "berlin", "paris"], ["2", "1", "9"], ["", LONG, ""]],
    "cities.csv": [["berlin", "rome", "oslo", "bonn"]],
    "more_cities.csv": [["berlin", "rome", "oslo", "bonn", "köln"]],
}


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Lake:
    write_tables(tmp_path / "tables", TABLES)
    made = Lake(database_url, tmp_path / "tables")
    build(made)
    return made


def ask(
    lake: Lake,
    rows: list[tuple[str, ...]],
    *,
    tell: Telling = untold,
    left: Callable[[], float] | None = None,
    **question: Any,
) -> JoinAnswer:
    engine = make_engine(lake.url, "test", pool_size=2, max_overflow=0)
    try:
        search = corpus_wiring.make_join_search(engine)
        query = JoinQuery(list(zip(*rows, strict=True)))
        return search.answer(query, JoinQuestion(lake.name, **question), tell=tell, left=left)
    finally:
        engine.dispose()


def test_a_least_share_takes_all_tables_that_reach_it_and_says_when_there_are_more(lake: Lake) -> None:
    query = [("berlin",), ("rome",), ("köln",)]
    shares = {"more_cities.csv": 1.0, "a.csv": 2 / 3, "b.csv": 2 / 3, "cities.csv": 2 / 3}
    assert {one.table: one.share for one in ask(lake, query).tables} == shares
    answer = ask(lake, query, min_share=Fraction(2, 3))
    assert [one.table for one in answer.tables] == list(shares)
    assert not answer.is_cut
    assert [one.table for one in ask(lake, query, min_share=Fraction("0.67")).tables] == ["more_cities.csv"]
    cut = ask(lake, query, min_share=Fraction(2, 3), k=2)
    assert ([one.table for one in cut.tables], cut.is_cut) == (["more_cities.csv", "a.csv"], True)
    assert not ask(lake, query, min_share=Fraction(2, 3), k=4).is_cut


@pytest.mark.parametrize("seed", range(2))
def test_a_least_share_is_that_of_the_shares_of_all_tables(database_url: str, tmp_path: Path, seed: int) -> None:
    """1/10 of 30 keys is 3, which no float is needed for."""
    random = Random(seed)
    cells = list(map(str, range(30)))
    write_tables(tmp_path / "t", {f"t{n:02}.csv": [random.sample(cells, random.randrange(1, 9))] for n in range(30)})
    made = Lake(database_url, tmp_path / "t")
    build(made)
    query = JoinQuery([cells])
    with indexes_of(database_url) as indexes:
        every = find_in(indexes, made.name, query, 1000).tables
        for least in (Fraction("0.1"), Fraction(1, 5), Fraction("0.101"), Fraction(1)):
            found = find_in(indexes, made.name, query, min_share=least)
            assert list(found.tables) == [one for one in every if one.matched_keys >= least * 30]


def test_previews_show_the_first_row_of_each_key_with_the_new_columns(lake: Lake) -> None:
    rows = [("rome", "2"), ("berlin", "1"), ("oslo", ""), ("nowhere", "7")]
    answer = ask(lake, rows, preview=5, k=2)
    a, b = answer.tables
    assert (a.new_columns, b.new_columns) == (("c2",), ("c0", "c3"))
    assert [(one.row, one.key, one.values) for one in a.preview] == [
        (0, ("berlin", "1"), ("x",)),
        (1, ("rome", "2"), (None,)),
    ]
    assert [(one.row, one.key, one.values) for one in b.preview] == [
        (0, ("rome", "2"), ("1", None)),
        (1, ("berlin", "1"), ("2", LONG[:CELL_CHARACTERS])),
    ]
    assert [len(one.preview) for one in ask(lake, rows, preview=1, k=2).tables] == [1, 1]


def test_shares_are_of_distinct_keys_and_of_rows(lake: Lake) -> None:
    (found,) = ask(lake, [("rome", "2"), ("rome", "2"), ("oslo", ""), ("nowhere", "7")], k=1).tables
    assert (found.matched_keys, found.share, found.matched_rows, found.row_share) == (1, 1 / 2, 2, 1 / 2)


def test_a_file_that_is_another_one_by_now_shows_nothing_and_says_so(lake: Lake) -> None:
    query = [("rome", "2"), ("berlin", "1")]
    write_tables(lake.folder, {**TABLES, "a.csv": [["berlin", "rom"], ["1", "2"], ["x", "y"]]})
    (lake.folder / "b.csv").unlink()
    a, b = ask(lake, query, preview=2, k=2).tables
    assert [one.values for one in a.preview] == [("x",), None]
    assert a.preview_fault is not None
    assert "refresh the corpus" in a.preview_fault
    assert [one.values for one in b.preview] == [None, None]
    assert b.preview_fault is not None
    assert "cannot be read" in b.preview_fault


def test_rows_that_take_too_long_are_told(lake: Lake) -> None:
    found = CorpusRowReader(lake.corpora, seconds=0.001)(lake.name, {"a.csv": [0]})
    assert found["a.csv"].fault == "Its rows were not read within 0.001 s."
    with pytest.raises(TooLongError):
        CorpusRowReader(lake.corpora)(lake.name, {"a.csv": [0]}, seconds=-1)


def test_where_tables_lead_is_not_looked_for_beyond_the_seconds_left(lake: Lake) -> None:
    seconds = iter([2.0, 1.0, -1.0])
    with pytest.raises(TooLongError):
        ask(lake, [("berlin",)], preview=0, through=1, left=lambda: next(seconds))
    assert list(seconds) == [], "it is asked for before each table"


def test_rows_of_large_files_and_of_parquet_are_read(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    padding = "x" * 300
    (folder / "large.csv").write_text("a,b\n" + "".join(f"{n},{padding}\n" for n in range(40_000)))
    made = Lake(database_url, folder)
    found = CorpusRowReader(made.corpora)(made.name, {"large.csv": [0, 39_999, 40_000]})["large.csv"]
    assert found.rows == {0: ["0", padding], 39_999: ["39999", padding]}
    pq.write_table(pa.table({"n": [1, None, 3], "t": ["a", "b", "c"]}), folder / "p.parquet")
    made.corpora.add(NewCorpus("packed", str(folder), CorpusKind.PARQUET))
    assert CorpusRowReader(made.corpora)("packed", {"p.parquet": [1, 2]})["p.parquet"].rows == {
        1: [None, "b"],
        2: ["3", "c"],
    }


def test_a_table_leads_to_those_that_hold_all_values_of_a_column(lake: Lake) -> None:
    (found,) = ask(lake, [("oslo", "z")], through=5).tables
    assert found.table == "a.csv"
    assert found.leads_to is not None
    assert [(one.table, *one.through, *one.columns, one.coverage) for one in found.leads_to] == [
        ("cities.csv", "c0", "c0", 0.75),
        ("b.csv", "c1", "c0", 2 / 3),
        ("more_cities.csv", "c0", "c0", 0.6),
    ]
    (first,) = ask(lake, [("oslo", "z")], through=1).tables
    assert first.leads_to == found.leads_to[:1]
    (unasked,) = ask(lake, [("oslo", "z")]).tables
    assert unasked.leads_to is None


def test_where_a_table_leads_is_not_told_of_a_generation_that_is_gone(lake: Lake) -> None:
    lake.refresh(no_spark)
    assert all(one.leads_to for one in ask(lake, [("oslo", "z")], through=5).tables)
    write_tables(lake.folder, {**TABLES, "new.csv": [["1"]]})
    lake.refresh(no_spark)
    lake.refresh(no_spark, full=True)
    found: JoinableTable
    (found,) = ask(lake, [("oslo", "z")], through=5).tables
    assert (found.table, found.leads_to) == ("a.csv", None)


@pytest.mark.parametrize("near", [("case",), ("spaces",), ("case", "spaces"), ("numbers", "spaces")])
def test_near_cells_join_where_the_corpus_is_indexed_so(
    database_url: str, tmp_path: Path, near: tuple[str, ...]
) -> None:
    """Against rows that are folded and compared in Python, repeated values in one row among them."""
    random = Random(len(near) + len(near[0]))
    cells = ["New York", "new york", " New  York", "Oslo", "OSLO ", "oslo", "1.50", " 1.5", "-", " ", "a"]
    tables = {
        f"t{n}.csv": [[random.choice(cells) for _ in range(7)] for _ in range(random.randrange(2, 4))] for n in range(9)
    }
    write_tables(tmp_path / "t", tables)
    made = Lake(database_url, tmp_path / "t", null_tokens=["-"], near=list(near))
    build(made)

    def fold(text: str) -> str:
        text = " ".join(text.split()) if "spaces" in near else text
        text = "1.5" if text == "1.50" and "numbers" in near else text
        return "" if text == "-" else text.lower() if "case" in near else text

    query = [(random.choice(cells[:8]), random.choice(cells[:8])) for _ in range(4)] + [("-", "a"), ("a", " ")]
    answer = ask(made, query, k=50, preview=1, near=[Near(one) for one in near])
    folded = [tuple(map(fold, row)) for row in query]
    keys = {row for row in folded if "" not in row}
    assert answer.empty == sum("" in row for row in folded)
    assert (answer.keys, answer.near) == (len(keys), sorted(near))
    expected = {}
    for path, columns in tables.items():
        rows = [[fold(cell) for cell in row] for row in zip(*columns, strict=True)]
        pairs = permutations(range(len(columns)), 2)
        best = max(len(keys & {(row[a], row[b]) for row in rows}) for a, b in pairs)
        if best:
            expected[path] = best
    assert {one.table: one.matched_keys for one in answer.tables} == expected
    assert {one.preview_fault for one in answer.tables} == {None}
    assert all(one.preview[0].values is not None for one in answer.tables)
    with pytest.raises(SourceError, match=r"folded by .*, and not as they are\. .*--unset near"):
        ask(made, query, near=[])


def test_cells_that_are_not_near_are_refused_where_near_ones_are_asked_for(lake: Lake) -> None:
    with pytest.raises(SourceError, match=r"as they are, and not folded by case\. .* corpus set .* --near case"):
        ask(lake, [("oslo",)], near=[Near.CASE])


def test_a_corpus_that_is_removed_while_it_is_searched_is_answered_from(lake: Lake) -> None:
    rows = [("rome", "2"), ("berlin", "1")]
    before = ask(lake, rows)

    def remove(progress: Progress) -> None:
        if progress.tables is None:
            lake.corpora.remove(lake.name)

    during = ask(lake, rows, tell=remove, through=5, preview=1)
    assert [(one.table, one.matched_keys) for one in during.tables] == [
        (one.table, one.matched_keys) for one in before.tables
    ]
    assert {(one.leads_to, one.preview_fault) for one in during.tables} == {(None, "The corpus was removed meanwhile.")}
    with pytest.raises(NotFoundError, match="There is no corpus"):
        ask(lake, rows)


@pytest.mark.parametrize(
    "rows",
    [
        [("\U0001f600", "ﬀ")],
        [("straße", "İ")],
        [("é", "é")],
        [("a\tb", "'; drop table x; --")],
        [("Ω" * 5000, "1")],
    ],
)
def test_characters_of_any_alphabet_join(database_url: str, tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    write_tables(tmp_path / "t", {"a.csv": [[cell, "x"] for cell in rows[0]]})
    made = Lake(database_url, tmp_path / "t")
    build(made)
    assert [one.table for one in ask(made, rows).tables] == ["a.csv"]
    assert not ask(made, [(rows[0][0], "x")]).tables


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"k": 0}, "at least one table"),
        ({"k": 10**9}, "at most 1,000 tables"),
        ({"min_share": Fraction(0)}, "above 0"),
        ({"min_share": Fraction(11, 10)}, "at most 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(lake: Lake, question: dict[str, object], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        ask(lake, [("oslo",)], **question)
