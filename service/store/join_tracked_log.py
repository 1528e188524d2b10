"""Own the log of the changed rows of indexed tables, which the consumer writes in its transaction.

It has row keys alone: what the rows are now, `row_image` has. So the log is right whatever a change was, and an index
is what the kept rows give.
"""

from __future__ import annotations

from typing import Any

from psycopg2.extras import execute_values

from service.usecases.live_state import BatchCommit

# Whoever adds a table takes share row exclusive: every batch behind his commit knows of it.
INDEXED = "lock table join_tracked in row exclusive mode; select table_id from join_tracked"
LOG = "insert into join_change (table_id, version, row_keys) values %s"

# The row of join_tracked first, as compactions do: so neither waits for the other in a circle.
EMPTIED = """
update join_tracked set built_version = %(version)s, row_count = 0 where table_id = %(table_id)s;
delete from join_segment where table_id = %(table_id)s;
delete from join_change where table_id = %(table_id)s
"""


def write_changes(cursor: Any, commit: BatchCommit) -> None:
    """Log which rows of indexed tables a version changes; what a truncate empties, its index loses at once."""
    if not commit.images and commit.emptied is None:
        return
    cursor.execute(INDEXED)
    indexed = {table_id for (table_id,) in cursor}
    if commit.emptied is not None and commit.emptied.table_id in indexed:
        cursor.execute(EMPTIED, {"version": commit.version, "table_id": commit.emptied.table_id})
    logged = [
        (table.table_id, commit.version, b"".join(images))
        for table, images in commit.images.items()
        if table.table_id in indexed and images
    ]
    if logged:
        execute_values(cursor, LOG, logged)
