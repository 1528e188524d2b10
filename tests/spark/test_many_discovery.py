"""INDs from the parts of an index: in one process and over partitions the same, and what brute force finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from service.core.group_inds import Inds
from spark_jobs.many_discovery import Search, find_all, find_changed
from spark_jobs.many_partitions import find_in_partitions
from tests.many import COLUMNS, SHARES, Pairs, brute_force, listed
from tests.many_index import FakeIndex, PartColumns, search_of, stored

THRESHOLDS = st.one_of(st.just(Fraction(1)), st.fractions(Fraction(1, 5), 1, max_denominator=7))
FLAGS = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=90, max_size=90)


@dataclass(frozen=True)
class Files:
    """Keep what tasks store, a file for each."""

    folder: Path

    def __call__(self, task: int, blocks: Iterator[Inds]) -> int:
        found = [np.stack(block) for block in blocks] or [np.zeros((3, 0), np.int32)]
        with (self.folder / f"{task}.npy").open("xb") as file:
            np.save(file, np.concatenate(found, 1))
        return sum(block.shape[1] for block in found)

    def read(self) -> list[tuple[int, int, int]]:
        return listed(Inds(*np.load(path)) for path in self.folder.iterdir())


def ids_of(columns: Sequence[object]) -> list[int]:
    """Number columns with gaps."""
    return [3 * n + 5 for n in range(len(columns))]


def with_ids(pairs: Pairs, ids: Sequence[int]) -> list[tuple[int, int, int]]:
    return sorted((ids[a], ids[b], overlap) for a, b, overlap in pairs)


@settings(max_examples=80)
@given(
    columns=COLUMNS, coverage=SHARES, threshold=THRESHOLDS, flags=FLAGS, parts=st.integers(1, 4),
    threads=st.sampled_from((1, 2)),
)  # fmt: skip
def test_one_process_finds_what_brute_force_finds(columns, coverage, threshold, flags, parts, threads) -> None:
    dependent, referenced, chosen = (list(side)[: len(columns)] for side in zip(*flags, strict=True))
    changed, ids = [number == 0 for number in chosen], ids_of(columns)
    index, numbered = stored(columns, ids, parts)
    expected = brute_force(columns, dependent, referenced, coverage, threshold)
    search = search_of(columns, ids, dependent, referenced, coverage=coverage, threshold=threshold)
    _, found = find_all(index, numbered, search, threads)
    assert listed(found) == with_ids(expected, ids)
    search = search_of(columns, ids, dependent, referenced, coverage=coverage, threshold=threshold, changed=changed)
    concerned = {pair for pair in expected if changed[pair[0]] or changed[pair[1]]}
    assert listed(find_changed(index, numbered, search, threads)[1]) == with_ids(concerned, ids)


def in_partitions(
    spark: SparkSession, folder: Path, index: FakeIndex, parts: Sequence[PartColumns], search: Search, count: int
) -> list[tuple[int, int, int]]:
    files = Files(folder / f"of-{count}-{search.changed is None}")
    files.folder.mkdir()
    stored_rows = find_in_partitions(spark, index, parts, search, count, files, lambda _: nullcontext())
    found = files.read()
    assert stored_rows == len(found)
    return found


@pytest.mark.parametrize(
    ("coverage", "threshold", "counts"),
    [(Fraction(0), Fraction(1), (1, 7)), (Fraction(1, 5), Fraction(1), (2,)), (Fraction(0), Fraction(3, 4), (3,))],
)
def test_partitions_find_what_brute_force_finds(
    spark: SparkSession, tmp_path: Path, coverage: Fraction, threshold: Fraction, counts: Sequence[int]
) -> None:
    """For any columns and shares the steps by themselves are held to it by tests/unit/test_many_partitions.py."""
    random = np.random.default_rng(5)
    columns = [frozenset(random.zipf(1.4, size).clip(0, 60).tolist()) for size in random.integers(0, 9, 300)]
    dependent, referenced, changed = random.random((3, 300)) < [[0.8], [0.7], [0.1]]
    ids = ids_of(columns)
    index, parts = stored(columns, ids, 3)
    expected = brute_force(columns, dependent.tolist(), referenced.tolist(), coverage, threshold)
    assert len(expected) > 1000
    concerned = {pair for pair in expected if changed[pair[0]] or changed[pair[1]]}
    for count in counts:
        for some, rows in ((None, expected), (changed.tolist(), concerned)):
            search = search_of(
                columns,
                ids,
                dependent.tolist(),
                referenced.tolist(),
                coverage=coverage,
                threshold=threshold,
                changed=some,
            )
            assert in_partitions(spark, tmp_path, index, parts, search, count) == with_ids(rows, ids)


def test_the_best_referenced_columns_are_the_same_in_both_forms(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    columns = [frozenset(random.zipf(1.4, size).clip(0, 60).tolist()) for size in random.integers(1, 9, 200)]
    everyone, ids = [True] * len(columns), ids_of(columns)
    index, parts = stored(columns, ids, 2)
    search = search_of(columns, ids, everyone, everyone, top=3)
    by_dependent: dict[int, list[tuple[Fraction, int, int]]] = {}
    for a, b, overlap in brute_force(columns):
        by_dependent.setdefault(a, []).append((-Fraction(overlap, len(columns[b])), b, overlap))
    best = {(a, b, overlap) for a, found in by_dependent.items() for _, b, overlap in sorted(found)[:3]}
    assert listed(find_all(index, parts, search, 2)[1]) == with_ids(best, ids)
    assert in_partitions(spark, tmp_path, index, parts, search, 3) == with_ids(best, ids)


def test_nothing_to_look_for(spark: SparkSession, tmp_path: Path) -> None:
    columns = [frozenset((1, 2)), frozenset((1,))]
    index, parts = stored(columns, [4, 9], 1)
    for changed in (None, [False, False]):
        search = search_of(columns, [4, 9], [False] * 2, [False] * 2, changed=changed)
        assert in_partitions(spark, tmp_path, index, parts, search, 2) == []
        assert listed((find_changed if changed else find_all)(index, parts, search, 1)[1]) == []


def test_progress_ascends_to_the_last_set_of_columns() -> None:
    columns = [frozenset(range(size)) for size in range(1, 40)]
    everyone, ids, told = [True] * len(columns), ids_of(columns), []
    index, parts = stored(columns, ids, 2)
    search = search_of(columns, ids, everyone, everyone)
    _, found = find_all(index, parts, search, 2, lambda done, total: told.append((done, total)))
    assert listed(found) == with_ids(brute_force(columns), ids)
    assert told == sorted(told)
    assert told[-1] == (38, 39), "the largest is in no other"
