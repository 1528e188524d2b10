"""Own how changes of tables' columns are stored: each is a version of kind `schema`, in one transaction."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg2.errors

from service.core.errors import NotFoundError, RecordError, StateError
from service.core.model import SchemaDrift, Since, Table, slot_feed
from service.core.retyping import UNTYPED, keeps_texts, shows_other_type
from service.core.tuples import tuple_name
from service.store import contract_upkeep, histograms, row_images, sketches
from service.store.database import connect, told_too_long
from service.store.shown_values import shown_of_source
from service.store.versions import tell_version
from service.store.writer_lock import releasing_locks, take_writer_lock
from service.usecases.schema_changes import KnownColumn, Named, find_named, plan_change

COMMAND_NAME = "subsetd attribute"

KNOWN = """
select attribute_id, schema_name, table_name, column_name, data_type, stale_version is not null, renamed_to,
       coalesce(row_images and column_name = any (key_columns), false),
       coalesce(distinct_count, row_count - null_count) = 0, sketch_only, ordinal, parts,
       exists (select from tracked_key where tracked_key.attribute_id = attribute.attribute_id)
from attribute join source using (source_id)
left join tracked_table using (source_id, schema_name, table_name) where dropped_version is null
"""

# A tuple is as current as its parts.
STALE_TUPLES = """
update attribute d set stale_version = %(version)s from attribute c
where c.attribute_id = any (%(attribute_ids)s) and d.dropped_version is null and d.stale_version is null
  and (d.schema_name, d.table_name) = (c.schema_name, c.table_name) and c.ordinal = any (d.parts)
"""
FRESH_TUPLES = """
update attribute d set stale_version = null from attribute c
where c.attribute_id = %(attribute_id)s and d.dropped_version is null and d.stale_version = c.stale_version
  and (d.schema_name, d.table_name) = (c.schema_name, c.table_name) and c.ordinal = any (d.parts)
  and not exists (
    select from attribute o where o.attribute_id <> c.attribute_id and o.parts is null and o.ordinal = any (d.parts)
      and (o.schema_name, o.table_name) = (c.schema_name, c.table_name) and o.dropped_version is null
      and o.stale_version is not null
  )
"""


def read_known(cursor: Any) -> list[KnownColumn]:
    """Read all attributes that are not dropped, by schema, table and ordinal."""
    cursor.execute(KNOWN + " order by schema_name, table_name, parts is not null, ordinal, attribute_id")
    return [KnownColumn(*row) for row in cursor]


def write_drift(cursor: Any, drift: SchemaDrift, feed: str) -> list[str]:
    """Write what the change of a table's columns means, and name those that are stale now; commits nothing.

    Raises RecordError when the state knows all of it already, and for a name that no state can hold.
    """
    try:
        return _write_drift(cursor, drift, feed)
    except psycopg2.errors.ProgramLimitExceeded as error:
        raise RecordError(f"{drift}: {told_too_long(error)}; give the column another name at the source") from error


def _write_drift(cursor: Any, drift: SchemaDrift, feed: str) -> list[str]:
    table = drift.table
    cursor.execute(KNOWN + " and parts is null and schema_name = %s and table_name = %s", (table.schema, table.name))
    known = {row[0]: KnownColumn(*row) for row in cursor}
    change = plan_change(list(known.values()), drift)
    version = write_version(cursor, feed)
    since = _shown_by(drift)
    _make_stale(cursor, change.stale, version)
    for attribute_id, column in change.renamed.items():
        _put_since(cursor, attribute_id, since, known[attribute_id].column)
        _rename(cursor, known[attribute_id], column)
    for attribute_id, data_type in change.retyped.items():
        _put_since(cursor, attribute_id, since)
        cursor.execute("update attribute set data_type = %s where attribute_id = %s", (data_type, attribute_id))
    for column, data_type in change.added:
        # Of what older rows hold unknown to us nothing can be said before the source is read again: it is stale. So is
        # what was dropped here alone and comes back.
        # Ids are never given twice, for history speaks of them, nor are places in a table, for kept rows go by them.
        cursor.execute(
            "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, data_type, "
            "row_count, null_count, distinct_count, repeated_count, added_version, stale_version, shown_characters) "
            "select (select max(attribute_id) + 1 from attribute), source_id, schema_name, table_name, %s, "
            "max(ordinal) + 1, %s, max(row_count) filter (where is_live), max(row_count) filter (where is_live), "
            "case when not sketch_only then 0 end, case when not insert_only and not sketch_only then 0 end, %s, "
            "case when (%s or bool_or(column_name = %s)) and max(row_count) filter (where is_live) > 0 "
            "then %s::bigint end, %s "
            "from (select *, dropped_version is null and (stale_version is null or stale_version = %s) as is_live "
            "from attribute where parts is null) a join source using (source_id) "
            "where schema_name = %s and table_name = %s "
            "group by source_id, schema_name, table_name, insert_only, sketch_only having bool_or(is_live)",
            (
                column, data_type, version, column in change.unknown, column, version, _shown(cursor, table, column),
                version, table.schema, table.name,
            ),
        )  # fmt: skip
    if change.added:
        cursor.execute("select attribute_id, column_name from attribute where added_version = %s", (version,))
        added = dict(cursor)
        for attribute_id, column in added.items():
            _put_since(cursor, attribute_id, since and since._replace(is_new=column not in change.unknown))
        sketches.write_empty(cursor, version, list(added))
    return [known[attribute_id].column for attribute_id in change.stale]


def read_since(told: Mapping[str, Sequence[Any]] | None) -> dict[int, Since]:
    """Read what a source's settings say of its columns that changed, by attribute id."""
    return {
        int(key): Since(ts_ms, topic, partition, is_new, tuple(was))
        for key, (ts_ms, topic, partition, is_new, was) in (told or {}).items()
    }


def _shown_by(drift: SchemaDrift) -> Since | None:
    """Give the place of the record that shows a change, where its time tells it from those before."""
    ts_ms = drift.source_position.get("ts_ms")
    return Since(ts_ms, *drift.position[:2]) if drift.position and isinstance(ts_ms, int) and ts_ms else None


def _since(cursor: Any, attribute_id: int) -> Since | None:
    cursor.execute(
        "select settings -> 'since' from attribute join source using (source_id) where attribute_id = %s",
        (attribute_id,),
    )
    (told,) = cursor.fetchone()
    return read_since(told).get(attribute_id)


def _put_since(cursor: Any, attribute_id: int, since: Since | None, *was: str) -> None:
    """Store since which record a column is as it is now, beside what is known of it already."""
    if since is None:
        return
    known = _since(cursor, attribute_id) or since
    told = {attribute_id: since._replace(is_new=known.is_new, was=(*known.was, *was))}
    cursor.execute(
        "update source set settings = jsonb_set(settings, '{since}', coalesce(settings -> 'since', '{}') || %s::jsonb) "
        "where source_id = (select source_id from attribute where attribute_id = %s)",
        (json.dumps(told), attribute_id),
    )


def _shown(cursor: Any, table: Table, column: str) -> int | None:
    """Say how much of a new column's values may be kept: as of one that had its name, or as its source says."""
    cursor.execute(
        "select shown_characters from attribute where (schema_name, table_name, column_name) = (%s, %s, %s) "
        "and parts is null order by attribute_id desc limit 1",
        (table.schema, table.name, column),
    )
    row = cursor.fetchone()
    if row is None:
        return shown_of_source(cursor, table.source)
    return row[0]  # type: ignore[no-any-return]


def write_stale(cursor: Any, attribute_ids: Sequence[int], feed: str) -> int:
    """Say of attributes that they are no longer kept current, as a version of its own; commits nothing."""
    version = write_version(cursor, feed)
    _make_stale(cursor, attribute_ids, version)
    return version


def write_dropped(cursor: Any, attribute_ids: Sequence[int], version: int) -> None:
    """Write that attributes, whose values are gone already, are no longer followed; tables without any go with them."""
    cursor.execute(
        "update attribute set dropped_version = %s where attribute_id = any (%s)", (version, list(attribute_ids))
    )
    cursor.execute("delete from tracked_key where attribute_id = any (%s)", (list(attribute_ids),))
    sketches.drop_sketches(cursor, attribute_ids)
    cursor.execute(
        "with gone as (delete from tracked_table t where not exists (select from attribute a "
        "where a.dropped_version is null and (a.schema_name, a.table_name) = (t.schema_name, t.table_name)) "
        "returning table_id) delete from row_image where table_id in (select table_id from gone)"
    )
    row_images.forget_cells(cursor, attribute_ids)
    histograms.forget_if_had(cursor, attribute_ids)


def rename(url: str, old: str, new: str, telling: Any) -> str:
    """Rename an attribute or a table of the state, and say what was done.

    A column that its source still has under the old name takes the new one when its changes show it. One that is
    stale takes it now; an attribute that came under the new name vanishes if no change was applied since. A table
    takes the new name now, and changes must call it so from now on.
    """
    with connect(url, COMMAND_NAME) as connection, releasing_locks(connection):
        take_writer_lock(connection, telling)
        with connection.cursor() as cursor:
            known = read_known(cursor)
            named = find_named(known, old)
            said = (
                _rename_column(cursor, named.attributes[0], new, known)
                if named.table is None
                else _rename_table(cursor, named, new, known)
            )
            connection.commit()
    return said


def _rename_column(cursor: Any, one: KnownColumn, new: str, known: Sequence[KnownColumn]) -> str:
    prefix = f"{one.schema}.{one.table}."
    column = new.removeprefix(prefix)
    if not new.startswith(prefix) or not column:
        raise NotFoundError(f"{new!r} is no column of {prefix[:-1]}: a column is renamed inside its table.")
    there = next((k for k in known if (k.schema, k.table, k.column) == (one.schema, one.table, column)), None)
    if there is None and not one.is_stale:
        cursor.execute("update attribute set renamed_to = %s where attribute_id = %s", (column, one.attribute_id))
        return f"{prefix}{one.column} becomes {new} with the first change that calls it so."
    if there is not None:
        cursor.execute(
            "select a.added_version is not null and coalesce(a.distinct_count, 0) = 0 and a.null_count = a.row_count "
            "and a.row_count = o.row_count and o.stale_version = a.added_version "
            "and not exists (select from state_version v where v.version > a.added_version and v.kind <> 'schema') "
            "from attribute a, attribute o where a.attribute_id = %s and o.attribute_id = %s",
            (there.attribute_id, one.attribute_id),
        )
        if not cursor.fetchone()[0]:
            raise StateError(
                f"{new} is an attribute of its own, and changes were applied since it came: what it and "
                f"{prefix}{one.column} hold together cannot be known. Bootstrap the source again with --replace. (A "
                f"name that is given before the source's ALTER TABLE keeps both one.)"
            )
        _require_same_texts(cursor, one, there)
        _require_no_key(cursor, there, known)
    version = write_version(cursor, None)
    if there is not None:
        cursor.execute(
            "update attribute set dropped_version = %s, row_count = 0, null_count = 0 where attribute_id = %s "
            "returning data_type",
            (version, there.attribute_id),
        )
        (told,) = cursor.fetchone()
        data_type = one.data_type if told == UNTYPED else told
        cursor.execute(FRESH_TUPLES, {"attribute_id": one.attribute_id})
        cursor.execute(
            "update attribute set stale_version = null, data_type = %s where attribute_id = %s",
            (data_type, one.attribute_id),
        )
        sketches.drop_sketches(cursor, [there.attribute_id])
        since = _since(cursor, there.attribute_id)
        _put_since(cursor, one.attribute_id, since and since._replace(is_new=False), one.column)
    _rename(cursor, one, column)
    return f"{prefix}{one.column} is now {new}, since version {version}."


def _require_same_texts(cursor: Any, one: KnownColumn, new: KnownColumn) -> None:
    """Raise StateError where a column got another type with its name, in which its old values have other texts.

    A slot's feed tells types as they are, others as far as encodings do.
    """
    cursor.execute(
        "select (select starts_with(feed, %s) from state_version where version = added_version) from attribute "
        "where attribute_id = %s",
        (slot_feed(""), new.attribute_id),
    )
    (is_exact,) = cursor.fetchone()
    is_other = shows_other_type(one.data_type, new.data_type) or (is_exact and one.data_type != UNTYPED)
    if is_other and not one.is_empty and not keeps_texts(one.data_type, new.data_type):
        raise StateError(
            f"{new.schema}.{new.table}.{new.column} is {new.data_type}, and {one.column} was {one.data_type}, in which "
            f"its values have other texts. Bootstrap the source again with --replace."
        )


def _require_no_key(cursor: Any, one: KnownColumn, known: Sequence[KnownColumn]) -> None:
    """Raise StateError where a key is tracked that has a column: it would go with the attribute."""
    of_table = [k for k in known if (k.schema, k.table) == (one.schema, one.table)]
    columns = {k.ordinal: k.column for k in of_table if k.parts is None}
    keys = [list(k.parts) for k in of_table if k.parts is not None and one.ordinal in k.parts]
    cursor.execute("select from tracked_key where attribute_id = %s", (one.attribute_id,))
    keys += [[one.ordinal] for _ in cursor]
    if keys:
        name = f"{one.schema}.{one.table}({', '.join(columns[place] for place in keys[0])})"
        raise StateError(
            f"The key {name} is tracked on the column that is to go. Drop it by "
            f"`{shlex.join(['subsetd', 'keys', 'drop', name])}`, and track it again behind the renaming."
        )


def _rename_table(cursor: Any, named: Named, new: str, known: Sequence[KnownColumn]) -> str:
    assert named.table is not None
    schema, dot, table = new.rpartition(".")
    if not (schema and dot and table):
        raise NotFoundError(f"{new!r} is no name of a table: give schema.table.")
    if any((one.schema, one.table) == (schema, table) for one in known):
        drop_it = shlex.join(["subsetd", "attribute", "drop", new, "--force"])
        raise StateError(f"There is a table {new} already; if it is gone at the source, drop it first: {drop_it}")
    version = write_version(cursor, None)
    # Those that are dropped go with the table: their places in it stay taken, for kept rows go by them.
    cursor.execute(
        "update attribute set schema_name = %s, table_name = %s where (schema_name, table_name) = (%s, %s) "
        "and source_id = (select source_id from attribute where attribute_id = %s)",
        (schema, table, *named.table, named.attributes[0].attribute_id),
    )
    # What a qualified schema is called in changes is what is behind the source's name.
    cursor.execute(
        "update tracked_table set schema_name = %(schema)s, table_name = %(table)s, source_table = %(table)s, "
        "source_schema = case when schema_name = %(schema)s then source_schema "
        "when starts_with(%(schema)s, name || '.') then substr(%(schema)s, length(name) + 2) else %(schema)s end "
        "from source where source.source_id = tracked_table.source_id and schema_name = %(old_schema)s "
        "and table_name = %(old_table)s",
        {"schema": schema, "table": table, "old_schema": named.table[0], "old_table": named.table[1]},
    )
    contract_upkeep.follow_table(cursor, named.table, (schema, table))
    return f"{'.'.join(named.table)} is now {new}, since version {version}; changes must call it so."


def _make_stale(cursor: Any, attribute_ids: Sequence[int], version: int) -> None:
    if attribute_ids:
        cursor.execute(
            "update attribute set stale_version = %s, renamed_to = null where attribute_id = any (%s)",
            (version, list(attribute_ids)),
        )
        cursor.execute(STALE_TUPLES, {"version": version, "attribute_ids": list(attribute_ids)})


def _rename(cursor: Any, one: KnownColumn, column: str) -> None:
    cursor.execute(
        "update attribute set column_name = %s, renamed_to = null where attribute_id = %s", (column, one.attribute_id)
    )
    _rename_tuples(cursor, one)
    cursor.execute(
        "update tracked_table set key_columns = array_replace(key_columns, %s, %s) "
        "where schema_name = %s and table_name = %s",
        (one.column, column, one.schema, one.table),
    )
    contract_upkeep.follow_column(cursor, (one.schema, one.table), one.column, column)


def _rename_tuples(cursor: Any, one: KnownColumn) -> None:
    """Name the derived attributes of a column's table by their columns as they are now."""
    cursor.execute(KNOWN + " and schema_name = %s and table_name = %s", (one.schema, one.table))
    known = [KnownColumn(*row) for row in cursor]
    columns = {column.ordinal: column.column for column in known if column.parts is None}
    cursor.executemany(
        "update attribute set column_name = %s where attribute_id = %s",
        [(tuple_name([columns[p] for p in one.parts]), one.attribute_id) for one in known if one.parts is not None],
    )


def write_version(cursor: Any, feed: str | None) -> int:
    """Write a version that is no batch; commits nothing."""
    cursor.execute(
        "insert into state_version (version, generation, kind, feed) "
        "select version + 1, generation, 'schema', %s from state_version order by version desc limit 1 "
        "returning version",
        (feed,),
    )
    (version,) = cursor.fetchone()
    tell_version(cursor, version)
    return int(version)
