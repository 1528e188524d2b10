"""Own the proof that a task finds the keys of a table whatever the pieces that it is read in."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from service.core.key_search import Share
from spark_jobs.key_tasks import KeyTask, TableReading, TupleTask
from spark_jobs.sources import Fault, SourceTable, Split
from tests.unit.test_key_search import Rows, minimal_keys

ROWS: Rows = [(str(n % 7), str(n % 5), None if n == 3 else str(n), "same") for n in range(35)]


class Rereading:
    """Be a source that counts how often each of its splits, the rows from one place up to another, is read."""

    def __init__(self) -> None:
        self.read_splits: list[tuple[int, int]] = []

    def read(self, split: Split) -> Iterator[pa.Table]:
        self.read_splits.append(split.detail)
        first, last = split.detail
        columns = [pa.array([row[place] for row in ROWS[first:last]], pa.string()) for place in range(len(ROWS[0]))]
        yield pa.table(columns, [str(place) for place in range(len(columns))])

    def check(self, split: Split) -> Fault | None:
        return None

    def place(self, split: Split) -> str:
        return str(split.detail)


def reading(*bounds: tuple[int, int]) -> tuple[Rereading, TableReading]:
    source = Rereading()
    table = SourceTable("s", "t", tuple((name, "string") for name in "abcd"))
    return source, TableReading(source, table, [Split(0, 1, one) for one in bounds], False, [])


@pytest.mark.parametrize("bounds", [[(0, 35)], [(0, 12), (12, 12), (12, 35)], [(0, 0)], []])
def test_keys_are_found_in_one_reading(bounds: list[tuple[int, int]]) -> None:
    """Of few samples and little memory, so that combinations go through the file again and again."""
    source, table = reading(*bounds)
    found = KeyTask(3, 1000, 64)(table)
    expected = minimal_keys(ROWS, 3) if len(bounds) and bounds[-1][1] else []
    assert list(found.keys) == expected
    assert source.read_splits == bounds


def test_tuples_are_those_of_the_rows() -> None:
    _, table = reading((0, 12), (12, 35))
    found = TupleTask(Share(1, 0))((table, [(0, 1), (2, 0)]))
    assert {columns: len(hashes) for columns, hashes in found.items()} == {(0, 1): 35, (2, 0): 34}
    _, first = reading((0, 12))
    some = TupleTask(Share(1, 0))((first, [(1, 0)]))
    turned = {(b, a) for a, b, *_ in ROWS[:12]} & {(a, b) for a, b, *_ in ROWS}
    assert len(set(some[1, 0].tolist()) & set(found[0, 1].tolist())) == len(turned) < 12
