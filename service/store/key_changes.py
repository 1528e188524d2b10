"""Own how single keys come to be tracked and cease to be, each as a version of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.core.errors import ConflictError
from service.core.sketches.column import ColumnSketch
from service.store.histograms import forget_values
from service.store.sketches import write_filled
from service.usecases.key_values import KeyKind
from service.usecases.live_state import NewTuples

FACTS = """
select kind, location, settings, insert_only, exists (
    select from state_version where version > bootstrapped_version and state_version.kind = 'batch'
) from source where name = %s
"""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Hold where a source was read and how; `has_changed`: changes of some source were applied since."""

    kind: str
    location: str
    settings: Mapping[str, Any]
    insert_only: bool
    has_changed: bool


def read_facts(connection: Any, source_name: str) -> SourceFacts:
    """Read what there is to know of a source that is to be read again."""
    with connection.cursor() as cursor:
        cursor.execute(FACTS, (source_name,))
        found = cursor.fetchone()
    connection.commit()
    return SourceFacts(*found)


def add_tuples(cursor: Any, version: int, new: NewTuples, sketches: Mapping[int, ColumnSketch]) -> None:
    """Add derived attributes, tracked as keys, with the sketches of all that were read with them; commits nothing."""
    for attribute, parts in new.attributes:
        cursor.execute(
            "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, data_type, "
            "row_count, null_count, distinct_count, repeated_count, parts, snapshot, shown_characters) "
            "select %s, source_id, schema_name, table_name, %s, ordinal, %s, 0, 0, 0, 0, %s, %s, %s from attribute "
            "where (schema_name, table_name) = (%s, %s) and ordinal = %s and parts is null and dropped_version is null",
            (
                attribute.attribute_id, attribute.name.column, attribute.data_type, list(parts), new.snapshot,
                attribute.shown_characters, *attribute.name[:2], attribute.ordinal,
            ),
        )  # fmt: skip
    cursor.execute("update attribute set snapshot = %s where attribute_id = any (%s)", (new.snapshot, list(new.beside)))
    forget_values(cursor, new.beside, version)
    for attribute_id, sketch in sketches.items():
        write_filled(cursor, version, attribute_id, sketch)
    for attribute, _ in new.attributes:
        pin(cursor, version, attribute.attribute_id, new.kind)


def pin(cursor: Any, version: int, attribute_id: int, kind: KeyKind) -> None:
    """Track an attribute as a key; raise ConflictError when it is."""
    cursor.execute(
        "insert into tracked_key (attribute_id, kind, since_version) values (%s, %s, %s) "
        "on conflict (attribute_id) do nothing",
        (attribute_id, kind, version),
    )
    if not cursor.rowcount:
        raise ConflictError("It is tracked as a key already: `subsetd keys list --tracked`.")


def unpin(cursor: Any, attribute_id: int) -> None:
    """Track an attribute no longer as a key."""
    cursor.execute("delete from tracked_key where attribute_id = %s", (attribute_id,))
