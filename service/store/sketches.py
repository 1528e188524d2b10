"""Own what a version writes of the sketches, in its own transaction.

A sketch at version V is its stored bytes and, on top, what `sketch_change` says of the versions behind its own up to V.
So a batch adds one row to a log, and the sketches are written again only when a compactor folds the log into them
(store/sketch_compaction.py), which makes no version: they are of the same values as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.core.sketch_changes import SketchChanges
from service.core.sketch_upkeep import SketchForm
from service.core.sketches.column import ColumnSketch

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


def write_filled(cursor: Any, version: int, attribute_id: int, sketch: ColumnSketch) -> None:
    """Write the sketch of all values that an attribute has at a version, whatever was said of it before."""
    cursor.execute(LOCK)
    cursor.execute(
        "insert into sketch (attribute_id, version, sketch, needs_rescan) values (%s, %s, %s, %s) "
        "on conflict (attribute_id) do update set version = excluded.version, sketch = excluded.sketch, "
        "needs_rescan = excluded.needs_rescan, fault = null",
        (attribute_id, version, sketch.to_bytes(), sketch.needs_rescan),
    )


def drop_sketches(cursor: Any, attribute_ids: Sequence[int]) -> None:
    """Forget the sketches of attributes."""
    cursor.execute(LOCK)
    cursor.execute("delete from sketch where attribute_id = any (%s)", (list(attribute_ids),))
