"""Graphs that are kept: made once, for as many as ask; the oldest goes; nobody waits for long. And parts of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import StateError
from service.core.group_inds import Inds
from service.core.records import Int32s
from service.usecases import ind_graphs
from service.usecases.ind_graphs import KEPT_GRAPHS, IndGraphs, Join, UnknownTableError
from service.usecases.queries import walk
from tests.waiting import BOUND_SECONDS

TABLES, COLUMNS = 9, 20


class FakeReader:
    """Read two tables with one IND; counts how often, and waits where it is told to."""

    def __init__(self, name: str, version: int = 1) -> None:
        self.place = name, version
        self.table_count = 2
        self.reads = 0
        self.is_reading, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    def tables_of_columns(self) -> tuple[Int32s, int]:
        return np.array([0, 1], np.int32), 2

    def stream_pairs(self) -> Iterator[Inds]:
        self.reads += 1
        self.is_reading.set()
        assert self.may_go_on.wait(BOUND_SECONDS)
        yield Inds(*(np.array([value], np.int32) for value in (0, 1, 5)))

    def names(self, tables: Iterable[int]) -> dict[int, str]:
        return {table: f"t{table}" for table in tables}

    def all_names(self) -> Callable[[int], str]:
        return str

    def number(self, name: str) -> int:
        return int(name)

    def joins(self, dependent: int, referenced: int, limit: int) -> list[Join]:
        return [Join("a", dependent, "b", referenced)][:limit]


def test_a_graph_is_made_once_for_each_version() -> None:
    graphs, reader = IndGraphs(), FakeReader("lake")
    assert graphs.graph(reader) is graphs.graph(reader)
    newer = FakeReader("lake", 2)
    assert graphs.graph(newer) is graphs.graph(newer)
    assert (reader.reads, newer.reads) == (1, 1)


def test_versions_that_follow_each_other_displace_no_other_graph() -> None:
    graphs, other = IndGraphs(), FakeReader("lake")
    graphs.graph(other)
    for version in range(2 * KEPT_GRAPHS):
        graphs.graph(FakeReader("", version))
    graphs.graph(other)
    assert other.reads == 1


def test_the_graph_that_was_not_asked_for_longest_goes() -> None:
    graphs, readers = IndGraphs(), [FakeReader(f"lake {number}") for number in range(KEPT_GRAPHS + 1)]
    for reader in readers[:-1]:
        graphs.graph(reader)
    graphs.graph(readers[0])
    graphs.graph(readers[-1])
    for reader in (readers[0], readers[-1], readers[1]):
        graphs.graph(reader)
    assert [reader.reads for reader in readers] == [1, 2] + [1] * (KEPT_GRAPHS - 1)


def test_nobody_waits_long_while_a_large_graph_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ind_graphs, "WAIT_SECONDS", 0.01)
    graphs, large, small = IndGraphs(), FakeReader("large"), FakeReader("small")
    kept = graphs.graph(small)
    large.may_go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(graphs.graph, large)
        assert large.is_reading.wait(BOUND_SECONDS)
        assert graphs.graph(small) is kept
        with pytest.raises(StateError, match="being made"):
            graphs.graph(large)
        large.may_go_on.set()
        assert made.result(60) is graphs.graph(large)
    assert large.reads == 1


def test_a_graph_that_could_not_be_made_is_tried_again() -> None:
    graphs, reader = IndGraphs(), FakeReader("lake")
    reader.tables_of_columns = lambda: (np.array([0], np.int32), 1)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="in no table"):
        graphs.graph(reader)
    assert graphs.graph(FakeReader("lake")).table_count == 2


class LargerReader(FakeReader):
    """Read columns of given tables, and INDs between them; names alternate in their capitals."""

    def __init__(self, table_of: list[int], pairs: set[tuple[int, int]]) -> None:
        super().__init__("larger")
        self._table_of, self._pairs = table_of, sorted(pairs)
        self.table_count = TABLES

    def tables_of_columns(self) -> tuple[Int32s, int]:
        return np.array(self._table_of, np.int32), TABLES

    def stream_pairs(self) -> Iterator[Inds]:
        rows = np.array(self._pairs, np.int32).reshape(-1, 2)
        yield Inds(rows[:, 0], rows[:, 1], np.ones(len(rows), np.int32))

    def names(self, tables: Iterable[int]) -> dict[int, str]:
        return {table: self.all_names()(table) for table in tables}

    def all_names(self) -> Callable[[int], str]:
        return lambda table: f"{'Odd' if table % 2 else 'eVEN'}{table}"


COLUMN = st.integers(0, COLUMNS - 1)
TABLE_OF = st.lists(st.integers(0, TABLES - 1), min_size=COLUMNS, max_size=COLUMNS)
PAIRS = st.sets(st.tuples(COLUMN, COLUMN).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=20)


@given(TABLE_OF, PAIRS, st.integers(1, TABLES), st.integers(0, COLUMNS - 1), st.booleans())
def test_an_excerpt_has_all_edges_between_the_tables_that_come_first(
    table_of: list[int], pairs: set[tuple[int, int]], most: int, column: int, beside: bool
) -> None:
    reader = LargerReader(table_of, pairs)
    graph = IndGraphs().graph(reader)
    edges = Counter((table_of[a], table_of[b]) for a, b in pairs)
    near = {table: {other for edge in edges if table in edge for other in edge} - {table} for table in range(TABLES)}
    inds = {table: sum(count for edge, count in edges.items() if table in edge) for table in range(TABLES)}
    vertices = {table for edge in edges for table in edge}
    around = table_of[column] if beside else None
    if around is None:
        wanted = sorted(vertices, key=lambda table: (-len(near[table]), -inds[table], table))
    elif around in vertices:
        wanted = [around, *sorted(near[around], key=lambda table: (-len(near[table]), table))]
    else:
        with pytest.raises(UnknownTableError, match="in no IND"):
            ind_graphs.excerpt(graph, reader, None, around, most)
        return
    found = ind_graphs.excerpt(graph, reader, None, around, most)
    assert [one.name for one in found.tables] == [reader.all_names()(table) for table in wanted[:most]]
    assert found.tables_beyond == len(wanted[most:])
    drawn = {(wanted[a], wanted[b]): count for a, b, count in found.edges}
    assert drawn == {edge: n for edge, n in edges.items() if set(edge) <= set(wanted[:most])}


@given(TABLE_OF, PAIRS)
def test_an_excerpt_of_a_component_is_that_component(table_of: list[int], pairs: set[tuple[int, int]]) -> None:
    reader = LargerReader(table_of, pairs)
    graph = IndGraphs().graph(reader)
    for component in range(len(graph.component_tables)):
        found = ind_graphs.excerpt(graph, reader, component, None, TABLES)
        assert {one.component for one in found.tables} == {component}
        assert len(found.tables) == graph.component_tables[component]
        assert sum(count for _, _, count in found.edges) == graph.component_inds[component]
    with pytest.raises(UnknownTableError, match="no component"):
        ind_graphs.excerpt(graph, reader, len(graph.component_tables), None, TABLES)


@given(TABLE_OF, PAIRS, st.integers(1, 3), st.sampled_from(["odd", "Even", "1", "nothing"]))
def test_tables_are_found_by_a_part_of_their_names(
    table_of: list[int], pairs: set[tuple[int, int]], limit: int, part: str
) -> None:
    reader = LargerReader(table_of, pairs)
    graph = IndGraphs().graph(reader)
    every = [one.name for one in ind_graphs.tables(graph, reader, None, None, TABLES).items]
    found = [one.name for one in walk(lambda after: ind_graphs.tables(graph, reader, None, after, limit, part))]
    assert found == [name for name in every if part.lower() in name.lower()]
