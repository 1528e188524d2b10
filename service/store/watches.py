"""Own watches in Postgres: who adds and removes them, their history, silences and announced loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

from psycopg2.extras import Json
from sqlalchemy import Connection, Engine, Row, text
from sqlalchemy.exc import IntegrityError

from service.core.errors import ConflictError, NotFoundError
from service.core.watch_rules import Rule, is_pattern
from service.store.versions import NEWEST
from service.usecases.watches import (
    Alert,
    AlertKind,
    AlertState,
    Channel,
    ChannelKind,
    DeliveryHealth,
    Load,
    NewWatch,
    Silence,
    Watch,
)

LISTED = 200
"""Silences and loads that a list has, those in force first; of these all."""

COLUMNS = """
w.watch_id, name, rule, channel, secret, debounce_seconds, tell_resolved, with_values, created_by, created_at,
seen_version, (select count(*) from watch_standing s where s.watch_id = w.watch_id and s.told) as bad
"""

LIST = f"select {COLUMNS} from watch w where watch_id > :after order by watch_id limit :limit"
FIND = f"select {COLUMNS} from watch w where watch_id = :watch_id"

# What has no * in its name is there.
UNKNOWN = """
select 'attribute ' || name from unnest(cast(:names as text[])) as given (name) where not exists (
    select from attribute where schema_name || '.' || table_name || '.' || column_name = given.name
        and dropped_version is null)
union all select 'contract ' || cast(:contract_id as numeric)
where cast(:contract_id as numeric) is not null and not exists (select from contract where contract_id = :contract_id)
union all select 'corpus ' || cast(:corpus as text)
where cast(:corpus as text) is not null and not exists (select from corpus where name = :corpus) limit 1
"""

ADD = f"""
insert into watch (name, rule, channel, secret, debounce_seconds, tell_resolved, with_values, created_by,
    seen_version, seen_letter)
values (:name, :rule, :channel, :secret, :debounce, :tell_resolved, :with_values, :created_by,
    coalesce({NEWEST}, 0), (select coalesce(max(dead_letter_id), 0) from dead_letter))
returning watch_id
"""

REPLACE = """
update watch set name = :name, channel = :channel, debounce_seconds = :debounce, tell_resolved = :tell_resolved,
    with_values = :with_values, secret = case
        when cast(:secret as text) is null and channel ->> 'kind' = :kind and channel ->> 'url' = :url
        then secret else :secret end
where watch_id = :watch_id
"""
# Another rule begins as that of a new watch does.
NEW_RULE = f"""
update watch set rule = :rule, seen_version = coalesce({NEWEST}, 0),
    seen_letter = (select coalesce(max(dead_letter_id), 0) from dead_letter)
where watch_id = :watch_id and rule <> :rule
"""
GIVE_UP = """
update watch_alert set state = 'failed', fault = 'the watch was removed', ended_at = now()
where watch_id = :watch_id and state = 'pending'
"""

ALERT = """
alert_id, delivery_id, watch_id, watch_name as watch, kind, version, created_at, body, state, attempts, fault, ended_at
"""
TEST = f"""
insert into watch_alert (watch_id, watch_name, kind, version, body, state)
select watch_id, name, 'test', coalesce({NEWEST}, 0),
    jsonb_build_object('rule', rule, 'summary', 'This is a test.', 'fired', 0, 'resolved', 0, 'turns', 0, 'bad', 0,
        'subjects', '[]'::jsonb, 'more', 0), 'pending'
from watch where watch_id = :watch_id for key share returning {ALERT}
"""
ALERTS = f"""
select {ALERT} from watch_alert
where alert_id < :before and (cast(:watch_id as numeric) is null or watch_id = :watch_id)
    and (cast(:state as text) is null or state = :state)
order by alert_id desc limit :limit
"""

SILENCE = """
silence_id, watch_id, pattern, until, reason, created_by, created_at, ended_at is null and until > now() as is_active
"""
END_SILENCE = """
update watch_silence set ended_at = now() where silence_id = :id and ended_at is null and until > now()
"""
SILENCED = f"select {SILENCE} from watch_silence where ended_at is null and until > now() order by silence_id"
SILENCES = f"""
select {SILENCE} from watch_silence order by is_active desc, silence_id desc
limit greatest({LISTED}, (select count(*) from watch_silence where ended_at is null and until > now()))
"""

# Each source of its tables is waited for: none that was bootstrapped since is as old as the newest was then.
IS_LOADING = """
ended_at is null and until > now() and not (until_loaded and bootstrapped_version < (
    select coalesce(min(s.bootstrapped_version), 0) from source s join attribute a using (source_id)
    where a.schema_name = l.schema_name and (l.table_name is null or a.table_name = l.table_name)
        and a.dropped_version is null))
"""
LOAD = f"""
load_id, schema_name as schema, table_name as table, until, until_loaded, created_by, created_at,
{IS_LOADING} as is_active
"""
LOADS = f"""
select {LOAD} from announced_load l order by is_active desc, load_id desc
limit greatest({LISTED}, (select count(*) from announced_load l where {IS_LOADING}))
"""
ANNOUNCE = f"""
insert into announced_load as l (schema_name, table_name, until, until_loaded, bootstrapped_version, created_by)
select :schema, :table, :until, :until_loaded, max(bootstrapped_version), :by
from attribute a join source using (source_id)
where schema_name = :schema and (cast(:table as text) is null or table_name = :table) and dropped_version is null
having count(*) > 0 returning {LOAD}
"""

HEALTH = """
select count(*) filter (where state = 'pending'), count(*) filter (where state = 'failed'),
    (array_agg(watch_name || ': ' || fault order by alert_id desc))[1]
from watch_alert
where state = 'pending' and attempts > 0
    or state = 'failed' and kind <> 'test' and ended_at > now() - interval '1 day'
"""

# A sink is kafka://host:port/topic.
USES = """
select distinct 'one of a feed that is followed' as use, address || '/' || topic as address
from feed_position left join feed using (feed) where topic = :topic
union all select 'that of transitions', sink from outgoing where split_part(sink, '/', 4) = :topic
"""


class PostgresWatches:
    """Implement usecases.watches.Watches."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, watch: NewWatch) -> Watch:
        with self._naming(watch.name) as connection:
            _require_subjects(connection, watch.rule)
            return _find(connection, int(connection.scalar(text(ADD), _values(watch))))

    def replace(self, watch_id: int, watch: NewWatch) -> Watch:
        with self._naming(watch.name) as connection:
            _require_subjects(connection, watch.rule)
            values = {**_values(watch), "watch_id": watch_id, "kind": watch.channel.kind.value}
            values["url"] = watch.channel.url or ""
            if not connection.execute(text(REPLACE), values).rowcount:
                raise _unknown(watch_id)
            if connection.execute(text(NEW_RULE), values).rowcount:
                connection.execute(text("delete from watch_standing where watch_id = :watch_id"), values)
            return _find(connection, watch_id)

    def remove(self, watch_id: int) -> None:
        with self._engine.begin() as connection:
            _find(connection, watch_id, "for update")  # what is being written of it is seen below, or finds it gone
            connection.execute(text(GIVE_UP), {"watch_id": watch_id})
            connection.execute(text("delete from watch where watch_id = :watch_id"), {"watch_id": watch_id})

    def all(self, after: int, limit: int) -> list[Watch]:
        with self._engine.begin() as connection:
            return [watch_of(row) for row in connection.execute(text(LIST), {"after": after, "limit": limit})]

    def get(self, watch_id: int) -> Watch:
        with self._engine.begin() as connection:
            return _find(connection, watch_id)

    def test(self, watch_id: int) -> Alert:
        with self._engine.begin() as connection:
            row = connection.execute(text(TEST), {"watch_id": watch_id}).one_or_none()
        if row is None:
            raise _unknown(watch_id)
        return alert_of(row._asdict())

    def alerts(self, watch_id: int | None, state: AlertState | None, before: int | None, limit: int) -> list[Alert]:
        values = {"watch_id": watch_id, "state": state, "before": 2**63 - 1 if before is None else before}
        with self._engine.begin() as connection:
            return [alert_of(row._asdict()) for row in connection.execute(text(ALERTS), {**values, "limit": limit})]

    def alert(self, alert_id: int) -> Alert:
        with self._engine.begin() as connection:
            query = text(f"select {ALERT} from watch_alert where alert_id = :alert_id")
            row = connection.execute(query, {"alert_id": alert_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"There is no alert {alert_id}; `subsetd watch history` lists those there are.")
        return alert_of(row._asdict())

    def silence(self, watch_id: int | None, pattern: str | None, until: datetime, reason: str, by: str) -> Silence:
        values = {"watch_id": watch_id, "pattern": pattern, "until": until, "reason": reason, "by": by}
        with self._engine.begin() as connection:
            if watch_id is not None:
                _find(connection, watch_id, "for key share")
            query = f"""insert into watch_silence (watch_id, pattern, until, reason, created_by)
                values (:watch_id, :pattern, :until, :reason, :by) returning {SILENCE}"""
            return Silence(**connection.execute(text(query), values).one()._mapping)

    def silences(self) -> list[Silence]:
        with self._engine.begin() as connection:
            return [Silence(**row._mapping) for row in connection.execute(text(SILENCES))]

    def end_silence(self, silence_id: int) -> None:
        with self._engine.begin() as connection:
            if not connection.execute(text(END_SILENCE), {"id": silence_id}).rowcount:
                raise NotFoundError(
                    f"No silence {silence_id} is in force; `subsetd watch silences` lists those that are."
                )

    def announce(self, schema: str, table: str | None, until: datetime, until_loaded: bool, by: str) -> Load:
        values = {"schema": schema, "table": table, "until": until, "until_loaded": until_loaded, "by": by}
        with self._engine.begin() as connection:
            row = connection.execute(text(ANNOUNCE), values).one_or_none()
        if row is None:
            name = schema if table is None else f"{schema}.{table}"
            raise NotFoundError(f"No table {name} is followed; `subsetd attributes` lists what is.")
        return Load(**row._mapping)

    def loads(self) -> list[Load]:
        with self._engine.begin() as connection:
            return [Load(**row._mapping) for row in connection.execute(text(LOADS))]

    def end_load(self, load_id: int) -> None:
        query = f"update announced_load l set ended_at = now() where load_id = :id and {IS_LOADING}"
        with self._engine.begin() as connection:
            if not connection.execute(text(query), {"id": load_id}).rowcount:
                raise NotFoundError(f"No load {load_id} is waited for; `subsetd watch loads` lists those that are.")

    def health(self) -> DeliveryHealth:
        with self._engine.begin() as connection:
            return DeliveryHealth(*connection.execute(text(HEALTH)).one())

    def uses_of(self, topic: str) -> list[tuple[str, str | None]]:
        with self._engine.begin() as connection:
            return [(use, address) for use, address in connection.execute(text(USES), {"topic": topic})]

    @contextmanager
    def _naming(self, name: str) -> Iterator[Connection]:
        """Open a transaction in which a watch takes a name."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError as error:
            raise ConflictError(f"There is a watch {name!r} already; choose another name, or remove it.") from error


def channel_of(given: dict[str, Any], secret: str | None) -> Channel:
    """Read a channel."""
    return Channel(ChannelKind(given["kind"]), given["url"], tuple(given["to"]), given["topic"], secret)


def watch_of(row: Row[Any]) -> Watch:
    """Read a watch."""
    return Watch(
        row.watch_id,
        row.name,
        Rule.of_json(row.rule),
        channel_of(row.channel, row.secret),
        row.debounce_seconds,
        row.tell_resolved,
        row.with_values,
        row.created_by,
        row.created_at,
        row.seen_version,
        row.bad,
    )


def alert_of(found: Mapping[str, Any]) -> Alert:
    """Read an alert by the columns of a row."""
    return Alert(**{**found, "kind": AlertKind(found["kind"]), "state": AlertState(found["state"])})


def _values(watch: NewWatch) -> dict[str, Any]:
    channel = asdict(watch.channel)
    secret = channel.pop("secret")
    return {
        "name": watch.name,
        "rule": Json(watch.rule.to_json()),
        "channel": Json(channel),
        "secret": secret,
        "debounce": watch.debounce,
        "tell_resolved": watch.tell_resolved,
        "with_values": watch.with_values,
        "created_by": watch.created_by,
    }


def _require_subjects(connection: Connection, rule: Rule) -> None:
    """Raise NotFoundError for a rule that names what is not there."""
    names = [one for one in (rule.dependent, rule.referenced, rule.attribute) if one is not None]
    corpus = None if is_pattern(rule.corpus) else rule.corpus
    values = {"names": [one for one in names if not is_pattern(one)], "corpus": corpus}
    found = connection.scalar(text(UNKNOWN), {**values, "contract_id": rule.contract_id})
    if found is not None:
        raise NotFoundError(f"There is no {found}; a * in a name stands for any text.")


def _find(connection: Connection, watch_id: int, locking: str = "") -> Watch:
    """Find a watch, with a locking clause behind the query; raise NotFoundError."""
    row = connection.execute(text(f"{FIND} {locking}"), {"watch_id": watch_id}).one_or_none()
    if row is None:
        raise _unknown(watch_id)
    return watch_of(row)


def _unknown(watch_id: int) -> NotFoundError:
    return NotFoundError(f"There is no watch {watch_id}; `subsetd watch list` lists those there are.")
