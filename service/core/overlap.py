"""Own the overlap matrix: exact coefficients, INDs and their transitions after every batch.

overlap[A, B] is the number of values in both A and B; its diagonal is the distinct count. A ⊆ B holds when A has
values and overlap[A, B] = overlap[A, A]; the inclusion coefficient is Φ(A, B) = overlap[A, B] / overlap[A, A]
(BML 2018, Definition 1). A value that moves from cluster C to C' changes only pairs of C ∪ C', and of these only
pairs with an attribute that it entered or left, so a batch is applied without walking the clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.core.clustering import ClusterSets, Moves
from service.core.compiled import kernel
from service.core.model import Transition, TransitionKind

DENSE_LIMIT = 1000
"""Up to so many attribute ids the matrix is dense, 8 MB of counts and 1 MB of flags; beyond it the sparse one wins."""

PORTION_CELLS = 4_000_000

IntArray = NDArray[np.int64]
Pair = tuple[int, int]


class Overlap(Protocol):
    """Keep overlaps and INDs current; attributes are their ids, from 0 to the size given at the start."""

    def overlap(self, a: int, b: int) -> int:
        """Return the number of values that are in both attributes."""
        ...

    def inds(self) -> NDArray[np.int32]:
        """Return all INDs as int32[n, 2], rows (dependent, referenced), ascending."""
        ...

    def apply(self, moves: Moves) -> list[Transition]:
        """Apply the moves of a batch and return the INDs that appeared or broke by it, with their causes."""
        ...


def make_overlap(size: int, clusters: ClusterSets, dense_limit: int = DENSE_LIMIT) -> Overlap:
    """Build the matrix for attribute ids below `size` from all clusters."""
    matrix: DenseOverlap | SparseOverlap = DenseOverlap(size) if size <= dense_limit else SparseOverlap(size)
    matrix.load(clusters)
    return matrix


def coefficient(matrix: Overlap, dependent: int, referenced: int) -> float | None:
    """Return Φ(dependent, referenced), or None for a dependent without values, where it is not defined."""
    distinct = matrix.overlap(dependent, dependent)
    return matrix.overlap(dependent, referenced) / distinct if distinct else None


@kernel
def _add_clusters(matrix: IntArray, ids: IntArray, starts: IntArray, counts: IntArray) -> None:
    for cluster in range(len(counts)):
        for i in range(starts[cluster], starts[cluster + 1]):
            for j in range(starts[cluster], starts[cluster + 1]):
                matrix[ids[i], ids[j]] += counts[cluster]


@kernel
def _find_changes(
    old: IntArray,
    old_starts: IntArray,
    new: IntArray,
    new_starts: IntArray,
    values: IntArray,
    most_cells: IntArray,
    changed: NDArray[np.bool_],
) -> None:
    """Bound how many cells each move changes, and mark the attributes that a value enters or leaves."""
    for m in range(len(values)):
        i, i_end, j, j_end = old_starts[m], old_starts[m + 1], new_starts[m], new_starts[m + 1]
        n_old, n_new = i_end - i, j_end - j
        while i < i_end or j < j_end:
            if j == j_end or (i < i_end and old[i] < new[j]):
                changed[old[i]] = True
                most_cells[m] += 2 * n_old
                i += 1
            elif i == i_end or new[j] < old[i]:
                changed[new[j]] = True
                most_cells[m] += 2 * n_new
                j += 1
            else:
                i += 1
                j += 1


@kernel
def _list_cells(
    old: IntArray,
    old_starts: IntArray,
    new: IntArray,
    new_starts: IntArray,
    values: IntArray,
    first: int,
    last: int,
    cells: IntArray,
) -> int:
    """List the cells that moves `first` to `last` change, as rows (row, column, difference); return their number.

    A value that leaves (enters) an attribute changes its cells with all attributes of the old (new) set. Cells of
    two such attributes come once, by their row.
    """
    n = 0
    for m in range(first, last):
        olds, news = old[old_starts[m] : old_starts[m + 1]], new[new_starts[m] : new_starts[m + 1]]
        for side in range(2):
            members, others = (olds, news) if side == 0 else (news, olds)
            difference = -values[m] if side == 0 else values[m]
            for a in members:
                if _is_in(others, a):
                    continue
                for b in members:
                    cells[n, 0], cells[n, 1], cells[n, 2] = a, b, difference
                    n += 1
                    if _is_in(others, b):
                        cells[n, 0], cells[n, 1], cells[n, 2] = b, a, difference
                        n += 1
    return n


@kernel
def _is_in(ascending: IntArray, a: int) -> bool:
    at = np.searchsorted(ascending, a)
    return bool(at < len(ascending) and ascending[at] == a)


@kernel
def _add_cells(matrix: IntArray, cells: IntArray) -> None:
    for n in range(len(cells)):
        matrix[cells[n, 0], cells[n, 1]] += cells[n, 2]


@kernel
def _fill_row(row: IntArray, clusters: IntArray, ids: IntArray, starts: IntArray, counts: IntArray) -> None:
    """Count into `row`, by attribute, the values of these clusters."""
    row[:] = 0
    for cluster in clusters:
        for i in range(starts[cluster], starts[cluster + 1]):
            row[ids[i]] += counts[cluster]


@kernel
def _by_row(cells: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Give the places of cells by their rows and in them by their columns, and where each row's begin."""
    order = np.arange(len(cells))
    starts = np.zeros(size + 1, dtype=np.int64)
    for by in (1, 0):
        starts[:] = 0
        for n in range(len(cells)):
            starts[cells[n, by] + 1] += 1
        for one in range(size):
            starts[one + 1] += starts[one]
        ordered, next_of = np.empty_like(order), starts.copy()
        for place in order:
            ordered[next_of[cells[place, by]]] = place
            next_of[cells[place, by]] += 1
        order = ordered
    return order, starts


@kernel
def _add_to_row(
    columns: NDArray[np.int32], counts: IntArray, cells: IntArray, chosen: IntArray
) -> tuple[NDArray[np.int32], IntArray]:
    """Add the chosen cells, which are by column, to a row's ascending columns; in place where these stay."""
    missing, n_missing, has_empty = np.empty_like(chosen), 0, False
    for place in chosen:
        at = np.searchsorted(columns, cells[place, 1])
        if at < len(columns) and columns[at] == cells[place, 1]:
            counts[at] += cells[place, 2]
            has_empty |= counts[at] == 0
        else:
            missing[n_missing] = place
            n_missing += 1
    if n_missing == 0 and not has_empty:
        return columns, counts
    merged, sums = np.empty(len(columns) + n_missing, np.int32), np.empty(len(columns) + n_missing, np.int64)
    n = i = j = 0
    while i < len(columns) or j < n_missing:
        if j == n_missing or (i < len(columns) and columns[i] < cells[missing[j], 1]):
            merged[n], sums[n] = columns[i], counts[i]
            i += 1
        else:
            merged[n], sums[n] = cells[missing[j], 1], 0
            while j < n_missing and cells[missing[j], 1] == merged[n]:
                sums[n] += cells[missing[j], 2]
                j += 1
        n += sums[n] != 0
    return merged[:n].copy(), sums[:n].copy()


@kernel
def _examine(columns: NDArray[np.int32], counts: IntArray, a: int) -> NDArray[np.int32]:
    """Give the columns, but for `a`, whose counts are that of `a`, which is never 0."""
    own = np.searchsorted(columns, a)
    held = np.empty(len(columns), dtype=np.int32)
    n = 0
    if own < len(columns) and columns[own] == a:
        for at in range(len(columns)):
            if counts[at] == counts[own] and at != own:
                held[n] = columns[at]
                n += 1
    return held[:n].copy()


def _portions(moves: Moves, size: int) -> tuple[IntArray, Iterator[IntArray]]:
    """Return the attributes that values entered or left, ascending, and the changed cells in portions.

    A portion has about PORTION_CELLS cells at most: one value that is in thousands of columns changes many.
    """
    most_cells = np.zeros(len(moves.values), dtype=np.int64)
    changed = np.zeros(size, dtype=np.bool_)
    _find_changes(*moves[:5], most_cells, changed)

    def portions() -> Iterator[IntArray]:
        portion = np.cumsum(most_cells) // PORTION_CELLS
        for first, last in _runs(portion):
            cells = np.empty((int(most_cells[first:last].sum()), 3), dtype=np.int64)
            yield cells[: _list_cells(*moves[:5], first, last, cells)]

    return np.flatnonzero(changed), portions()


def _runs(values: IntArray) -> list[tuple[int, int]]:
    """Return (first, last + 1) of each run of equal values."""
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(values)], strict=True))


class DenseOverlap:
    """Keep the whole matrix: int64[size, size] counts and bool[size, size] flags of what holds."""

    __slots__ = ("_counts", "_holds")

    def __init__(self, size: int) -> None:
        self._counts = np.zeros((size, size), dtype=np.int64)
        self._holds = np.zeros((size, size), dtype=np.bool_)

    def load(self, clusters: ClusterSets) -> None:
        """Add the clusters to an empty matrix."""
        _add_clusters(self._counts, clusters.attribute_ids, clusters.starts, clusters.values)
        self._holds = self._examine(self._counts, self._counts.diagonal()[:, None])
        np.fill_diagonal(self._holds, False)

    @staticmethod
    def _examine(overlaps: IntArray, distinct: IntArray) -> NDArray[np.bool_]:
        holds: NDArray[np.bool_] = (overlaps == distinct) & (distinct > 0)
        return holds

    def overlap(self, a: int, b: int) -> int:
        return int(self._counts[a, b])

    def inds(self) -> NDArray[np.int32]:
        return np.argwhere(self._holds).astype(np.int32)

    def apply(self, moves: Moves) -> list[Transition]:
        if not len(moves.values):
            return []
        changed, portions = _portions(moves, len(self._counts))
        for cells in portions:
            _add_cells(self._counts, cells)
        distinct = self._counts.diagonal()
        # A pair can turn only if its dependent or its referenced attribute gained or lost a value.
        rows = self._examine(self._counts[changed], distinct[changed, None])
        columns = self._examine(self._counts[:, changed], distinct[:, None])
        rows[np.arange(len(changed)), changed] = False
        columns[changed, np.arange(len(changed))] = False
        in_rows = np.argwhere(rows != self._holds[changed])
        in_columns = np.argwhere(columns != self._holds[:, changed])
        turned = {(int(changed[i]), int(b)) for i, b in in_rows} | {(int(a), int(changed[j])) for a, j in in_columns}
        self._holds[changed] = rows
        self._holds[:, changed] = columns
        return _with_causes(turned, lambda a, b: bool(self._holds[a, b]), moves)


class SparseOverlap:
    """Keep for each attribute the attributes that share a value with it, ascending, and how many values."""

    __slots__ = ("_columns", "_counts", "_holds", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._columns: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * size
        self._counts: list[IntArray] = [np.empty(0, dtype=np.int64)] * size
        self._holds: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * size

    def load(self, clusters: ClusterSets) -> None:
        """Add the clusters to an empty matrix, one row after the other."""
        ids, starts, counts = clusters.attribute_ids, clusters.starts, clusters.values
        cluster_of = np.repeat(np.arange(len(clusters)), np.diff(starts))
        order = np.argsort(ids, kind="stable")
        bounds = np.searchsorted(ids[order], np.arange(self._size + 1))
        row = np.zeros(self._size, dtype=np.int64)
        for a in range(self._size):
            if bounds[a] == bounds[a + 1]:
                continue
            _fill_row(row, cluster_of[order[bounds[a] : bounds[a + 1]]], ids, starts, counts)
            self._columns[a] = np.flatnonzero(row).astype(np.int32)
            self._counts[a] = row[self._columns[a]]
            self._holds[a] = _examine(self._columns[a], self._counts[a], a)

    def overlap(self, a: int, b: int) -> int:
        at = int(np.searchsorted(self._columns[a], b))
        return int(self._counts[a][at]) if at < len(self._columns[a]) and self._columns[a][at] == b else 0

    def inds(self) -> NDArray[np.int32]:
        rows = np.repeat(np.arange(self._size, dtype=np.int32), [len(held) for held in self._holds])
        return np.stack([rows, np.concatenate([*self._holds, np.empty(0, dtype=np.int32)])], axis=1)

    def apply(self, moves: Moves) -> list[Transition]:
        if not len(moves.values):
            return []
        is_touched = np.zeros(self._size, dtype=np.bool_)
        _, portions = _portions(moves, self._size)
        for cells in portions:
            order, starts = _by_row(cells, self._size)
            for a in np.flatnonzero(np.diff(starts)).tolist():
                self._columns[a], self._counts[a] = _add_to_row(
                    self._columns[a], self._counts[a], cells, order[starts[a] : starts[a + 1]]
                )
            is_touched |= np.diff(starts) > 0
        turned: set[Pair] = set()
        for a in np.flatnonzero(is_touched).tolist():
            before, holds = self._holds[a], _examine(self._columns[a], self._counts[a], a)
            if len(before) or len(holds):
                turned |= {(a, b) for b in np.setxor1d(holds, before, assume_unique=True).tolist()}
                self._holds[a] = holds
        return _with_causes(turned, self._does_hold, moves)

    def _does_hold(self, a: int, b: int) -> bool:
        at = int(np.searchsorted(self._holds[a], b))
        return at < len(self._holds[a]) and int(self._holds[a][at]) == b


class Causes:
    """Find the values of a batch that made a pair turn: which moves they are, by attribute, computed once."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._sides = [_by_attribute(moves.old, moves.old_starts), _by_attribute(moves.new, moves.new_starts)]
        self._membership: dict[int, tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}

    def _of(self, attribute_id: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return for each move whether its old, its new set has the attribute."""
        found = self._membership.get(attribute_id)
        if found is None:
            old, new = np.zeros((2, len(self._moves.values)), dtype=np.bool_)
            for members, (ids, owners) in zip((old, new), self._sides, strict=True):
                start, end = np.searchsorted(ids, [attribute_id, attribute_id + 1])
                members[owners[start:end]] = True
            found = self._membership[attribute_id] = (old, new)
        return found

    def of(self, dependent: int, referenced: int, holds: bool) -> Transition:
        dependent_old, dependent_new = self._of(dependent)
        referenced_old, referenced_new = self._of(referenced)
        stood_against = dependent_old & ~referenced_old
        stands_against = dependent_new & ~referenced_new
        if holds:
            cause = stood_against & ~stands_against
            if not cause.any():  # what the dependent gained that is not missing: of an IND, all that it has
                cause = dependent_new & ~dependent_old & referenced_new
        else:
            cause = stands_against & ~stood_against
            if not cause.any():  # what the dependent lost that was not missing: of an IND, all that it had
                cause = dependent_old & ~dependent_new & referenced_old
        kind = TransitionKind.APPEARED if holds else TransitionKind.BROKE
        witness = self._moves.witnesses.key(int(np.argmax(cause)))
        return Transition(kind, dependent, referenced, witness, int(self._moves.values[cause].sum()))


def _by_attribute(ids: IntArray, starts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the ids of all sets in ascending order, and for each the set that it is of."""
    order = np.argsort(ids, kind="stable")
    return ids[order], np.repeat(np.arange(len(starts) - 1), np.diff(starts))[order]


def _with_causes(turned: Collection[Pair], does_hold: Callable[[int, int], bool], moves: Moves) -> list[Transition]:
    if not turned:
        return []
    causes = Causes(moves)
    return [causes.of(a, b, does_hold(a, b)) for a, b in sorted(turned)]
