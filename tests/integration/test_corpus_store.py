"""Corpora in Postgres: whatever refreshes bring, each generation is served as it was found, and told from the last."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.column_filters import Reason
from service.core.corpus import CorpusSettings
from service.core.errors import NotFoundError
from service.store import corpus_cleaning, corpus_landing
from service.store.corpus_loads import Load, working_on
from service.store.corpus_reading import BLOCK_PLACES
from service.usecases.corpora import ChangeKind, ColumnFilter, CorpusFault
from service.usecases.queries import TrivialPairError
from tests.corpora import (
    COLUMNS,
    WHOLE,
    GivenCorpus,
    GivenTable,
    Rows,
    is_locked,
    load_tables,
    rows_of,
    served,
    table,
    versions,
    whole_corpus,
)

_numbers = itertools.count()


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[bool, set[int], set[int], Rows]]:
    """Draw refreshes: whether one is full, the tables that are there, those that changed, what INDs there may be.

    So few columns that pairs come again, with another overlap too; most refreshes leave something as it was.
    """
    column = st.sampled_from([0, 1, 3, 4, 6, 7])
    pairs = st.tuples(column, column).filter(lambda pair: pair[0] != pair[1])
    rows = st.dictionaries(pairs, st.integers(1, 2), max_size=20).map(lambda d: {(*pair, n) for pair, n in d.items()})
    full = st.sampled_from([False, False, False, True])
    tables = st.sampled_from([{0, 1, 2}, {0, 1, 2}, {0, 1}, {2}])
    return draw(st.lists(st.tuples(full, tables, st.sets(st.integers(0, 2), max_size=2), rows), min_size=1, max_size=8))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(), by_lookups=st.booleans())
def test_any_history_of_refreshes_serves_what_each_of_them_found(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    history: list[tuple[bool, set[int], set[int], Rows]],
    by_lookups: bool,
) -> None:
    """Full and incremental refreshes, tables that come, change and go, overlaps that change, loads put together."""
    monkeypatch.setattr(corpus_cleaning, "MOST_LOADS", 2)
    monkeypatch.setattr(corpus_landing, "LOOKUP_SHARE", 0 if by_lookups else 1000)
    corpus = GivenCorpus(database_url, f"lake{next(_numbers)}")
    before: Rows = set()
    there: set[int] = set()
    for generation, (full, tables, picked, found) in enumerate(history, 1):
        is_full = full or generation == 1
        changed = (tables - there) | (tables & picked) | (tables if is_full else set())
        touched = {COLUMNS * number + place for number in changed for place in range(COLUMNS)}
        columns = {COLUMNS * number + place for number in tables for place in range(COLUMNS)}
        fresh = {row for row in found if set(row[:2]) <= columns and touched & set(row[:2])}
        now = fresh | {row for row in before if not touched & set(row[:2]) and set(row[:2]) <= columns}
        landed = corpus.refresh(
            fresh,
            [table(number, generation) for number in changed],
            gone=sorted(there - tables),
            changed=None if is_full else touched,
        )

        appeared = {row[:2] for row in now} - {row[:2] for row in before}
        went = {row[:2] for row in before} - {row[:2] for row in now}
        assert (landed.inds, landed.appeared, landed.went) == (len(now), len(appeared), len(went))
        with corpus.corpora.snapshot(corpus.name) as snapshot:
            assert rows_of(snapshot.stream_pairs()) == sorted(now)
            assert snapshot.counts() == {"tables": len(tables), "columns": len(columns), "inds": len(now)}
            assert [t.table_number for t in snapshot.tables(limit=9)] == sorted(tables)
            if generation > 1:
                told = {(c.kind, c.dependent.column_id, c.referenced.column_id) for c in snapshot.changes(limit=999)}
                assert told == {(ChangeKind.APPEARED, *pair) for pair in appeared} | {
                    (ChangeKind.WENT, *pair) for pair in went
                }
        if generation > 1:
            assert served(corpus, generation - 1) == sorted(before)
        before, there = now, tables
    # Two of past generations, the newest; or the newest, and those three that a full refresh took the place of.
    own = {f"corpus_ind_l{refresh.refresh_id}" for refresh in corpus.corpora.refreshes(corpus.name, limit=99)}
    assert len(own & set(load_tables(database_url))) <= 4
    corpus.corpora.remove(corpus.name)
    assert not own & set(load_tables(database_url))


def test_small_loads_are_put_together_and_both_generations_stay(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refresh brings an IND, changes the overlap of another, and ends a third."""
    monkeypatch.setattr(corpus_cleaning, "MOST_LOADS", 4)
    corpus = GivenCorpus(database_url)
    before = {(5, column, 10) for column in range(5)}
    corpus.refresh(before, [table(0), table(1)])
    for number in range(12):
        column = number % 5
        now = {row for row in before if column not in row[:2]} | {(column, 5, 10 + number)}
        now |= {(5, column, 20 + number)} if number % 3 else set()
        fresh = {row for row in now if column in row[:2]}
        corpus.refresh(fresh, changed=[column])
        assert served(corpus) == sorted(now)
        assert served(corpus, number + 1) == sorted(before)
        assert len(load_tables(database_url)) <= 6
        before = now


@pytest.fixture
def lake(database_url: str) -> GivenCorpus:
    return whole_corpus(database_url)


def pages(corpus: GivenCorpus, dependent: ColumnFilter, referenced: ColumnFilter) -> Iterator[tuple[int, int]]:
    after = None
    with corpus.corpora.snapshot(corpus.name) as snapshot:
        while page := snapshot.inds(dependent, referenced, after=after, limit=4):
            assert len(page) <= 4
            yield from ((ind.dependent.column_id, ind.referenced.column_id) for ind in page)
            after = page[-1].dependent.column_id, page[-1].referenced.column_id


CHOICES = [ColumnFilter(), ColumnFilter("t0.csv"), ColumnFilter("t1.csv"), ColumnFilter("t1.csv", 2)]


@pytest.mark.parametrize("dependent", CHOICES)
@pytest.mark.parametrize("referenced", CHOICES)
def test_pages_of_any_choice_give_each_ind_once_in_order(
    lake: GivenCorpus, dependent: ColumnFilter, referenced: ColumnFilter
) -> None:
    """One load with the first table's INDs, a second with what changed: pages run through both."""
    rows = {row for row in WHOLE if row[:2] not in {(3, 1), (2, 4)}}
    lake.refresh({row for row in rows if max(row[:2]) > 2}, [table(1, 11)], changed=[3, 4, 5])

    def holds(chosen: ColumnFilter, column: int) -> bool:
        is_in = chosen.table in (None, f"t{column // COLUMNS}.csv")
        return is_in and chosen.position in (None, column % COLUMNS)

    expected = [(a, b) for a, b, _ in rows if holds(dependent, a) and holds(referenced, b)]
    sides = [sum(holds(side, column) for column in range(6)) for side in (dependent, referenced)]
    by_dependent = dependent == ColumnFilter() == referenced or (sides[0] <= sides[1] and dependent.table is not None)
    expected.sort(key=None if by_dependent else lambda pair: pair[::-1])
    assert list(pages(lake, dependent, referenced)) == expected


def test_changes_come_in_pages_too(lake: GivenCorpus) -> None:
    lake.refresh({(0, 1, 10), (5, 0, 10)})
    with lake.corpora.snapshot("lake") as snapshot:
        found, after = [], None
        while page := snapshot.changes(after=after, limit=3):
            found += [(c.dependent.column_id, c.referenced.column_id, c.kind) for c in page]
            after = found[-1][0], found[-1][1]
    went = {(a, b, ChangeKind.WENT) for a, b, _ in WHOLE if (a, b) != (0, 1)}
    assert found == sorted(went | {(5, 0, ChangeKind.APPEARED)})


def test_an_ind_tells_its_columns_and_how_much_of_each_is_in_both(database_url: str) -> None:
    corpus = GivenCorpus(database_url)
    corpus.refresh({(0, 1, 3)}, [GivenTable(0, 'a "ü\\,\n.csv', 0, ['{"x\\,', ""], distinct=[4, 12])])
    with corpus.corpora.snapshot("lake") as snapshot:
        (ind,) = snapshot.inds(limit=9)
        assert [column.column for column in snapshot.columns('a "ü\\,\n.csv', limit=9)] == [
            ind.dependent,
            ind.referenced,
        ]
    assert (ind.dependent.table, ind.dependent.position, ind.dependent.name) == ('a "ü\\,\n.csv', 0, '{"x\\,')
    assert (ind.referenced.position, ind.referenced.name) == (1, "")
    assert (ind.overlap, ind.coefficient, ind.coverage) == (3, 3 / 4, 1 / 4)


def test_columns_of_a_wide_table_are_told_wherever_they_are(database_url: str) -> None:
    """Its arrays are cut into blocks, whose first and last places are among these."""
    width, place = 3 * BLOCK_PLACES - 5, BLOCK_PLACES
    first = 7
    wide = GivenTable(
        1, "wide.csv", first, [f"name {n}" for n in range(width)],
        distinct=range(1, width + 1), dependent_reasons=[n % 5 for n in range(width)],
        referenced_reasons=[n % 7 for n in range(width)],
    )  # fmt: skip
    chosen = [0, 1, place - 2, place - 1, place, 2 * place - 2, 2 * place - 1, width - 1]
    corpus = GivenCorpus(database_url, "wide")
    rows = {(first + dependent, first + 5, 1) for dependent in chosen}
    corpus.refresh(rows, [wide, GivenTable(2, "other.csv", first + width, ["other"])])
    with corpus.corpora.snapshot("wide") as snapshot:
        found = snapshot.inds(limit=99)
        last = snapshot.columns("wide.csv", after=width - 3, limit=9)
    told = [(ind.dependent.column_id, ind.dependent.position, ind.dependent.name, ind.coefficient) for ind in found]
    assert told == [(first + n, n, f"name {n}", 1 / (n + 1)) for n in chosen]
    assert {ind.referenced.name for ind in found} == {"name 5"}
    assert [(c.column.name, c.distinct_count, int(c.dependent_reasons), int(c.referenced_reasons)) for c in last] == [
        (f"name {n}", n + 1, n % 5, n % 7) for n in (width - 2, width - 1)
    ]


def test_absent_is_told_apart_from_not_examined(database_url: str) -> None:
    corpus = GivenCorpus(database_url, settings=CorpusSettings.from_json({"coverage": "1/5", "top": 2}))
    t = GivenTable(0, "t", 0, ["a", "b", "c", "d", "e"], [3, 16, 15, 3, 9], [0, 0, 4, 0, 0], [0, 0, 0, 16, 0])
    corpus.refresh({(0, 2, 3), (1, 0, 3), (1, 2, 3)}, [t], faults=[CorpusFault("bad.csv", "binary\0")])

    def ask(left: int, right: int, table: str = "t") -> tuple[bool, bool, Reason, bool, str | None]:
        with corpus.corpora.snapshot("lake") as snapshot:
            answer = snapshot.pair(ColumnFilter("t", left), ColumnFilter(table, right))
        return answer.holds, answer.examined, answer.reasons, answer.beyond_top, answer.fault

    assert ask(0, 2) == (True, True, Reason(0), False, None)
    assert ask(3, 0) == (False, True, Reason(0), False, None)
    assert ask(0, 1) == (False, False, Reason.LOW_COVERAGE, False, None)
    assert ask(2, 3) == (False, False, Reason.INTEGER_COLUMN | Reason.NOT_UNIQUE, False, None)
    assert ask(1, 3)[1:3] == (False, Reason.NOT_UNIQUE)
    assert ask(1, 4) == (False, False, Reason(0), True, None)
    with pytest.raises(TrivialPairError, match=r"^Column 1 of t is on both sides; a column contains itself"):
        ask(1, 1)
    assert ask(0, 0, "bad.csv#7")[4] == ask(0, 0, "bad.csv/7")[4] == "binary\\x00"
    assert ask(0, 0, "bad.csv") == (False, False, Reason(0), False, "binary\\x00")
    with pytest.raises(NotFoundError, match=r"no column 5 in the table 't'; it has 5"):
        ask(0, 5)
    with pytest.raises(NotFoundError, match="no table 'nowhere' in generation 1 of the corpus 'lake'"):
        ask(0, 0, "nowhere")


def test_tables_before_the_place_where_a_file_breaks_off_are_examined(database_url: str) -> None:
    corpus = GivenCorpus(database_url)
    faults = [CorpusFault("f", "unreadable: torn"), CorpusFault("f#3", "ragged")]
    corpus.refresh({(0, 1, 3)}, [GivenTable(n, f"f#{n + 1}", n, ["a"]) for n in range(2)], faults=faults)
    with corpus.corpora.snapshot("lake") as snapshot:
        holds, absent = (
            snapshot.pair(ColumnFilter(a, 0), ColumnFilter(b, 0)) for a, b in (("f#1", "f#2"), ("f#2", "f#1"))
        )
        assert (holds.holds, holds.examined, holds.fault) == (True, True, None)
        assert (absent.holds, absent.examined, absent.fault) == (False, True, None)
        assert [snapshot.pair(ColumnFilter("f#1", 0), ColumnFilter(path, 0)).fault for path in ("f#3", "f#4")] == [
            "ragged", "unreadable: torn",
        ]  # fmt: skip
        with pytest.raises(NotFoundError, match=r"no column 1 in the table 'f#1'"):
            snapshot.pair(ColumnFilter("f#1", 1), ColumnFilter("f#2", 0))


def test_a_reader_keeps_its_generation_while_two_more_land(lake: GivenCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_cleaning, "DROP_TIMEOUT", "50ms")
    with lake.corpora.snapshot("lake") as snapshot:
        lake.refresh({(0, 1, 5)})
        lake.refresh({(0, 2, 5)})
        assert rows_of(snapshot.stream_pairs()) == sorted(WHOLE)
        assert len(load_tables(lake.url)) == 3
    assert lake.corpora.clean() == ["corpus_ind_l1", "corpus_change_l2"]
    with pytest.raises(NotFoundError, match="Generation 1 of the corpus 'lake' is not kept; there is 2 and 3"):
        served(lake, 1)


def test_a_reader_keeps_the_inds_of_its_own_corpus_in_use_alone(lake: GivenCorpus) -> None:
    """The server has room for some thousand locks, and partitions of all corpora are more than that."""
    other = GivenCorpus(lake.url, "other")
    for corpus in (other, lake):
        corpus.refresh({(0, 1, 5), (0, 2, 5)}, [table(0), table(1)])
        corpus.refresh({(0, 1, 5)})
    tables = load_tables(lake.url)
    own = {f"l{refresh.refresh_id}" for refresh in lake.corpora.refreshes("lake", limit=9)}
    with lake.corpora.snapshot("lake") as snapshot:
        assert snapshot.pair(ColumnFilter("t0.csv", 0), ColumnFilter("t0.csv", 1)).holds
        assert [len(found(limit=9)) for found in (snapshot.inds, snapshot.changes)] == [1, 1]
        assert rows_of(snapshot.stream_pairs()) == [(0, 1, 5)]
        for name in tables:
            assert not is_locked(lake.url, name, granted=True) or name.rpartition("_")[2] in own, name


def test_a_corpus_that_is_removed_while_others_are_cleaned_is_left(
    lake: GivenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = corpus_cleaning.drop_removed

    def meddling(connection: Any) -> list[str]:
        lake.corpora.remove(lake.name)
        return real(connection)

    lake.refresh(WHOLE)
    with monkeypatch.context() as patched:
        patched.setattr(corpus_cleaning, "drop_removed", meddling)
        lake.corpora.clean()
    assert load_tables(lake.url) == []


def test_tables_come_back_as_they_were_written(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.corpus_tables.BLOCK_TABLES", 2)
    monkeypatch.setattr("service.store.corpus_tables.BLOCK_CELLS", 4)
    given_tables = [
        GivenTable(0, "a\tb", 0, ["x", "NULL", "", "\\N"], [1, 2, 3, 2**31 - 1], [0, 1, 2, 63], [63, 2, 1, 0], 2**40),
        GivenTable(1, "", 4, []),
        GivenTable(2, "\\.", 4, ["é\r\n", "'\""]),
        GivenTable(3, "d" * 5000, 6, [f"c{i}" for i in range(50)]),
        GivenTable(5, "e", 56, ["\0"]),
    ]
    corpus = GivenCorpus(database_url)
    corpus.refresh(set(), given_tables)
    with corpus.corpora.snapshot("lake") as snapshot:
        blocks = list(snapshot.stream_tables())
        assert snapshot.table("d" * 5000).column_count == 50
    assert [len(block) for block in blocks] == [2, 2, 1]
    expected = versions([*given_tables[:4], GivenTable(5, "e", 56, ["\\x00"])])
    for name in ("numbers", "rows", "first_columns", "distinct", "dependent_reasons", "referenced_reasons"):
        assert np.concatenate([getattr(b, name) for b in blocks]).tolist() == getattr(expected, name).tolist(), name
    assert [p for b in blocks for p in b.paths.to_pylist()] == expected.paths.to_pylist()
    assert [n for b in blocks for n in b.names.to_pylist()] == expected.names.to_pylist()
    assert np.concatenate([b.column_ids() for b in blocks]).tolist() == expected.column_ids().tolist() == [*range(57)]
    with working_on(database_url, corpus.queue()) as (_, refresh):
        load = Load.begin(database_url, refresh.refresh_id)
        assert (load.next_table, load.next_column) == (6, 57)
        assert sum(map(len, load.served_tables())) == 5
