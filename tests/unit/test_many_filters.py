"""The filters of a corpus: what counts as what, all 16 combinations on real web tables, and why something is absent."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.corpora import Corpus, column_facts, column_sets, read_corpus
from benchmarks.reference import find_inds as reference_inds
from benchmarks.reference import ind_hash
from service.core.audit import account
from service.core.column_filters import (
    NULL_TOKENS,
    PAPER,
    ColumnFacts,
    Filters,
    Reason,
    all_of,
    are_integers,
    are_null_tokens,
    exclude,
)
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus_inds import Algorithm, find_inds
from service.core.group_inds import Inds
from service.core.ind_graph import build_graph
from service.core.signatures import DEFAULT, Parameters, Strategy
from tests.many import INDS, SHA256, unpack_web_tables


@dataclass(frozen=True)
class WebTables:
    """Hold the web tables: as sets of texts, as arrays, and their INDs by the reference, as places of columns."""

    corpus: Corpus
    sets: ColumnSets
    facts: ColumnFacts
    inds: list[tuple[int, int]]

    def filtered(self, filters: Filters) -> np.ndarray:
        """Leave out of the reference's INDs what the filters leave out: the ten lines."""
        values, rows = self.corpus.values, self.corpus.rows
        null = [filters.null_columns and held <= set(NULL_TOKENS) for held in values]
        integer = [filters.integer_columns and all(re.fullmatch("[+-]?[0-9]+", one) for one in held) for held in values]
        left_out = [one or other for one, other in zip(null, integer, strict=True)]
        repeats = [filters.non_unique_referenced and len(held) < rows[i] for i, held in enumerate(values)]
        kept = [
            (a, b)
            for a, b in self.inds
            if not left_out[a]
            and not left_out[b]
            and not repeats[b]
            and len(values[a]) >= filters.coverage * len(values[b])
        ]
        return np.array(sorted(kept), np.int32).reshape(-1, 2)

    def found(self, filters: Filters, algorithm: Algorithm, parameters: Parameters = DEFAULT) -> np.ndarray:
        excluded = exclude(self.facts, filters)
        groups = group_columns(self.sets, excluded.dependent == 0, excluded.referenced == 0, coverage=filters.coverage)
        blocks = list(find_inds(groups, self.sets.keys, algorithm, parameters, threads=2))
        dependent, referenced, _ = map(np.concatenate, zip(*blocks, strict=True)) if blocks else Inds(*[[]] * 3)
        order = np.lexsort((referenced, dependent))
        return np.stack([dependent[order], referenced[order]], axis=1)


@pytest.fixture(scope="module")
def web_tables(tmp_path_factory: pytest.TempPathFactory) -> WebTables:
    corpus = read_corpus(unpack_web_tables(tmp_path_factory.mktemp("web")) / "tables")
    starts, texts = corpus.texts()
    place = {name: i for i, name in enumerate(corpus.names)}
    inds = [(place[a], place[b]) for a, b in reference_inds(corpus.named())]
    return WebTables(corpus, column_sets(starts, texts), column_facts(corpus, starts, texts), inds)


@pytest.mark.parametrize("strategy", [None, *Strategy])
def test_web_tables_have_the_published_inds(web_tables: WebTables, strategy: Strategy | None) -> None:
    algorithm = Algorithm.SIGNATURES if strategy else Algorithm.RAREST_FIRST
    found = web_tables.found(Filters(), algorithm, Parameters(strategy=strategy or Strategy.DEP2REFS))
    names = [(f"tables/{file}", place) for file, place in web_tables.corpus.names]
    assert ind_hash((names[a], names[b]) for a, b in found.tolist()) == (INDS, SHA256)


@pytest.mark.parametrize("on", list(product((False, True), repeat=4)), ids=lambda on: "".join("-+"[one] for one in on))
def test_all_combinations_of_the_papers_filters(web_tables: WebTables, on: tuple[bool, ...]) -> None:
    filters = Filters(on[0], on[1], on[2], Fraction(1, 5) if on[3] else Fraction(0))
    expected = web_tables.filtered(filters)
    assert len(expected) > 1_000
    for algorithm in Algorithm:
        assert np.array_equal(web_tables.found(filters, algorithm), expected), algorithm
    unfiltered = Inds(*np.array(web_tables.inds, np.int32).T, np.zeros(INDS, np.int32))
    assert account(unfiltered, web_tables.facts, filters).inds_left == len(expected)


def test_every_pair_is_an_ind_absent_or_left_out_for_a_reason(web_tables: WebTables) -> None:
    """What the filters took from the unfiltered answer has a reason, what they left has none."""
    excluded = exclude(web_tables.facts, PAPER)
    kept = set(map(tuple, web_tables.found(PAPER, Algorithm.RAREST_FIRST).tolist()))
    for pair in web_tables.inds[::11]:
        assert (excluded.why_not(*pair) == 0) == (pair in kept)
    assert excluded.summary()["dependent"][Reason.NO_VALUES] == 3
    for side, why in (("dependent", excluded.dependent), ("referenced", excluded.referenced)):
        for reason, count in excluded.summary()[side].items():
            assert count == sum(bool(one & reason) for one in why.tolist())


def test_the_graph_of_the_web_tables(web_tables: WebTables) -> None:
    files = sorted({file for file, _ in web_tables.corpus.names})
    number = {file: i for i, file in enumerate(files)}
    table_of = np.array([number[file] for file, _ in web_tables.corpus.names], np.int32)
    edges = Counter((int(table_of[a]), int(table_of[b])) for a, b in web_tables.inds)
    leader = {table: table for edge in edges for table in edge}

    def led_by(table: int) -> int:
        while leader[table] != table:
            leader[table] = table = leader[leader[table]]
        return table

    for a, b in edges:
        leader[led_by(a)] = led_by(b)
    components = Counter(led_by(table) for table in leader)
    pairs = np.array(web_tables.inds, np.int32)
    graph = build_graph(
        table_of, len(files), [Inds(part[:, 0], part[:, 1], part[:, 0]) for part in np.split(pairs, [7])]
    )
    assert (graph.table_count, len(graph.inds), int(graph.inds.sum())) == (len(leader), len(edges), INDS)
    assert graph.component_tables.tolist() == sorted(components.values(), reverse=True)
    neighbours: dict[int, set[int]] = {table: set() for table in leader}
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    assert graph.degree(int(graph.hubs[0])) == max(len(others - {table}) for table, others in neighbours.items())


def test_what_an_integer_is() -> None:
    integers = ["0", "-7", "+12", "007", "9" * 400]
    others = ["", "-", "1.0", "1,000", "1 000", " 1", "1\n", "1e3", "٣", "²", "0x1", "--1", "1-"]
    assert are_integers(pa.array([*integers, *others], pa.large_string())).tolist() == [True] * 5 + [False] * 13


def test_the_papers_null_tokens() -> None:
    assert len(set(NULL_TOKENS)) == 14
    texts = pa.array([*NULL_TOKENS, "-1", "N/a", "unknown", "—-", " "], pa.string())
    assert are_null_tokens(texts).tolist() == [True] * 14 + [False] * 5
    assert are_null_tokens(pa.array(["x", "-"]), ("x",)).tolist() == [True, False]


def test_a_list_is_all_of_something_when_it_has_any() -> None:
    starts = np.array([0, 0, 2, 4, 5], np.int64)
    assert all_of(starts, np.array([1, 1, 1, 0, 1], bool)).tolist() == [False, True, False, True]


def test_reasons_of_columns_and_pairs() -> None:
    facts = ColumnFacts(
        distinct=np.array([0, 1, 3, 5, 20]),
        rows=np.array([4, 4, 3, 9, 20]),
        null_only=np.array([False, True, False, False, False]),
        integers_only=np.array([False, False, True, False, False]),
    )
    excluded = exclude(facts, Filters(True, True, True, Fraction(1, 5), min_values=2))
    assert excluded.why_not(0, 4) == Reason.NO_VALUES | Reason.LOW_COVERAGE
    assert excluded.why_not(1, 2) == Reason.NULL_COLUMN | Reason.FEW_VALUES | Reason.INTEGER_COLUMN
    assert excluded.why_not(4, 3) == Reason.NOT_UNIQUE
    assert excluded.why_not(3, 4) == 0, "5 of 20 values cover enough"
    assert excluded.summary() == {
        "dependent": {Reason.NO_VALUES: 1, Reason.NULL_COLUMN: 1, Reason.INTEGER_COLUMN: 1, Reason.FEW_VALUES: 1},
        "referenced": {Reason.NO_VALUES: 1, Reason.NULL_COLUMN: 1, Reason.INTEGER_COLUMN: 1, Reason.NOT_UNIQUE: 2},
    }
    nothing = exclude(facts, Filters())
    assert nothing.summary() == {"dependent": {Reason.NO_VALUES: 1}, "referenced": {Reason.NO_VALUES: 1}}


def test_unpacked_tables_are_those_of_the_data_set(tmp_path: Path) -> None:
    assert len(list(unpack_web_tables(tmp_path).joinpath("tables").glob("*.csv"))) == 2_000
