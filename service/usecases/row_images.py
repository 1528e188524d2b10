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
from service.core.model import NULL_IN_DOUBT, UNAVAILABLE, FeedPosition, Operation, Row, RowChange, Skipped, Table
from service.core.row_key import row_key
from service.core.sql_names import sql_name

DELETED_BEFORE = "deletes a row that is not there"

LENT, FILLED = "lent", "filled"
"""Between a row's key and its new one: the keys under which the half of a move that comes first tells the other half.

They are a delete and a create, which may lie in two partitions. The delete leaves the row that it took away, without
cells where none was kept. The create leaves which cells it sent (all but the key's are empty texts then, others NULL),
and its row as it was filled in: what was not sent may have changed before the delete, and may be read later.
"""


class Image(NamedTuple):
    """Hold one kept row (None: it is gone), and the version and offset of the change that it is of (0: a bootstrap)."""

    cells: Row | None
    version: int = 0
    offset: int = 0


Images = Mapping[Table, Mapping[bytes, Image]]
Kept = dict[bytes, Image]
Order = tuple[int, int]
"""Version and offset of a change."""


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
            keys = _keys(change) if change.moves is None else _keys_of_move(change)
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
    A key that is changed by a delete and a create (`moves`) leaves its row for the create, which need not send all.
    Where the create comes first, what it did not send is that of the row as it is kept by then, until the delete comes
    (another change of its position) or, where that has no row either, is an error.
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
        at = version if set_aside is None else set_aside[change.position], change.position.offset
        try:
            if set_aside is not None and any(_order(kept, found, key) > at for key in _own_keys(change)):
                raise _overtaken(change)
            take = _take if change.moves is None else _take_away if change.after is None else _bring
            take(done, change, kept, found, at)
        except RecordError as error:
            done.errors[change.position] = error
    return done


def _take(done: Completed, change: RowChange, kept: Kept, found: Mapping[bytes, Image], at: Order) -> None:
    old, new = _keys(change)
    old = new if old is None else old
    assert old is not None, "a change without a row"
    before = _cells(kept, found, old)
    if new is None:
        _delete(done, change, kept, old, before, at)
        return
    after = _filled(change, before or change.before)
    if new != old:
        kept[old] = Image(None, *at)
        displaced = _cells(kept, found, new)
        if displaced is not None and before is not None:
            done.changes.append(replace(change, operation=Operation.DELETE, before=displaced, after=None, key=None))
            done.displaced += 1
        else:
            before = before or displaced
    _put(done, change, kept, new, before, Image(after, *at))


def _take_away(done: Completed, change: RowChange, kept: Kept, found: Mapping[bytes, Image], at: Order) -> None:
    """Take the delete of a moved row: leave the row to its create, or fill in at last what that did not send."""
    old, new, lent, filled = _keys_of_move(change)
    before, first = _cells(kept, found, old), _cells(kept, found, lent)
    if first is None or _key_cells(change.table, first) != change.moves:
        if before is not None or first is None:  # a delete that comes again takes nothing back
            kept[lent] = Image(before or (None,) * len(change.table.attributes), *at)
        _delete(done, change, kept, old, before, at)
        return
    sent = tuple([cell if cell == "" or n in change.table.key else UNAVAILABLE for n, cell in enumerate(first)])
    last = _filled(replace(change, after=sent), before)
    then, present = _cells(kept, found, filled), _cells(kept, found, new)
    kept[lent] = kept[filled] = Image(None, *at)
    _delete(done, change, kept, old, before, at)
    if then is None or present is None:  # the row has gone since, or moved on
        return
    # What was changed under the new key since stays.
    cells = zip(sent, last, then, present, strict=True)
    after = tuple([b if a == UNAVAILABLE and cell == was else cell for a, b, was, cell in cells])
    if after != present:
        kept[new] = Image(after, *_order(kept, found, new))
        done.changes.append(replace(change, operation=Operation.UPDATE, before=present, after=after, key=None))
        done.displaced += 1


def _bring(done: Completed, change: RowChange, kept: Kept, found: Mapping[bytes, Image], at: Order) -> None:
    """Take the create of a moved row, whose delete may come later from another partition."""
    old, new, lent, filled = _keys_of_move(change)
    before, first = _cells(kept, found, new), _cells(kept, found, lent)
    assert change.after is not None
    assert change.moves is not None
    if first is None:
        after = _filled(change, _cells(kept, found, old) or before or change.before, or_null=True)
        sent = [None if cell == UNAVAILABLE else "" for cell in change.after]
        for place, cell in zip(change.table.key, change.moves, strict=True):
            sent[place] = cell
        kept[lent], kept[filled] = Image(tuple(sent), *at), Image(after, *at)
    elif _key_cells(change.table, first) == change.moves:  # it comes again
        after = _filled(change, before)
    else:
        has_row = _key_cells(change.table, first) == change.key
        after = _filled(change, first if has_row else before)
        kept[lent] = Image(None, *at)
    _put(done, change, kept, new, before, Image(after, *at))


def _delete(done: Completed, change: RowChange, kept: Kept, key: bytes, before: Row | None, at: Order) -> None:
    kept[key] = Image(None, *at)
    if before is None:
        done.skipped.append(Skipped(change.position, DELETED_BEFORE))
    else:
        done.changes.append(replace(change, before=before, key=None))


def _put(done: Completed, change: RowChange, kept: Kept, key: bytes, before: Row | None, image: Image) -> None:
    kept[key] = image
    operation = change.operation if before is None else Operation.UPDATE
    if before is None and operation is Operation.UPDATE:
        operation = Operation.CREATE
    done.changes.append(replace(change, operation=operation, before=before, after=image.cells, key=None))


def _keys_of_move(change: RowChange) -> tuple[bytes, bytes, bytes, bytes]:
    """Give the keys that both halves look at: the old one, the new one, and those between."""
    assert change.key is not None
    assert change.moves is not None
    between = [row_key((*change.key, what, *change.moves)) for what in (LENT, FILLED)]
    return row_key(change.key), row_key(change.moves), *between  # type: ignore[return-value]


def _own_keys(change: RowChange) -> list[bytes]:
    """Give the keys whose later changes make this one void; of a create that moves, the old one says nothing."""
    old, new = _keys(change)
    return [key for key in ((old, new) if change.moves is None or new is None else (new,)) if key is not None]


def _key_cells(table: Table, row: Row) -> Row:
    return tuple([row[place] for place in table.key])


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


def _filled(change: RowChange, before: Row | None, *, or_null: bool = False) -> Row:
    """Give the after-image with the cells that were not sent; `or_null`: NULL where nobody has them."""
    after = change.after
    assert after is not None
    if NULL_IN_DOUBT in after:
        if lost := lost_places(after, before):
            raise RecordError.plain(
                f"{change.position}: has NULL in {_listed(change.table, lost)}, where the row of {change.table} has a "
                f"value; its connector also sends NULL for a large value of such a type that did not change: send "
                f"whole rows by `{_whole_rows(change.table)}`, and bootstrap the source again with --replace"
            )
        after = undoubted(after)
    if UNAVAILABLE not in after:
        return after
    if or_null:
        before = tuple([None if cell == UNAVAILABLE else cell for cell in before or (None,) * len(after)])
    if before is None or any(a == UNAVAILABLE == b for a, b in zip(after, before, strict=True)):
        missing = [place for place, cell in enumerate(after) if cell == UNAVAILABLE]
        raise RecordError.plain(
            f"{change.position}: changes a row of {change.table} without its "
            f"unchanged {_listed(change.table, missing)}, and the state does not keep that row: bootstrap the source "
            f"again with --replace, or send whole rows by `{_whole_rows(change.table)}`"
        )
    return tuple([b if a == UNAVAILABLE else a for a, b in zip(after, before, strict=True)])


def lost_places(after: Row, before: Sequence[str | None] | None) -> list[int]:
    """Give the places of NULLs in doubt where the row before has a value."""
    if before is None:
        return []
    unknown = (None, UNAVAILABLE, NULL_IN_DOUBT)
    cells = enumerate(zip(after, before, strict=True))
    return [place for place, (new, old) in cells if new == NULL_IN_DOUBT and old not in unknown]


def undoubted(row: Row) -> Row:
    """Take NULLs in doubt for what they are called."""
    return tuple([None if cell == NULL_IN_DOUBT else cell for cell in row])


def _listed(table: Table, places: Sequence[int]) -> str:
    return ", ".join(table.attributes[place].name.column for place in places)


def _whole_rows(table: Table) -> str:
    in_sql = sql_name(*(table.wire or (None, table.schema, table.name))[1:])
    return f"ALTER TABLE {in_sql} REPLICA IDENTITY FULL"
