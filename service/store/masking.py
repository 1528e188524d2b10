"""Own the mask of a column that is followed: less is kept of its values, and what is stored of them goes.

All is by what `attribute.shown_characters` says, in one transaction and as a version of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.core.errors import NotFoundError, StateError
from service.core.shown_values import WHOLE, parse_shown, told_shown
from service.store.database import connect
from service.store.schema_changes import COMMAND_NAME, read_known, write_version
from service.store.shown_values import refuse_shards
from service.store.stored_texts import forget_texts
from service.store.writer_lock import releasing_locks, take_bootstrap_lock, take_writer_lock
from service.usecases.schema_changes import find_named

RECORDS = """
update gen_rec set value = left(value, of_cluster.most)
from (
    select cluster_id, max(coalesce(shown_characters, %(whole)s)) as most
    from cluster, unnest(attribute_ids) as member (attribute_id) join attribute using (attribute_id)
    where attribute_ids && %(ids)s group by cluster_id
) as of_cluster
where gen_rec.cluster_id = of_cluster.cluster_id and char_length(value) > of_cluster.most
"""


def mask(url: str, name: str, keep: str, telling: Callable[[str], None]) -> str:
    """Keep less of the values of a column, remove what is stored of them, and say what was done.

    A consumer, which `telling` hears is waited for, hands the state over meanwhile. Raises StateError where more is to
    be kept than is now (what is not stored can only be read again), and for a table whose rows are kept.
    """
    characters = parse_shown(keep)
    with connect(url, COMMAND_NAME) as connection, releasing_locks(connection):
        take_bootstrap_lock(connection)  # a bootstrap would put what it has read already in the place of this
        take_writer_lock(connection, telling)
        with connection.cursor() as cursor:
            named = find_named(read_known(cursor), name)
            if named.table is not None:
                raise NotFoundError(f"{name} is a table; give schema.table.column.")
            column, *tuples = (one.attribute_id for one in named.attributes)
            _require_less(cursor, name, column, characters)
            version = write_version(cursor, None)
            cursor.execute("update attribute set shown_characters = %s where attribute_id = %s", (characters, column))
            cursor.execute("update attribute set shown_characters = 0 where attribute_id = any (%s)", (tuples,))
            cursor.execute(RECORDS, {"ids": [column, *tuples], "whole": WHOLE})
            records = cursor.rowcount
            # What watches write at this moment is seen below; their next look sees what is left (PostgresLooks.look).
            cursor.execute("lock table watch_alert, watch_standing in share row exclusive mode")
            forget_texts(cursor, [column, *tuples])
            refuse_shards(cursor)
            connection.commit()
    return (
        f"{name}: {told_shown(characters)} is kept of its values since version {version}; {records:,} were cut. "
        f"Pages and backups of before still have them: VACUUM FULL gen_rec, and drop old backups."
    )


def _require_less(cursor: Any, name: str, attribute_id: int, characters: int | None) -> None:
    cursor.execute(
        "select shown_characters, coalesce(row_images, false) from attribute "
        "left join tracked_table using (source_id, schema_name, table_name) where attribute_id = %s",
        (attribute_id,),
    )
    now, keeps_rows = cursor.fetchone()
    if characters is None or (now is not None and now <= characters):
        raise StateError(
            f"{name}: {told_shown(now)} is kept of its values already. More can only be read again: bootstrap its "
            f"source with --replace --mask {name}={told_shown(characters)}."
        )
    if keeps_rows:
        raise StateError(
            f"{name}: the rows of its table are kept whole, as its changes bring no whole rows. Mend that at the "
            f"source, and bootstrap it again with --replace --row-images never --mask {name}."
        )
