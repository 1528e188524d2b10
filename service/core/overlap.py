"""Own the overlap matrix: exact coefficients, INDs and their transitions after every batch.

overlap[A, B] is the number of values in both A and B; its diagonal is the distinct count. A ⊆ B holds when A has
values and overlap[A, B] = overlap[A, A]; the inclusion coefficient is Φ(A, B) = overlap[A, B] / overlap[A, A]
(BML 2018, Definition 1). A value that moves from cluster C to C' changes only pairs of C ∪ C', and of these only
pairs with an attribute that it entered or left, so a batch is applied without walking the clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from service.core.clustering import AttributeIds, Move
from service.core.model import Transition, TransitionKind

DENSE_LIMIT = 3000
"""Up to so many attribute ids the matrix is dense: at most 72 MB of counts and 9 MB of flags."""

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

    def apply(self, moves: Sequence[Move]) -> list[Transition]:
        """Apply the moves of a batch and return the INDs that appeared or broke by it, with their causes."""
        ...


def make_overlap(size: int, clusters: Iterable[tuple[Sequence[int], int]], dense_limit: int = DENSE_LIMIT) -> Overlap:
    """Build the matrix for attribute ids below `size` from `(attribute ids, value count)` of all clusters."""
    matrix: DenseOverlap | SparseOverlap = DenseOverlap(size) if size <= dense_limit else SparseOverlap(size)
    matrix.load(clusters)
    return matrix


def coefficient(matrix: Overlap, dependent: int, referenced: int) -> float | None:
    """Return Φ(dependent, referenced), or None for a dependent without values, where it is not defined."""
    distinct = matrix.overlap(dependent, dependent)
    return matrix.overlap(dependent, referenced) / distinct if distinct else None


def _flat(sets: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Lay sets end to end: `(ids, starts)`, the i-th set at ids[starts[i]:starts[i + 1]]."""
    starts = np.zeros(len(sets) + 1, dtype=np.int64)
    np.cumsum([len(s) for s in sets], out=starts[1:])
    return np.fromiter((a for s in sets for a in s), dtype=np.int64, count=int(starts[-1])), starts


@njit(cache=True)
def _add_clusters(matrix: IntArray, ids: IntArray, starts: IntArray, counts: IntArray) -> None:
    for cluster in range(len(counts)):
        for i in range(starts[cluster], starts[cluster + 1]):
            for j in range(starts[cluster], starts[cluster + 1]):
                matrix[ids[i], ids[j]] += counts[cluster]


@njit(cache=True)
def _changes(
    changed: IntArray, changed_starts: IntArray, members: IntArray, member_starts: IntArray, weights: IntArray
) -> IntArray:
    """List the cells that moves change, as int64[n, 3] of (row, column, difference).

    `changed` has, for each side of each move, the attributes that the value enters (leaves), `members` its whole
    attribute set on that side. Cells of two changed attributes come once, by their row.
    """
    total = 0
    for m in range(len(weights)):
        total += 2 * (changed_starts[m + 1] - changed_starts[m]) * (member_starts[m + 1] - member_starts[m])
    cells = np.empty((total, 3), dtype=np.int64)
    n = 0
    for m in range(len(weights)):
        own = changed[changed_starts[m] : changed_starts[m + 1]]
        for i in range(len(own)):
            for j in range(member_starts[m], member_starts[m + 1]):
                b = members[j]
                cells[n, 0], cells[n, 1], cells[n, 2] = own[i], b, weights[m]
                n += 1
                at = np.searchsorted(own, b)
                if at == len(own) or own[at] != b:
                    cells[n, 0], cells[n, 1], cells[n, 2] = b, own[i], weights[m]
                    n += 1
    return cells[:n]


@njit(cache=True)
def _add_cells(matrix: IntArray, cells: IntArray) -> None:
    for n in range(len(cells)):
        matrix[cells[n, 0], cells[n, 1]] += cells[n, 2]


def _sides(moves: Sequence[Move]) -> IntArray:
    """Return the changed cells of the moves, values that leave counted down, values that enter counted up."""
    changed: list[list[int]] = []
    members: list[AttributeIds] = []
    weights: list[int] = []
    for move in moves:
        old, new = set(move.old), set(move.new)
        for own, side, sign in ((old - new, move.old, -1), (new - old, move.new, 1)):
            if own:
                changed.append(sorted(own))
                members.append(side)
                weights.append(sign * move.values)
    cells: IntArray = _changes(*_flat(changed), *_flat(members), np.array(weights, dtype=np.int64))
    return cells


def _portions(moves: Sequence[Move], cells: int = 4_000_000) -> Iterator[Sequence[Move]]:
    """Cut moves so that a portion changes about `cells` cells at most: a value of a thousand columns has many."""
    start = total = 0
    for i, move in enumerate(moves):
        total += 2 * len(set(move.old) ^ set(move.new)) * max(len(move.old), len(move.new))
        if total > cells:
            yield moves[start : i + 1]
            start, total = i + 1, 0
    if start < len(moves):
        yield moves[start:]


class DenseOverlap:
    """Keep the whole matrix: int64[size, size] counts and bool[size, size] flags of what holds."""

    __slots__ = ("_counts", "_holds")

    def __init__(self, size: int) -> None:
        self._counts = np.zeros((size, size), dtype=np.int64)
        self._holds = np.zeros((size, size), dtype=np.bool_)

    def load(self, clusters: Iterable[tuple[Sequence[int], int]]) -> None:
        """Add the clusters `(attribute ids, value count)` to an empty matrix."""
        known = list(clusters)
        ids, starts = _flat([attributes for attributes, _ in known])
        _add_clusters(self._counts, ids, starts, np.array([count for _, count in known], dtype=np.int64))
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

    def apply(self, moves: Sequence[Move]) -> list[Transition]:
        if not moves:
            return []
        _add_cells(self._counts, _sides(moves))
        changed = np.array(sorted({a for move in moves for a in set(move.old) ^ set(move.new)}), dtype=np.int64)
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

    def load(self, clusters: Iterable[tuple[Sequence[int], int]]) -> None:
        """Add the clusters `(attribute ids, value count)` to an empty matrix, one row after the other."""
        known = list(clusters)
        ids, starts = _flat([attributes for attributes, _ in known])
        counts = np.array([count for _, count in known], dtype=np.int64)
        cluster_of = np.repeat(np.arange(len(known)), np.diff(starts))
        order = np.argsort(ids, kind="stable")
        bounds = np.searchsorted(ids[order], np.arange(self._size + 1))
        row = np.zeros(self._size, dtype=np.int64)
        for a in range(self._size):
            if bounds[a] == bounds[a + 1]:
                continue
            row[:] = 0
            for cluster in cluster_of[order[bounds[a] : bounds[a + 1]]]:
                row[ids[starts[cluster] : starts[cluster + 1]]] += counts[cluster]
            self._columns[a] = np.flatnonzero(row).astype(np.int32)
            self._counts[a] = row[self._columns[a]]
            self._holds[a] = self._examine(a)

    def _examine(self, a: int) -> NDArray[np.int32]:
        columns = self._columns[a]
        held: NDArray[np.int32] = columns[(self._counts[a] == self.overlap(a, a)) & (columns != a)]
        return held

    def overlap(self, a: int, b: int) -> int:
        at = int(np.searchsorted(self._columns[a], b))
        return int(self._counts[a][at]) if at < len(self._columns[a]) and self._columns[a][at] == b else 0

    def inds(self) -> NDArray[np.int32]:
        rows = np.repeat(np.arange(self._size, dtype=np.int32), [len(held) for held in self._holds])
        return np.stack([rows, np.concatenate([*self._holds, np.empty(0, dtype=np.int32)])], axis=1)

    def apply(self, moves: Sequence[Move]) -> list[Transition]:
        if not moves:
            return []
        touched: set[int] = set()
        for part in _portions(moves):
            cells = _sides(part)
            places, inverse = np.unique(cells[:, 0] * self._size + cells[:, 1], return_inverse=True)
            differences = np.zeros(len(places), dtype=np.int64)
            np.add.at(differences, inverse, cells[:, 2])
            rows, columns = np.divmod(places, self._size)
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
                self._add(int(rows[start]), columns[start:end].astype(np.int32), differences[start:end])
            touched.update(rows[starts].tolist())
        turned: set[Pair] = set()
        for a in touched:
            holds = self._examine(a)
            turned |= {(a, int(b)) for b in np.setxor1d(holds, self._holds[a], assume_unique=True)}
            self._holds[a] = holds
        return _with_causes(turned, self._does_hold, moves)

    def _add(self, a: int, columns: NDArray[np.int32], differences: IntArray) -> None:
        """Add differences to row `a`; its columns stay ascending, and a count of 0 is not kept."""
        merged = np.union1d(self._columns[a], columns)
        counts = np.zeros(len(merged), dtype=np.int64)
        counts[np.searchsorted(merged, self._columns[a])] = self._counts[a]
        counts[np.searchsorted(merged, columns)] += differences
        kept = counts != 0
        self._columns[a], self._counts[a] = merged[kept], counts[kept]

    def _does_hold(self, a: int, b: int) -> bool:
        at = int(np.searchsorted(self._holds[a], b))
        return at < len(self._holds[a]) and int(self._holds[a][at]) == b


class _Causes:
    """Find the values of a batch that made a pair turn: which moves they are, by attribute, computed once."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves = moves
        self._old = [frozenset(move.old) for move in moves]
        self._new = [frozenset(move.new) for move in moves]
        self._values = np.array([move.values for move in moves], dtype=np.int64)
        self._membership: dict[int, tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}

    def _of(self, attribute_id: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return for each move whether its old, its new set has the attribute."""
        found = self._membership.get(attribute_id)
        if found is None:
            n = len(self._moves)
            found = (
                np.fromiter((attribute_id in s for s in self._old), dtype=np.bool_, count=n),
                np.fromiter((attribute_id in s for s in self._new), dtype=np.bool_, count=n),
            )
            self._membership[attribute_id] = found
        return found

    def of(self, dependent: int, referenced: int, holds: bool) -> Transition:
        dependent_old, dependent_new = self._of(dependent)
        referenced_old, referenced_new = self._of(referenced)
        stood_against = dependent_old & ~referenced_old
        stands_against = dependent_new & ~referenced_new
        if holds:
            cause = stood_against & ~stands_against
            if not cause.any():  # the dependent had no values: what it gained makes the IND
                cause = dependent_new & ~dependent_old
        else:
            cause = stands_against & ~stood_against
            if not cause.any():  # the dependent has no values any more: what it lost ends the IND
                cause = dependent_old & ~dependent_new
        kind = TransitionKind.APPEARED if holds else TransitionKind.BROKE
        witness = self._moves[int(np.argmax(cause))].witness
        return Transition(kind, dependent, referenced, witness, int(self._values[cause].sum()))


def _with_causes(
    turned: Iterable[Pair], does_hold: Callable[[int, int], bool], moves: Sequence[Move]
) -> list[Transition]:
    causes = _Causes(moves)
    return [causes.of(a, b, does_hold(a, b)) for a, b in sorted(turned)]
