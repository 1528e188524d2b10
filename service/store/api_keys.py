"""Own keys and sessions in Postgres: of both only hashes are kept."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from service.core.errors import ConflictError, NotFoundError, StateError
from service.usecases.access import ApiKey, Scope

KEY = "k.key_id, k.name, k.scope, k.prefix, k.created_at, k.expires_at, k.last_used_at, k.revoked_at"

ADD = f"""
insert into api_key as k (name, scope, prefix, digest, expires_at)
values (:name, :scope, :prefix, :digest, :expires_at) returning {KEY}
"""

LIST = f"select {KEY} from api_key k where k.key_id > :after order by k.key_id limit :limit"

REVOKE = f"update api_key k set revoked_at = :at where name = :name and revoked_at is null returning {KEY}"

END_OF_KEY = "delete from access_session where key_id = :key_id"

FIND = f"select {KEY}, k.digest from api_key k where k.prefix = :prefix"

# Written about once a minute, and not where somebody else writes it at this moment.
USED = """
update api_key set last_used_at = :now
where key_id = (select key_id from api_key where key_id = :key_id
                  and (last_used_at is null or last_used_at < cast(:now as timestamptz) - interval '1 minute')
                for update skip locked)
"""

ADD_SESSION = """
insert into access_session (digest, key_id, created_at, expires_at) values (:digest, :key_id, :now, :expires_at)
"""

FORGET_SESSIONS = "delete from access_session where expires_at < :now"

FIND_SESSION = f"""
select s.expires_at as session_expires_at, {KEY} from access_session s left join api_key k using (key_id)
where s.digest = :digest
"""


class PostgresApiKeys:
    """Implement access.AccessStore."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def has_keys(self) -> bool:
        with self._engine.connect() as connection:
            return bool(connection.scalar(text("select exists (select from api_key)")))

    def add_key(self, name: str, scope: Scope, prefix: str, digest: bytes, expires_at: datetime | None) -> ApiKey:
        values = {"name": name, "scope": scope.value, "prefix": prefix, "digest": digest, "expires_at": expires_at}
        try:
            with self._engine.begin() as connection:
                return _key(connection.execute(text(ADD), values).one())
        except IntegrityError:
            raise ConflictError(f"There is a key {name!r} already: revoke it first, or take another name.") from None

    def keys(self, after: int, limit: int) -> list[ApiKey]:
        with self._engine.connect() as connection:
            return [_key(row) for row in connection.execute(text(LIST), {"after": after, "limit": limit})]

    def revoke(self, name: str, at: datetime) -> ApiKey:
        with self._engine.begin() as connection:
            found = [] if "\0" in name else connection.execute(text(REVOKE), {"name": name, "at": at}).all()
            if not found:
                raise NotFoundError(f"There is no key {name!r}, or it is revoked; see the list of keys.")
            connection.execute(text(END_OF_KEY), {"key_id": found[0].key_id})
        return _key(found[0])

    def find_key(self, prefix: str) -> tuple[ApiKey, bytes] | None:
        with self._engine.connect() as connection:
            row = connection.execute(text(FIND), {"prefix": prefix}).one_or_none()
        return None if row is None else (_key(row), bytes(row.digest))

    def note_use(self, key_id: int, now: datetime) -> None:
        # Not worth a failed answer: a database that takes no writes can still be read from.
        with suppress(StateError), self._engine.begin() as connection:
            connection.execute(text(USED), {"key_id": key_id, "now": now})

    def add_session(self, digest: bytes, key_id: int | None, now: datetime, expires_at: datetime) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(FORGET_SESSIONS), {"now": now})
            values = {"digest": digest, "key_id": key_id, "now": now, "expires_at": expires_at}
            connection.execute(text(ADD_SESSION), values)

    def find_session(self, digest: bytes) -> tuple[datetime, ApiKey | None] | None:
        with self._engine.connect() as connection:
            row = connection.execute(text(FIND_SESSION), {"digest": digest}).one_or_none()
        if row is None:
            return None
        return row.session_expires_at, None if row.key_id is None else _key(row)

    def end_session(self, digest: bytes) -> None:
        with self._engine.begin() as connection:
            connection.execute(text("delete from access_session where digest = :digest"), {"digest": digest})


def _key(row: Any) -> ApiKey:
    return ApiKey(
        row.key_id,
        row.name,
        Scope(row.scope),
        row.prefix,
        row.created_at,
        row.expires_at,
        row.last_used_at,
        row.revoked_at,
    )
