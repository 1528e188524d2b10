"""Own what preflight reads by SQL: of a Postgres that is to be a source, and of the state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg2
from sqlalchemy import Engine, text

from service.core.errors import SourceError, StateError
from service.store.catch_up import POSITIONS, Place
from service.store.database import connect, parse_address, place
from service.store.source_reader import without_password
from service.store.versions import NEWEST
from service.usecases.preflight_facts import (
    FollowedTable,
    PublicationFacts,
    SlotFacts,
    SourceFacts,
    StateFacts,
    TableFacts,
)

# Amazon RDS gives no attribute REPLICATION to anybody: its role stands for it. Names of standbys are compared in any
# case; `subsetd feed NAME` is what a feed calls itself.
ROLE = """
select current_user, current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('wal_level'),
    rolreplication or rolsuper or exists (select from pg_roles where rolname = 'rds_replication'
        and pg_has_role(current_user, oid, 'usage')),
    current_setting('max_wal_senders')::int,
    (select count(*) from pg_stat_replication), current_setting('max_replication_slots')::int,
    (select count(*) from pg_replication_slots),
    (select setting = '-1' from pg_settings where name = 'max_slot_wal_keep_size'),
    current_setting('synchronous_standby_names') ~* '[*]|subsetd feed '
from pg_roles where rolname = current_user
"""

# A partitioned table is as bad as the worst of its partitions. Postgres takes no index for a replica identity that is
# deferrable or not valid.
TABLES = """
select n.nspname, c.relname, pg_get_userbyid(c.relowner),
    case when bool_and(p.relreplident = 'f') then 'full' when bool_or(p.relreplident = 'n') then 'nothing'
        when bool_or(p.relreplident = 'd') then 'default' else 'index' end,
    exists (select from pg_index i where i.indrelid = c.oid
        and case c.relreplident when 'i' then i.indisreplident else i.indisprimary end)
    and coalesce(bool_and(p.relreplident = 'f' or exists (select from pg_index i where i.indrelid = p.oid
        and i.indimmediate and i.indisvalid
        and case p.relreplident when 'i' then i.indisreplident else i.indisprimary end)), true),
    coalesce(bool_or(p.relpersistence = 'u'), false), row_security_active(c.oid),
    has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'),
    (select coalesce(array_agg(distinct format_type(a.atttypid, null)), '{}') from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
    array(select attname::text from pg_attribute where attrelid = c.oid and attgenerated = 's' order by attnum),
    array(select attname::text from pg_attribute where attrelid = c.oid and attgenerated = 'v' order by attnum),
    c.relkind = 'p'
from pg_class c join pg_namespace n on n.oid = c.relnamespace
left join lateral (
    select * from pg_class where relkind = 'r' and oid in (
        select relid from pg_partition_tree(c.oid) where isleaf union select c.oid)) p on true
where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence <> 't'
    and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
group by n.oid, n.nspname, c.oid, c.relname, c.relowner, c.relkind, c.relreplident order by 1, 2
"""

SLOTS = """
select slot_name, database, active, wal_status,
    case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint end,
    catalog_xmin::text::bigint
from pg_replication_slots where slot_type = 'logical' and database = current_database() order by 1
"""

# Tables are found by their names in the catalog: a cast of a name is refused where the role may not use the schema.
PUBLICATIONS = """
select p.pubname, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, t.schemaname, t.tablename,
    exists (select from pg_publication_rel r join pg_class c on c.oid = r.prrelid
        join pg_namespace n on n.oid = c.relnamespace
        where r.prpubid = p.oid and (n.nspname, c.relname) = (t.schemaname, t.tablename)
        and (to_jsonb(r) ->> 'prattrs' is not null or to_jsonb(r) ->> 'prqual' is not null)),
    coalesce(to_jsonb(p) ->> 'pubgencols', 'n') = 's', coalesce((to_jsonb(p) ->> 'pubviaroot')::boolean, false)
from pg_publication p left join pg_publication_tables t using (pubname) order by 1
"""


def read_source_facts(url: str, told_by: str = "--source") -> SourceFacts:
    """Look at a Postgres; raise SourceError when it is away or does not let itself be looked at.

    `told_by` is the option or setting that has its address.
    """
    try:
        with connect(url, "subsetd preflight") as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                return _read_source(cursor, url)
    except StateError as error:
        raise SourceError(str(error).replace("SUBSETD_DATABASE_URL", told_by)) from error
    except psycopg2.Error as error:
        raise SourceError(f"The {place(parse_address(url))} does not let itself be looked at: {error}") from error


def _read_source(cursor: Any, url: str) -> SourceFacts:
    cursor.execute(ROLE)
    user, version, is_standby, wal_level, may_replicate, most_senders, senders, most_slots, slots, keeps, waits = (
        cursor.fetchone()
    )
    cursor.execute(TABLES)
    tables = [
        replace(
            TableFacts(*row[:8]),
            types=frozenset(row[8]),
            stored=tuple(row[9]),
            virtual=tuple(row[10]),
            is_partitioned=row[11],
        )
        for row in cursor
    ]
    cursor.execute(SLOTS)
    slot_facts = [SlotFacts(*row) for row in cursor]
    cursor.execute(PUBLICATIONS)
    found: dict[str, tuple[frozenset[str], set[tuple[str, str]], set[tuple[str, str]], list[bool]]] = {}
    for name, *operations, schema, table, is_cut, tells_stored, via_root in cursor:
        told = {o for o, is_told in zip(("insert", "update", "delete", "truncate"), operations, strict=True) if is_told}
        _, of_publication, cut, _ = found.setdefault(name, (frozenset(told), set(), set(), [tells_stored, via_root]))
        if table is not None:
            of_publication.add((schema, table))
            cut.update([(schema, table)] if is_cut else [])
    return SourceFacts(
        place=place(parse_address(url)),
        location=without_password(url),
        user=user,
        version=version,
        is_standby=is_standby,
        wal_level=wal_level,
        may_replicate=may_replicate,
        senders=(senders, most_senders),
        slots_used=(slots, most_slots),
        keeps_any_wal=keeps,
        tables=tables,
        slots=slot_facts,
        publications=[
            PublicationFacts(name, operations, frozenset(of), frozenset(cut), *options)
            for name, (operations, of, cut, options) in found.items()
        ],
        waits_for_any_reader=waits,
    )


def read_state_facts(engine: Engine) -> StateFacts:
    """Read what the state says of its sources, tables and feeds."""
    with engine.connect() as connection:

        def rows(query: str) -> list[Any]:
            return list(connection.execute(text(query)))

        return StateFacts(
            version=rows(f"select coalesce({NEWEST}, 0)")[0][0],
            sources=[tuple(row) for row in rows("select name, location, snapshot from source order by name")],
            tables=[
                FollowedTable(*row)
                for row in rows(
                    "select name, source_database, source_schema, source_table, row_images, replica_identity, "
                    "schema_name || '.' || table_name from tracked_table join source using (source_id) "
                    "order by name, source_schema, source_table"
                )
            ],
            positions={Place(*place): offset for *place, offset in rows(POSITIONS)},
            dead_letters=rows("select count(*) from dead_letter")[0][0],
            stale=[
                name
                for (name,) in rows(
                    "select schema_name || '.' || table_name || '.' || column_name from attribute "
                    "where stale_version is not null and dropped_version is null order by 1"
                )
            ],
        )
