"""Own what a change of a table's columns means for its attributes, and the commands by which a person decides.

The feed shows new names and stops showing old ones; it never says why. A new column becomes an empty attribute, one
that is gone keeps its values and is stale. That both are one column, or that the old values may go, a person says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from service.core.errors import NotFoundError, RecordError, StateError
from service.core.model import SchemaDrift
from service.core.retyping import keeps_texts
from service.usecases.live_state import BatchCommit, BatchCounts, LiveState
from service.usecases.ports import StateWriter

DROP_PORTION = 20_000


class KnownColumn(NamedTuple):
    """Describe an attribute as the state knows it.

    `renamed_to` is the name that was announced for it; `is_key` says that the table's kept rows are known by it,
    `is_empty` that it has no value. One with `parts`, which are ordinals of its table, is a derived one. `is_tracked`
    as a key.
    """

    attribute_id: int
    schema: str
    table: str
    column: str
    data_type: str
    is_stale: bool
    renamed_to: str | None
    is_key: bool = False
    is_empty: bool = False
    is_sketch_only: bool = False
    ordinal: int = 0
    parts: Sequence[int] | None = None
    is_tracked: bool = False


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Say what becomes of a table's attributes: `added` are (column, data type), others go by attribute id.

    Of the added ones `unknown` are not known of the rows that are there, as they may hold a default.
    """

    added: tuple[tuple[str, str], ...] = ()
    unknown: frozenset[str] = frozenset()
    stale: tuple[int, ...] = ()
    renamed: dict[int, str] = field(default_factory=dict)
    retyped: dict[int, str] = field(default_factory=dict)


def plan_change(known: Sequence[KnownColumn], drift: SchemaDrift) -> SchemaChange:
    """Decide what a drift means; raise RecordError when it says nothing that the state does not know already.

    A missing column whose announced new name is among the added ones is renamed. One of another type is stale, unless
    the texts of all its values are the same in the new type (core/retyping.py).
    """
    live = {one.column: one for one in known if not one.is_stale}
    added = dict(drift.added)
    may_be_renamed = False
    renamed, retyped, stale = {}, {}, []
    for column in drift.missing:
        one = live.get(column)
        if one is None:
            continue
        if one.renamed_to in added and one.renamed_to not in live:
            renamed[one.attribute_id] = one.renamed_to
            del added[one.renamed_to]  # another type, if it has one, shows under the new name
        elif one.is_key:
            raise RecordError(
                f"{drift}: it is part of the key by which the rows of {one.schema}.{one.table} are kept; bootstrap the "
                f"source again with --replace, or say before the source's ALTER TABLE what it becomes: subsetd "
                f"attribute rename {one.schema}.{one.table}.{column} NEW"
            )
        else:
            stale.append(one.attribute_id)
            may_be_renamed |= not one.is_empty
    for column, data_type in drift.retyped:
        one = live.get(column)
        if one is None or one.data_type == data_type:
            continue
        if one.is_empty or keeps_texts(one.data_type, data_type):
            retyped[one.attribute_id] = data_type
        elif one.is_key:
            raise RecordError(
                f"{drift}: it is part of the key by which the rows of {one.schema}.{one.table} are kept, and was "
                f"{one.data_type}, in which its values have other texts; bootstrap the source again with --replace"
            )
        else:
            stale.append(one.attribute_id)
    taken = {one.column for one in known}
    new = [(column, data_type) for column, data_type in added.items() if column not in taken]
    if not live:
        raise RecordError(
            f"{drift}: all its columns are stale, so that the number of its rows is not known any more; bootstrap the "
            f"source again with --replace"
        )
    if not (renamed or retyped or stale or new):
        raise RecordError(str(drift))
    columns = {column for column, _ in new}
    # A whole row before would show a value that was never sent; a kept row shows what the state believes, and a sketch
    # may show nothing.
    would_not_show = drift.table.row_images or any(one.is_sketch_only for one in known)
    filled = drift.filled or frozenset()
    # One that comes as another goes may be that one under another name, and hold its values in older rows.
    if would_not_show and (drift.filled is None or may_be_renamed):
        filled = frozenset(columns)
    return SchemaChange(tuple(new), frozenset(columns & filled), tuple(stale), renamed, retyped)


class Named(NamedTuple):
    """Hold what a name stands for: attributes, and the table if it is one's."""

    attributes: Sequence[KnownColumn]
    table: tuple[str, str] | None


def find_named(known: Sequence[KnownColumn], name: str) -> Named:
    """Find the attribute `schema.table.column` or the table `schema.table`; raise NotFoundError, also if it is both."""
    columns = [one for one in known if f"{one.schema}.{one.table}.{one.column}" == name and one.parts is None]
    of_tables = [one for one in known if f"{one.schema}.{one.table}" == name]
    tables = {(one.schema, one.table) for one in of_tables}
    if len(columns) + len(tables) > 1:
        raise NotFoundError(f"{name!r} names more than one thing, as names in it have dots: rename one at its source.")
    if columns:
        return Named([*columns, *_tuples_of(columns[0], known)], None)
    if tables:
        return Named(of_tables, tables.pop())
    raise NotFoundError(
        f"There is no attribute or table {name!r}; give schema.table.column or schema.table, as `subsetd attributes` "
        f"lists them."
    )


def _tuples_of(column: KnownColumn, known: Sequence[KnownColumn]) -> list[KnownColumn]:
    """Give the derived attributes that have a column among their parts."""
    table = column.schema, column.table
    return [one for one in known if (one.schema, one.table) == table and column.ordinal in (one.parts or ())]


class SchemaWriter(StateWriter, Protocol):
    """Be the state's writer, and read its attributes."""

    def known_columns(self) -> Sequence[KnownColumn]:
        """Read all attributes that are not dropped."""


def drop(writer: SchemaWriter, name: str, *, force: bool = False) -> tuple[int, Sequence[KnownColumn]]:
    """Take an attribute, or a whole table, out of the state: a version of its own. Return it, and what went.

    Waits for a consumer to hand the state over. Raises StateError for an attribute that is kept current, unless
    `force`: its source has it, and the next change would bring it back as a new one.
    """
    writer.acquire()
    try:
        named = find_named(writer.known_columns(), name)
        current = [one for one in named.attributes if not one.is_stale and one.parts is None]
        if current and not force:
            raise StateError(
                f"{name} is followed: as far as changes tell, its source still has it. Drop it there first, or give "
                f"--force, as for a table that is gone, of which no change tells."
            )
        if named.table is None and named.attributes[0].is_key:
            raise StateError(f"{name} is part of the key by which the rows of its table are kept: drop the table.")
        state = LiveState(writer.load(), 0)
        return extract(writer, state, {one.attribute_id for one in named.attributes}), named.attributes
    finally:
        writer.close()


def extract(writer: StateWriter, state: LiveState, attribute_ids: Collection[int]) -> int:
    """Take attributes with all of their values out of the state, and return the version."""
    unit = writer.begin()
    try:
        records = unit.records_of(state.clusters_of(attribute_ids), DROP_PORTION)
        delta = state.truncate(attribute_ids, records, unit.write_records)
        state.version += 1
        unit.commit(
            BatchCommit(
                version=state.version,
                generation=state.generation,
                feed=None,
                positions={},
                delta=delta,
                counts=BatchCounts(),
                dropped_attributes=sorted(attribute_ids),
            )
        )
    except BaseException:
        unit.rollback()
        raise
    return state.version
