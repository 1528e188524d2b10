"""Own the completion of changes from the rows that the state keeps, and how these rows change.

A table with row images is followed by key: what its changes do not say of the row before, the kept row says, and the
kept row is also what the generator records hold of it. So a change means "the row of this key is now so", and may
come as any operation (an insert of a row that is there, a snapshot's row in mid-stream, an upsert).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from service.core.errors import RecordError
from service.core.model import UNAVAILABLE, FeedPosition, Operation, Row, RowChange, Skipped, Table
from service.core.row_key import row_key
from service.core.sql_names import sql_name

DELETED_BEFORE = "deletes a row that is not there"

LENT = "lent"
"""Between a row's key and its new one: the key under which the half of a move that comes first leaves the moved row.

It is a delete and a create, which may lie in two partitions. The row under it tells the other half that it is the last.
"""


class Image(NamedTuple):
    """Hold one kept row (None: it is gone), and the version and offset of the change that it is of (0: a bootstrap)."""

    cells: Row | None
    version: int = 0
    offset: int = 0


Images = Mapping[Table, Mapping[bytes, Image]]


@dataclass(slots=True)
class Completed:
    """Hold changes with whole images before and after, what becomes of the kept rows, and what was left out."""

    changes: list[RowChange] = field(default_factory=list)
    images: dict[Table, dict[bytes, Image]] = field(default_factory=dict)
    displaced: int = 0
    """How many of the changes are no record's own, but delete a row that another took the place of."""
    skipped: list[Skipped] = field(default_factory=list)
    errors: dict[FeedPosition, RecordError] = field(default_factory=dict)


def wanted_rows(changes: Iterable[RowChange]) -> dict[Table, set[bytes]]:
    """Give the keys of the rows that `complete` may ask for."""
    wanted: dict[Table, set[bytes]] = {}
    for change in changes:
        if change.table.row_images:
            keys = (*_keys(change), _lent(change))
            wanted.setdefault(change.table, set()).update(key for key in keys if key is not None)
    return wanted


def complete(
    changes: Sequence[RowChange],
    images: Images,
    version: int,
    set_aside: Mapping[FeedPosition, int] | None = None,
) -> Completed:
    """Complete changes in the order of the feed; `images` has the kept rows of `wanted_rows`, `version` will be stored.

    A change of a row that is kept becomes an update (or delete) from that row, one of a row that is not an insert.
    Where the key itself changes, the row moves; one that was kept under the new key is deleted by another change of
    the same position. A delete of a row that is not kept is skipped: in a compacted topic its insert may be gone.
    Cells that were not sent are taken from the kept row; where there is none the change is an error and has no effect.
    A key that is changed by a delete and a create (`moves`) leaves its row for the create, which need not send all,
    and may be the first of the two.
    Changes of other tables stay as they are; truncates must not be among them.

    With `set_aside` the changes are those of records that had been, at the version that it says of each: they take
    their place in the order of versions, and one of a row that was changed since is an error.
    """
    done = Completed()
    for change in changes:
        table = change.table
        if not table.row_images:
            done.changes.append(change)
            continue
        kept, found = done.images.setdefault(table, {}), images.get(table, {})
        old, new = _keys(change)
        assert old is not None or new is not None, "a change without a row"
        old = new if old is None else old
        at = version if set_aside is None else set_aside[change.position], change.position.offset
        if set_aside is not None and any(key and _order(kept, found, key) > at for key in (old, new)):
            done.errors[change.position] = _overtaken(change)
            continue
        gone = Image(None, *at)
        before = _cells(kept, found, old)
        lent, lender = _lent(change), None
        if change.after is None:
            kept[old] = gone  # type: ignore[index]
            if lent is not None and before is not None:
                kept[lent] = gone if _cells(kept, found, lent) is not None else Image(before, *at)
            if before is None:
                done.skipped.append(Skipped(change.position, DELETED_BEFORE))
            else:
                done.changes.append(replace(change, before=before, key=None))
            continue
        if lent is not None:
            lender = _cells(kept, found, lent)
            kept[lent] = gone if lender is not None else Image(before, *at)
            lender = lender or before
            old, before = new, _cells(kept, found, new)
        try:
            after = _filled(change, lender or before or change.before)
        except RecordError as error:
            done.errors[change.position] = error
            continue
        if new != old:
            kept[old] = gone  # type: ignore[index]
            displaced = _cells(kept, found, new)
            if displaced is not None and before is not None:
                done.changes.append(replace(change, operation=Operation.DELETE, before=displaced, after=None, key=None))
                done.displaced += 1
            else:
                before = before or displaced
        kept[new] = Image(after, *at)  # type: ignore[index]
        operation = change.operation if before is None else Operation.UPDATE
        if before is None and operation is Operation.UPDATE:
            operation = Operation.CREATE
        done.changes.append(replace(change, operation=operation, before=before, after=after, key=None))
    return done


def _lent(change: RowChange) -> bytes | None:
    if change.moves is None or change.key is None:
        return None
    return row_key((*change.key, LENT, *change.moves))


def _cells(kept: Mapping[bytes, Image], found: Mapping[bytes, Image], key: bytes | None) -> Row | None:
    image = kept.get(key) or found.get(key)  # type: ignore[arg-type]
    return None if image is None else image.cells


def _order(kept: Mapping[bytes, Image], found: Mapping[bytes, Image], key: bytes) -> tuple[int, int]:
    image = kept.get(key) or found.get(key)
    return (0, 0) if image is None else (image.version, image.offset)


def _keys(change: RowChange) -> tuple[bytes | None, bytes | None]:
    """Give the row's key before and after the change, as far as it says them."""
    places, before, after = change.table.key, change.before, change.after
    told = change.key
    if told is None and before is not None:
        told = tuple([before[place] for place in places])
    old = None if told is None else row_key(told)
    if after is None:
        return old, None
    cells = [after[place] for place in places]
    if told is not None:
        cells = [was if cell == UNAVAILABLE else cell for cell, was in zip(cells, told, strict=True)]
        if tuple(cells) == tuple(told):
            return old, old
    return old, row_key(cells)


def _overtaken(change: RowChange) -> RecordError:
    at = change.position
    return RecordError.plain(
        f"{at}: was overtaken: a later change of the same "
        f"row of {change.table} is applied already; drop it with `subsetd dead-letters drop`"
    )


def _filled(change: RowChange, before: Row | None) -> Row:
    """Give the after-image with the cells that were not sent."""
    after = change.after
    assert after is not None
    if UNAVAILABLE not in after:
        return after
    if before is None or any(a == UNAVAILABLE == b for a, b in zip(after, before, strict=True)):
        at, table = change.position, change.table
        in_sql = sql_name(*(table.wire or (None, table.schema, table.name))[1:])
        columns = [a.name.column for a, cell in zip(table.attributes, after, strict=True) if cell == UNAVAILABLE]
        raise RecordError.plain(
            f"{at}: changes a row of {table} without its "
            f"unchanged {', '.join(columns)}, and the state does not keep that row: bootstrap the source again with "
            f"--replace, or send whole rows by `ALTER TABLE {in_sql} REPLICA IDENTITY FULL`"
        )
    return tuple([b if a == UNAVAILABLE else a for a, b in zip(after, before, strict=True)])
