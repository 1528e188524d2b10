"""Own what the ranking is told of columns whose values are at hand: their profiles, their candidates measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from scipy.sparse import csr_array

from service.core.foreign_keys.candidates import THETA, Candidate, Columns, Inclusions, single_candidates
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.quantile_grids import SINGLE_CELLS, GridHistogram, KeyHistogram
from service.core.randomness import outside, randomness
from service.core.value_order import ValueOrder, order_of

MOST_DIGITS = 250
"""A whole number of more is none to count with: more than a float can take, and than any identifier has."""


def with_values(column: ColumnProfile, values: Collection[str]) -> ColumnProfile:
    """Complete a profile by what distinct values tell: their order, ends, mean length, and whether they are whole."""
    order = order_of(values)
    if not values:
        return replace(column, distinct=0, order=order)
    return replace(
        column,
        distinct=len(values),
        order=order,
        least=min(values, key=order.key),
        greatest=max(values, key=order.key),
        mean_length=sum(map(len, values)) / len(values),
        is_integer=order is ValueOrder.NUMERIC and all(map(_is_integer, values)),
    )


def _is_integer(value: str) -> bool:
    digits = value.removeprefix("-")
    return len(digits) <= MOST_DIGITS and digits.isascii() and digits.isdecimal()


def measure(
    columns: Sequence[ColumnProfile],
    values: Sequence[Collection[str]],
    keys: Collection[int],
    theta: float = THETA,
    cells: int = SINGLE_CELLS,
) -> dict[Candidate, Measured]:
    """Find the candidates of one column for keys, by their places, and measure them; a key's grid is built once.

    `values` has the distinct values of each column. Numbers are no sample of strings: such a distance is 1.
    """
    shared = overlaps(values, keys)
    coefficients = {(a, b): count / len(values[a]) for (a, b), count in shared.items()}
    tables = {place: 0 for place, of_column in enumerate(values) if of_column}
    grids: dict[Columns, tuple[KeyHistogram, Mapping[str, int]]] = {}
    found = {}
    for candidate in single_candidates(Inclusions(tables, coefficients), keys, theta):
        (a,), (b,) = candidate
        of = Measured(coefficients[a, b], shared[a, b] / len(values[b]), 1.0, 1.0)
        if columns[a].order.is_comparable_with(columns[b].order):
            if candidate.referenced not in grids:
                grids[candidate.referenced] = _grid(values[b], columns[b].order, cells)
            of_key, known = grids[candidate.referenced]
            grid = of_key.grids[0]
            # Most values are the key's own, whose cells are known.
            places = [known[value] if value in known else int(grid.cells_of([value])[0]) for value in values[a]]
            histogram = GridHistogram.of([len(grid)], [np.array(places)])
            of = replace(of, distance=randomness(histogram, of_key).distance, outside=outside(histogram, of_key))
        found[candidate] = of
    return found


def _grid(values: Collection[str], order: ValueOrder, cells: int) -> tuple[KeyHistogram, Mapping[str, int]]:
    ordered = list(values)
    of_key = KeyHistogram.of([(value,) for value in ordered], [order], cells)
    return of_key, dict(zip(ordered, of_key.grids[0].cells_of(ordered).tolist(), strict=True))


def overlaps(values: Sequence[Collection[str]], keys: Collection[int]) -> dict[tuple[int, int], int]:
    """Count the values that columns share with keys, by (column, key); a pair that shares none is not there."""
    numbers: dict[str, int] = {}
    numbered = np.fromiter(
        (numbers.setdefault(value, len(numbers)) for value in chain.from_iterable(values)),
        np.int64,
        sum(map(len, values)),
    )
    holders = np.repeat(np.arange(len(values)), [len(of_column) for of_column in values])
    shape = (len(numbers), len(values))
    held = csr_array((np.ones(len(numbered), np.int64), (numbered, holders)), shape=shape)
    chosen = np.array(sorted(keys), np.int64)
    shared = (held.T @ held[:, chosen]).tocoo()
    found = zip(shared.coords[0].tolist(), chosen[shared.coords[1]].tolist(), shared.data.tolist(), strict=True)
    return {(a, b): count for a, b, count in found if a != b}
