"""The graph of INDs between tables, held against plain walks over sets of edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core import ind_graph
from service.core.group_inds import Inds
from service.core.ind_graph import NOWHERE, build_graph, shortest_paths

TABLES = 9
COLUMNS = 20
COMPONENTS = range(TABLES)
COLUMN = st.integers(0, COLUMNS - 1)
TABLE_OF = st.lists(st.integers(0, TABLES - 1), min_size=COLUMNS, max_size=COLUMNS)
PAIRS = st.sets(st.tuples(COLUMN, COLUMN).filter(lambda pair: pair[0] != pair[1]), max_size=24)


def blocks(pairs: Sequence[tuple[int, int]], size: int) -> Iterator[Inds]:
    for start in range(0, len(pairs), size):
        rows = np.array(pairs[start : start + size], np.int32).reshape(-1, 2)
        yield Inds(rows[:, 0], rows[:, 1], np.ones(len(rows), np.int32))


def walk(edges: set[tuple[int, int]], start: int) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        table = waiting.pop()
        more = {b for a, b in edges if a == table} - seen
        seen |= more
        waiting += more
    return seen


def paths_of_length(edges: set[tuple[int, int]], start: int, end: int, length: int) -> list[list[int]]:
    between = [table for table in range(TABLES) if table not in (start, end)]
    found = [[start, *middle, end] for middle in permutations(between, length - 1)]
    return [path for path in found if all(step in edges for step in pairwise(path))]


@given(TABLE_OF, PAIRS, st.integers(1, 5))
def test_vertices_edges_degrees_and_components(table_of: list[int], pairs: set[tuple[int, int]], size: int) -> None:
    edges = Counter((table_of[a], table_of[b]) for a, b in pairs)
    graph = build_graph(np.array(table_of, np.int32), TABLES, blocks(sorted(pairs), size))
    assert list(zip(graph.dependent.tolist(), graph.referenced.tolist(), graph.inds.tolist(), strict=True)) == sorted(
        (a, b, n) for (a, b), n in edges.items()
    )
    either_way = {*edges, *((b, a) for a, b in edges)}
    vertices = {table for edge in edges for table in edge}
    for table in range(TABLES):
        neighbours = sorted({b for a, b in either_way if a == table} - {table})
        assert graph.neighbours[slice(*graph.neighbour_starts[table : table + 2])].tolist() == neighbours
        assert graph.degree(table) == len(neighbours)
        assert graph.references[table] == len({b for a, b in edges if a == table} - {table})
        assert graph.referenced_by[table] == len({a for a, b in edges if b == table} - {table})
        assert graph.inds_of[table] == sum(n for edge, n in edges.items() if table in edge)
    groups = {frozenset(walk(either_way, table)) for table in vertices}
    ordered = sorted(groups, key=lambda group: (-len(group), min(group)))
    assert graph.table_count == len(vertices)
    assert [sorted(graph.hubs_of(c).tolist()) for c in range(len(graph.component_tables))] == [
        sorted(g) for g in ordered
    ]
    assert sorted(graph.hubs_of(None).tolist()) == sorted(vertices)
    assert graph.component_tables.tolist() == [len(group) for group in ordered]
    of_group = [{edge: n for edge, n in edges.items() if edge[0] in group} for group in ordered]
    assert graph.component_edges.tolist() == [len(found) for found in of_group]
    assert graph.component_inds.tolist() == [sum(found.values()) for found in of_group]
    for a, b in permutations(range(TABLES), 2):
        assert graph.inds_between(a, b) == edges[a, b]
    for c, found in enumerate(of_group):
        assert [(graph.dependent[i], graph.referenced[i]) for i in graph.edges_of(c)] == sorted(found)
    outside = set(range(TABLES)) - vertices
    assert {table for table in range(TABLES) if graph.component_of[table] == NOWHERE} == outside


@given(TABLE_OF, PAIRS)
def test_hubs_have_the_most_neighbours(table_of: list[int], pairs: set[tuple[int, int]]) -> None:
    graph = build_graph(np.array(table_of, np.int32), TABLES, blocks(sorted(pairs), 5))
    for component in (None, *range(len(graph.component_tables))):
        tables = [
            t for t in range(TABLES) if graph.component_of[t] in ({component} if component is not None else COMPONENTS)
        ]
        expected = sorted(tables, key=lambda t: (-graph.degree(t), -int(graph.inds_of[t]), t))
        assert graph.hubs_of(component).tolist() == expected


@given(TABLE_OF, PAIRS, st.integers(0, TABLES - 1), st.integers(0, TABLES - 1), st.booleans(), st.integers(1, 4))
def test_shortest_paths_are_those_of_trying_all(
    table_of: list[int], pairs: set[tuple[int, int]], start: int, end: int, along_inds: bool, limit: int
) -> None:
    edges = {(table_of[a], table_of[b]) for a, b in pairs}
    if not along_inds:
        edges |= {(b, a) for a, b in edges}
    expected: list[list[int]] = [[start]] if start == end else []
    if start != end and end in walk(edges, start):
        lengths = (paths_of_length(edges, start, end, length) for length in range(1, TABLES))
        expected = next(found for found in lengths if found)
    graph = build_graph(np.array(table_of, np.int32), TABLES, blocks(sorted(pairs), 24))
    found, is_all = shortest_paths(graph, start, end, limit, along_inds=along_inds)
    assert found == sorted(expected)[:limit]
    assert is_all == (len(expected) <= limit)


def test_a_chain_longer_than_any_recursion() -> None:
    n = 5000
    chain = [(table, table + 1) for table in range(n - 1)]
    graph = build_graph(np.arange(n, dtype=np.int32), n, blocks(chain, 1000))
    assert shortest_paths(graph, 0, n - 1, 1, along_inds=True) == ([list(range(n))], True)
    assert shortest_paths(graph, n - 1, 0, 1) == ([list(range(n - 1, -1, -1))], True)
    assert shortest_paths(graph, n - 1, 0, 1, along_inds=True) == ([], True)


def test_pairs_are_merged_while_blocks_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ind_graph, "_MERGED_AT_LEAST", 3)
    random = np.random.default_rng(5)
    pairs = [(a, b) for a, b in random.integers(0, 40, (500, 2)).tolist() if a != b]
    graph = build_graph(np.arange(40, dtype=np.int32) // 4, 10, blocks(pairs, 7))
    edges = Counter((a // 4, b // 4) for a, b in pairs)
    rows = zip(graph.dependent.tolist(), graph.referenced.tolist(), graph.inds.tolist(), strict=True)
    assert list(rows) == sorted((a, b, n) for (a, b), n in edges.items())


def test_no_tables_and_no_inds() -> None:
    graph = build_graph(np.zeros(0, np.int32), 0, [])
    assert (graph.table_count, graph.component_tables.tolist(), graph.hubs.tolist()) == (0, [], [])


@pytest.mark.parametrize("pair", [(0, 3), (2, 0), (0, -1)])
def test_an_ind_of_a_column_without_a_table_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is in an IND and in no table"):
        build_graph(np.array([0, 1, -1], np.int32), 2, blocks([pair], 1))
