"""Own what the doctor reads by SQL: of the server that holds the state, and of what runs on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, text

from service.store.clocks import sure_skew
from service.store.database import place
from service.store.generation import REMAINS
from service.store.locks import BOOTSTRAP_LOCK, FEED_KEY, FEED_LOCK, WRITER_LOCK, is_held, sessions
from service.store.migrate import found_revision, is_known
from service.store.shard_dealing import find_shards
from service.store.table_base import metadata
from service.store.tables import SCHEMA_REVISION
from service.store.versions import NEWEST
from service.store.writer_lock import CONSUMER_NAME
from service.usecases.doctor import CorpusFacts, DatabaseFacts, OperationFacts, TableRowsFacts

# Where the data are a role may not see that is no superuser: the view leaves it out, where asking for it is an error.
SERVER = """
select current_setting('server_version_num')::int / 10000 as major,
    pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as is_read_only,
    extract(epoch from clock_timestamp())::float as at, current_setting('autovacuum') = 'on' as has_autovacuum,
    (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
    current_setting('max_connections')::int as most,
    (select age(datfrozenxid) from pg_database where datname = current_database()) as xid_age,
    array(select name from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit')
        and setting = 'off') as off,
    (select setting from pg_settings where name = 'data_directory') as folder
"""

# A transaction holds vacuum back from when it has a snapshot on.
OLDEST = """
select pid, application_name, extract(epoch from clock_timestamp() - xact_start)::float
from pg_stat_activity where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()
order by xact_start limit 1
"""

TABLES = r"""
select case when c.relname ~ '^gen_rec_' then 'gen_rec' else c.relname end as name, sum(n_live_tup)::bigint as live,
    sum(n_dead_tup)::bigint as dead,
    bool_and(coalesce(not reloptions @> '{autovacuum_enabled=false}', true)) as has_autovacuum
from pg_stat_user_tables s join pg_class c on c.oid = s.relid
where c.relname = any (:names) or c.relname ~ '^gen_rec_g\d+_p\d+$' group by 1 order by 1
"""

STATE = f"""
select now() as at, coalesce({NEWEST}, 0) as version,
    (select committed_at from state_version order by version desc limit 1) as committed_at,
    (select greatest(reltuples, 0)::bigint from pg_class where oid = 'state_version'::regclass) as history
"""

BLOCKED = """
select holder.pid, holder.application_name, extract(epoch from clock_timestamp() - waiting.query_start)::float
from pg_stat_activity waiting cross join unnest(pg_blocking_pids(waiting.pid)) blocking (pid)
join pg_stat_activity holder on holder.pid = blocking.pid
where waiting.datname = current_database() and waiting.application_name = :consumer and waiting.wait_event_type = 'Lock'
order by waiting.query_start limit 1
"""

FAULTY = """
select concat_ws('.', schema_name, table_name, column_name) || ': ' || fault
from sketch join attribute using (attribute_id) where fault is not null and dropped_version is null order by 1
"""

AUDIT = "select ended_at, not_served + not_holding from audit order by audit_id desc limit 1"

OUTGOING = "select sink, version from outgoing where sink not like '% contracts' order by 1"

CORPORA = """
select c.name, r.state, r.fault, r.progressed_at, c.schedule, coalesce(r.queued_at, c.created_at) as since
from corpus c left join lateral (
    select * from corpus_refresh r where r.corpus_id = c.corpus_id order by refresh_id desc limit 1) r on true
order by c.name
"""

KEYS = "select name, expires_at from api_key where revoked_at is null and expires_at is not null order by 1"

UNDELIVERED = """
select watch_name, count(*), (array_agg(fault order by alert_id desc) filter (where fault is not null))[1]
from watch_alert
where (state = 'failed' and kind <> 'test' and created_at > now() - interval '1 day')
    or (state = 'pending' and created_at < now() - interval '1 hour')
group by 1 order by 1
"""

# A feed without a position is begun anew by whoever follows it: nothing of it is missed, but what it says.
FEEDS = f"""
select feed, address, paused_at is not null, {is_held(FEED_LOCK, FEED_KEY.format(feed="feed"))}, fault
from feed where fault is not null or exists (
    select from feed_position p where p.feed = feed.feed
) order by 1
"""


def read_database(engine: Engine) -> tuple[DatabaseFacts, str | None]:
    """Look at the server; give with it the folder of its data, where it says so. Raises StateError."""
    with engine.connect() as connection:
        before = time.time()
        one = connection.execute(text(SERVER)).one()
        skew = sure_skew(one.at, before, time.time())
        oldest = connection.execute(text(OLDEST)).one_or_none()
        revision = found_revision(connection)
        facts = DatabaseFacts(
            place=place(engine.url),
            major=one.major,
            revision=revision,
            expected=SCHEMA_REVISION,
            is_known_revision=revision is not None and is_known(revision),
            is_read_only=one.is_read_only,
            skew_seconds=skew,
            has_autovacuum=one.has_autovacuum,
            connections=(one.used, one.most),
            xid_age=one.xid_age,
            oldest_transaction=None if oldest is None else tuple(oldest),
            off=one.off,
            tables=[TableRowsFacts(*row) for row in connection.execute(text(TABLES), {"names": list(metadata.tables)})],
        )
        return facts, one.folder


def read_operation(
    engine: Engine, sinks: set[str], next_time: Callable[[str, datetime], datetime | None]
) -> OperationFacts:
    """Read what works on the state and what was left over; `sinks` are those that the settings name."""
    with engine.connect() as connection:
        state = connection.execute(text(STATE)).one()
        audit = connection.execute(text(AUDIT)).one_or_none()
        blocked = connection.execute(text(BLOCKED), {"consumer": CONSUMER_NAME}).one_or_none()
        return OperationFacts(
            now=state.at,
            version=state.version,
            committed_at=state.committed_at,
            writer=_holder(connection, WRITER_LOCK),
            blocked=None if blocked is None else tuple(blocked),
            bootstrap=_holder(connection, BOOTSTRAP_LOCK),
            left_of_bootstraps=len(connection.execute(text(REMAINS)).all()),
            faulty_sketches=list(connection.scalars(text(FAULTY))),
            audit=None if audit is None else tuple(audit),
            history_rows=state.history,
            outgoing=[(sink, version, sink in sinks) for sink, version in connection.execute(text(OUTGOING))],
            corpora=[_corpus(row, next_time) for row in connection.execute(text(CORPORA))],
            keys=[(name, at) for name, at in connection.execute(text(KEYS))],
            undelivered=[(name, n, fault) for name, n, fault in connection.execute(text(UNDELIVERED))],
            shards_away=_shards_away(connection),
        )


def _shards_away(connection: Connection) -> list[str]:
    raw: Any = connection.connection
    with raw.cursor() as cursor:
        return list(dict.fromkeys(one.away for one in find_shards(cursor) if one.away is not None))


def read_feeds(engine: Engine) -> list[tuple[str, str, bool, bool, str | None]]:
    """List the feeds that were followed: name, address without a password, whether paused, whether followed, fault."""
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(FEEDS))]


def _holder(connection: Connection, lock: int) -> str | None:
    found = connection.execute(text(sessions(lock))).first()
    return None if found is None else str(found.application_name)


def _corpus(row: Any, next_time: Callable[[str, datetime], datetime | None]) -> CorpusFacts:
    is_at_work = row.state in ("queued", "running")
    due = None if row.schedule is None or is_at_work else next_time(row.schedule, row.since)
    return CorpusFacts(row.name, row.state, row.fault, row.progressed_at, due)
