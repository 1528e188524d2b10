"""Own the way from row changes to cell deltas: netted for each value and attribute over a batch.

An insert counts +1 for each cell, a delete -1; an update is both, so that cells that do not differ cancel out
(Incremental INDs 2017, Example 4.11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from service.core.model import Operation, Row, RowChange, Table

_NOTHING = object()
"""What stands in the cells of a row that is deleted; NULL would be a cell like others."""


@dataclass(slots=True)
class Netted:
    """Hold the netted deltas of a batch: by value key and attribute, and the texts of the keys."""

    deltas: dict[bytes, dict[int, int]] = field(default_factory=dict)
    texts: dict[bytes, str] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def net(changes: Iterable[RowChange], value_keys: Callable[[Sequence[str]], list[bytes]]) -> Netted:
    """Net the changes of a batch; `value_keys` gives the key of each text. Truncates must not be among them."""
    netted = Netted()
    came: dict[Table, list[Row]] = {}
    went: dict[Table, list[Row]] = {}
    for change in changes:
        if change.after is not None:
            came.setdefault(change.table, []).append(change.after)
        if change.before is not None:
            went.setdefault(change.table, []).append(change.before)
        match change.operation:
            case Operation.UPDATE:
                netted.updated += 1
            case Operation.DELETE:
                netted.deleted += 1
            case _:
                netted.inserted += 1
    by_text: dict[str, dict[int, int]] = {}
    for table in came.keys() | went.keys():
        new, old = came.get(table, ()), went.get(table, ())
        new_columns = list(zip(*new, strict=True)) if new else [()] * len(table.attributes)
        old_columns = list(zip(*old, strict=True)) if old else [()] * len(table.attributes)
        for attribute, new_cells, old_cells in zip(table.attributes, new_columns, old_columns, strict=True):
            attribute_id = attribute.attribute_id
            cells: Counter[str | None] = Counter(new_cells)
            if old_cells:
                cells.subtract(Counter(old_cells))
            if len(new) != len(old):
                netted.rows[attribute_id] = len(new) - len(old)
            nulls = cells.pop(None, 0)
            if nulls:
                netted.nulls[attribute_id] = nulls
            for text, difference in cells.items():
                if difference:
                    known = by_text.get(text)  # type: ignore[arg-type]
                    if known is None:
                        by_text[text] = {attribute_id: difference}  # type: ignore[index]
                    else:
                        known[attribute_id] = difference
    texts = list(by_text)
    keys = value_keys(texts)
    netted.texts = dict(zip(keys, texts, strict=True))
    netted.deltas = dict(zip(keys, by_text.values(), strict=True))
    return netted


def offenders(
    changes: Sequence[RowChange], cells: Iterable[tuple[bytes, int, int]], texts: dict[bytes, str]
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
        after: Sequence[object] = change.after or (_NOTHING,) * len(change.before)
        taken = [
            (attribute.attribute_id, old)
            for attribute, old, new in zip(change.table.attributes, change.before, after, strict=True)
            if old != new and (attribute.attribute_id, old) in missing
        ]
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
