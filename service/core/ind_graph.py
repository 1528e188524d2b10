"""Own the graph of INDs between tables (MANY 2017, section 6): its components, its hubs, the paths between two tables.

A table is a vertex when one of its columns is in an IND. Each IND is an edge from the dependent's table to the
referenced one's; those of one pair of tables are held as one edge with their number. The graph's components, hubs and
paths follow edges either way, as joins do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from service.core.column_sets import transpose
from service.core.compiled import kernel
from service.core.group_inds import Inds
from service.core.records import Flags, Int32s, Int64s, starts_of

NOWHERE = -1
"""The component of a table that is in no IND."""

_MERGED_AT_LEAST = 1 << 20


@dataclass(frozen=True, slots=True)
class IndGraph:
    """Hold a graph over tables [0:n); those without an IND are none of its vertices.

    Edge i, of e, goes from table dependent[i] to referenced[i] and stands for inds[i] INDs; edges are ascending, and an
    IND inside a table is one from the table to itself. Other tables that table t has an edge with, either way, are
    neighbours[neighbour_starts[t]:neighbour_starts[t + 1]], ascending. Components are numbered by falling number of
    tables, of equal ones by their first table: component_of[t] is that of table t (or NOWHERE), and component c has
    component_tables[c] tables, component_edges[c] edges and component_inds[c] INDs. inds_of[t] counts the INDs that
    t is in, each once; it has INDs into references[t] other tables, and referenced_by[t] have some into it. `hubs` are
    the vertices by falling number of neighbours, of INDs, then ascending; `component_hubs` the same by component.
    """

    dependent: Int32s
    referenced: Int32s
    inds: Int64s
    neighbour_starts: Int64s
    neighbours: Int32s
    component_of: Int32s
    component_tables: Int64s
    component_edges: Int64s
    component_inds: Int64s
    inds_of: Int64s
    references: Int64s
    referenced_by: Int64s
    hubs: Int32s
    component_hubs: Int32s

    @property
    def table_count(self) -> int:
        """Count the vertices."""
        return int(self.component_tables.sum())

    def degree(self, table: int) -> int:
        """Count the neighbours of a table."""
        return int(self.neighbour_starts[table + 1] - self.neighbour_starts[table])

    def hubs_of(self, component: int | None) -> Int32s:
        """Give the tables of the graph, or of a component, those with most neighbours first."""
        if component is None:
            return self.hubs
        start = int(self.component_tables[:component].sum())
        return self.component_hubs[start : start + int(self.component_tables[component])]

    def edges_of(self, component: int | None) -> Int64s:
        """Give the places of all edges, or those of one component, ascending."""
        if component is None:
            return np.arange(len(self.inds))
        return np.flatnonzero(self.component_of[self.dependent] == component)

    def inds_between(self, dependent: int, referenced: int) -> int:
        """Count the INDs from one table to another."""
        start, end = np.searchsorted(self.dependent, [dependent, dependent + 1])
        place = start + np.searchsorted(self.referenced[start:end], referenced)
        return int(self.inds[place]) if place < end and self.referenced[place] == referenced else 0


def build_graph(table_of: Int32s, table_count: int, blocks: Iterable[Inds]) -> IndGraph:
    """Make the graph of INDs between columns; `table_of` gives the table, in [0:table_count), of each column.

    Blocks are taken one after the other: what is held grows with the pairs of tables, not with the INDs.
    Raises ValueError for an IND of a column whose table is not in that range.
    """
    pairs, inds = _count_pairs(table_of, table_count, blocks)
    width = max(table_count, 1)
    dependent, referenced = (side.astype(np.int32) for side in divmod(pairs, width))
    outside = dependent != referenced
    reversed_pairs = referenced[outside].astype(np.int64) * width + dependent[outside]
    both_ways = np.sort(np.concatenate((pairs[outside], reversed_pairs)))  # np.unique hashes, which takes much longer
    both_ways = both_ways[np.diff(both_ways, prepend=-1) > 0]
    neighbours = (both_ways % width).astype(np.int32)
    starts = starts_of(np.bincount(both_ways // width, minlength=table_count))

    inds_of = np.zeros(table_count, np.int64)
    np.add.at(inds_of, dependent, inds)
    np.add.at(inds_of, referenced[outside], inds[outside])
    component_of = _components(starts, neighbours, inds_of > 0)
    count = int(component_of.max(initial=NOWHERE)) + 1
    of_edges = component_of[dependent]
    edge_inds = np.zeros(count, np.int64)
    np.add.at(edge_inds, of_edges, inds)
    tables = np.flatnonzero(component_of != NOWHERE).astype(np.int32)
    hubs = tables[np.lexsort((tables, -inds_of[tables], -np.diff(starts)[tables]))]
    return IndGraph(
        dependent,
        referenced,
        inds,
        starts,
        neighbours,
        component_of,
        component_tables=np.bincount(component_of[tables]),
        component_edges=np.bincount(of_edges),
        component_inds=edge_inds,
        inds_of=inds_of,
        references=np.bincount(dependent[outside], minlength=table_count),
        referenced_by=np.bincount(referenced[outside], minlength=table_count),
        hubs=hubs,
        component_hubs=hubs[np.argsort(component_of[hubs], kind="stable")],
    )


def shortest_paths(
    graph: IndGraph, start: int, end: int, limit: int, *, along_inds: bool = False
) -> tuple[list[list[int]], bool]:
    """Give the shortest paths between two tables in lexical order, and whether these are all: at most `limit`.

    A path is its tables from `start` to `end`. With `along_inds` each step goes from a dependent to a referenced table;
    otherwise either way. No path where there is none; the one path from a table to itself is the table alone.
    """
    starts, following = graph.neighbour_starts, graph.neighbours
    before = starts, following
    if along_inds:
        starts = starts_of(np.bincount(graph.dependent, minlength=len(graph.component_of)))
        following = graph.referenced
        before = transpose(starts, following, len(graph.component_of))
    distance = _distances(*before, end, start)
    if distance[start] < 0:
        return [], True
    found = list(islice(_paths(starts, following, distance, start), limit + 1))
    return found[:limit], len(found) <= limit


def _paths(starts: Int64s, following: Int32s, distance: Int32s, start: int) -> Iterator[list[int]]:
    """Yield the paths on which each table is nearer to the end than the one before."""

    def nearer(table: int) -> Iterator[int]:
        tables = following[starts[table] : starts[table + 1]]
        return iter(tables[distance[tables] == distance[table] - 1].tolist())

    if distance[start] == 0:
        yield [start]
        return
    path, left = [start], [nearer(start)]
    while left:
        table = next(left[-1], None)
        if table is None:
            left.pop()
            path.pop()
        elif distance[table] == 0:
            yield [*path, table]
        else:
            path.append(table)
            left.append(nearer(table))


def _count_pairs(table_of: Int32s, table_count: int, blocks: Iterable[Inds]) -> tuple[Int64s, Int64s]:
    """Give the pairs of tables that have INDs, as dependent · table_count + referenced, ascending, with their INDs."""
    none = np.zeros(0, np.int64)
    merged = none, none
    waiting: list[tuple[Int64s, Int64s]] = []
    for block in blocks:
        sides = [_tables(table_of, table_count, side) for side in (block.dependent, block.referenced)]
        waiting.append(_added_up(sides[0].astype(np.int64) * table_count + sides[1], None))
        if sum(len(pairs) for pairs, _ in waiting) > max(_MERGED_AT_LEAST, len(merged[0])):
            merged, waiting = _merge([merged, *waiting]), []
    return _merge([merged, *waiting])


def _tables(table_of: Int32s, table_count: int, columns: Int32s) -> Int32s:
    known: Flags = (columns >= 0) & (columns < len(table_of))
    tables = np.where(known, table_of[np.where(known, columns, 0)] if len(table_of) else NOWHERE, NOWHERE)
    wrong = (tables < 0) | (tables >= table_count)
    if wrong.any():
        raise ValueError(f"column {columns[wrong][0]} is in an IND and in no table")
    return tables


def _merge(parts: list[tuple[Int64s, Int64s]]) -> tuple[Int64s, Int64s]:
    return _added_up(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _added_up(pairs: Int64s, counts: Int64s | None) -> tuple[Int64s, Int64s]:
    if counts is None:
        return np.unique(pairs, return_counts=True)
    order = np.argsort(pairs, kind="stable")
    pairs, counts = pairs[order], counts[order]
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    return pairs[first], np.add.reduceat(counts, first) if len(first) else counts


def _components(starts: Int64s, neighbours: Int32s, is_vertex: Flags) -> Int32s:
    """Number the components of the vertices by falling size, then by their first table; the rest are NOWHERE."""
    from scipy.sparse import csr_array  # here: loading it would make every command start later
    from scipy.sparse.csgraph import connected_components

    n = len(is_vertex)
    component_of = np.full(n, NOWHERE, np.int32)
    if not n:
        return component_of
    ones = np.ones(len(neighbours), np.int8)
    labels = connected_components(csr_array((ones, neighbours, starts), shape=(n, n)), directed=False)[1][is_vertex]
    _, first, number, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(first), np.int32)
    rank[np.lexsort((first, -sizes))] = np.arange(len(first), dtype=np.int32)
    component_of[is_vertex] = rank[number]
    return component_of


@kernel
def _distances(starts: Int64s, items: Int32s, origin: int, wanted: int) -> Int32s:
    """Give the distance of tables from an origin, breadth first, as far as the wanted one's; -1 for the others."""
    distance = np.full(len(starts) - 1, -1, np.int32)
    queue = np.empty(len(starts) - 1, np.int32)
    queue[0], distance[origin] = origin, 0
    read, written = 0, 1
    while read < written and distance[wanted] < 0:
        table = queue[read]
        read += 1
        for place in range(starts[table], starts[table + 1]):
            other = items[place]
            if distance[other] < 0:
                distance[other] = distance[table] + 1
                queue[written] = other
                written += 1
    return distance
