"""Histograms that follow changes: on their grids they equal those of the values as they are, whatever came and went."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.canonical import value_keys
from service.core.histogram_changes import (
    Histograms,
    Switched,
    ValueSwitches,
    switches_from_bytes,
    switches_to_bytes,
)
from service.core.quantile_grids import KeyHistogram, histogram_over
from service.core.randomness import randomness
from service.core.sketch_changes import SketchChanges
from service.core.tuples import tuple_parts, tuple_texts
from service.core.value_order import ValueOrder

Rows = set[tuple[str, ...]]
KEY, OTHER, COLUMNS = 1, 2, (3, 4)
CELL = st.one_of(st.integers(-20, 20).map(str), st.sampled_from(["", "a", "Ä", '"', "\\", "1a", "NaN"]))


def histograms(key: Rows, other: Rows, cells: int) -> Histograms:
    width = len(next(iter(key)))
    of_key = KeyHistogram.of(sorted(key), [ValueOrder.MIXED] * width, cells)
    columns = (KEY,) if width == 1 else COLUMNS
    return Histograms(KEY, columns, cells, of_key, {OTHER: histogram_over(of_key.grids, other)})


def switched(before: list[str], after: list[str]) -> Switched:
    return Switched(sorted(set(after) - set(before)), sorted(set(before) - set(after)))


def texts(rows: Rows) -> list[str]:
    """Give rows as the state has them: a column's values, or texts of tuples."""
    return [row[0] for row in rows] if all(len(row) == 1 for row in rows) else tuple_texts(rows)


def changes(width: int, before: tuple[Rows, Rows], after: tuple[Rows, Rows]) -> dict[int, Switched]:
    """Say what makes a key and another of one state those of the next."""
    sides = zip((KEY, OTHER), before, after, strict=True)
    found = {one: switched(texts(old), texts(new)) for one, old, new in sides}
    for place, column in enumerate(COLUMNS if width > 1 else ()):
        found[column] = switched(*([row[place] for row in of[0]] for of in (before, after)))
    return found | {99: Switched(["of an attribute that nobody asks for"], [])}


def same(found: Histograms, expected_key: Rows, expected_other: Rows) -> None:
    grids = found.of_key.grids
    for place, (grid, counts) in enumerate(zip(grids, found.of_key.columns, strict=True)):
        values = {row[place] for row in expected_key}
        assert counts.tolist() == np.bincount(grid.cells_of(values), minlength=len(grid)).tolist()
        assert counts.dtype == np.int64
    for of, rows in ((found.of_key.tuples, expected_key), (found.others[OTHER], expected_other)):
        expected = histogram_over(grids, rows)
        assert (of.shape, of.cells.tolist(), of.counts.tolist()) == (
            expected.shape,
            expected.cells.tolist(),
            expected.counts.tolist(),
        )


@given(st.data(), st.integers(1, 2), st.integers(1, 6))
def test_whatever_comes_and_goes_they_are_those_of_the_values_there_are(
    data: st.DataObject, width: int, cells: int
) -> None:
    rows = st.sets(st.tuples(*[CELL] * width), max_size=15)
    present = data.draw(rows.filter(bool)), data.draw(rows)
    kept = histograms(*present, cells)
    log = []
    for _ in range(data.draw(st.integers(0, 4))):
        after = data.draw(rows), data.draw(rows)
        log.append(changes(width, present, after))
        present = after
    found = kept.after(log)
    same(found, *present)
    assert found.of_key.grids == kept.of_key.grids


def test_what_was_never_there_is_refused() -> None:
    kept = histograms({("1",), ("2",)}, {("1",)}, 4)
    for attribute_id in (KEY, OTHER):
        with pytest.raises(ValueError, match="fewer than no values"):
            kept.after([{attribute_id: Switched([], ["2", "2"])}])


def test_after_ten_thousand_changes_the_distance_is_within_its_error_of_that_over_all_values() -> None:
    """The grid is the first one all along: what its cells hide bounds how far it can be off."""
    rng = random.Random(22)
    key = {(str(a), str(b)) for a in range(16) for b in range(12) if rng.random() < 0.5}
    other = set(rng.sample(sorted(key), 40))
    kept, now = histograms(key, other, 4), (set(key), set(other))
    log = []
    for _ in range(100):
        before = set(now[0]), set(now[1])
        for _ in range(100):
            row = (str(rng.randrange(18)), str(rng.randrange(13)))
            side = rng.randrange(2)
            if row in now[side]:
                now[side].remove(row)
                now[1].discard(row)  # a foreign key that holds
            else:
                now[side].add(row)
                now[0].add(row)
        log.append(changes(2, before, now))
    found = kept.after(log)
    same(found, *now)
    exact = histograms(*now, 1000)
    measured, expected = (randomness(of.others[OTHER], of.of_key, 10**8) for of in (found, exact))
    assert expected.error == 0
    assert 0 < abs(measured.distance - expected.distance) <= measured.error < 2 * 2 / 4


@given(st.lists(st.lists(st.text()), min_size=1, max_size=5))
def test_tuples_are_read_from_their_texts(rows: list[list[str]]) -> None:
    assert tuple_parts(tuple_texts(rows)) == rows


def test_a_batch_tells_what_came_to_an_attribute_and_what_left_it() -> None:
    values = ["x", "Ä", "1", '["1","2"]', ""]
    keys = value_keys(values)
    order = keys.order(np.zeros(len(values), np.int64))
    ids, differences = np.array([7, 7, 8, 9, 7]), np.array([1, -1, 1, -1, 1])
    batch = ValueSwitches(SketchChanges.of(ids, differences, keys.high), keys.high[order], values, order)
    found = batch.of({7, 9, 10})
    assert {i: (sorted(of.came), of.gone) for i, of in found.items()} == {7: (["", "x"], ["Ä"]), 9: ([], ['["1","2"]'])}
    assert batch.of(set()) == ValueSwitches.none().of({7}) == {}
    assert switches_from_bytes(switches_to_bytes(found)) == found


def test_no_change_has_no_values() -> None:
    nothing = ValueSwitches.none()
    assert (len(nothing.hashes), nothing.hashes.dtype) == (0, np.uint64)
    assert (len(nothing.places), nothing.places.dtype) == (0, np.int64)
    assert nothing.of([1]) == {}
