"""The search for joinable tables on lakes: the published answers of one, and what filters let through on another."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks.context import Context
from benchmarks.joinable_filters import BLOOM, COUNTED, XASH, bloom_functions, filters, let_through, md5, simhash
from benchmarks.joinable_lakes import Lake, LakeQuery, draw_queries, published_queries, read_lake
from benchmarks.rows import mate_filter
from benchmarks.rows.mate_exact import answers_as_published, by_brute_force, pairs_of_columns
from service.core.joinability import Initial, Joinable, top_joinable
from service.core.row_filters import ValueHashes
from service.core.xash import Xash
from tests.lakes import DATA, unpack

PUBLISHED = [json.loads(line) for line in (DATA / "lakes" / "lake_owid_joins.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def owid(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return read_lake(unpack("lake_owid", tmp_path_factory.mktemp("lakes")))


@pytest.fixture
def small(tmp_path: Path) -> Lake:
    """Give two tables of which the second has the first's rows, once in one column, once by half."""
    (tmp_path / "tables").mkdir()
    for name, text in {
        "a-b": "x,y\nberlin,1\nrome,2\nrome,rome\n",
        "a": "n,x,y,z\n1,rome,2,\n2,berlin,rome,2\n,paris,9,rome\n",
    }.items():
        (tmp_path / "tables" / f"{name}.csv").write_text(text)
    return read_lake(tmp_path)


@pytest.mark.parametrize("published", PUBLISHED[::4], ids=lambda one: one["table"])
def test_published_answers(owid: Lake, published: dict[str, object]) -> None:
    rows = ValueHashes.of(owid.index, Xash().hashes(owid.values))
    assert answers_as_published(owid, rows, published)


def test_a_lake_is_read_by_the_names_of_its_tables(small: Lake) -> None:
    assert small.tables == ["a", "a-b"]
    names = ["", *small.values.to_pylist()]
    assert [[names[cell + 1] for cell in row] for row in small.rows(0).tolist()] == [
        ["1", "rome", "2", ""], ["2", "berlin", "rome", "2"], ["", "paris", "9", "rome"],
    ]  # fmt: skip
    assert small.widths().tolist() == [4, 2]


def test_an_empty_line_is_a_row_of_empty_cells(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "one.csv").write_text("x\nrome\n\nberlin\n")
    assert read_lake(tmp_path).rows(0).tolist() == [[0], [-1], [1]]


def test_brute_force_counts_pairs_of_columns(small: Lake) -> None:
    every = pairs_of_columns(small)
    keys = small.rows(1)
    assert by_brute_force(every, keys) == [Joinable(1, (0, 1), 3), Joinable(0, (1, 2), 1)]
    for _, rows in filters(small):
        assert top_joinable(small.index, rows, keys, 9) == by_brute_force(every, keys)


def test_pairs_that_share_the_initial_value_are_counted_once_each(small: Lake) -> None:
    """The first column has fewest postings: of the other table, 1 of berlin for one key and 3 of rome for two keys."""
    query = LakeQuery(1, (0, 1))
    for name, rows in filters(small):
        passed = let_through(small, rows, [query])
        assert (passed.joining, passed.false_positives + passed.filtered) == (2, 5), name
    assert bloom_functions(small) == 30


def test_the_papers_guess_of_the_initial_column_can_look_at_more_pairs(tmp_path: Path) -> None:
    """`k` has fewer values and `v` fewer postings; 1 stands four times in the other table, for two keys each."""
    (tmp_path / "lake_mate" / "tables").mkdir(parents=True)
    for name, text in {"other": "n,m,o\n1,x,\n1,1,\n1,u,\n", "query": "k,v\n1,x\n1,y\n"}.items():
        (tmp_path / "lake_mate" / "tables" / f"{name}.csv").write_text(text)
    lake = read_lake(tmp_path / "lake_mate")
    queries = published_queries(lake)
    assert queries == [LakeQuery(1, (0, 1))]
    for initial, pairs in (Initial.POSTINGS, (1, 0)), (Initial.CARDINALITY, (1, 7)):
        for name, rows in filters(lake):
            passed = let_through(lake, rows, queries, initial)
            assert (passed.joining, passed.false_positives + passed.filtered) == pairs, name
    results = mate_filter.measure(Context(Console(quiet=True), seed=1), [lake])
    assert {result.metric.partition(":")[0] for result in results} == {
        "lake_mate", "the paper's queries", "the paper's queries, fewest postings",
    }  # fmt: skip


def test_simhash_is_alike_for_texts_that_are_and_the_other_hashes_are_not() -> None:
    one, alike, other = simhash(pa.array(["the quick brown fox", "the quick brown box", "lazy dogs, all asleep"]))
    assert np.bitwise_count(one ^ alike).sum() < 45 < np.bitwise_count(one ^ other).sum()
    first, second = md5(["the quick brown fox", "the quick brown box"])
    assert np.bitwise_count(first ^ second).sum() > 45


def test_drawn_queries_have_different_columns_of_different_tables(owid: Lake) -> None:
    queries = draw_queries(owid, 1000, Random(1), 3)
    assert Counter(query.table for query in queries).most_common(1)[0][1] == 1
    assert all(len(set(query.columns)) == 3 for query in queries)
    assert {query.table for query in queries} == {t for t, width in enumerate(owid.widths()) if width >= 3}


def test_counted_bits_let_less_through_than_the_papers_filters(tmp_path: Path) -> None:
    lake = read_lake(unpack("webtables_2k", tmp_path))
    queries = draw_queries(lake, 30, Random(3))
    rate = {name: let_through(lake, rows, queries).rate for name, rows in filters(lake)}
    assert rate[COUNTED] < min(rate[BLOOM], rate[XASH])
