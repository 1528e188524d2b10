"""Own small clusterings for tests: the paper's running example, drawn histories, and the brute force that judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from hypothesis import strategies as st

from service.core.clustering import Applied, Clusters, apply_deltas, derive_inds, extract, merge, occurrences
from service.core.records import NO_CLUSTER, Deltas, Records

A, B, C, D = 1, 2, 3, 4
TABLE_1 = ["aafa", "bbea", "bcfc", "ddfc"]
"""The running example of the paper, a tuple (A, B, C, D) a line."""

Cells = Counter[tuple[int, bytes]]


class State:
    """Clusters and records together, as the store holds them."""

    def __init__(self) -> None:
        self.clusters = Clusters()
        self.records: dict[bytes, tuple[int, tuple[int, ...]]] = {}

    def present(self, cells: Mapping[bytes, object]) -> Records:
        """Give the records of these values."""
        return Records.of([self.records.get(key, (NO_CLUSTER, ())) for key in sorted(cells)])

    def take(self, applied: Applied) -> Applied:
        new = applied.records
        for place in range(len(new.cluster_id)):
            key = new.keys.key(place)
            assert new.is_new[place] == (key not in self.records)
            if new.cluster_id[place] == NO_CLUSTER:
                del self.records[key]
            else:
                self.records[key] = new.records.record(place)
        return applied

    def insert(self, row: str) -> Applied:
        return self.merge(cells_of(row))

    def delete(self, row: str) -> Applied:
        return self.extract(cells_of(row))

    def merge(self, cells: Mapping[bytes, Mapping[int, int]]) -> Applied:
        return self.take(merge(self.clusters, Deltas.of(cells), self.present(cells)))

    def extract(self, cells: Mapping[bytes, Mapping[int, int]]) -> Applied:
        return self.take(extract(self.clusters, Deltas.of(cells), self.present(cells)))

    def apply(self, deltas: Mapping[bytes, Mapping[int, int]], uncounted: Iterable[int] = ()) -> Applied:
        flags = np.isin(np.arange(8), list(uncounted))
        return self.take(apply_deltas(self.clusters, Deltas.of(deltas), self.present(deltas), flags))

    def clustering(self) -> set[frozenset[int]]:
        return {frozenset(attributes) for _, attributes, _ in self.clusters}

    def inds(self) -> set[tuple[int, int]]:
        return pairs(derive_inds((attributes, count) for _, attributes, count in self.clusters))

    def frequencies(self) -> dict[bytes, dict[int, int]]:
        return {
            key: dict(zip(self.clusters.attributes(cluster_id), frequencies, strict=True))
            for key, (cluster_id, frequencies) in self.records.items()
        }


def pairs(inds: Iterable[Iterable[int]]) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in inds}


def cells_of(row: str) -> dict[bytes, dict[int, int]]:
    """Give the attribute clustering of a tuple; a dot is no cell."""
    return occurrences((attribute, key_of(value)) for attribute, value in enumerate(row, A) if value != ".")


def key_of(value: str) -> bytes:
    """Give a short value a key from which it can be read."""
    return value.encode().rjust(16, b".")


def table_1() -> State:
    state = State()
    for row in TABLE_1:
        state.insert(row)
    return state


cell = st.tuples(st.integers(1, 6), st.sampled_from(list(map(key_of, "pqrst"))))
tuples = st.lists(cell, max_size=8)


def as_deltas(cells: Cells) -> dict[bytes, dict[int, int]]:
    deltas: dict[bytes, dict[int, int]] = {}
    for (attribute, key), difference in cells.items():
        if difference:
            deltas.setdefault(key, {})[attribute] = difference
    return deltas


def brute_force(cells: Cells) -> tuple[dict[frozenset[int], int], set[tuple[int, int]]]:
    """Recompute clusters with their counts, and INDs, from the cells alone by set inclusion."""
    values: dict[int, set[bytes]] = {}
    for (attribute, key), count in cells.items():
        if count > 0:
            values.setdefault(attribute, set()).add(key)
    clusters = Counter(
        frozenset(a for a, known in values.items() if key in known) for key in set().union(*values.values())
    )
    return dict(clusters), {(a, b) for a in values for b in values if a != b and values[a] <= values[b]}


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[int, list[tuple[int, bytes]]]]]:
    """Draw batches of (+1 or -1, tuple), deleting only tuples that are there."""
    present: list[list[tuple[int, bytes]]] = []
    batches = []
    for _ in range(draw(st.integers(1, 5))):
        batch = []
        for _ in range(draw(st.integers(0, 5))):
            if present and draw(st.booleans()):
                batch.append((-1, present.pop(draw(st.integers(0, len(present) - 1)))))
            else:
                row = draw(tuples)
                present.append(row)
                batch.append((1, row))
        batches.append(batch)
    return batches


def netted(batch: Iterable[tuple[int, list[tuple[int, bytes]]]]) -> Cells:
    cells: Cells = Counter()
    for sign, row in batch:
        for place in row:
            cells[place] += sign
    return cells
