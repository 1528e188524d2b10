"""Own the statements that read one version of the state, and the conditions of filters; `reader` runs them."""

from __future__ import annotations

from typing import Any

from service.store.locks import FEED_KEY, FEED_LOCK, is_held
from service.usecases.answers import AttributeFilter

HEAD = """
select version, generation, kind, committed_at, newest_source_ms, transaction_consistent,
       (select min(version) from state_version) as first_version
from state_version order by version desc limit 1
"""

SOURCES = """
select s.name, s.kind, s.location, s.insert_only, s.bootstrapped_version, s.bootstrapped_at,
       count(distinct (a.schema_name, a.table_name)) filter (where a.attribute_id is not null) as table_count,
       count(a.attribute_id) as attribute_count
from source s left join attribute a on a.source_id = s.source_id and a.dropped_version is null and a.parts is null
group by s.source_id order by s.name collate "C"
"""

POSITIONS = """
select feed, topic, partition, next_offset, source_position, version, paused_at
from feed_position left join feed using (feed) order by feed collate "C", topic collate "C", partition
"""

# One that was begun once, of which nothing was applied, is no matter while nobody follows it and nothing ails it.
FEEDS = f"""
with moved as (select feed, count(*) as partitions, max(version) as version from feed_position group by feed),
feeds as (
    select feed, coalesce(partitions, 0) as partitions, version, paused_at,
           {is_held(FEED_LOCK, FEED_KEY.format(feed="feed"))} as is_followed, fault, fault_at
    from moved full join feed using (feed)
)
select * from feeds where partitions > 0 or is_followed or fault is not null order by feed collate "C"
"""

UPKEEP = """
select concat_ws('-',
    (select 'l' || count(*) || '.' || max(dead_letter_id) from dead_letter having count(*) > 0),
    (select 'p' || count(*) || '.' || extract(epoch from max(paused_at)) from feed where paused_at is not null
     having count(*) > 0),
    (select 'f' || count(*) from feed_position having count(*) > 0),
    (select 'h' || min(version) from state_version having min(version) > 1))
"""
"""What commands change without a version: letters that are dropped, feeds that pause or go, history that ends."""

# No cluster and no IND is of columns and of tuples; counted are those of columns.
COUNTS = """
with tuples as (select coalesce(array_agg(attribute_id), '{}') as ids from attribute where parts is not null)
select (select count(*) from (
            select distinct schema_name, table_name from attribute where dropped_version is null
        ) one) as tables,
       (select count(*) from attribute where dropped_version is null and parts is null) as attributes,
       c.clusters, c.values,
       (select count(*) from uind, tuples where until_version is null and dependent_id <> all (tuples.ids)) as uinds,
       (select count(*) from dead_letter) as dead_letters,
       (select count(*) from sketch join attribute using (attribute_id)
        where needs_rescan and fault is null and dropped_version is null) as short_sketches
from (
    select count(*) as clusters, coalesce(sum(value_count), 0)::bigint as values from cluster, tuples
    where attribute_ids[1] <> all (tuples.ids)
) c
"""

ATTRIBUTES = """
select a.attribute_id, a.schema_name, a.table_name, a.column_name, s.name as source, a.ordinal, a.data_type,
       s.insert_only, a.row_count, a.null_count, a.distinct_count, a.repeated_count, s.bootstrapped_version,
       a.stale_version as stale_since, s.sketch_only, a.shown_characters, coalesce(cardinality(a.parts), 1) as arity
from attribute a join source s using (source_id)
where a.dropped_version is null and {where}
order by a.schema_name collate "C", a.table_name collate "C", a.ordinal, a.attribute_id limit :limit
"""

UINDS = """
select u.since_version, u.until_version, v.committed_at as since_at,
       u.dependent_id, d.schema_name as d_schema, d.table_name as d_table, d.column_name as d_column,
       u.referenced_id, r.schema_name as r_schema, r.table_name as r_table, r.column_name as r_column
from uind u
join attribute d on d.attribute_id = u.dependent_id
join attribute r on r.attribute_id = u.referenced_id
left join state_version v on v.version = u.since_version
where {where} order by u.dependent_id, u.referenced_id limit :limit
"""

IND_PAIRS = """
select dependent_id, referenced_id from uind join attribute on attribute_id = dependent_id
where until_version is null and parts is null order by dependent_id, referenced_id
"""

TRANSITIONS = """
select t.version, v.committed_at, t.kind, t.witness_key::text as witness_key, t.witness_value, t.cause_count,
       t.position, t.changed_row,
       t.dependent_id, d.schema_name as d_schema, d.table_name as d_table, d.column_name as d_column,
       t.referenced_id, r.schema_name as r_schema, r.table_name as r_table, r.column_name as r_column
from ind_transition t
join attribute d on d.attribute_id = t.dependent_id
join attribute r on r.attribute_id = t.referenced_id
left join state_version v on v.version = t.version
where {where} order by t.version {way}, t.dependent_id {way}, t.referenced_id {way} limit :limit
"""

# What is told of earlier versions is as it was: others than batches change it.
GOES_ON = "not exists (select from state_version where version > {since} and kind <> 'batch')"

# One statement, so that all of it is of one version: the newest, and a row for each transition after version $1, or one
# without. The version is known by its time, too: another state may have been put in this one's place.
NEWS = f"""
prepare news (bigint, timestamptz, bigint, int) as
with head as ({HEAD})
select h.version as head_version, h.generation as head_generation, h.kind as head_kind,
       h.committed_at as head_committed_at, h.newest_source_ms as head_newest_source_ms,
       h.transaction_consistent as head_transaction_consistent, h.first_version as head_first_version,
       h.first_version = $3 and exists (select from state_version where version = $1 and committed_at = $2)
       and {GOES_ON.format(since="$1")} as goes_on, t.*,
       d.parts is not null as is_of_tuples
from head h left join lateral (
    {TRANSITIONS.format(where="t.version > $1", way="asc").replace(":limit", "$4")}
) t on true left join attribute d on d.attribute_id = t.dependent_id
order by t.version, t.dependent_id, t.referenced_id
"""

# Both tables are read from their end by their primary keys. Where that does not reach back for half an hour, the
# minute in which it begins is not whole and is left out, but for the present one. What was committed before the clock
# was set back is not of now, whatever its time says.
ACTIVITY = """
with recent as materialized (
    select version, committed_at, inserted + updated + deleted as changes from state_version
    where version > :version - :most and committed_at > date_trunc('minute', now()) - interval '29 minutes'
      and committed_at <= now()
), moved as (
    select version, count(*) filter (where kind = 'appeared') as appeared,
           count(*) filter (where kind = 'broke') as broke
    from ind_transition where version >= (select min(version) from recent) group by version
), counted as (
    select date_trunc('minute', committed_at) as begin, sum(changes) as changes, sum(appeared) as appeared,
           sum(broke) as broke
    from recent left join moved using (version) group by 1
), first as (
    select case when count(*) = :most then date_trunc('minute', min(committed_at)) + interval '1 minute'
                else '-infinity' end as begin from recent
)
select m.begin, coalesce(changes, 0)::bigint as changes, coalesce(appeared, 0)::bigint as appeared,
       coalesce(broke, 0)::bigint as broke,
       (select coalesce(sum(changes), 0) / 10 from recent where committed_at > now() - interval '10 seconds')
           as changes_per_second
from generate_series(date_trunc('minute', now()) - interval '29 minutes', date_trunc('minute', now()),
                     interval '1 minute') as m (begin) left join counted using (begin), first
where m.begin >= first.begin or m.begin = date_trunc('minute', now()) order by m.begin
"""

# The GIN index finds the clusters that hold both attributes.
OVERLAP = "select coalesce(sum(value_count), 0)::bigint from cluster where attribute_ids @> :both"

OVERLAPS = """
select other, sum(value_count)::bigint, count(*)
from cluster, unnest(attribute_ids) as other
where attribute_ids @> :one and other <> :attribute_id
group by other
"""

DEAD_LETTERS = """
select dead_letter_id, feed, topic, partition, record_offset, error_class, left(message, :cut) as message,
       left(record, :cut) as record, length(record) > :cut as is_cut, version, created_at
from dead_letter where {where} order by dead_letter_id limit :limit
"""


def name_in(alias: str) -> str:
    """Give the expression for an attribute's `schema.table.column`."""
    return f"{alias}.schema_name || '.' || {alias}.table_name || '.' || {alias}.column_name"


def conditions_of(alias: str, chosen: AttributeFilter) -> tuple[list[str], dict[str, Any]]:
    """Give a filter's conditions and their values, whose names begin with the alias: two sides may be chosen."""
    conditions = {
        "schema": f"{alias}.schema_name = :{alias}_schema",
        "table": f"{alias}.table_name = :{alias}_table",
        "attribute_id": f"{alias}.attribute_id = :{alias}_attribute_id",
        "contains": f"strpos({name_in(alias)}, :{alias}_contains) > 0",
    }
    given = {name: getattr(chosen, name) for name in conditions if getattr(chosen, name) is not None}
    if chosen.attribute_id is None:
        conditions["arity"] = f"coalesce(cardinality({alias}.parts), 1) = :{alias}_arity"
        given["arity"] = chosen.arity
    if any("\x00" in str(value) for value in given.values()):
        return ["false"], {}  # Postgres keeps no text with NUL and takes none as a parameter.
    return [conditions[name] for name in given], {f"{alias}_{name}": value for name, value in given.items()}


def conditions_of_pair(dependent: AttributeFilter, referenced: AttributeFilter) -> tuple[list[str], dict[str, Any]]:
    """Give the conditions of the filters of both sides, `d` and `r`, and their values."""
    left, left_values = conditions_of("d", dependent)
    right, right_values = conditions_of("r", referenced)
    return left + right, left_values | right_values
