"""Own the questions about the graph of INDs between tables: of the tracked tables, or of one generation of a corpus."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from service.core.errors import NotFoundError, StateError
from service.core.group_inds import Inds
from service.core.ind_graph import NOWHERE, IndGraph, build_graph, shortest_paths
from service.core.records import Int32s
from service.usecases.answers import Key, Page

KEPT_GRAPHS = 4
"""Graphs that stay in memory, those asked for last: 24 bytes a pair of tables at most, and some 50 a table."""

WAIT_SECONDS = 2.0
"""How long a question waits for a graph that is being made for another one."""

JOINS_SHOWN = 10
"""INDs that are named of one step of a path."""


@dataclass(frozen=True, slots=True)
class Join:
    """Name an IND between columns of two tables; positions count from 0."""

    dependent_column: str
    dependent_position: int
    referenced_column: str
    referenced_position: int


class UnknownTableError(NotFoundError):
    """A name is that of no table, or a number that of no component."""


class GraphReader(Protocol):
    """Read the INDs of one version, or of one generation, and its tables, which have numbers from 0."""

    @property
    def place(self) -> tuple[str, int]:
        """Say what is read (a corpus' name, or nothing for the tracked tables), and in which version or generation."""

    @property
    def table_count(self) -> int:
        """Count the tables, those without INDs too."""

    def tables_of_columns(self) -> tuple[Int32s, int]:
        """Give the table's number of each column id (-1: none), and how many numbers there are."""

    def stream_pairs(self) -> Iterator[Inds]:
        """Give all INDs between column ids in blocks."""

    def names(self, tables: Iterable[int]) -> dict[int, str]:
        """Give the names of tables."""

    def all_names(self) -> Callable[[int], str]:
        """Read all names, for whoever wants very many of them."""

    def number(self, name: str) -> int:
        """Find the table of a name; raise NotFoundError."""

    def joins(self, dependent: int, referenced: int, limit: int) -> list[Join]:
        """List INDs from one table to another by the positions of their columns."""


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """Count what a graph holds; `sizes` are (tables of a component, components of this size), largest first.

    `tables_outside` are tables that are in no IND.
    """

    tables: int
    tables_outside: int
    edges: int
    inds: int
    components: int
    sizes: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class GraphTable:
    """Describe a table of the graph.

    It shares INDs with `neighbours` other tables: it has some into `references` of them, and `referenced_by` have some
    into it. `inds` counts all that it is in.
    """

    name: str
    component: int
    neighbours: int
    references: int
    referenced_by: int
    inds: int


@dataclass(frozen=True, slots=True)
class GraphComponent:
    """Describe a connected component, with the table that has most neighbours in it."""

    component: int
    tables: int
    edges: int
    inds: int
    hub: GraphTable


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Hold a part of a graph that can be drawn: tables, and all edges between them.

    An edge is (place of the dependent table in `tables`, of the referenced one, number of INDs). `tables_beyond` were
    asked for and are not among them.
    """

    tables: list[GraphTable]
    edges: list[tuple[int, int, int]]
    tables_beyond: int


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one step of a path: INDs between two tables, either way; `joins` are the first of each way's."""

    dependent: str
    referenced: str
    inds: int
    joins: list[Join]


@dataclass(frozen=True, slots=True)
class Path:
    """Hold a path: its tables, and between each two (of one alone: inside it) the INDs that join them, either way."""

    tables: list[str]
    steps: list[list[Step]]


@dataclass(frozen=True, slots=True)
class Paths:
    """Hold the shortest paths between two tables, of `length` steps (None: there is none); not all when `has_more`."""

    length: int | None
    paths: list[Path]
    has_more: bool


class IndGraphs:
    """Make graphs, and keep those that were asked for last, one of each place; one that several want is made once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._graphs: OrderedDict[str, tuple[int, IndGraph]] = OrderedDict()

    def graph(self, reader: GraphReader) -> IndGraph:
        """Give the graph of what a reader reads; raise StateError while others are made for longer than a moment."""
        known = self._kept(reader.place)
        if known is not None:
            return known
        # One is made at a time: two large ones at once would need the memory of both. Whoever waits has a snapshot
        # open, so many must not wait for long.
        if not self._making.acquire(timeout=WAIT_SECONDS):
            raise StateError("A large graph is being made; ask again in a moment.")
        try:
            known = self._kept(reader.place)
            if known is not None:
                return known
            made = build_graph(*reader.tables_of_columns(), reader.stream_pairs())
            with self._lock:
                name, version = reader.place
                self._graphs[name] = version, made
                self._graphs.move_to_end(name)
                while len(self._graphs) > KEPT_GRAPHS:
                    self._graphs.popitem(last=False)
            return made
        finally:
            self._making.release()

    def _kept(self, place: tuple[str, int]) -> IndGraph | None:
        name, version = place
        with self._lock:
            found = self._graphs.get(name)
            if found is None or found[0] != version:
                return None
            self._graphs.move_to_end(name)
            return found[1]


def summary(graph: IndGraph, reader: GraphReader) -> GraphSummary:
    """Count what a graph holds."""
    sizes = Counter(graph.component_tables.tolist())
    return GraphSummary(
        graph.table_count,
        reader.table_count - graph.table_count,
        len(graph.inds),
        int(graph.inds.sum()),
        len(graph.component_tables),
        sorted(sizes.items(), reverse=True),
    )


def components(graph: IndGraph, reader: GraphReader, after: Key | None, limit: int) -> Page[GraphComponent]:
    """List components by their number, which is their rank by size."""
    first = 0 if after is None else int(after[0]) + 1
    end = min(first + limit, len(graph.component_tables))
    page = _described(graph, reader, [int(graph.hubs_of(number)[0]) for number in range(first, end)])
    found = [
        GraphComponent(
            hub.component,
            int(graph.component_tables[hub.component]),
            int(graph.component_edges[hub.component]),
            int(graph.component_inds[hub.component]),
            hub,
        )
        for hub in page
    ]
    return Page(found, (end - 1,) if found and end < len(graph.component_tables) else None)


def tables(
    graph: IndGraph,
    reader: GraphReader,
    component: int | None,
    after: Key | None,
    limit: int,
    contains: str | None = None,
) -> Page[GraphTable]:
    """List the graph's tables, or those of one component, hubs first: by falling number of neighbours, then of INDs.

    `contains` is a part of the name, in capitals or not. Raises UnknownTableError for a component that is not there.
    """
    check_component(graph, component)
    ordered = graph.hubs_of(component)
    if contains is not None:
        name, part = reader.all_names(), contains.casefold()
        ordered = ordered[[part in name(table).casefold() for table in ordered.tolist()]]
    first = 0 if after is None else _places_up_to(graph, ordered, after)
    end = min(first + limit, len(ordered))
    page = [int(table) for table in ordered[first:end]]
    next_key = None
    if end < len(ordered):
        next_key = graph.degree(page[-1]), int(graph.inds_of[page[-1]]), page[-1]
    return Page(_described(graph, reader, page), next_key)


def component_with(graph: IndGraph, reader: GraphReader, table: int) -> int:
    """Find the component of a table; raise UnknownTableError for a table in no IND."""
    if graph.component_of[table] == NOWHERE:
        raise UnknownTableError(f"{reader.names([table])[table]} is in no IND, so that there is nothing around it.")
    return int(graph.component_of[table])


def excerpt(graph: IndGraph, reader: GraphReader, component: int | None, around: int | None, most: int) -> Excerpt:
    """Choose at most `most` tables to draw: the hubs of the graph or of a component, or a table and its neighbours.

    Of the neighbours those come first that have most neighbours themselves. Raises UnknownTableError for a component
    that is not there, and for a table in no IND.
    """
    check_component(graph, component)
    if around is None:
        wanted = graph.hubs_of(component)
    else:
        component_with(graph, reader, around)
        starts = graph.neighbour_starts
        beside = graph.neighbours[starts[around] : starts[around + 1]]
        degrees = np.diff(starts)[beside]
        wanted = np.concatenate(([around], beside[np.lexsort((beside, -degrees))]))
    chosen = wanted[:most]
    place = np.full(len(graph.component_of), -1)
    place[chosen] = np.arange(len(chosen))
    edges = np.flatnonzero((place[graph.dependent] >= 0) & (place[graph.referenced] >= 0))
    ends = place[graph.dependent[edges]], place[graph.referenced[edges]], graph.inds[edges]
    return Excerpt(
        _described(graph, reader, chosen.tolist()),
        list(zip(*(side.tolist() for side in ends), strict=True)),
        len(wanted) - len(chosen),
    )


def _places_up_to(graph: IndGraph, ordered: Int32s, key: Key) -> int:
    """Count the tables that stand up to a key (neighbours, INDs, number) in the order of hubs."""
    neighbours, inds, number = map(int, key)
    degrees, own = np.diff(graph.neighbour_starts)[ordered], graph.inds_of[ordered]
    more_inds = (own > inds) | ((own == inds) & (ordered <= number))
    return int(np.count_nonzero((degrees > neighbours) | ((degrees == neighbours) & more_inds)))


def paths(graph: IndGraph, reader: GraphReader, start: int, end: int, limit: int, *, along_inds: bool = False) -> Paths:
    """Give the shortest paths between two tables, at most `limit`, with the columns that join each two tables.

    With `along_inds` each step goes from a dependent to a referenced table. The path from a table to itself has the
    INDs inside it, if there are any.
    """
    found, is_all = shortest_paths(graph, start, end, limit, along_inds=along_inds)
    named = reader.names({table for path in found for table in path})
    steps: dict[tuple[int, int], list[Step]] = {}
    for path in found:
        for pair in _joined(path):
            if pair not in steps:
                ways = [pair] if along_inds or start == end else [pair, pair[::-1]]
                steps[pair] = [
                    Step(named[a], named[b], inds, reader.joins(a, b, JOINS_SHOWN))
                    for a, b in ways
                    if (inds := graph.inds_between(a, b))
                ]
    return Paths(
        len(found[0]) - 1 if found else None,
        [
            Path([named[table] for table in path], [told for pair in _joined(path) if (told := steps[pair])])
            for path in found
        ],
        not is_all,
    )


def _joined(path: list[int]) -> list[tuple[int, int]]:
    """Give the pairs of tables whose INDs a path names: those beside each other, or the only one with itself."""
    return list(pairwise(path)) or [(path[0], path[0])]


def check_component(graph: IndGraph, component: int | None) -> None:
    """Raise UnknownTableError for a component that is not there."""
    if component is not None and not 0 <= component < len(graph.component_tables):
        raise UnknownTableError(
            f"There is no component {component}: the graph has {len(graph.component_tables):,}, from 0."
        )


def _described(graph: IndGraph, reader: GraphReader, tables: Sequence[int]) -> list[GraphTable]:
    names = reader.names(tables)
    return [
        GraphTable(
            names[table],
            int(graph.component_of[table]),
            graph.degree(table),
            int(graph.references[table]),
            int(graph.referenced_by[table]),
            int(graph.inds_of[table]),
        )
        for table in tables
    ]
