"""Own the looks of watches: one transaction that sees one version, and writes alerts with how subjects stand."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any
from uuid import UUID

from psycopg2.extras import Json
from sqlalchemy import Connection, Engine, text

from service.core.model import AttributeName
from service.core.watch_rules import RuleKind, Standing, Standings, Subject, changed, is_pattern, matches
from service.store.contract_upkeep import BINDING, IS_CURRENT
from service.store.database import OthersInTheWayError
from service.store.feeds import FORGET_LAG
from service.store.locks import WATCH_LOCK
from service.store.side_columns import NAMED, foreign_key_of
from service.store.watches import COLUMNS, IS_LOADING, SILENCED, watch_of
from service.store.writer_lock import end_session
from service.usecases.ports import LagUnit
from service.usecases.watch_evaluation import (
    Event,
    Lag,
    Letters,
    Level,
    NewAlert,
    Quiet,
    RefreshEnd,
    Side,
    Watched,
)
from service.usecases.watches import Silence, Watch

KEPT_ALERTS = 10_000
"""Alerts that have ended and are kept, the newest."""

PORTION_EVENTS = 1000
"""Transitions that are read at once."""

SNAPSHOT_MARKS = ("true", "first", "first_in_data_collection", "incremental")
"""What a connector says of a record of a snapshot that goes on (source.snapshot)."""

# A dead letter makes every version one that is not whole, for as long as it is there: then nothing is known of it.
IS_HALF = "v.transaction_consistent is false and not exists (select from dead_letter d where d.feed = v.feed)"

HEAD = f"select version, {IS_HALF} as is_half from state_version v order by version desc limit 1"
HALF_SINCE = """
select coalesce(max(version), 0) + 1 from state_version where transaction_consistent is distinct from false
"""

WATCHED = f"select {COLUMNS}, seen_letter from watch w order by watch_id"
STANDINGS = """
select watch_id, subject, is_bad, told, turns, since_version, is_muted, detail from watch_standing
"""

EVENTS = f"""
select t.version, not ({IS_HALF}) as is_whole, t.kind = 'broke' as is_worse, t.witness_value, t.cause_count, t.position,
    t.changed_row as row, d.schema_name as d_schema, d.table_name as d_table, d.column_name as d_column,
    r.schema_name as r_schema, r.table_name as r_table, r.column_name as r_column
from ind_transition t join state_version v using (version)
join attribute d on d.attribute_id = t.dependent_id join attribute r on r.attribute_id = t.referenced_id
where t.version > :since order by t.version
"""
CONTRACT_EVENTS = f"""
select t.version, not ({IS_HALF}) as is_whole, t.contract_id, t.kind = 'violated' as is_worse, t.witness_value,
    t.cause_count, t.position, t.changed_row as row, {NAMED}
from contract_transition t join contract using (contract_id) join state_version v using (version)
where t.version > :since order by t.version
"""

FOLLOWED = f"""
select attribute_id, schema_name, table_name, column_name, distinct_count from attribute join source using (source_id)
where schema_name || '.' || table_name || '.' || column_name = :name
    and {IS_CURRENT}
order by attribute_id limit 1
"""
PAIR = """
select (select coalesce(sum(value_count), 0)::bigint from cluster where attribute_ids @> array[:dependent, :referenced])
    as overlap,
    exists (select from uind where dependent_id = :dependent and referenced_id = :referenced and until_version is null)
    as holds
"""
THERE = """
select schema_name || '.' || table_name || '.' || column_name from attribute
where schema_name || '.' || table_name || '.' || column_name = any (:names) and dropped_version is null
"""

CONTRACTS = f"""
select c.contract_id, {NAMED}, violated_since is not null as is_violated,
    d.attribute_id is null or r.attribute_id is null as is_unknown
from contract c {BINDING} where cast(:one as integer) is null or c.contract_id = :one order by c.contract_id
"""

IS_KEY = """
schema_name, table_name, column_name, stale_version is null and distinct_count is not null as is_known,
    null_count = 0 and distinct_count = row_count as is_key
"""
UNIQUE = f"""
select {IS_KEY} from attribute where schema_name || '.' || table_name || '.' || column_name = :name
    and dropped_version is null
"""
KEYS = f"select {IS_KEY} from attribute join tracked_key using (attribute_id) where dropped_version is null"

LETTERS = """
select count(*), coalesce(max(dead_letter_id), :behind),
    left((array_agg(message order by dead_letter_id desc))[1], 1000)
from dead_letter where dead_letter_id > :behind
"""

REFRESHES = """
select distinct on (corpus_id) c.name, r.state = 'failed', r.fault
from corpus_refresh r join corpus c using (corpus_id) where r.state in ('failed', 'landed')
order by corpus_id, refresh_id desc
"""

# Of a schema with several sources the tables of those that were bootstrapped since are loaded.
LOADING = f"""
select schema_name, table_name from announced_load l where not until_loaded and {IS_LOADING}
union select a.schema_name, a.table_name
from announced_load l join attribute a using (schema_name) join source s using (source_id)
where until_loaded and ended_at is null and until > now() and dropped_version is null
    and (l.table_name is null or a.table_name = l.table_name) and s.bootstrapped_version <= l.bootstrapped_version
"""
CATCHING_UP = """
select distinct schema_name, table_name from feed_catch_up join attribute using (source_id)
where dropped_version is null
"""
MOVING = """
select feed || ' ' || topic || ' ' || partition, version, topic from feed_position
where source_position ->> 'snapshot' = any (:marks)
"""
TABLES_NAMED = """
select schema_name, table_name from tracked_table where source_table = :name
"""

SEEN = "update watch set seen_version = :version, seen_letter = :letter where watch_id = :watch_id"
PUT_STANDING = """
insert into watch_standing (watch_id, subject_key, subject, is_bad, told, turns, since_version, is_muted, detail)
values (:watch_id, :subject_key, :subject, :is_bad, :told, :turns, :since_version, :is_muted, :detail)
on conflict (watch_id, subject_key) do update set subject = excluded.subject, is_bad = excluded.is_bad,
    told = excluded.told, turns = excluded.turns, since_version = excluded.since_version,
    is_muted = excluded.is_muted, detail = excluded.detail
"""
DROP_STANDINGS = "delete from watch_standing where watch_id = :watch_id and subject_key = any (:keys)"
ADD_ALERT = """
insert into watch_alert (watch_id, watch_name, kind, version, body, state, ended_at)
values (:watch_id, :name, :kind, :version, :body, :state, case when :state = 'silenced' then now() end)
returning alert_id
"""
FORGET = "delete from watch_alert where alert_id <= :newest - :kept and state <> 'pending'"

REPORT = """
insert into consumer_lag (reporter, report, records, seconds, unit)
select 'consumer', 1, cast(:records as bigint), cast(:seconds as double precision), :unit
where exists (select from watch where rule ->> 'kind' = 'lag')
on conflict (reporter) do update set report = consumer_lag.report + 1, records = excluded.records,
    seconds = excluded.seconds, unit = excluded.unit
"""


class PostgresLooks:
    """Implement usecases.watch_evaluation.Looks: the lock that makes it the only one is on its own connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="REPEATABLE READ")
        self._connection: Connection | None = None
        self._is_alone = False

    @contextmanager
    def look(self) -> Iterator[PostgresLook | None]:
        """Open a look; what it wrote is committed at its end.

        One whose watch was changed or removed meanwhile, or that others were in the way of, has written nothing.
        """
        is_open = False
        try:
            connection = self._connection = self._connection or self._engine.connect()
            if not self._is_alone:
                query = text("select pg_try_advisory_lock(:lock)")
                self._is_alone = bool(connection.scalar(query, {"lock": WATCH_LOCK}))
                connection.commit()
            if not self._is_alone:
                yield None
                return
            with connection.begin():
                # Before the snapshot, which a LOCK does not take: a mask ends before this look sees anything, or waits
                # for what it writes.
                connection.execute(text("lock table watch_alert, watch_standing in row exclusive mode"))
                has_watches = connection.scalar(text("select exists (select from watch)"))
                look = PostgresLook(connection) if has_watches else None
                is_open = True
                yield look
        except OthersInTheWayError:
            if not is_open:
                raise
        except BaseException:
            self.close()
            raise

    def report_lag(self, records: int | None, seconds: float, unit: LagUnit) -> None:
        """Let whoever looks know how far a consumer is behind, in records or bytes."""
        with self._engine.begin() as connection:
            connection.execute(text(REPORT), {"records": records, "seconds": seconds, "unit": unit})

    def forget_lag(self) -> None:
        """Say that a consumer has read all that it was to read: how far it is behind is not known from now on."""
        with self._engine.begin() as connection:
            connection.execute(text(FORGET_LAG))

    def close(self) -> None:
        """Let another process look."""
        connection, self._connection, self._is_alone = self._connection, None, False
        if connection is not None:
            end_session(connection)  # not back to the pool: the lock is the session's
            connection.close()


class PostgresLook:
    """Implement usecases.watch_evaluation.Look."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        row = connection.execute(text(HEAD)).one_or_none()
        self.version: int = 0 if row is None else row.version
        self._is_half: bool = row is not None and row.is_half

    def watched(self) -> list[Watched]:
        standings: dict[int, dict[str, Standing]] = {}
        for watch_id, subject, *told in self._connection.execute(text(STANDINGS)):
            one = _subject_of(subject)
            standings.setdefault(watch_id, {})[one.key] = Standing(one, *told)
        rows = self._connection.execute(text(WATCHED)).all()
        return [Watched(watch_of(row), row.seen_letter, standings.get(row.watch_id, {})) for row in rows]

    def events(self, since: int, kinds: Collection[RuleKind]) -> Iterator[Event]:
        if since >= self.version:
            return
        for row in self._turned(CONTRACT_EVENTS, since) if RuleKind.CONTRACT in kinds else ():
            dependent, referenced = _sides(row)
            detail = _detail(row)
            yield Event(row.version, row.is_whole, row.contract_id, dependent, referenced, row.is_worse, detail)
        for row in self._turned(EVENTS, since) if RuleKind.IND in kinds else ():
            dependent = Side.of(AttributeName(row.d_schema, row.d_table, row.d_column))
            referenced = Side.of(AttributeName(row.r_schema, row.r_table, row.r_column))
            yield Event(row.version, row.is_whole, None, dependent, referenced, row.is_worse, _detail(row))

    def _turned(self, query: str, since: int) -> Iterable[Any]:
        portions = text(query).execution_options(stream_results=True, yield_per=PORTION_EVENTS)
        return self._connection.execute(portions, {"since": since})

    def pair(self, dependent: str, referenced: str) -> Level | None:
        found = []
        for name in (dependent, referenced):
            row = self._connection.execute(text(FOLLOWED), {"name": name}).one_or_none()
            if row is None:
                return None
            found.append(row)
        one, other = found
        values = {"dependent": one.attribute_id, "referenced": other.attribute_id}
        overlap, holds = self._connection.execute(text(PAIR), values).one()
        phi = Fraction(overlap, one.distinct_count) if one.distinct_count else None
        return Level(None, tuple(Side.of(AttributeName(*row[1:4])) for row in found), not holds, phi)

    def gone(self, subjects: Iterable[Subject]) -> set[str]:
        asked = {one.key: one.names for one in subjects}
        names = sorted({name for of_one in asked.values() for name in of_one})
        there = set(self._connection.scalars(text(THERE), {"names": names}))
        return {key for key, of_one in asked.items() if not there.issuperset(of_one)}

    def contracts(self, contract_id: int | None) -> list[Level]:
        return [
            Level(
                row.contract_id,
                _sides(row),
                None if row.is_unknown else row.is_violated,
            )
            for row in self._connection.execute(text(CONTRACTS), {"one": contract_id})
        ]

    def uniques(self, name: str) -> list[Level]:
        rows = self._connection.execute(text(KEYS if is_pattern(name) else UNIQUE), {"name": name})
        found = [(AttributeName(*row[:3]), row.is_known, row.is_key) for row in rows]
        return [
            Level(None, (Side.of(attribute),), not is_key if is_known else None)
            for attribute, is_known, is_key in found
            if matches(name, str(attribute))
        ]

    def lag(self) -> Lag | None:
        row = self._connection.execute(text("select report, records, seconds, unit from consumer_lag")).one_or_none()
        return None if row is None else Lag(*row)

    def letters(self, behind: int) -> Letters:
        return Letters(*self._connection.execute(text(LETTERS), {"behind": behind}).one())

    def refreshes(self) -> list[RefreshEnd]:
        return [RefreshEnd(*row) for row in self._connection.execute(text(REFRESHES))]

    def quiet(self) -> Quiet:
        tables = {(row[0], row[1]) for query in (LOADING, CATCHING_UP) for row in self._connection.execute(text(query))}
        moving: dict[str, tuple[int, frozenset[tuple[str, str]] | None]] = {}
        for what, version, topic in self._connection.execute(text(MOVING), {"marks": list(SNAPSHOT_MARKS)}).all():
            named = self._connection.execute(text(TABLES_NAMED), {"name": topic.rpartition(".")[2]})
            moving[what] = version, frozenset((schema, table) for schema, table in named) or None
        half_since = self._connection.scalar(text(HALF_SINCE)) if self._is_half else None
        return Quiet(frozenset(tables), moving, half_since)

    def silences(self) -> list[Silence]:
        return [Silence(**row._mapping) for row in self._connection.execute(text(SILENCED))]

    def save(self, watched: Watched, standings: Standings, seen_letter: int) -> None:
        watch_id, now = watched.watch.watch_id, (self.version, seen_letter)
        new, gone = changed(watched.standings, standings)
        # Also where nothing was seen but time: of a look and whoever gives its watch another rule, one waits for the
        # other, and a look that came second has written nothing.
        if new or gone or now != (watched.watch.seen_version, watched.seen_letter):
            values = {"version": self.version, "letter": seen_letter, "watch_id": watch_id}
            self._connection.execute(text(SEEN), values)
        if gone:
            keys = [_key_of(one) for one in gone]
            self._connection.execute(text(DROP_STANDINGS), {"watch_id": watch_id, "keys": keys})
        if new:
            self._connection.execute(text(PUT_STANDING), [_values(watch_id, one) for one in new])

    def add_alert(self, watch: Watch, alert: NewAlert) -> None:
        values = {"watch_id": watch.watch_id, "name": watch.name, **alert._asdict(), "body": Json(alert.body)}
        newest = self._connection.scalar(text(ADD_ALERT), values)
        self._connection.execute(text(FORGET), {"newest": newest, "kept": KEPT_ALERTS})


def _key_of(key: str) -> UUID:
    return UUID(bytes=hashlib.sha256(key.encode()).digest()[:16])


def _values(watch_id: int, one: Standing) -> dict[str, Any]:
    return {
        "watch_id": watch_id,
        "subject_key": _key_of(one.subject.key),
        "subject": Json(one.subject._asdict()),
        "is_bad": one.is_bad,
        "told": one.told,
        "turns": one.turns,
        "since_version": one.since_version,
        "is_muted": one.is_muted,
        "detail": Json(dict(one.detail)),
    }


def _subject_of(given: dict[str, Any]) -> Subject:
    tables: Sequence[tuple[str, str]] = [(schema, table) for schema, table in given["tables"]]
    return Subject(given["key"], given["name"], tuple(given["names"]), tuple(tables))


def _sides(row: Any) -> tuple[Side, Side]:
    """Give the sides of a contract."""
    dependent, referenced = (Side(str(one), one.schema, one.table) for one in foreign_key_of(row))
    return dependent, referenced


def _detail(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("witness_value", "cause_count", "position", "row")}
