"""Own the way from row changes to cell deltas: netted for each value and attribute over a batch.

An insert counts +1 for each cell, a delete -1; an update is both, so that cells that do not differ cancel out
(Incremental INDs 2017, Example 4.11). A derived attribute's tuples are counted as cells of one more column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from service.core.errors import RecordError
from service.core.model import DerivedAttribute, Operation, Row, RowChange, Table
from service.core.records import Deltas, Int64s, Keys, find_keys
from service.core.sketch_changes import SketchChanges
from service.core.snapshot import Snapshot
from service.core.tuples import tuple_keys, tuple_texts

_NOTHING = object()
"""What stands in the cells of a row that is deleted; NULL would be a cell like others."""


@dataclass(slots=True)
class Netted:
    """Hold the netted deltas of a batch, and of each of their values in `texts` its text, at `places`.

    Cells of sketch-only attributes are none of the deltas: `sketched` has how many more or fewer have each hash.
    """

    deltas: Deltas
    texts: list[str]
    places: Int64s
    rows: dict[int, int]
    nulls: dict[int, int]
    inserted: int
    updated: int
    deleted: int
    sketched: SketchChanges

    def texts_of(self, keys: Keys) -> list[str]:
        """Give the texts of ascending keys of the batch."""
        found = self.places[find_keys(self.deltas.keys, keys)]
        return [self.texts[place] for place in found.tolist()]


def net(changes: Sequence[RowChange], value_keys: Callable[[Sequence[str]], Keys]) -> Netted:
    """Net the changes of a batch; `value_keys` gives the key of each text. Truncates must not be among them."""
    inserted = updated = deleted = 0
    came: dict[Table, list[Row]] = {}
    went: dict[Table, list[Row]] = {}
    pairs: Counter[Table] = Counter()
    for change in sorted(changes, key=lambda change: change.before is None or change.after is None):  # updates first
        if change.after is not None:
            came.setdefault(change.table, []).append(change.after)
        if change.before is not None:
            went.setdefault(change.table, []).append(change.before)
        match change.operation:
            case Operation.UPDATE:
                updated += 1
            case Operation.DELETE:
                deleted += 1
            case _:
                inserted += 1
        if change.before is not None and change.after is not None:
            pairs[change.table] += 1
    rows: dict[int, int] = {}
    nulls: dict[int, int] = {}
    stored, sketched, tuples, sketched_tuples = _Cells(), _Cells(), _Cells(), _Cells()
    for table in came.keys() | went.keys():
        new, old = came.get(table, ()), went.get(table, ())
        new_columns = list(zip(*new, strict=True)) if new else [()] * len(table.attributes)
        old_columns = list(zip(*old, strict=True)) if old else [()] * len(table.attributes)
        for attribute, new_cells, old_cells in zip(table.attributes, new_columns, old_columns, strict=True):
            attribute_id = attribute.attribute_id
            kept = pairs[table] if new_cells[: pairs[table]] == old_cells[: pairs[table]] else 0  # no update has set it
            cells: Counter[str | None] = Counter(new_cells[kept:])
            if old_cells[kept:]:
                cells.subtract(Counter(old_cells[kept:]))
            if len(new) != len(old):
                rows[attribute_id] = len(new) - len(old)
            null_count = cells.pop(None, 0)
            if null_count:
                nulls[attribute_id] = null_count
            (sketched if attribute.sketch_only else stored).add(attribute_id, cells)
        for derived in table.derived:
            attribute_id = derived.attribute.attribute_id
            own_new, own_old = new, old
            if derived.snapshot is not None:
                own_new, own_old = _behind(derived.snapshot, [change for change in changes if change.table is table])
            found, null_count = _tuples(derived, own_new, own_old)
            if len(own_new) != len(own_old):
                rows[attribute_id] = len(own_new) - len(own_old)
            if null_count:
                nulls[attribute_id] = null_count
            (sketched_tuples if derived.attribute.sketch_only else tuples).add(attribute_id, found)
    texts, keys, ids, differences = _joined(stored, tuples, value_keys)
    deltas, places = _by_key(keys, ids, differences)
    own, own_keys, own_ids, own_differences = _joined(sketched, sketched_tuples, value_keys)
    changes_of = SketchChanges.of(own_ids, own_differences, own_keys.high) if own else SketchChanges.none()
    return Netted(deltas, texts, places, rows, nulls, inserted, updated, deleted, changes_of)


def _tuples(derived: DerivedAttribute, new: Sequence[Row], old: Sequence[Row]) -> tuple[Counter[str | None], int]:
    """Count the tuples of rows that came and rows that went, and how many more of them have a NULL among the parts."""
    counted: Counter[Row] = Counter(_parts(derived, new))
    if old:
        counted.subtract(Counter(_parts(derived, old)))
    differing = [(parts, difference) for parts, difference in counted.items() if difference]
    whole = [one for one in differing if None not in one[0]]
    texts = tuple_texts(parts for parts, _ in whole)  # type: ignore[misc]
    null_count = (
        sum(difference for parts, difference in differing if None in parts) if len(whole) < len(differing) else 0
    )
    return Counter(dict(zip(texts, (difference for _, difference in whole), strict=True))), null_count


def _parts(derived: DerivedAttribute, rows: Sequence[Row]) -> Iterable[Row]:
    return zip(*([row[place] for row in rows] for place in derived.places), strict=True)


def _behind(snapshot: str, changes: Iterable[RowChange]) -> tuple[list[Row], list[Row]]:
    """Give the rows that came and those that went by changes that a snapshot does not show."""
    seen = Snapshot.parse(snapshot)
    unseen = [change for change in changes if not _is_seen(seen, change)]
    came = [change.after for change in unseen if change.after is not None]
    return came, [change.before for change in unseen if change.before is not None]


def _is_seen(snapshot: Snapshot, change: RowChange) -> bool:
    transaction = change.source_position.get("txId")  # the screen has widened it
    return isinstance(transaction, int) and transaction > 0 and snapshot.is_visible(transaction)


def _joined(
    cells: _Cells, tuples: _Cells, value_keys: Callable[[Sequence[str]], Keys]
) -> tuple[list[str], Keys, Int64s, Int64s]:
    """Give texts, keys, attribute ids and differences of the cells and the tuples that differ."""
    texts, ids, differences = cells.that_differ()
    keys = value_keys(texts)
    of_tuples, tuple_ids, tuple_differences = tuples.that_differ()
    if not of_tuples:
        return texts, keys, ids, differences
    more = tuple_keys(of_tuples)
    return (
        texts + of_tuples,
        Keys(np.concatenate([keys.high, more.high]), np.concatenate([keys.low, more.low])),
        np.concatenate([ids, tuple_ids]),
        np.concatenate([differences, tuple_differences]),
    )


class _Cells:
    """Gather the netted cells of attributes."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._counted: list[int] = []
        self._attribute_ids: list[int] = []
        self._lengths: list[int] = []

    def add(self, attribute_id: int, cells: Counter[str | None]) -> None:
        """Add the cells of an attribute that are not NULL, each with its difference."""
        self._texts.extend(cells)  # type: ignore[arg-type]
        self._counted.extend(cells.values())
        self._attribute_ids.append(attribute_id)
        self._lengths.append(len(cells))

    def that_differ(self) -> tuple[list[str], Int64s, Int64s]:
        """Give texts, attribute ids and differences of the cells whose difference is not 0."""
        differences = np.array(self._counted, np.int64)
        ids = np.repeat(np.array(self._attribute_ids, np.int64), self._lengths)
        differs = differences != 0
        if differs.all():
            return self._texts, ids, differences
        return list(compress(self._texts, differs.tolist())), ids[differs], differences[differs]


def _by_key(keys: Keys, attribute_ids: Int64s, differences: Int64s) -> tuple[Deltas, Int64s]:
    """Bring the cells of each key together; gives the deltas, and the place of a cell of each value."""
    order = keys.order(attribute_ids)
    keys = keys.take(order)
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (keys.high[1:] != keys.high[:-1]) | (keys.low[1:] != keys.low[:-1])
    firsts = np.flatnonzero(is_first)
    starts = np.append(firsts, len(order))
    return Deltas(keys.take(firsts), starts, attribute_ids[order], differences[order]), order[firsts]


def offenders(
    changes: Sequence[RowChange], cells: Iterable[tuple[bytes, int, int]], texts: Mapping[bytes, str]
) -> set[int]:
    """Find the changes that take away what was never there, as places in `changes`.

    `cells` are `(key, attribute_id, how many are missing)`, where a key without a text is that of NULL. A cell that
    misses as often as it is taken was there for nobody: all who take it are blamed, and nobody else before the rest
    was netted again without them. If there is no such cell, changes are blamed until every missing cell has been:
    those first that take away the most of them, as a row that was never there misses in several cells where a true
    one shares a cell or two with it; among equals the latest, as what came before could still be applied.
    """
    missing = {(attribute_id, texts.get(key)): count for key, attribute_id, count in cells}
    blamable: list[tuple[int, int, list[tuple[int, str | None]]]] = []
    for place, change in enumerate(changes):
        if change.before is None:
            continue
        taken = [cell for cell in _taken(change) if cell in missing]
        if taken:
            blamable.append((len(taken), place, taken))
    takers = Counter(cell for _, _, taken in blamable for cell in taken)
    found = {place for _, place, taken in blamable if any(missing[cell] >= takers[cell] for cell in taken)}
    if found:
        return found
    for _, place, taken in sorted(blamable, key=lambda b: b[:2], reverse=True):
        if any(missing[cell] > 0 for cell in taken):
            found.add(place)
            for cell in taken:
                missing[cell] -= 1
    return found


def never_inserted(
    change: RowChange, texts: Mapping[bytes, str], cells: Iterable[tuple[bytes, int, int]]
) -> RecordError:
    """Say what a change takes away that is not there; one of the missing `cells` is its own."""
    missing = {(attribute_id, texts.get(key)) for key, attribute_id, _ in cells}
    names = {attribute.attribute_id: attribute.name for attribute in change.table.followed}
    for attribute_id, text in _taken(change):
        if (attribute_id, text) in missing:
            at = change.position
            shown = "a NULL" if text is None else f"the value {text if len(text) <= 60 else text[:60] + '...'!r}"
            behind = (
                f"out of {names[attribute_id]}, where it is not: the feed deletes what was never inserted, or begins "
                f"before the bootstrap; bootstrap again with --replace and the --feed-position at which the data was "
                f"read, or set such records aside with --on-error all"
            )
            return RecordError(f"{at}: takes {shown} {behind}", f"takes a value {behind}")
    raise AssertionError("an offender without a cell")


def emptied_by(change: RowChange) -> set[int]:
    """Give the ids of the attributes that a truncate empties: all but those whose backfill saw the table empty."""
    table = change.table
    seen = {
        derived.attribute.attribute_id
        for derived in table.derived
        if derived.snapshot is not None and _is_seen(Snapshot.parse(derived.snapshot), change)
    }
    return {attribute.attribute_id for attribute in table.followed} - seen


def _taken(change: RowChange) -> list[tuple[int, str | None]]:
    """Give (attribute id, text) of the cells and tuples that a change takes away, columns first."""
    assert change.before is not None
    after: Sequence[object] = change.after or (_NOTHING,) * len(change.before)
    taken = [
        (attribute.attribute_id, old)
        for attribute, old, new in zip(change.table.attributes, change.before, after, strict=True)
        if old != new
    ]
    for derived in change.table.derived:
        parts = tuple(change.before[place] for place in derived.places)
        is_seen = derived.snapshot is not None and _is_seen(Snapshot.parse(derived.snapshot), change)
        if not is_seen and parts != tuple(after[place] for place in derived.places):
            text = None if None in parts else tuple_texts([parts])[0]  # type: ignore[list-item]
            taken.append((derived.attribute.attribute_id, text))
    return taken
