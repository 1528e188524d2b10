"""Graphs that are kept: made once, for as many as ask; the oldest goes; nobody waits for long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from service.core.column_sets import Int32s
from service.core.errors import StateError
from service.core.group_inds import Inds
from service.usecases import ind_graphs
from service.usecases.ind_graphs import KEPT_GRAPHS, IndGraphs, Join
from tests.waiting import BOUND_SECONDS


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
