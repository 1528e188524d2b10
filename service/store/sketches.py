"""Own the sketches in the store: their form, what a version changes in them, and reading them as a version has them.

A sketch at version V is its stored bytes and, on top, what `sketch_change` says of the versions behind its own up to V.
So a batch adds one row to a log, and the sketches are written again only when a compactor folds the log into them
(store/sketch_compaction.py), which changes nothing that anybody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg2.extras import execute_values
from sqlalchemy import Connection, text

from service.core.errors import SketchError
from service.core.sketch_changes import SketchChanges
from service.core.sketch_upkeep import SketchBuilder, SketchForm, apply_changes
from service.core.sketches.column import ColumnSketch
from service.store.bulk import KeyRange, read_range

PORTION_RECORDS = 500_000
"""Records that are held at once while sketches are built from them."""

FORM = "select bucket_bits, k, spares from sketch_form"

# Whoever puts other sketches in the place of those that are there goes first or waits: a compactor writes many rows.
LOCK = "lock table sketch in share row exclusive mode"

EMPTY = """
insert into sketch (attribute_id, version, sketch)
select attribute_id, %s, case when sketch_only then %s else %s end from attribute join source using (source_id)
where attribute_id = any (%s)
on conflict (attribute_id) do update set
    version = excluded.version, sketch = excluded.sketch, needs_rescan = false, fault = null
"""

SKETCHES = """
select attribute_id, version, sketch, fault, concat_ws('.', schema_name, table_name, column_name)
from sketch join attribute using (attribute_id) where dropped_version is null and {which} order by attribute_id
"""

CHANGES = "select version, changes from sketch_change where version > :after order by version"


@dataclass(frozen=True, slots=True)
class StoredSketches:
    """Hold the sketches of attributes at one version; `faults` says why an attribute's is not to be had."""

    by_id: dict[int, ColumnSketch]
    faults: dict[int, str]


def read_form(cursor: Any) -> SketchForm | None:
    """Read of what form the sketches are; None where the state has none."""
    cursor.execute(FORM)
    row = cursor.fetchone()
    return None if row is None else SketchForm(*row)


def write_changes(cursor: Any, version: int, changes: SketchChanges) -> None:
    """Write what a version changes in sketches, if it does."""
    if len(changes.hashes):
        cursor.execute("insert into sketch_change values (%s, %s)", (version, changes.to_bytes()))


def write_empty(cursor: Any, version: int, attribute_ids: Sequence[int]) -> None:
    """Write that attributes have no value at a version, whatever was said of them before."""
    form = read_form(cursor) if attribute_ids else None
    if form is None:
        return
    cursor.execute(LOCK)
    bytes_of = [form.empty(counts_values=counts).to_bytes() for counts in (False, True)]
    cursor.execute(EMPTY, (version, *bytes_of, list(attribute_ids)))


def drop_sketches(cursor: Any, attribute_ids: Sequence[int]) -> None:
    """Forget the sketches of attributes."""
    cursor.execute(LOCK)
    cursor.execute("delete from sketch where attribute_id = any (%s)", (list(attribute_ids),))


def write_form(cursor: Any, form: SketchForm | None) -> None:
    """Write of what form all sketches are from now on; None: the state has none."""
    cursor.execute("delete from sketch_form")
    if form is not None:
        cursor.execute("insert into sketch_form values (%s, %s, %s)", form)


def write_sketches(cursor: Any, version: int, sketches: Iterable[tuple[int, bytes]]) -> None:
    """Write new sketches of attributes, as they are at a version."""
    execute_values(
        cursor,
        "insert into sketch (attribute_id, version, sketch) values %s",
        [(attribute_id, version, sketch) for attribute_id, sketch in sketches],
    )


def read_sketches(connection: Connection, attribute_ids: Sequence[int] | None = None) -> StoredSketches:
    """Read the sketches of these attributes (None: of all that have one) as the connection's transaction sees them.

    Give it a transaction that sees one version.
    """
    which = "true" if attribute_ids is None else "attribute_id = any (:ids)"
    rows = connection.execute(text(SKETCHES.format(which=which)), {"ids": attribute_ids} if attribute_ids else {}).all()
    changes = read_changes(connection, min((row[1] for row in rows), default=0)) if rows else []
    found = StoredSketches({}, {})
    for attribute_id, version, data, fault, name in rows:
        try:
            if fault is not None:
                raise SketchError(fault)
            sketch = ColumnSketch.from_bytes(bytes(data))
            apply_changes(sketch, [change for at, change in changes if at > version], attribute_id)
            found.by_id[attribute_id] = sketch
        except SketchError as error:
            found.faults[attribute_id] = fault_of(name, error)
    return found


def read_changes(connection: Connection, after: int) -> list[tuple[int, SketchChanges]]:
    """Read what the versions behind one changed, by version."""
    rows = connection.execute(text(CHANGES), {"after": after})
    return [(version, SketchChanges.from_bytes(bytes(changes))) for version, changes in rows]


def build_sketches(connection: Any, form: SketchForm, attribute_ids: Sequence[int]) -> dict[int, ColumnSketch]:
    """Build the sketches of attributes from all their gen_recs, range by range of the keys, on a raw connection.

    Its transaction must have locked gen_rec before it took its snapshot: a bootstrap swaps partitions.
    """
    builder = SketchBuilder(form, attribute_ids)
    with connection.cursor() as cursor:
        cursor.execute("select coalesce(sum(value_count), 0)::bigint from cluster")
        (records,) = cursor.fetchone()
    bits = (int(records) // PORTION_RECORDS).bit_length()
    for number in range(1 << bits):
        found = read_range(connection, KeyRange(number, bits))
        builder.add(found.high, found.starts, found.attribute_ids.astype(np.int64))
    return builder.sketches


def fault_of(name: str, error: SketchError) -> str:
    """Say whose sketch cannot be used, and what to do."""
    told = str(error)
    if told.startswith(name):
        return told
    return f"{name}: {told}; bootstrap its source again with --replace, which makes its sketch anew."
