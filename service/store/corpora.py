"""Own the register of corpora and the queue of their refreshes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, text
from sqlalchemy.exc import IntegrityError

from service.core.corpus import CorpusKind, CorpusSettings
from service.core.errors import ConflictError, NotFoundError
from service.store.corpus_cleaning import clean, drop_removed
from service.store.corpus_locks import CLEANER_NAME, hold
from service.store.corpus_reading import PostgresCorpusSnapshot, open_snapshot, read_faults
from service.store.database import connect
from service.store.locks import CORPUS_LOCK, is_held
from service.usecases.corpora import Corpus, CorpusFault, CorpusStanding, NewCorpus, Refresh, RefreshState

CORPORA = """
select corpus_id, name, location, kind, settings, schedule, time_limit_seconds, retries, generation, created_at
from corpus
"""

DATABASE = """
select system_identifier || '/' || oid || '/' || datname from pg_control_system(), pg_database
where datname = current_database()
"""

REFRESHES = """
select r.refresh_id, r.corpus_id, c.name as corpus, r.generation, r.state, r.full, r.requested_by, r.attempt,
       r.queued_at, r.not_before, r.started_at, r.ended_at, r.stage, r.done, r.total, r.stage_started_at,
       r.progressed_at, r.cancel_requested, r.fault, r.report
from corpus_refresh r join corpus c using (corpus_id)
"""

STANDINGS = """
select c.name as corpus, c.generation, r.state, r.ended_at, r.fault
from corpus c left join lateral (
    select state, ended_at, fault from corpus_refresh r where r.corpus_id = c.corpus_id order by refresh_id desc limit 1
) r on true order by c.name collate "C"
"""

ADD = """
insert into corpus (name, location, kind, settings, schedule, time_limit_seconds, retries)
values (:name, :location, :kind, cast(:settings as jsonb), :schedule, :time_limit_seconds, :retries)
on conflict (name) do nothing returning corpus_id
"""

CHANGE = """
update corpus set settings = cast(:settings as jsonb), schedule = :schedule, time_limit_seconds = :time_limit_seconds,
       retries = :retries
where corpus_id = :corpus_id
"""

# Of two that ask at once, the second finds the row of the first. The clock that a schedule goes by may be ahead of the
# database's: a time that it has not come to yet would come once more.
REQUEST = """
insert into corpus_refresh (corpus_id, "full", requested_by, queued_at)
values (:corpus_id, :full, :requested_by, greatest(now(), cast(:due as timestamptz)))
on conflict (corpus_id) where state = 'queued'
do update set "full" = corpus_refresh."full" or excluded."full", not_before = null
returning refresh_id
"""

CANCEL = """
update corpus_refresh
set cancel_requested = true,
    ended_at = case state when 'queued' then clock_timestamp() end,
    state = case state when 'queued' then 'cancelled' else state end
where refresh_id = :refresh_id and state in ('queued', 'running')
"""

IS_WAITING = """
r.state = 'queued' and coalesce(r.not_before <= clock_timestamp(), true) and not exists
(select from corpus_refresh other where other.corpus_id = r.corpus_id and other.state = 'running')
"""

CLAIM = f"""
update corpus_refresh r set state = 'running', attempt = attempt + 1, started_at = clock_timestamp(),
       stage = null, done = null, total = null, stage_started_at = null, progressed_at = null
where refresh_id = :refresh_id and {IS_WAITING}
"""

PROGRESS = """
update corpus_refresh
set stage_started_at = case when stage = :stage then stage_started_at else clock_timestamp() end,
    stage = :stage, done = :done, total = :total, progressed_at = clock_timestamp()
where refresh_id = :refresh_id and state = 'running' returning cancel_requested
"""

# It may have been cancelled since its runner looked.
REQUEUE = """
update corpus_refresh
set state = case when cancel_requested then 'cancelled' else 'queued' end,
    ended_at = case when cancel_requested then clock_timestamp() end,
    fault = :fault, not_before = :not_before, attempt = attempt - :given_back
where refresh_id = :refresh_id and state = 'running' and attempt = :attempt
"""

END = """
update corpus_refresh set state = :state, ended_at = clock_timestamp(), fault = :fault
where refresh_id = :refresh_id and state in ('queued', 'running')
"""

IS_AT_WORK = f"select {is_held(CORPUS_LOCK, 'r.corpus_id')} as is_at_work, "
RUNNING = IS_AT_WORK + REFRESHES.strip().removeprefix("select")


class PostgresCorpora:
    """Implement corpora_ports.Corpora; give its engine a statement timeout, which bounds every query."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._url = engine.url.render_as_string(hide_password=False)

    def database(self) -> str:
        with self._engine.connect() as connection:
            return str(connection.scalar(text(DATABASE)))

    def add(self, new: NewCorpus) -> Corpus:
        with self._engine.begin() as connection:
            if connection.execute(text(ADD), _values(new)).one_or_none() is None:
                raise ConflictError(f"There is a corpus {new.name!r} already: give another name, or remove it first.")
            return corpus_named(connection, new.name)

    def change(self, name: str, changed: Callable[[Corpus], NewCorpus]) -> Corpus:
        with self._engine.begin() as connection:
            corpus = corpus_named(connection, name, "for update")
            connection.execute(text(CHANGE), _values(changed(corpus)) | {"corpus_id": corpus.corpus_id})
            return corpus_named(connection, name)

    def remove(self, name: str) -> Corpus:
        with self._engine.begin() as connection:
            corpus = corpus_named(connection, name)
            values = {"corpus_id": corpus.corpus_id}

            def ask(query: str) -> Any:
                return connection.scalar(text(query))

            if not hold(ask, CORPUS_LOCK, corpus.corpus_id, "advisory_xact_lock"):
                raise ConflictError(f"A refresh of the corpus {name!r} is at work: cancel it first.")
            connection.execute(text("set local statement_timeout = 0"))  # that of questions is not for millions of rows
            connection.execute(text("delete from corpus_table where corpus_id = :corpus_id"), values)
            connection.execute(text("delete from corpus where corpus_id = :corpus_id"), values)
        with connect(self._url, CLEANER_NAME) as raw:
            drop_removed(raw)
        return corpus

    def named(self, name: str) -> Corpus:
        with self._engine.connect() as connection:
            return corpus_named(connection, name)

    def all(self) -> list[Corpus]:
        with self._engine.connect() as connection:
            return [_corpus(row) for row in connection.execute(text(f'{CORPORA} order by name collate "C"'))]

    def standings(self) -> list[CorpusStanding]:
        with self._engine.connect() as connection:
            found = connection.execute(text(STANDINGS)).all()
        return [
            CorpusStanding(
                one.corpus,
                one.generation,
                None if one.state is None else RefreshState(one.state),
                one.ended_at,
                one.fault,
            )
            for one in found
        ]

    def request_refresh(
        self, name: str, *, full: bool = False, requested_by: str, due: datetime | None = None
    ) -> Refresh:
        with self._engine.begin() as connection:
            # One that is being removed is waited for, but for a schedule: that of others would wait as well.
            locking = "for key share" if due is None else "for key share skip locked"
            corpus_id = corpus_named(connection, name, locking).corpus_id
            values = {"corpus_id": corpus_id, "full": full, "requested_by": requested_by, "due": due}
            return refresh_of(connection, connection.scalar(text(REQUEST), values))

    def refreshes(self, name: str | None = None, *, before: int | None = None, limit: int) -> list[Refresh]:
        values: dict[str, Any] = {"limit": limit}
        where = []
        with self._engine.connect() as connection:
            if name is not None:
                values["corpus_id"] = corpus_named(connection, name).corpus_id
                where.append("r.corpus_id = :corpus_id")
            if before is not None:
                values["before"] = before
                where.append("r.refresh_id < :before")
            query = f"{REFRESHES} where {' and '.join(where) or 'true'} order by r.refresh_id desc limit :limit"
            return [_refresh(row) for row in connection.execute(text(query), values)]

    def refresh(self, refresh_id: int) -> Refresh:
        with self._engine.connect() as connection:
            return refresh_of(connection, refresh_id)

    def cancel(self, refresh_id: int) -> Refresh:
        with self._engine.begin() as connection:
            cancelled = connection.execute(text(CANCEL), {"refresh_id": refresh_id}).rowcount
            refresh = refresh_of(connection, refresh_id)
        if not cancelled:
            raise ConflictError(f"The refresh {refresh_id} cannot be cancelled: it is over ({refresh.state}).")
        return refresh

    def next_queued(self) -> Refresh | None:
        query = f"{REFRESHES} where {IS_WAITING} order by coalesce(r.not_before, r.queued_at), r.refresh_id limit 1"
        with self._engine.connect() as connection:
            row = connection.execute(text(query)).one_or_none()
            return _refresh(row) if row else None

    def claim(self, refresh_id: int) -> bool:
        try:
            with self._engine.begin() as connection:
                return bool(connection.execute(text(CLAIM), {"refresh_id": refresh_id}).rowcount)
        except IntegrityError:  # one of the same corpus was claimed in this moment
            return False

    def progress(self, refresh_id: int, stage: str, done: int, total: int) -> bool:
        values = {"refresh_id": refresh_id, "stage": stage, "done": done, "total": total}
        with self._engine.begin() as connection:
            is_cancelled = connection.scalar(text(PROGRESS), values)
        return is_cancelled is not False  # none runs under this id any more: that is an end, too

    def requeue(self, refresh_id: int, attempt: int, fault: str, not_before: datetime, *, counts: bool = True) -> None:
        values = {
            "refresh_id": refresh_id,
            "attempt": attempt,
            "fault": _stored(fault),
            "not_before": not_before,
            "given_back": 0 if counts else 1,
        }
        try:
            with self._engine.begin() as connection:
                connection.execute(text(REQUEUE), values)
        except IntegrityError:  # somebody asked for a refresh while this one ran: that one is tried
            self.end(refresh_id, RefreshState.FAILED, fault)

    def end(self, refresh_id: int, state: RefreshState, fault: str | None) -> None:
        values = {"refresh_id": refresh_id, "state": state.value, "fault": _stored(fault)}
        with self._engine.begin() as connection:
            connection.execute(text(END), values)

    def running(self) -> list[tuple[Refresh, bool]]:
        query = f"{RUNNING} where r.state = 'running' order by r.refresh_id"
        with self._engine.connect() as connection:
            found = connection.execute(text(query)).all()
        return [(_refresh(row), row.is_at_work) for row in found]

    def faults(self, refresh_id: int, *, after: int | None = None, limit: int) -> list[tuple[int, CorpusFault]]:
        with self._engine.connect() as connection:
            refresh_of(connection, refresh_id)
            return read_faults(connection, refresh_id, after, limit)

    @contextmanager
    def snapshot(
        self, name: str, generation: int | None = None, corpus_id: int | None = None
    ) -> Iterator[PostgresCorpusSnapshot]:
        def find(connection: Connection) -> Corpus:
            corpus = corpus_named(connection, name)
            if corpus_id not in (None, corpus.corpus_id):
                raise NotFoundError(
                    "The corpus was removed since the page before this one, and another has its name: begin at the "
                    "first page again."
                )
            return corpus

        with open_snapshot(self._engine, find, generation) as snapshot:
            yield snapshot

    def clean(self) -> Sequence[str]:
        return clean(self._url)


def corpus_named(connection: Connection, name: str, locking: str = "") -> Corpus:
    """Find a corpus by its name, with a locking clause behind the query; raise NotFoundError."""
    found = None
    if "\0" not in name:
        found = connection.execute(text(f"{CORPORA} where name = :name {locking}"), {"name": name}).one_or_none()
    if found is None:
        raise NotFoundError(f"There is no corpus {name!r}; `subsetd corpus list` names those there are.")
    return _corpus(found)


def corpus_of(connection: Connection, corpus_id: int) -> Corpus:
    """Read a corpus that is known to be there."""
    return _corpus(connection.execute(text(f"{CORPORA} where corpus_id = :id"), {"id": corpus_id}).one())


def refresh_of(connection: Connection, refresh_id: int) -> Refresh:
    """Find a refresh by its id; raise NotFoundError."""
    found = None
    if abs(refresh_id) < 1 << 31:
        found = connection.execute(text(f"{REFRESHES} where refresh_id = :id"), {"id": refresh_id}).one_or_none()
    if found is None:
        raise NotFoundError(f"There is no refresh {refresh_id}; `subsetd corpus history NAME` names those there were.")
    return _refresh(found)


def _values(new: NewCorpus) -> dict[str, Any]:
    own = {field.name: getattr(new, field.name) for field in fields(NewCorpus)}
    return own | {"kind": new.kind.value, "settings": json.dumps(new.settings.to_json())}


def _corpus(row: Row[Any]) -> Corpus:
    values = dict(row._mapping)
    kind, settings = CorpusKind(values.pop("kind")), CorpusSettings.from_json(values.pop("settings"))
    return Corpus(kind=kind, settings=settings, **values)


def _refresh(row: Row[Any]) -> Refresh:
    values = dict(row._mapping)
    values.pop("is_at_work", None)
    return Refresh(state=RefreshState(values.pop("state")), **values)


def _stored(message: str | None) -> str | None:
    """Give a text as Postgres takes it, which takes no NUL."""
    return None if message is None else message.replace("\0", "\\x00")
