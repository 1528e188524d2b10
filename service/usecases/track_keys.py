"""Own how keys are tracked, or tracked no longer, beside a consumer: a version of its own, with a snapshot of its own.

The writer stands at a position while the tuples are read, so what they are read of is at that position or ahead of it.
What they are ahead is told by the snapshot: the consumer leaves out of the tuples the changes that it shows. All tuples
of the source that can be equal to them are read in that snapshot, so that what is said of two is of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

from service.core.errors import ConflictError, NotFoundError, StateError
from service.core.model import Attribute, AttributeCounters, AttributeName, DerivedAttribute, Table
from service.core.records import Deltas
from service.core.shown_values import WHOLE, shown_of_tuple
from service.core.tuples import MOST_PARTS, TUPLE_TYPE, tuple_name
from service.usecases.key_values import KeyKind
from service.usecases.live_state import BatchCommit, BatchCounts, LiveState, NewTuples, StoredState
from service.usecases.ports import StateWriter
from service.usecases.schema_changes import DROP_PORTION, SchemaWriter, extract


@dataclass(frozen=True, slots=True)
class CountedTuples:
    """Hold at least one tuple, by ascending keys, each with its text and in how many rows each attribute has it."""

    counts: Deltas
    texts: Sequence[str]


class Wanted(NamedTuple):
    """Name an attribute of tuples that are to be read, by its table and columns."""

    attribute_id: int
    table: Table
    columns: Sequence[str]

    @classmethod
    def of(cls, table: Table, derived: DerivedAttribute) -> Wanted:
        """Name one that is followed."""
        columns = [table.attributes[place].name.column for place in derived.places]
        return cls(derived.attribute.attribute_id, table, columns)

    def shown(self) -> int | None:
        """Say how many characters of the tuples may be kept, None: all."""
        shown = {one.name.column: one.shown_characters for one in self.table.attributes}
        return shown_of_tuple(shown[column] for column in self.columns)

    def characters(self) -> int:
        """Say the same as kernels take it."""
        shown = self.shown()
        return WHOLE if shown is None else shown

    def derived(self, snapshot: str | None) -> DerivedAttribute:
        """Make the attribute of one that is not followed yet, as read in a snapshot."""
        table = self.table
        by_name = {attribute.name.column: attribute for attribute in table.attributes}
        attribute = Attribute(
            self.attribute_id,
            AttributeName(table.schema, table.name, tuple_name(self.columns)),
            by_name[self.columns[0]].ordinal,
            TUPLE_TYPE,
            table.insert_only,
            shown_characters=self.shown(),
        )
        places = tuple(table.attributes.index(by_name[column]) for column in self.columns)
        return DerivedAttribute(attribute, places, snapshot)


def find_table(stored: StoredState, schema: str, name: str, columns: Sequence[str]) -> Table:
    """Find the table whose columns are to be a key; raise NotFoundError or StateError where they cannot be."""
    found = next((table for table in stored.tables if (table.schema, table.name) == (schema, name)), None)
    if found is None:
        raise NotFoundError(f"There is no table {schema}.{name} that is followed.")
    if not columns or len(columns) > MOST_PARTS:
        raise StateError(f"{found}: a key has 1 to {MOST_PARTS} columns.")
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise StateError(f"{found}: the column {twice!r} comes twice in the key.")
    known = {attribute.name.column for attribute in found.attributes}
    unknown = [column for column in columns if column not in known]
    if unknown:
        raise NotFoundError(
            f"{found}: no column {unknown[0]!r} of it is kept current. It has: {', '.join(sorted(known))}."
        )
    if any(attribute.sketch_only for attribute in found.attributes):
        raise StateError(f"{found}: its source is sketch-only, so that nothing is known of single tuples.")
    return found


def find_attribute(table: Table, columns: Sequence[str]) -> int | None:
    """Find the id of the attribute that follows these columns of a table, None where there is none yet."""
    names = [attribute.name.column for attribute in table.attributes]
    if len(columns) == 1:
        return table.attributes[names.index(columns[0])].attribute_id
    places = tuple(names.index(column) for column in columns)
    return next((one.attribute.attribute_id for one in table.derived if one.places == places), None)


def read_beside(stored: StoredState, new: Sequence[Wanted]) -> list[Wanted]:
    """Give the followed tuples that are to be read in one snapshot with new ones.

    They are those of the same source that can be equal to them. Where they stayed as old as the writer's position, a
    contract between both would be held against rows of two moments.
    """
    alike = {(one.table.source, len(one.columns)) for one in new}
    return [
        Wanted.of(table, derived)
        for table in stored.tables
        for derived in table.derived
        if (table.source, len(derived.places)) in alike
    ]


def track(
    writer: StateWriter,
    stored: StoredState,
    new: Sequence[Wanted],
    snapshot: str | None,
    counted: Iterable[CountedTuples],
    rows: Callable[[], Mapping[int, int]],
    kind: KeyKind,
    beside: Sequence[int] = (),
) -> int:
    """Follow the tuples of tables' columns from now on, given those that their rows have; return the version.

    `writer` must have been acquired before the rows were read, and `stored` be what it loaded. `counted` has the tuples
    of the attributes `beside` as well, in the same snapshot. `rows` counts each attribute's rows behind the last tuple.
    """
    derived = [(one.table, one.derived(snapshot)) for one in new]
    begun = {one.attribute_id: AttributeCounters(repeated_count=None if one.table.insert_only else 0) for one in new}
    state = LiveState(
        replace(
            stored,
            tables=tuple(
                replace(one, derived=(*one.derived, *(of_new for table, of_new in derived if table is one)))
                for one in stored.tables
            ),
            counters={**stored.counters, **begun},
        ),
        0,
    )
    parts = [[table.attributes[place].ordinal for place in of_one.places] for table, of_one in derived]
    attributes = [of_one.attribute for _, of_one in derived]
    unit = writer.begin()
    try:
        portions = ((one.counts, writer.lookup(one.counts.keys), list(one.texts)) for one in counted)
        records_of = partial(unit.records_of, portion=DROP_PORTION)
        delta = state.fill([*begun, *beside], portions, records_of, unit.write_records, rows)
        unit.commit(
            BatchCommit(
                version=stored.version + 1,
                generation=stored.generation,
                feed=None,
                positions={},
                delta=delta,
                counts=BatchCounts(),
                new_tuples=NewTuples(list(zip(attributes, parts, strict=True)), snapshot, kind, beside),
            )
        )
    except BaseException:
        unit.rollback()
        raise
    return stored.version + 1


class KeyWriter(SchemaWriter, Protocol):
    """Be the state's writer, read its attributes, and say which are keys."""

    def pin(self, attribute_id: int, kind: KeyKind | None) -> int:
        """Track an attribute as a key of a kind, or (None) no longer; return the version."""


def drop(writer: KeyWriter, schema: str, name: str, columns: Sequence[str]) -> int:
    """Track columns no longer as a key, and follow their tuples no longer, current or stale; return the version."""
    writer.acquire()
    try:
        of_table = [one for one in writer.known_columns() if (one.schema, one.table) == (schema, name)]
        by_ordinal = {one.ordinal: one.column for one in of_table if one.parts is None}
        known = next(
            (one for one in of_table if [by_ordinal[place] for place in one.parts or [one.ordinal]] == list(columns)),
            None,
        )
        if known is None:
            raise NotFoundError(
                f"{schema}.{name}({', '.join(columns)}) is not followed; `subsetd keys list --tracked` lists the keys "
                f"that are."
            )
        if not known.is_tracked:
            raise ConflictError("It is not tracked as a key: `subsetd keys list --tracked` lists those that are.")
        if len(columns) == 1:
            return writer.pin(known.attribute_id, None)
        return extract(writer, LiveState(writer.load(), 0), [known.attribute_id])
    finally:
        writer.close()
