"""Own the forgetting of texts that were kept before their column's values were not to be kept: all but gen_rec.

docs/stored-values.md lists the places. All is by what `attribute.shown_characters` says now, so that a second time
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.core.shown_values import WHOLE
from service.store.dead_letters import IS_WITHHELD
from service.store.histograms import forget_if_had
from service.store.shown_values import RESTRICTED, shown_value

# What is followed no longer is remembered by transitions: a column that had the name of one of these, and tuples that
# had one of either as a part, by its place.
DROPPED = f"""
with hidden as (
    select schema_name, table_name, column_name, shown_characters from attribute
    where attribute_id = any (%(ids)s) and parts is null and shown_characters is not null
), columns as (
    select a.attribute_id, schema_name, table_name, a.ordinal, h.shown_characters
    from attribute a join hidden h using (schema_name, table_name, column_name) where a.parts is null
), dropped as (
    select attribute_id, shown_characters from columns
    union all
    select a.attribute_id, 0 from attribute a join columns c using (schema_name, table_name)
    where c.ordinal = any (a.parts)
)
update attribute a set shown_characters = least(coalesce(a.shown_characters, {WHOLE}), d.shown_characters)
from (select attribute_id, min(shown_characters) as shown_characters from dropped group by 1) d
where a.attribute_id = d.attribute_id and a.dropped_version is not null returning a.attribute_id
"""

TRANSITIONS = f"""
update ind_transition t set witness_value = {shown_value("witness_value")} from attribute a
where a.attribute_id = t.dependent_id and a.attribute_id = any (%(ids)s) and witness_value is not null
"""

# The row that did it is one of either side's table, and is named by its key.
ROWS = """
update ind_transition t set changed_row = null from attribute own, attribute a
where own.attribute_id in (t.dependent_id, t.referenced_id) and a.attribute_id = any (%(ids)s)
    and (a.schema_name, a.table_name) = (own.schema_name, own.table_name) and changed_row is not null
"""
CONTRACT_ROWS = """
update contract_transition t set changed_row = null from contract c, attribute a
where c.contract_id = t.contract_id and a.attribute_id = any (%(ids)s) and changed_row is not null
    and (a.schema_name, a.table_name) in ((dependent_schema, dependent_table), (referenced_schema, referenced_table))
"""

# A witness of several columns is the text of their tuple.
CONTRACT_TRANSITIONS = f"""
update contract_transition t
set witness_value = case when cardinality(c.dependent_columns) = 1 then {shown_value("witness_value")} end
from contract c join attribute a on (a.schema_name, a.table_name) = (c.dependent_schema, c.dependent_table)
    and a.column_name = any (c.dependent_columns) and a.parts is null and a.dropped_version is null
where c.contract_id = t.contract_id and a.attribute_id = any (%(ids)s) and witness_value is not null
"""

# Evidence of candidates has missing values, and the ends of keys.
CANDIDATES = "delete from foreign_key_refresh"

# Which column's bytes are which is not known of a record that could not be applied. Letters of the first schema
# revision have its text alone.
DEAD_LETTERS = f"""
update dead_letter set record = '', record_key = null, record_value = null, headers = null,
    message = 'topic ' || topic || ', partition ' || partition || ', offset ' || record_offset
        || ': it was set aside before values of its table were not to be kept; why is not kept either'
where not {IS_WITHHELD} and (table_name is null or table_name not in (
    select source_schema || '.' || source_table from tracked_table group by 1 having not bool_or(exists (
        select from attribute a where (a.schema_name, a.table_name)
            = (tracked_table.schema_name, tracked_table.table_name) and attribute_id in ({RESTRICTED})))
))
"""

ALERTS = """
update watch_alert set body = jsonb_set(body, '{subjects}', (
    select coalesce(jsonb_agg(one - 'witness_value' - 'row' - 'message' order by place), '[]')
    from jsonb_array_elements(body -> 'subjects') with ordinality as subject (one, place)))
where jsonb_typeof(body -> 'subjects') = 'array'
"""
STANDINGS = "update watch_standing set detail = detail - 'witness_value' - 'row' - 'message'"

# Why a bootstrap failed may quote what it could not read.
FAULTS = """
update bootstrap_run set fault = 'it failed before values were not to be kept; why is not kept either'
where fault is not null
"""

FEED_FAULTS = "update feed set fault = null, fault_at = null where fault is not null"

FORGETTING = (
    TRANSITIONS,
    CONTRACT_TRANSITIONS,
    ROWS,
    CONTRACT_ROWS,
    CANDIDATES,
    DEAD_LETTERS,
    ALERTS,
    STANDINGS,
    FAULTS,
    FEED_FAULTS,
)


def forget_texts(cursor: Any, attribute_ids: Sequence[int]) -> None:
    """Cut what is kept of the values of attributes beside their records to what may be; commits nothing."""
    ids = {"ids": list(attribute_ids)}
    cursor.execute(DROPPED, ids)
    ids["ids"] += [attribute_id for (attribute_id,) in cursor]
    for statement in FORGETTING:
        cursor.execute(statement, ids)
    forget_if_had(cursor, ids["ids"])
